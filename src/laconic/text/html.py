"""The text of a web page: its article, one block a line, without menus, scripts and forms."""

from __future__ import annotations

import codecs
import re
from typing import Any

_NO_TEXT = "script, style, noscript, template, nav, footer, aside, form, button, svg, iframe, select, dialog"
_ARTICLES = ("article", "main", "[role=main]")
_BLOCK_TAGS = (
    "address article blockquote br dd div dl dt figcaption figure h1 h2 h3 h4 h5 h6 header hr li main ol p pre section "
    "table td th tr ul"
)
_BLOCKS = frozenset(_BLOCK_TAGS.split())
_CHARSET = re.compile(rb"<meta[^>]+charset=[\"']?([\w-]+)", re.IGNORECASE)
_NO_CHARSETS = ("idna", "punycode", "unicode-escape", "raw-unicode-escape")  # codecs, but of no page
_BEGINNING = re.compile(
    r"\s*(?:<\?xml[^>]*>\s*)?(?:<!--(?:(?!-->).)*-->\s*)*<(?:!doctype html|html[\s>])", re.IGNORECASE | re.DOTALL
)


def is_html(text: str) -> bool:
    """Does it begin as a page does?"""
    return _BEGINNING.match(text[:2000]) is not None


def charset_of(raw: bytes) -> str:
    """What a page says of its encoding; UTF-8 where it says nothing or something unknown."""
    found = _CHARSET.search(raw[:4096])
    name = found[1].decode("ascii", "replace") if found else "utf-8"
    try:
        known = codecs.lookup(name).name not in _NO_CHARSETS
        return name if known and not "".encode(name) else "utf-8"
    except (LookupError, UnicodeError):
        return "utf-8"


def page_text(page: str) -> str:
    """The longest article, or the page's main part, or all of its body.

    Raises:
        ModuleNotFoundError: selectolax is not installed.
    """
    from selectolax.lexbor import LexborHTMLParser

    tree = LexborHTMLParser(page)
    for node in tree.css(_NO_TEXT):
        node.decompose()
    for selector in _ARTICLES:
        if found := [text for text in map(_text, tree.css(selector)) if text]:
            return max(found, key=len)
    return _text(tree.body) if tree.body is not None else ""


def _text(node: Any) -> str:
    parts: list[str] = []
    stack: list[Any] = [node]
    while stack:
        current = stack.pop()
        if isinstance(current, str):
            parts.append(current)
            continue
        tag = current.tag
        if tag == "-text":
            parts.append(re.sub(r"\s+", " ", current.text_content or ""))
            continue
        children = list(current.iter(include_text=True))
        around = ["\n"] if tag in _BLOCKS else []
        stack += [*around, *reversed(children), *around]
    lines = (" ".join(line.split()) for line in "".join(parts).split("\n"))
    return "\n".join(line for line in lines if line)
