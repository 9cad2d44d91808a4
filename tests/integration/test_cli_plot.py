"""The command that draws the curves of runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from laconic.cli.main import main
from laconic.config.loading import dump_run, load_recipe, resolve_run


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "first"
    folder.mkdir()
    entries = [{"kind": "train", "update": 10 * i, "epoch": i / 2, "loss": 5.0 - i, "tokens": 9} for i in range(1, 4)]
    entries.append({"kind": "validation", "update": 30, "epoch": 1.5, "val_loss_tf": 2.5, "best": True})
    (folder / "log.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    recipe = resolve_run(load_recipe("headline_writer"), "bilstm", "tiny")
    (folder / "recipe.yaml").write_text(dump_run(recipe))
    return folder


@pytest.mark.parametrize("suffix", [".png", ".svg"])
def test_plot(run: Path, suffix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "deep" / f"curves{suffix}"
    assert main(["plot", str(run), "--out", str(out), "--smooth", "2", "--log"]) == 0
    assert out.stat().st_size > 1000
    printed = capsys.readouterr().out
    assert "2.5000" in printed
    assert "subset: train_loss 6.055" in printed


def test_plot_as_json(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plot", str(run), "--out", str(tmp_path / "c.png"), "--json"]) == 0
    training, validation = json.loads(capsys.readouterr().out)
    assert (training["final"], training["published"]["full"]["bleu"]) == (2.0, 0.064)
    assert (validation["run"], validation["final"]) == ("first, validation", 2.5)
    assert main(["plot", str(run), "--out", str(tmp_path / "c.png"), "--metric", "loss", "--json"]) == 0
    assert [row["run"] for row in json.loads(capsys.readouterr().out)] == ["first"]


def test_plot_refuses_what_is_not_there(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = ["--out", str(tmp_path / "c.png")]
    assert main(["plot", str(run), "--metric", "los", *out]) == 2
    assert "Did you mean 'loss'?" in capsys.readouterr().err
    assert main(["plot", str(run), "--out", "x.jpg"]) == 2
    assert main(["plot", str(run), "--x", "hour", *out]) == 2
    assert main(["plot", str(run / "absent"), *out]) == 3
