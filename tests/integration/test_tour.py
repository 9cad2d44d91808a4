"""docs/tour.md points at the lines where things are, is short, and leaves no equation out."""

from __future__ import annotations

import ast
from pathlib import Path
from types import ModuleType

import pytest

from commands import program

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/tour.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return program("tour_lines")


def test_every_link_names_what_begins_on_its_line(script: ModuleType) -> None:
    wrong = [
        f"{is_} should be {shall_be}"
        for is_, shall_be in zip(PAGE.splitlines(), script.corrected(PAGE).splitlines(), strict=True)
        if is_ != shall_be
    ]
    assert not wrong, "run python scripts/tour_lines.py:\n" + "\n".join(wrong)
    assert PAGE.count("](../src/") == len(script.LINK.findall(PAGE)), "a link that is not of this form"


def test_an_hour_is_fourteen_files(script: ModuleType) -> None:
    assert len({found["file"] for found in script.LINK.finditer(PAGE)}) <= 14


@pytest.mark.parametrize(
    "name", [p.stem for p in sorted((ROOT / "src/catchline/papers").glob("*.py")) if p.stem != "__init__"]
)
def test_every_equation_is_on_the_way(script: ModuleType, name: str) -> None:
    """A function whose docstring begins with an equation's number."""
    file = f"src/catchline/papers/{name}.py"
    shown = {found["name"] for found in script.LINK.finditer(PAGE) if found["file"] == file}
    functions = [node for node in ast.parse((ROOT / file).read_text()).body if isinstance(node, ast.FunctionDef)]
    assert shown
    assert {f.name for f in functions if (ast.get_docstring(f) or "").startswith("(")} <= shown


def test_lines_are_put_right(script: ModuleType, tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src/a.py").write_text("x = 1\n\n\nclass A:\n    @property\n    def b(self): ...\n")
    text = "See [`A.b`](../src/a.py#L1) and [`A`](../src/a.py)."
    assert script.corrected(text, tmp_path) == "See [`A.b`](../src/a.py#L6) and [`A`](../src/a.py#L4)."
    with pytest.raises(KeyError, match=r"src/a\.py has no B"):
        script.corrected("[`B`](../src/a.py#L1)", tmp_path)
