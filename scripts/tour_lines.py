"""Put the lines of docs/tour.md right: each link `` [`name`](../src/...#L1) `` names what begins on that line."""

from __future__ import annotations

import argparse
import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs/tour.md"
LINK = re.compile(r"\[`(?P<name>[\w.]+)`\]\(\.\./(?P<file>src/[\w/]+\.py)(?:#L\d+)?\)")


def definitions(tree: ast.Module | ast.ClassDef, around: str = "") -> Iterator[tuple[str, int]]:
    """Functions and classes with the lines of their names; methods as ``Class.method``."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield around + node.name, node.lineno
            if isinstance(node, ast.ClassDef):
                yield from definitions(node, f"{around}{node.name}.")


def corrected(text: str, root: Path = ROOT) -> str:
    """``text`` with every link's line.

    Raises:
        KeyError: a file has nothing of that name.
    """

    def link(found: re.Match[str]) -> str:
        lines = dict(definitions(ast.parse((root / found["file"]).read_text(encoding="utf-8"))))
        if found["name"] not in lines:
            raise KeyError(f"{found['file']} has no {found['name']}")
        return f"[`{found['name']}`](../{found['file']}#L{lines[found['name']]})"

    return LINK.sub(link, text)


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__).parse_args()
    PAGE.write_text(corrected(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
