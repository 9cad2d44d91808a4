"""The curves in a run's log."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from catchline.errors import ConfigError, DataError
from catchline_study.commands.plot import read_curve


@pytest.fixture
def runs(tmp_path: Path) -> list[Path]:
    for number in (1, 2):
        folder = tmp_path / f"run{number}"
        folder.mkdir()
        lines = [
            {"kind": "train", "update": u, "epoch": u / 10, "loss": number * (10.0 - u), "tokens": 5}
            for u in range(1, 6)
        ]
        lines.append({"kind": "validation", "update": 5, "epoch": 0.5, "rouge1": 0.1 * number})
        (folder / "log.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return [tmp_path / "run1", tmp_path / "run2"]


def test_against_tokens(runs: list[Path]) -> None:
    places, values = read_curve(runs[0], "loss", "tokens")
    assert places == [5, 10, 15, 20, 25]
    assert values[0] == 9.0


def test_what_is_missing_is_named(runs: list[Path]) -> None:
    with pytest.raises(ConfigError, match="Did you mean 'loss'"):
        read_curve(runs[0], "los")


@pytest.mark.parametrize(
    "line", ['{"update": 1', "[1]", "[" * 100_000, '{"loss": 1.0}', '{"update": 2, "loss": "x"}', "\x80"]
)
def test_a_damaged_line_is_named(tmp_path: Path, line: str) -> None:
    (tmp_path / "log.jsonl").write_bytes(b'{"update": 1, "loss": 2.0}\n' + line.encode("latin-1") + b"\n")
    with pytest.raises(DataError, match=r"log\.jsonl:2 is no line of a training log"):
        read_curve(tmp_path, "loss")
