"""Benchmarks and scripts run seldom; that what they import of catchline is there is seen at once."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PROGRAMS = sorted(path for folder in ("benchmarks", "scripts") for path in (ROOT / folder).rglob("*.py"))


def lacking(source: str) -> list[str]:
    """The names that ``source`` imports of catchline and that are not there."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [
                alias.name for alias in node.names if alias.name.startswith("catchline") and not there(alias.name)
            ]
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "catchline":
            found += [f"{node.module}.{alias.name}" for alias in node.names if not there(node.module, alias.name)]
    return found


def there(module: str | None, name: str | None = None) -> bool:
    """Is there such a module, and in it (or below it) such a name?"""
    try:
        loaded = importlib.import_module(str(module))
        return name is None or hasattr(loaded, name) or there(f"{module}.{name}")
    except ModuleNotFoundError:
        return False


def by_hand() -> set[str]:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    return set(re.search(r"^BY_HAND := (.*)$", makefile, re.MULTILINE)[1].split())  # type: ignore[index]


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.name)
def test_what_programs_import_is_there(path: Path) -> None:
    assert lacking(path.read_text(encoding="utf-8")) == []


def test_all_benchmarks_run_unless_they_are_run_by_hand() -> None:
    listed = set(re.findall(r"`(\w+)\.py`", (ROOT / "benchmarks" / "README.md").read_text(encoding="utf-8")))
    for path in (ROOT / "benchmarks").glob("*.py"):
        source = path.read_text(encoding="utf-8")
        asks = re.search(r'add_argument\("\w|required=True', source) or "__main__" not in source
        assert not asks or path.stem in by_hand(), f"{path.name} does nothing without arguments"
        assert path.stem in listed


@pytest.mark.slow
@pytest.mark.parametrize(
    "path",
    sorted(path for path in (ROOT / "benchmarks").glob("*.py") if path.stem not in by_hand()),
    ids=lambda p: p.stem,
)
def test_a_benchmark_runs_with_its_shortest_settings(path: Path) -> None:
    short = ["--short"] if '"--short"' in path.read_text(encoding="utf-8") else []
    done = subprocess.run([sys.executable, path, *short], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout
