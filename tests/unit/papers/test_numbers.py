"""The papers' files can be read beside the papers: every numbered equation is there, in order, under its number."""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
# The numbers that a function carries; the others are said in the file's docstring. One paper numbers none.
TABLE = {
    "pointer_generator": """
        attention_scores 1 7, attention_weights 2, context 3, generation_gate 4, final_distribution 5,
        next_coverage 6, coverage_loss 8""",
    "distraction": """
        gru 1, gru_state 2, gru_candidate 3, gru_gates 4 5, readout 8, content_distraction 11, context 12,
        attention_scores 13, attention_weights 14, attention_distance 15, similarity 16 17, distracted_score 18""",
    "contrastive": """
        conventional_weights 1 2, opponent_weights 3, first_norm 4, feed_forward 5, last_norm 6, log_opponent 7,
        log_softmin 8, joint_score 9""",
    "coconet": """
        mean_attention 7 9 17 18, context_gate 10 15, transferred 11, split_history 12, mixed 14, rescaled_rows 19,
        positional_correlation 20, log_width 21""",
}
NUMBERS = {
    paper: {int(number): name for name, *numbers in map(str.split, table.split(",")) for number in numbers}
    for paper, table in TABLE.items()
}
PAGES = {"pointer_generator": "headline_writer"}
IN_THE_DOCSTRING = {"distraction": (6, 7, 9, 10), "coconet": (1, 4, 5, 22)}


@pytest.mark.parametrize("paper", NUMBERS)
def test_the_numbers_of_the_equations_are_the_papers(paper: str) -> None:
    module = importlib.import_module(f"catchline.papers.{paper}")
    for number, name in NUMBERS[paper].items():
        said = getattr(module, name).__doc__ or ""
        ranges = re.findall(r"\((\d+)\)-\((\d+)\)", said)
        assert f"({number})" in said or any(int(a) <= number <= int(b) for a, b in ranges)
    for number in IN_THE_DOCSTRING.get(paper, ()):
        assert f"({number})" in (module.__doc__ or "")


@pytest.mark.parametrize("paper", [*NUMBERS, "coarse_to_fine"])
def test_a_file_is_read_beside_its_paper(paper: str) -> None:
    module = importlib.import_module(f"catchline.papers.{paper}")
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
