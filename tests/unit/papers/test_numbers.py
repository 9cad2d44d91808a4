"""The papers' files can be read beside the papers: every numbered equation is there, in order, under its number."""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
# The numbers that a function carries; the others are said in the file's docstring.
NUMBERS = {
    "pointer_generator": {
        1: "attention_scores",
        2: "attention_weights",
        3: "context",
        4: "generation_gate",
        5: "final_distribution",
        6: "next_coverage",
        7: "attention_scores",
        8: "coverage_loss",
    },
    "distraction": {
        1: "gru",
        2: "gru_state",
        3: "gru_candidate",
        4: "gru_gates",
        5: "gru_gates",
        8: "readout",
        11: "content_distraction",
        12: "context",
        13: "attention_scores",
        14: "attention_weights",
        15: "attention_distance",
        16: "similarity",
        17: "similarity",
        18: "distracted_score",
    },
    "coarse_to_fine": {},  # that paper numbers none
    "contrastive": {
        1: "conventional_weights",
        2: "conventional_weights",
        3: "opponent_weights",
        4: "first_norm",
        5: "feed_forward",
        6: "last_norm",
        7: "log_opponent",
        8: "log_softmin",
        9: "joint_score",
    },
    "coconet": {
        7: "mean_attention",
        9: "mean_attention",
        10: "context_gate",
        11: "transferred",
        12: "split_history",
        14: "mixed",
        15: "context_gate",
        17: "mean_attention",
        18: "mean_attention",
        19: "rescaled_rows",
        20: "positional_correlation",
        21: "log_width",
    },
}
PAGES = {"pointer_generator": "headline_writer"}
IN_THE_DOCSTRING = {"distraction": (6, 7, 9, 10), "coconet": (1, 4, 5, 22)}


@pytest.mark.parametrize("paper", NUMBERS)
def test_the_numbers_of_the_equations_are_the_papers(paper: str) -> None:
    module = importlib.import_module(f"laconic.papers.{paper}")
    for number, name in NUMBERS[paper].items():
        said = getattr(module, name).__doc__ or ""
        ranges = re.findall(r"\((\d+)\)-\((\d+)\)", said)
        assert f"({number})" in said or any(int(a) <= number <= int(b) for a, b in ranges)
    for number in IN_THE_DOCSTRING.get(paper, ()):
        assert f"({number})" in (module.__doc__ or "")


@pytest.mark.parametrize("paper", NUMBERS)
def test_a_file_is_read_beside_its_paper(paper: str) -> None:
    module = importlib.import_module(f"laconic.papers.{paper}")
    source = inspect.getsource(module)
    assert 60 <= len(source.splitlines()) <= 200
    assert "| paper | here |" in (module.__doc__ or "")
    assert re.search(r"[Oo]ur readings", module.__doc__ or "")
    functions = [f for _, f in inspect.getmembers(module, inspect.isfunction) if f.__module__ == module.__name__]
    assert all(f.__doc__ for f in functions)
    firsts = []
    for function in sorted(functions, key=lambda f: f.__code__.co_firstlineno):
        number = re.match(r"\((\d+)\)", function.__doc__ or "")
        if number:
            firsts.append(int(number[1]))
    assert firsts == sorted(firsts)


@pytest.mark.parametrize("paper", NUMBERS)
def test_the_pages_name_every_numbered_function(paper: str) -> None:
    page = (ROOT / "docs" / f"{PAGES.get(paper, paper)}.md").read_text(encoding="utf-8")
    assert all(f"`{name}`" in page for name in NUMBERS[paper].values())
