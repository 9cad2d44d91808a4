"""The curves in a run's log, their picture and the values beside it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from catchline.errors import ConfigError, DataError
from catchline.explain.pictures import draw_curves, running_mean
from catchline.training.logging import read_curve


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


def test_several_runs_in_one_picture(runs: list[Path], tmp_path: Path) -> None:
    curves = [(run.name, *read_curve(run, "loss")) for run in runs]
    rows = draw_curves(curves, tmp_path / "curves.png", window=2, log=True)
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert rows == [
        {"run": "run1", "update": 5, "final": 5.5, "best": 5.0},
        {"run": "run2", "update": 5, "final": 11.0, "best": 10.0},
    ]
    scores = [(run.name, *read_curve(run, "rouge1")) for run in runs]
    assert draw_curves(scores, tmp_path / "r.png", value="rouge1")[1]["final"] == pytest.approx(0.2)


def test_nine_runs_can_be_told_apart_and_none_is_hidden(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[Figure] = []
    monkeypatch.setattr(Figure, "savefig", lambda figure, *_, **__: drawn.append(figure))
    name = "a long name of a run, with its settings: seed {}"
    curves = [
        (f"{name.format(n)}, {part}", [1, 2], np.array([n, n + 1.0]))
        for n in range(9)
        for part in ("training", "validation")
    ]
    draw_curves(curves, tmp_path / "curves.png")
    drawn[0].draw_without_rendering()
    axes, legends = drawn[0].axes[0], [*drawn[0].legends, drawn[0].axes[0].get_legend()]
    looks = {(line.get_color(), line.get_linestyle()) for line in axes.lines}
    assert len(looks) == len(curves)
    assert not any(one.get_window_extent().overlaps(axes.get_window_extent()) for one in legends if one)
    assert all(float(label.get_text()).is_integer() for label in axes.get_xticklabels())


def test_against_tokens(runs: list[Path]) -> None:
    places, values = read_curve(runs[0], "loss", "tokens")
    assert places == [5, 10, 15, 20, 25]
    assert values[0] == 9.0


def test_running_mean() -> None:
    values = np.array([1.0, 3.0, 5.0, 7.0])
    assert running_mean(values, 1).tolist() == values.tolist()
    assert running_mean(values, 3).tolist() == [1.0, 2.0, 3.0, 5.0]


def test_what_is_missing_is_named(runs: list[Path], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="Did you mean 'loss'"):
        read_curve(runs[0], "los")
    with pytest.raises(DataError, match=r"no log\.jsonl"):
        read_curve(tmp_path, "loss")


@pytest.mark.parametrize(
    "line", ['{"update": 1', "[1]", "[" * 100_000, '{"loss": 1.0}', '{"update": 2, "loss": "x"}', "\x80"]
)
def test_a_damaged_line_is_named(tmp_path: Path, line: str) -> None:
    (tmp_path / "log.jsonl").write_bytes(b'{"update": 1, "loss": 2.0}\n' + line.encode("latin-1") + b"\n")
    with pytest.raises(DataError, match=r"log\.jsonl:2 is no line of a training log"):
        read_curve(tmp_path, "loss")
