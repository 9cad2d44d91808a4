"""``catchline plot``: the curves in the logs of runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from catchline.config.loading import dump_run, load_recipe, resolve_run
from catchline.errors import DataError
from catchline_study.commands.plot import read_curve
from commands import run
from json_lines import write_lines


@pytest.fixture
def first(tmp_path: Path) -> Path:
    folder = tmp_path / "first"
    folder.mkdir()
    entries = [{"kind": "train", "update": 10 * i, "epoch": i / 2, "loss": 5.0 - i, "tokens": 9} for i in range(1, 4)]
    entries.append({"kind": "validation", "update": 30, "epoch": 1.5, "val_loss_tf": 2.5, "best": True})
    write_lines(folder / "log.jsonl", entries)
    (folder / "recipe.yaml").write_text(dump_run(resolve_run(load_recipe("headline_writer"), "bilstm", "tiny")))
    return folder


def test_plot_shows_the_losses_that_compare_shows(
    first: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for suffix in (".png", ".svg"):
        out = tmp_path / "deep" / f"curves{suffix}"
        printed = run(capsys, "plot", first, "--out", out, "--smooth", "2", "--log")
        assert out.stat().st_size > 1000
        assert "2.5000" in printed
        assert printed.splitlines()[0].split() == ["run", "measure", "update", "last", "best"]
    second, named = tmp_path / "second", list[str]()
    second.mkdir()
    parts = {"val_loss_free": 3.9, "val_loss_free_nll": 3.0, "val_loss_free_coverage": 0.9}
    write_lines(
        second / "log.jsonl", [{"update": 30, "loss": 4.9, "nll": 4.0}, {"update": 30, "val_loss_tf": 2.4, **parts}]
    )
    monkeypatch.setattr(Figure, "savefig", lambda *_, **__: None)  # no picture is made
    monkeypatch.setattr(Axes, "set_ylabel", lambda _, label: named.append(label))

    def drawn(*given: Path) -> list[tuple[str, float]]:
        told = run(capsys, "plot", *given, "--out", tmp_path / "c.png", "--json")
        return [(row["measure"], row["final"]) for row in json.loads(told, parse_constant=pytest.fail)]

    assert drawn(second) == [("nll", 4.0), ("val_loss_free_nll", 3.0)]
    assert named == ["loss"]  # the table below the picture says which
    # beside a run without it, the loss that both have
    assert drawn(first, second) == [("loss", 2.0), ("val_loss_tf", 2.5), ("nll", 4.0), ("val_loss_tf", 2.4)]


@pytest.mark.parametrize(
    "line", ['{"update": 1', "[1]", "[" * 100_000, '{"loss": 1.0}', '{"update": 2, "loss": "x"}', "\x80"]
)
def test_a_damaged_line_is_named(tmp_path: Path, line: str) -> None:
    (tmp_path / "log.jsonl").write_bytes(b'{"update": 1, "loss": 2.0}\n' + line.encode("latin-1") + b"\n")
    with pytest.raises(DataError, match=r"log\.jsonl:2 is not a line of a training log"):
        read_curve(tmp_path, "loss")
