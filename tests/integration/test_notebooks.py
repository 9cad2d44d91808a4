"""The notebooks run from top to bottom, with tiny settings, and are kept without outputs."""

from __future__ import annotations

import ast
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

FOLDER = Path(__file__).parent.parent.parent / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
QUICK = f"""
from pathlib import Path

ROOTS = [Path({str(Path(np.__file__).parent)!r})]
STANDARD_LIBRARY = False
SETTINGS = {{
    "training.max_updates": 2,
    "training.batch_size": 4,
    "training.validation.decode_records": 4,
}}
RECORDS = 4
"""


def cells(path: Path) -> list[dict[str, Any]]:
    return json.loads(path.read_text(encoding="utf-8"))["cells"]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_are_kept_without_outputs(path: Path) -> None:
    written = [cell for cell in cells(path) if cell["cell_type"] == "code"]
    assert len(written) > 3
    assert not [cell for cell in written if cell["outputs"] or cell["execution_count"]]


def sources(path: Path) -> list[str]:
    """The code of its cells, the settings quick."""
    written = [cell for cell in cells(path) if cell["cell_type"] == "code"]
    return [QUICK if "settings" in cell["metadata"].get("tags", ()) else "".join(cell["source"]) for cell in written]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_the_cells_of_notebooks_run(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process, which has imported what they need; what the last line of a cell is, a notebook shows."""
    pytest.importorskip("matplotlib").use("agg")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    names, shown = {"__name__": "__main__"}, []
    for source in sources(path):
        *body, last = ast.parse(source).body
        is_value = isinstance(last, ast.Expr)
        exec(compile(ast.Module([*body, *[last] * (not is_value)], []), path.name, "exec"), names)
        if isinstance(last, ast.Expr):
            shown.append(eval(compile(ast.Expression(last.value), path.name, "eval"), names))
    pages = [value._repr_html_() for value in shown if hasattr(value, "_repr_html_")]
    assert len([page for page in pages if "<iframe" in page]) == 1  # the summary with its sources


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_run(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nbclient = pytest.importorskip("nbclient", reason="the notebooks' tests need: pip install 'catchline[dev]'")
    pytest.importorskip("ipykernel", reason="the notebooks' tests need: pip install 'catchline[dev]'")
    nbformat = pytest.importorskip("nbformat")
    code = str(FOLDER.parent / "src")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [code, os.environ.get("PYTHONPATH")])))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    notebook = nbformat.read(path, as_version=4)
    for cell, source in zip((c for c in notebook.cells if c.cell_type == "code"), sources(path), strict=True):
        cell.source = source
    nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    shown = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    frames = [output for output in shown if "<iframe" in output.get("data", {}).get("text/html", "")]
    assert len(frames) == 1  # the summary with its sources
    assert not [output for output in shown if output.output_type == "error"]
