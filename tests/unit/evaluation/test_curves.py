"""Curves from a run's log, and the command that draws them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from laconic.cli.main import main
from laconic.errors import DataError
from laconic.evaluation.curves import read_curves, running_mean


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "first"
    folder.mkdir()
    entries = [{"kind": "train", "update": 10 * i, "epoch": i / 2, "loss": 5.0 - i, "tokens": 9} for i in range(1, 4)]
    entries.append({"kind": "validation", "update": 30, "epoch": 1.5, "val_loss_tf": 2.5, "best": True})
    (folder / "log.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in entries) + '{"kind": "tr')
    return folder


def test_points(run: Path) -> None:
    curves = read_curves(run)
    assert curves.metrics() == ["loss", "val_loss_tf"]
    assert curves.points("loss") == [(10, 4.0), (20, 3.0), (30, 2.0)]
    assert curves.points("val_loss_tf", "epoch") == [(1.5, 2.5)]


def test_running_mean() -> None:
    points = [(1.0, 4.0), (2.0, 2.0), (3.0, 6.0)]
    assert running_mean(points, 2) == [(1.0, 4.0), (2.0, 3.0), (3.0, 4.0)]
    assert running_mean(points, 1) == points


def test_damaged_logs(run: Path) -> None:
    log = run / "log.jsonl"
    log.write_text("{broken\n" + log.read_text())
    with pytest.raises(DataError, match=r"log\.jsonl:1"):
        read_curves(run)
    with pytest.raises(DataError, match="not a run folder"):
        read_curves(run / "absent")


@pytest.mark.parametrize("suffix", [".png", ".svg"])
def test_plot(run: Path, suffix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / f"curves{suffix}"
    assert main(["plot", str(run), "--out", str(out), "--smooth", "2", "--log"]) == 0
    assert out.stat().st_size > 1000
    assert "2.5000" in capsys.readouterr().out


def test_plot_refuses_what_is_not_there(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plot", str(run), "--metric", "los"]) == 2
    assert "Did you mean 'loss'?" in capsys.readouterr().err
    assert main(["plot", str(run), "--out", "x.jpg"]) == 2
