"""Coins of teacher forcing: specification b.5."""

from __future__ import annotations

import pytest
import torch

from laconic.config.schema import TeacherForcingConfig
from laconic.training.forcing import forced_mask, free_running_mask

PLACE = {"seed": 1, "update": 7, "micro_batch": 0, "rank": 0}


def test_ratio_one_needs_no_mask() -> None:
    assert forced_mask(TeacherForcingConfig(ratio=1.0), (2, 3), **PLACE) is None


def test_bos_is_always_read() -> None:
    mask = forced_mask(TeacherForcingConfig(ratio=0.0), (3, 4), **PLACE)
    assert mask is not None
    assert mask.tolist() == [[True, False, False, False]] * 3
    assert torch.equal(mask, free_running_mask((3, 4)))


def test_scopes() -> None:
    shape = (50, 40)
    step = forced_mask(TeacherForcingConfig(ratio=0.5, scope="step"), shape, **PLACE)
    each = forced_mask(TeacherForcingConfig(ratio=0.5, scope="example_step"), shape, **PLACE)
    whole = forced_mask(TeacherForcingConfig(ratio=0.5, scope="sequence"), shape, **PLACE)
    assert step is not None
    assert each is not None
    assert whole is not None
    assert bool((step == step[:1]).all())
    assert len({tuple(row) for row in each.tolist()}) == 50
    assert bool((whole[:, 1:] == whole[0, 1]).all())


@pytest.mark.parametrize("scope", ["step", "example_step", "sequence"])
def test_the_ratio_is_the_probability(scope: str) -> None:
    config = TeacherForcingConfig(ratio=0.3, scope=scope)
    draws = [forced_mask(config, (4, 9), **(PLACE | {"update": update})) for update in range(2000)]
    share = torch.stack([mask[:, 1:].float().mean() for mask in draws if mask is not None]).mean()
    assert float(share) == pytest.approx(0.3, abs=0.03)


def test_coins_depend_on_the_place_and_on_nothing_else() -> None:
    config = TeacherForcingConfig(ratio=0.5, scope="example_step")
    first = forced_mask(config, (8, 16), **PLACE)
    torch.manual_seed(99)
    torch.rand(5)
    again = forced_mask(config, (8, 16), **PLACE)
    assert first is not None
    assert again is not None
    assert torch.equal(first, again)
    for name in PLACE:
        other = forced_mask(config, (8, 16), **(PLACE | {name: PLACE[name] + 1}))
        assert other is not None
        assert not torch.equal(first, other)


def test_no_global_generator_is_touched() -> None:
    before = torch.get_rng_state()
    forced_mask(TeacherForcingConfig(ratio=0.5), (2, 3), **PLACE)
    assert torch.equal(before, torch.get_rng_state())
