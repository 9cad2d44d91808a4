"""The text of a Markdown file: its paragraphs and list items, one block each, without headings, code, tables, pictures,
addresses and what only leads elsewhere."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from html import unescape

from markdown_it import MarkdownIt
from markdown_it.token import Token

FEWEST_WORDS = 5  # of a block of a page's tags, or of links alone, that says something
_FRONT_MATTER = re.compile(r"\A---[ \t]*\n(?:.*\n)*?(?:---|\.\.\.)[ \t]*(?:\n|\Z)")
_TAG = re.compile(r"<!--.*?(?:-->|\Z)|<[/!?]?[A-Za-z][^<>]*>", re.DOTALL)
_END = re.compile(r"\n\s*\n|</?(?:p|div|h\d|li|br|td)\b[^<>]*>")
_ALERT = re.compile(r"\A\[![A-Z]+\]\s*")  # > [!NOTE]


def markdown_text(document: str) -> str:
    """Of CommonMark with tables. A page's tags within it are left out, what stands between them stays."""
    parser = MarkdownIt("commonmark").enable("table")
    return "\n\n".join(_blocks(parser.parse(_FRONT_MATTER.sub("", document.replace("\r\n", "\n")))))


def _blocks(tokens: Iterable[Token]) -> Iterator[str]:
    without = 0  # how many headings and tables are open
    for token in tokens:
        if token.type.startswith(("heading_", "table_")):
            without += token.nesting
        elif token.type == "inline" and not without:
            if text := _said(token.children or ()):
                yield text
        elif token.type == "html_block":
            parts = (" ".join(unescape(_TAG.sub(" ", part)).split()) for part in _END.split(token.content))
            yield from filter(_is_prose, parts)


def _said(tokens: Iterable[Token]) -> str:
    """The words of a block; nothing where all of it are a few links, as of badges and contents."""
    said, own, links = "", False, 0
    for token in tokens:
        if token.type.startswith("link_"):
            links += token.nesting
        elif token.type in ("text", "code_inline"):
            said += token.content
            own = own or (not links and any(map(str.isalnum, token.content)))
        elif token.type in ("softbreak", "hardbreak"):
            said += " "
    text = _ALERT.sub("", " ".join(said.split()))
    return text if own or _is_prose(text) else ""


def _is_prose(text: str) -> bool:
    return len(re.findall(r"[^\W\d_]{2,}", text)) >= FEWEST_WORDS
