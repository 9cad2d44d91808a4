"""The command that draws the curves of runs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from matplotlib.axes import Axes

from commands import refused
from commands import run as printed
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
    header, _, training, validation = printed.splitlines()[:4]
    assert header.split()[:2] == ["run", "measure"]
    assert training.endswith("subset 6.055, full 5.262")
    assert validation.endswith("subset 6.879, full 5.739")


def test_plot_as_json(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plot", str(run), "--out", str(tmp_path / "c.png"), "--json"]) == 0
    training, validation = json.loads(capsys.readouterr().out)
    assert (training["final"], training["measure"]) == (2.0, "loss")
    assert training["published"] == {"subset.train_loss": 6.055, "full.train_loss": 5.262}
    assert (validation["run"], validation["final"]) == ("first, validation", 2.5)
    assert validation["published"] == {"subset.val_loss": 6.879, "full.val_loss": 5.739}
    assert main(["plot", str(run), "--out", str(tmp_path / "c.png"), "--metric", "loss", "--json"]) == 0
    assert [row["run"] for row in json.loads(capsys.readouterr().out)] == ["first"]
    (run / "log.jsonl").write_text('{"kind": "train", "update": 1, "loss": NaN}\n')
    assert main(["plot", str(run), "--out", str(tmp_path / "c.png"), "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert (row["final"], row["best"]) == (None, None)


def test_plot_shows_the_losses_that_compare_shows(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    second = tmp_path / "second"
    second.mkdir()
    parts = {"val_loss_free": 3.9, "val_loss_free_nll": 3.0, "val_loss_free_coverage": 0.9}
    entries = [{"update": 30, "loss": 4.9, "nll": 4.0}, {"update": 30, "val_loss_tf": 2.4, **parts}]
    (second / "log.jsonl").write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    named: list[str] = []
    monkeypatch.setattr(Axes, "set_ylabel", lambda _, label: named.append(label))
    arguments = ["--out", str(tmp_path / "c.png"), "--json"]
    assert main(["plot", str(second), *arguments]) == 0
    shown = [(row["measure"], row["final"]) for row in json.loads(capsys.readouterr().out)]
    assert shown == [("nll", 4.0), ("val_loss_free_nll", 3.0)]
    assert named == ["loss"]  # the table below the picture says which
    # beside a run without it, the loss that both have
    assert main(["plot", str(run), str(second), *arguments]) == 0
    shown = [(row["measure"], row["final"]) for row in json.loads(capsys.readouterr().out)]
    assert shown == [("loss", 2.0), ("val_loss_tf", 2.5), ("nll", 4.0), ("val_loss_tf", 2.4)]


def test_plot_refuses_what_is_not_there(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = ["--out", str(tmp_path / "c.png")]
    refused(capsys, 2, "Did you mean 'loss'?", "plot", run, "--metric", "los", *out)
    assert main(["plot", str(run), "--out", "x.jpg"]) == 2
    assert main(["plot", str(run), "--x", "hour", *out]) == 2
    capsys.readouterr()
    (tmp_path / "begun").mkdir()
    (tmp_path / "begun" / "log.jsonl").touch()
    refused(capsys, 3, "log.jsonl is empty: draw it when", "plot", tmp_path / "begun", *out)
    refused(capsys, 3, f"There is no folder {run / 'absent'}", "plot", run / "absent", *out)
    comparison = tmp_path / "compared"
    (comparison / "runs").mkdir(parents=True)
    run.rename(comparison / "runs" / "gru-seed-1")
    refused(capsys, 3, f"its runs are in {comparison / 'runs'}: gru-seed-1.", "plot", comparison, *out)


def test_runs_of_the_same_name_are_told_apart(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other" / "first"
    shutil.copytree(run, other)
    drawn = ["--metric", "loss", "--out", tmp_path / "c.png", "--json"]
    names = [row["run"] for row in json.loads(printed(capsys, "plot", run, other, *drawn))]
    assert names == [str(run), str(other)]
    monkeypatch.chdir(run)
    assert [row["run"] for row in json.loads(printed(capsys, "plot", ".", *drawn))] == ["first"]
