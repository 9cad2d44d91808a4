"""Bounds in words, characters and sentences hold in what is shown, for every tokenizer, system and view."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from catchline import Summarizer
from catchline.errors import ConfigError
from catchline.search.scorers import Length
from catchline.text.sentences import split_sentences
from catchline.types import Summary
from commands import Capture, refused, run
from tiny_models import save_tiny_model

NAMES = ("Ellingham", "Zoë", "U.S.", "C++", "the", "a", "don't", "2,000", "(RA-GU)", "of", "ship", "sank", "东京", "—")
BOUNDS: list[dict[str, Any]] = [
    {"words": "3"},
    {"words": "5-12"},
    {"words": "4-4", "beam_size": 1},
    {"characters": 12},
    {"characters": 60, "words": "2-40"},
    {"sentences": 1},
    {"sentences": 2, "words": "6-9"},
]


def texts(count: int) -> Iterator[str]:
    draw = random.Random(7)
    for _ in range(count):
        sentences = (" ".join(draw.choices(NAMES, k=draw.randint(4, 9))) for _ in range(4))
        yield " ".join(f"{sentence.capitalize()}." for sentence in sentences)


def tiny(path: Path, kind: str) -> Summarizer:
    """An untrained model that writes whatever comes, unknown and copied words too."""
    known, search = [*texts(40), "Zebra, crossing; (again) :"], {"beam_size": 3, "max_length": 25, "min_length": 10}
    folder = save_tiny_model(path / kind, known * 2, kind=kind, max_source_tokens=80, search=search)
    return Summarizer.from_pretrained(folder)


def check(summary: Summary, bounds: dict[str, Any]) -> None:
    least, _, most = str(bounds.get("words", 10_000)).rpartition("-")
    text, count = summary.text, len(summary.text.split())
    unspaced = len(text) if any(letter in text for letter in "东京") else 0
    assert int(least or 0) - unspaced <= count <= int(most), (text, bounds)
    assert len(text) <= bounds.get("characters", 10_000), (text, bounds)
    assert len(split_sentences(text)) <= bounds.get("sentences", 10_000), (text, bounds)
    assert all(word.text == text[word.start : word.end] for word in summary.words)


def hold(summarizer: Summarizer, count: int, **options: Any) -> int:
    """Check ``count`` outputs, divided among the bounds; how many were written by the model."""
    written = 0
    for bounds in BOUNDS:
        for summary in summarizer.stream(texts(-(-count // len(BOUNDS))), explain=True, **bounds, **options):
            check(summary, bounds)
            written += not summary.extracted
    return written


KINDS = {"word": 0.85, "bpe": 0.85, "character": 0.4}  # characters have no blanks: no model of them writes five words


@pytest.mark.parametrize("count", [60, pytest.param(1000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", KINDS)
def test_many_outputs(kind: str, count: int, tmp_path: Path) -> None:
    assert hold(tiny(tmp_path, kind), count) > count * KINDS[kind]


def test_the_bundled_model_whether_it_is_sure_or_not() -> None:
    hold(Summarizer(), 14)
    hold(Summarizer(), 14, always_write=True)


def test_a_bound_of_a_text() -> None:
    text = "Dr. Lee left. Nobody\nknows why!"
    for length, end in ((Length(words=3), 13), (Length(sentences=1), 13), (Length(characters=10), 7), (Length(), 31)):
        assert length.end(text) == end
    assert Length(characters=2).end(text) == 2
    assert Length(least=9).missing(text) == 3
    assert Length(3, 4).within(text, 4, 7) == (4, 20)


def test_the_command_the_methods_and_a_recipe(tmp_path: Path, capsys: Capture) -> None:
    (tmp_path / "a.txt").write_text(next(texts(1)))
    assert len(run(capsys, "summarize", tmp_path / "a.txt", "--words", "2-4", "--always-write").split()) in (2, 3, 4)
    assert len(run(capsys, "summarize", "lead-1", tmp_path / "a.txt", "--characters", "12").rstrip()) <= 12
    lines = run(capsys, "summarize", "lead-1", tmp_path / "a.txt", "--words", "2", "--json", "--explain")
    assert len(json.loads(lines)["words"]) == 2
    refused(capsys, 2, "give a maximum", "summarize", tmp_path / "a.txt", "--words", "many")
    refused(capsys, 2, "picks whole sentences", "summarize", "lead-1", tmp_path / "a.txt", "--words", "2-4")
    assert tiny(tmp_path, "word").decoding(words="2-4")["words"] == "2-4"
    with pytest.raises(ConfigError, match="greater than or equal to 1"):
        Summarizer().summarize("A text.", sentences=0)
