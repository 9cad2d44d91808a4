"""The demo from end to end, on a corpus of a few made-up docstrings and the smallest model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from boxed import make_stand_in, write_pairs
from catchline.cli import demo
from catchline.cli.main import main
from catchline.config import shipped
from catchline.config.loading import load_run, read_run
from catchline.evaluation.systems import is_method
from catchline.metrics.confidence import Calibration
from catchline.study.corpora.docstrings import CorpusPair, split_by_package
from catchline.types import Record
from commands import refused


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    corpus = tmp_path / "demo" / "corpus"
    corpus.mkdir(parents=True)
    for seed, (split, number) in enumerate({"train": 64, "validation": 16, "test": 24}.items()):
        write_pairs(corpus / f"{split}.jsonl", number, seed=seed)
    return tmp_path / "demo"


@pytest.fixture
def _no_model_in_the_box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shipped, "ROOT", tmp_path / "nothing here")


@pytest.mark.usefixtures("_no_model_in_the_box")
def test_demo_and_its_repetition(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    calibrated = []

    def never_sure(model: Path, records: Sequence[Record]) -> str:
        calibrated.append(len(records))
        replace(Calibration.blank(), bias=-30.0, threshold=0.5).save(model)
        return ""

    monkeypatch.setattr(demo, "calibrated", never_sure)
    arguments = ["--out", str(folder), "--size", "tiny", "--minutes", "1", "--max-test", "12"]
    (folder / "notes.md").write_text("# Caches\n\nSort the cache. It is </script> big.\n")
    assert main(["demo", *arguments, str(folder / "notes.md")]) == 0
    first = capsys.readouterr()
    assert "lead-1" in first.out
    assert "The demo trains from nothing." in first.err
    assert "the model from scratch" in first.out
    assert "Your text" in first.out
    assert "cache" in first.out
    assert "notes.md" not in first.out
    assert "On 12 docstrings of packages it never saw" in first.out
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "Held-out packages" in page
    assert calibrated == [16]
    assert "not sure" not in page, "the trained models' own words are shown"
    assert "</script> big" not in page
    assert "http://" not in page.replace("http://www.w3.org", "")
    scores = {path.name: path.read_bytes() for path in (folder / "scores").iterdir()}
    assert len(scores) == len(demo.BASELINES) + 1

    assert main(["demo", *arguments]) == 0
    second = capsys.readouterr()
    assert "Going on with" in second.err
    assert "A text of our own" in second.out
    assert {path.name: path.read_bytes() for path in (folder / "scores").iterdir()} == scores


def test_the_model_in_the_box_answers_first_and_is_fine_tuned(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "work").mkdir()
    make_stand_in(tmp_path / "work", tmp_path / "package")
    monkeypatch.setattr(shipped, "ROOT", tmp_path / "package")
    arguments = ["--out", str(folder), "--size", "tiny", "--minutes", "1", "--max-test", "12"]
    assert main(["demo", *arguments, "This will sort the cache and return nothing."]) == 0
    said = capsys.readouterr()
    assert said.out.startswith("Your text, by the model in the box")
    assert said.err.index("Training oneline, fine-tuned") < said.err.index("Training from scratch")
    models = ["oneline", demo.SCRATCH, demo.TUNED]
    rows = [line.split("  ")[0] for line in said.out[said.out.index("lead-1") :].splitlines()]
    assert [row for row in dict.fromkeys(rows) if row in models] == models
    assert "the model oneline, fine-tuned" in said.out
    assert read_run(folder / "finetuned" / "recipe.yaml").training.initial_weights == "oneline"
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "Training oneline, fine-tuned" in page
    assert "Training from scratch" in page
    assert "-pointer-generator-coverage" not in page, "samples have the table's names"


@pytest.mark.parametrize("size", ["tiny", demo.SIZE])
def test_every_size_fine_tunes_the_model_in_the_box_as_it_is(size: str, tmp_path: Path) -> None:
    box, run = load_run(shipped.ROOT / "oneline" / "recipe.yaml"), demo._runs(tmp_path, size, 1.0, None, boxed=True)
    tuned = run[demo.TUNED].model
    assert tuned["bert"].pop("dropout") == 0.0  # the rest is as it is there
    assert (tuned, run[demo.TUNED].text) == (box.model, box.text)


def test_what_the_box_has_seen_is_not_held_out(tmp_path: Path) -> None:
    counts = [CorpusPair(f"p{number % 20}", f"n{number}", "", "") for number in range(100)]
    free = split_by_package(counts)
    seen = {pair.group for pair in (*free["test"], *free["validation"])}
    bound = split_by_package(counts, in_training=seen)
    held = {pair.group for split in ("test", "validation") for pair in bound[split]}
    assert held
    assert not held & seen
    few = split_by_package(counts, in_training={f"p{number}" for number in range(18)})
    assert {split: len(pairs) for split, pairs in few.items()} == {"train": 90, "validation": 5, "test": 5}


def test_what_is_refused_before_anything_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo, "build_corpus", lambda *_, **__: pytest.fail("minutes of work"))
    for code, said, *given in (
        (2, "empty", "   "),
        (3, "There is no file no.txt", "no.txt"),
        (2, "size of recipe", "--size", "small"),
    ):
        refused(capsys, code, said, "demo", "--out", tmp_path / "demo", *given)
    assert not (tmp_path / "demo").exists()


def test_the_baselines_are_extractive_methods() -> None:
    assert all(is_method(name) for name in demo.BASELINES)
    assert demo.BASELINES[0] == "lead-1"
