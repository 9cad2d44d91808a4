"""What looks like a web page or like Markdown, and the text of a page: its article, one block a line, without menus,
scripts and forms within it."""

from __future__ import annotations

import codecs
import re
from html import unescape
from typing import Any

from catchline.text.detokenize import is_unspaced

PAGE_SUFFIXES = {".html", ".htm", ".xhtml"}
MARKDOWN_SUFFIXES = {".md", ".markdown"}
_NO_TEXT = "script, style, noscript, template, nav, footer, aside, svg, iframe, dialog"
_NO_TEXT += ", button, select, textarea, label, legend"  # of forms
_ARTICLES = ("article", "main, [role=main]")
_TEASER = 0.25  # of the main part's text: an article with less only points to another page
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
_HEADING = re.compile(r"^ {0,3}#{1,6}[ \t]+\S", re.MULTILINE)
_LINK = re.compile(r"\[[^\[\]]+\]\((?:https?:|[#./]|[\w-]+\.\w)|^ {0,3}\[[^\[\]]+\]:[ \t]+\S", re.MULTILINE)
_FENCE = re.compile(r"^ {0,3}(?:```|~~~)", re.MULTILINE)
FEWEST_WORDS = 5  # of a block between tags, or of a link that stands for itself, that says something
UNSEEN = re.compile(r"<!--.*?(?:-->|\Z)|<(script|style|pre|svg)\b.*?(?:</\1\s*>|\Z)", re.DOTALL | re.IGNORECASE)
_END = re.compile(r"\n\s*\n|</?(?:p|div|h\d|li|br|t[dhr])\b[^<>]*>", re.IGNORECASE)
_TAG = re.compile(r"<[/!?]?[A-Za-z](?:\"[^\"]*\"|'[^']*'|[^<>\"']){0,500}>")
_CLOSING = re.compile(
    r"</(?:p|div|h[1-6]|ul|ol|li|table|t[dhr]|a|b|i|em|strong|span|font|code|center|body)\s*>", re.IGNORECASE
)
_XML = re.compile(r"\s*<\?xml\b")
_FEWEST_TAGS = 3


def is_html(text: str) -> bool:
    """Does it begin as a page does?"""
    return _BEGINNING.match(text[:2000]) is not None


def is_markdown(text: str) -> bool:
    """Has it a heading of Markdown, and links or blocks of code besides? A program whose remarks have "#" has not."""
    linked = _LINK.search(text) is not None or len(_FENCE.findall(text)) > 1
    return linked and _HEADING.search(text) is not None and not text.startswith("#!") and not is_html(text)


def is_tagged(text: str) -> bool:
    """Is it XML, or has it a page's tags in it?"""
    return _XML.match(text) is not None or len(_CLOSING.findall(text[:5000])) >= _FEWEST_TAGS


def between_tags(text: str) -> list[str]:
    """What stands between the tags of blocks; of XML each two tags are between blocks."""
    text = re.sub(r">\s*<", ">\n\n<", text) if _XML.match(text) else text
    parts = (" ".join(unescape(_TAG.sub("", part)).split()) for part in _END.split(UNSEEN.sub("\n\n", text)))
    return list(filter(None, parts))


def tagged_text(text: str) -> str:
    """The blocks of a text with tags that say something, if any do."""
    blocks = between_tags(text)
    return "\n\n".join(filter(is_prose, blocks)) or "\n\n".join(blocks)


def is_prose(text: str) -> bool:
    """Has it some words?"""
    return len(re.findall(r"[^\W\d_]{2,}", text)) + sum(map(is_unspaced, text)) // 2 >= FEWEST_WORDS


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
    """The longest article (unless it is but a small part of the main one), or the main part, or all of the body.

    Raises:
        ModuleNotFoundError: selectolax is not installed.
    """
    from selectolax.lexbor import LexborHTMLParser

    tree = LexborHTMLParser(page)
    for node in tree.css(_NO_TEXT):
        node.decompose()
    if tree.body is None:
        return ""
    forms = tree.css("form")
    whole = len(_text(tree.body)) if forms else 0
    for node in forms:
        if len(_text(node)) < whole / 2:  # else it is around the page, as ASP.NET has it
            node.decompose()
    article, main = (_longest(tree, selector) for selector in _ARTICLES)
    return (article if len(article) >= _TEASER * len(main) else main) or _text(tree.body)


def _longest(tree: Any, selector: str) -> str:
    """The longest text of the nodes that are in no other of the kind."""
    found, inner = "", set[int]()
    for node in tree.css(selector):
        if node.mem_id not in inner:
            inner.update(other.mem_id for other in node.css(selector))
            found = max(found, _text(node), key=len)
    return found


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
