"""Kill -9 at random moments: the run ends in the same bits as one that was left alone, and leaves no litter."""

from __future__ import annotations

from pathlib import Path

import pytest

from killing import FAMILIES, survive

KILLS = 15  # of each family, in one process and in two: 180 together


def test_a_killed_run_ends_in_the_same_bits(tmp_path: Path) -> None:
    survive(tmp_path, "headline writer", world=1, kills=1, seed=1, further=False)


@pytest.mark.slow
@pytest.mark.parametrize("world", [1, 2])
@pytest.mark.parametrize("family", ["headline writer", *FAMILIES])
def test_every_family_survives(tmp_path: Path, family: str, world: int) -> None:
    survive(tmp_path, family, world=world, kills=KILLS, seed=world)
