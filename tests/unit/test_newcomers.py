"""What newcomers met: lines that nobody can split, answers that say nothing, places that are not there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from catchline.cli.main import main
from catchline.cli.summarize import remarks
from catchline.summarizer import Summarizer
from catchline.text.control import json_line
from catchline.types import Summary
from commands import run
from json_lines import write_lines
from tiny_models import DOCUMENTS, save_tiny_model

TEXT = "A storm closed the ferry on Monday. Boats stay in the harbour until Wednesday."


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_model(tmp_path_factory.mktemp("models") / "tiny")


def test_a_line_of_json_is_one_line_for_every_reader(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    marks = "\x85\u2028\u2029\n"
    assert json.loads(json_line({"ä": marks})) == {"ä": marks}
    write_lines(tmp_path / "a.jsonl", [{"document": f"One{marks[:3]}two. Three."}] * 2)
    assert len(run(capsys, "summarize", "lead-1", tmp_path / "a.jsonl").splitlines()) == 2


def test_no_hypothesis_is_shown_twice(model: Path) -> None:
    summarizer = Summarizer.from_pretrained(model)
    for document in DOCUMENTS:
        for length in (1, 2):
            made = summarizer.summarize(document, beam_size=8, num_return=8, min_length=1, max_length=length)
            texts = [made.text, *(other.text for other in made.alternatives)]
            assert len(texts) == len(set(texts))


@pytest.mark.parametrize(
    ("summary", "said"),
    [
        (Summary(""), "wrote nothing"),
        (Summary("<unk> <unk>"), "knows none of the words"),
        (Summary("a <unk>", truncated=True, tokens_read=2, tokens_given=3000), "read 2 of 3,000 tokens"),
        (Summary("a b"), ""),
    ],
)
def test_a_summary_that_says_nothing_is_remarked_on(summary: Summary, said: str) -> None:
    told = list(remarks(summary))
    assert len(told) == bool(said)
    assert said in "".join(told)


def test_of_an_extract_no_table_repeats_each_word(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "text.txt").write_text(TEXT)
    assert main(["explain", str(tmp_path / "text.txt")]) == 0
    shown = capsys.readouterr().out
    assert "extracted from the document" in shown
    assert "from where" not in shown


def test_the_models_line_is_drawn_where_the_answer_is_extracted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "text.txt").write_text(TEXT)
    assert main(["explain", str(tmp_path / "text.txt"), "--heatmap", str(tmp_path / "map.png")]) == 0
    assert "the model's line is drawn" in capsys.readouterr().err
    assert (tmp_path / "map.png").is_file()
