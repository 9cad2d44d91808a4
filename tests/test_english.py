"""Our own prose is free of phrases that the field does not use: strings, docstrings and comments, and the documents."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PHRASES = "in place of|stands? for|shall|goes on|likeliest|in hand|mended|at hand|told|the box|so many|of its own|house"
BANNED = re.compile(rf"\b(?:{PHRASES})\b", re.IGNORECASE)
SOURCES = [path for folder in ("src", "study/src", "benchmarks", "scripts") for path in (ROOT / folder).rglob("*.py")]
DOCUMENTS = [
    *(ROOT / "docs").rglob("*.md"),
    *(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")),
]
_CODE = re.compile(r"```.*?```|`[^`\n]*`|\"[^\"\n]{1,300}\"", re.DOTALL)  # and what is quoted


def of_source(text: str) -> Iterator[str]:
    """The comments of a Python file, and its strings without what stands between braces."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.string
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def of_document(text: str) -> Iterator[str]:
    """A document without code and quotations."""
    yield _CODE.sub(" ", text)


@pytest.mark.parametrize(
    ("paths", "prose"), [(SOURCES, of_source), (DOCUMENTS, of_document)], ids=["code", "documents"]
)
def test_no_banned_phrase(paths: list[Path], prose: type[Iterator[str]]) -> None:
    found = []
    for path in sorted(paths):
        for text in prose(path.read_text(encoding="utf-8")):  # type: ignore[call-arg]
            flat = " ".join(text.split())
            found += [
                f"{path.relative_to(ROOT)}: {flat[max(0, m.start() - 40) : m.end() + 20]}"
                for m in BANNED.finditer(flat)
            ]
    assert not found, "\n".join(found)
