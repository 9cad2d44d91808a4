"""The text of a Markdown file: its paragraphs and list items, one block each, without headings, code, tables, pictures,
addresses and what only leads elsewhere."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

from markdown_it import MarkdownIt
from markdown_it.rules_core import StateCore
from markdown_it.token import Token

from catchline.text.html import UNSEEN, between_tags, is_prose

_FRONT_MATTER = re.compile(r"\A(---|\+\+\+)[ \t]*\n(?=[\w\"'-]+[ \t]*[:=]|#)(?:.*\n)*?(?:\1|\.\.\.)[ \t]*(?:\n|\Z)")
_UNDERLINED = re.compile(r"(?<=[^\W\d_]\.)[ \t]*\n(?=-{3,}[ \t]*$)", re.MULTILINE)  # a sentence, no heading
_HEADING = re.compile(r"^ {0,3}#{1,6}[ \t]+(\S.*)$", re.MULTILINE)  # closing signs are cut off later: in linear time
_ASKS = re.compile(r"(?i)\bFAQs?\b|\basked\b|\bQ ?& ?A\b|\bquestions\b|\?$")
_BREAK = re.compile(r"</?(?:p|div|li|br|t[dhr])\b", re.IGNORECASE)
_SIGNS = re.compile(r"\A\[(?:![A-Z]+|[ xX])\]\s+|\[\^[^\[\]\s]+\]")  # > [!NOTE], - [ ] a task, a footnote[^1]
_FOOTNOTE = re.compile(r"\[\^[^\[\]\s]+\]:")
_PIECE = re.compile(r".{1,3000}(?:\n|\Z)|.{1,3000}(?!\S)|.{1,3000}", re.DOTALL)  # up to the end of a line, or a blank
_DEEPEST = 10  # brackets within each other in it; blocks: 100


def markdown_text(document: str) -> str:
    """Of CommonMark with tables: of one without sentences its headings, without these all that is no comment. A page's
    tags within it are left out, what stands between them stays."""
    parser = MarkdownIt("commonmark", {"maxNesting": 100}).enable(["table", "strikethrough"])
    parser.core.ruler.at("inline", _in_pieces)
    text = _FRONT_MATTER.sub("", document.replace("\r\n", "\n"))
    headings = [heading.rstrip(" \t#") for heading in _HEADING.findall(text)]
    if len(headings) > 2 and _ASKS.search(headings[0]) and all(one.endswith("?") for one in headings[1:]):
        text = _HEADING.sub(lambda match: "\n" + match[1].rstrip(" \t#") + "\n", text)  # its headings are what it says
    tokens = parser.parse(_UNDERLINED.sub("\n\n", text))
    said = "\n\n".join(_blocks(tokens)) or "\n\n".join(_blocks(tokens, within=("heading_",)))
    return said or UNSEEN.sub("", document)


def notebook_text(notebook: str) -> str:
    """What the cells of Markdown in a notebook of Jupyter say; empty where it is none."""
    with suppress(ValueError, RecursionError, LookupError, TypeError):
        cells = [cell["source"] for cell in json.loads(notebook)["cells"] if cell["cell_type"] == "markdown"]
        return markdown_text("\n\n".join("".join(cell) for cell in cells))
    return ""


def _in_pieces(state: StateCore) -> None:
    """What stands in paragraphs. The end of what is never closed (``[``, ``<![CDATA[``) is looked for at each place,
    which takes the square of what the parser sees at once: of a long paragraph it sees pieces."""
    state.md.options["maxNesting"] = _DEEPEST
    for token in state.tokens:
        if token.type == "inline":
            token.children = []
            for piece in _PIECE.findall(token.content):
                state.md.inline.parse(piece, state.md, state.env, token.children)


def _blocks(tokens: Iterable[Token], within: tuple[str, ...] = ()) -> Iterator[str]:
    """All blocks but headings and tables, or those that stand ``within`` others."""
    inside = 0
    for token in tokens:
        if token.type.startswith(within or ("heading_", "table_")):
            inside += token.nesting
        elif token.type == "inline" and bool(inside) == bool(within):
            if text := _said(token.children or ()):
                yield text
        elif token.type == "html_block" and not within:
            yield from filter(is_prose, between_tags(token.content))


def _said(tokens: Sequence[Token]) -> str:
    """The words of a block; nothing where all of it are short links, as of badges and contents, or is code."""
    said, own, link, links, struck = "", False, "", 0, 0
    for token in tokens if [token.type for token in tokens] != ["code_inline"] else ():
        if token.type.startswith("link_"):
            links += token.nesting
            own, link = own or is_prose(link), ""
        elif token.type.startswith("s_"):
            struck += token.nesting
        elif token.type in ("text", "code_inline") and not struck:
            said += token.content
            link += token.content if links else ""
            own = own or (not links and any(map(str.isalnum, token.content)))
        elif token.type in ("softbreak", "hardbreak") or (token.type == "html_inline" and _BREAK.match(token.content)):
            said += " "
    return " ".join(_SIGNS.sub("", said).split()) if own and not _FOOTNOTE.match(said) else ""
