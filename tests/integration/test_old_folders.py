"""Folders that an earlier revision wrote open and write the same words: tests/old_folders."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from catchline import Summarizer

OLD = Path(__file__).parents[1] / "old_folders"
FAMILIES = ["pointer_generator", "coarse_to_fine", "coconet"]
EXPECTED = json.loads((OLD / "expected.json").read_text())


@pytest.mark.parametrize("family", FAMILIES)
def test_a_model_folder_writes_the_same_words(family: str) -> None:
    summarizer = Summarizer.from_pretrained(OLD / family / "model")
    for expected in EXPECTED[family]["summaries"]:
        summary = summarizer.summarize(expected["document"])
        assert summary.text == expected["text"]
        assert summary.score == pytest.approx(expected["score"], abs=1e-3)
