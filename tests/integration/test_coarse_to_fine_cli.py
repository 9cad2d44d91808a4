"""Coarse-to-fine models from the command line: what they say of their reading, mistakes, and a book."""

from __future__ import annotations

import json
import math
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from catchline.cli.main import main
from catchline.config.names import MODELS, TOKENIZERS, build
from catchline.config.schema import SearchConfig, TextConfig
from catchline.errors import DataError
from catchline.models.coarse_to_fine import CoarseToFine
from catchline.models.folder import LoadedModel
from catchline.summarizer import Summarizer
from catchline.types import Record
from commands import run
from json_lines import write_lines

WORDS = [a + b for a in ("sto", "ri", "ma", "bel", "tan", "ko") for b in ("rm", "ver", "yor", "dge", "k")]


def sentences(count: int, seed: int) -> list[str]:
    draw = random.Random(seed)
    return [" ".join(draw.choices(WORDS, k=5)) + "." for _ in range(count)]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    for split, count in (("train", 24), ("validation", 6)):
        lines = []
        for number in range(count):
            found = sentences(4, number)
            lines.append({"id": f"{split}{number}", "document": " ".join(found), "summary": found[0][:-1]})
        write_lines(folder / f"{split}.jsonl", lines)
    return folder


@pytest.fixture(scope="module")
def model(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "c2f"
    settings = ["training.max_updates=4", "search.min_length=3", "search.beam_size=2"]
    assert train(data, out, "c2f-multi2", *settings) == 0
    return out / "model"


def train(data: Path, out: Path, row: str, *settings: str) -> int:
    arguments = ["--quiet", "train", "coarse_to_fine", "--row", row, "--size", "tiny", "--data", str(data)]
    return main([*arguments, "--out", str(out), *[part for one in settings for part in ("--set", one)]])


def article(folder: Path, text: str) -> str:
    (folder / "article.txt").write_text(text)
    return str(folder / "article.txt")


def test_a_summary_says_what_was_read(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = article(tmp_path, " ".join(sentences(3, 99)))
    lazily = ["--set", "model={encode: lazy}"]
    line = json.loads(run(capsys, "summarize", str(model), text, "--json", *lazily))
    reading = line["reading"]
    assert reading["chunks"] == 4
    assert 1 <= reading["chunks_chosen"] <= reading["chunks_read"] <= 4
    assert 0 < reading["words_read"] <= reading["words"] == line["tokens_read"]
    assert 0 <= reading["coarse_entropy"] <= math.log(4)
    everything = json.loads(run(capsys, "summarize", str(model), text, "--json", "--set", "model={encode: full}"))
    assert everything["reading"]["chunks_read"] == 4
    assert everything["summary"] == line["summary"]
    explained = json.loads(run(capsys, "summarize", str(model), text, "--json", "--explain"))
    assert len(explained["chunks"]) == 4
    for number in range(len(explained["words"])):
        assert sum(chunk["weights"][number] for chunk in explained["chunks"]) == pytest.approx(1, abs=1e-3)
        assert 1 <= sum(number in chunk["read"] for chunk in explained["chunks"]) <= 2
    assert "chunks (" in run(capsys, "explain", str(model), text)


def test_a_document_beside_a_very_long_one_is_as_alone(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    summarizer = Summarizer.from_pretrained(model, surface="raw", distraction={"context": -1.0})
    monkeypatch.setattr(summarizer.system, "attended_tokens", 12)
    monkeypatch.setattr(CoarseToFine, "attended_tokens", 12)
    short, long = sentences(2, 7), " ".join(sentences(3, 8))
    together = summarizer.summarize([short[0], long, short[1]], explain=True, batch_size=3)
    alone = [summarizer.explain(text) for text in (short[0], long, short[1])]
    for one, other in zip(together, alone, strict=True):
        assert (one.text, one.source_offsets) == (other.text, other.source_offsets)
        assert [word.sources for word in one.words] == [word.sources for word in other.words]
    attending: dict[str, Any] = {"distraction": {"attention": 0.5}}
    with pytest.raises(DataError, match=r"^Document 2 has more than 12 tokens, and over so many this model shows"):
        summarizer.summarize([short[0], long], **attending)
    assert summarizer.summarize([short[0], long], on_error="skip", **attending)[1] is None
    told: list[tuple[int, str]] = []
    records, options = [Record(long), Record(short[0])], summarizer.system.options({"beam_size": 1})
    found = summarizer.system.summarize_batch(
        records, explain=False, options=options, on_text=lambda *of: told.append(of)
    )
    assert [dict(told)[place] for place in (0, 1)] == [summary.text for summary in found]


def test_evaluation_of_reading(model: Path, data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    where = ["--data", str(data / "validation.jsonl")]
    printed = json.loads(run(capsys, "evaluate", str(model), "lead-1", *where, "--json"))
    mine, lead = (system["measures"] for system in printed["systems"])
    assert {"chunks_read", "chunks_chosen", "words_read", "coarse_entropy"} <= set(mine)
    assert "chunks_read" not in lead
    table = run(capsys, "evaluate", str(model), "lead-1", *where)
    assert "chunks chosen" in table
    assert "s/document" in table
    assert "chunks" not in run(capsys, "evaluate", "lead-1", *where)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (["model.chunking=sentence", "text.sentence_separator=null"], "text.sentence_separator"),
        (["model.encode=sometimes"], "model.encode"),
        (["model.position_size=4", "model.chunks=null"], "model.position_rows"),
        (["model.head.type=pointer"], "model.head.type"),
        (["model.attention.draws=0"], "draws"),
        (["model.coarse.type=rnn"], "coarse encoder"),
        (["model.chunk_words=0"], "chunk_words"),
    ],
)
def test_mistakes_in_settings(
    settings: list[str], said: str, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert train(data, tmp_path / "run", "c2f", *settings) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


# ------------------------------------------------------------------------------------- a book


def book_model(folder: Path) -> Path:
    """A model with random weights that reads as many chunks as there are."""
    spec = {"type": "word", "max_vocabulary": 100, "min_frequency": 1}
    tokenizer = build("tokenizer", TOKENIZERS, spec)
    tokenizer.use_separator("<EOS>")
    tokenizer.train([" ".join(WORDS) + " ."])
    model = {
        "type": "coarse_to_fine",
        "attention": {"type": "coarse_to_fine", "draws": 2},
        "coarse": {"type": "bag_of_words"},
        "chunks": None,
        "embedding_size": 32,
        "hidden_size": 48,
    }
    text = TextConfig(tokenizer=spec, sentence_separator="<EOS>", max_source_tokens=500_000, oov_copy="unk")
    search = SearchConfig(beam_size=3, max_length=12, min_length=6)
    torch.manual_seed(1)  # with others it may write separators only, and no word to explain
    built = build("model", MODELS, model, vocab_size=tokenizer.vocab_size)
    LoadedModel(built, tokenizer, text=text, search=search, name="book").save_pretrained(folder)
    return folder


MEASURED = """
import resource, sys
from catchline.cli.main import main
code = main(sys.argv[1:])
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, file=sys.stderr)
sys.exit(code)
"""


def summarized(model: Path, text: str) -> tuple[dict[str, Any], float]:
    """The record of `catchline summarize --json --explain`, and the MiB that its process took at most."""
    command = [sys.executable, "-c", MEASURED, "--quiet", "summarize", str(model), text, "--json", "--explain"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout), int(done.stderr.split()[-1]) / (1024 if sys.platform != "darwin" else 1024**2)


@pytest.mark.slow
def test_a_book_is_read_in_little_memory(tmp_path: Path) -> None:
    """100,000 words, explained, take no more than 200 MiB beyond what a few words take."""
    folder = book_model(tmp_path / "model")
    _, before = summarized(folder, article(tmp_path, " ".join(sentences(4, 1))))
    line, most = summarized(folder, article(tmp_path, " ".join(sentences(20_000, 1))))
    assert line["reading"]["words"] > 100_000
    assert line["reading"]["chunks_read"] <= 2 * 3 * 13
    assert len(line["source_offsets"]) <= 40 * line["reading"]["chunks_chosen"]
    assert all(word["sources"] for word in line["words"])
    assert most - before < 200
