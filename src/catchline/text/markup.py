"""Readers of files and pasted text in other formats: web pages, office files, mail, subtitles and Markdown to prose."""

from __future__ import annotations

import io
import re
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from email import message_from_bytes, message_from_string, policy
from html import unescape
from typing import TYPE_CHECKING, Any

from catchline.errors import DataError
from catchline.text.normalization import TAGS, is_unspaced, with_line_feeds
from catchline.text.sentences import WRAPPED

if TYPE_CHECKING:  # plain text needs no parser
    from markdown_it.rules_core import StateCore
    from markdown_it.token import Token

PAGES = frozenset((".html", ".htm", ".xhtml"))
MARKDOWN = frozenset((".md", ".markdown"))
SUBTITLES = frozenset((".srt", ".vtt", ".sbv"))
OFFICE = frozenset((".pdf", ".docx", ".pptx", ".epub", ".ipynb"))
READ_AS_BYTES = PAGES | OFFICE | {".eml"}
MOST_UNPACKED = 10_000_000  # bytes of the parts of a DOCX, PPTX or EPUB file that hold text
MOST_PAGES = 1_000  # of a PDF

_PAGE = re.compile(r"\s*(?:<\?xml[^>]*>\s*)?(?:<!--(?:(?!-->).)*-->\s*)*<(?:!doctype html|html[\s>])", re.I | re.S)
_HEADING = re.compile(r"^ {0,3}#{1,6}[ \t]+\S", re.MULTILINE)
_LINK = re.compile(r"\[[^\[\]]+\]\((?:https?:|[#./]|[\w-]+\.\w)|^ {0,3}\[[^\[\]]+\]:[ \t]+\S", re.MULTILINE)
_FENCE = re.compile(r"^ {0,3}(?:```|~~~)", re.MULTILINE)
_TIMES = r"(?:\d+[ \t]*\n)?\d[\d:]*[.,]\d+(?:[ \t]+-->[ \t]+|,)\d[\d:]*[.,]\d+.*$"  # of a cue, with its number
_CUE, _CUES = re.compile(rf"\A\ufeff?(?:WEBVTT\b|\s*{_TIMES})", re.M), re.compile(rf"^{_TIMES}", re.M)
_MARK_OF_CUE = re.compile(r"<[^<>]*>|\{\\[^{}]*\}")
_LONG_LINE, _HEAD_OF_MAIL = 300, 10_000  # characters: longer lines begin no quotation, and the reply ends before

_UNSEEN = re.compile(r"<!--.*?(?:-->|\Z)|<(script|style|pre|svg)\b.*?(?:</\1\s*>|\Z)", re.DOTALL | re.IGNORECASE)
_END_OF_BLOCK = re.compile(r"\n\s*\n|</?(?:p|div|h\d|li|br|t[dhr])\b[^<>]*>", re.IGNORECASE)
_TAG = re.compile(r"<[/!?]?[A-Za-z](?:\"[^\"]*\"|'[^']*'|[^<>\"']){0,500}>")
_FEWEST_WORDS = 5  # of a block between tags, or of a paragraph that is a link, that counts as prose

_FRONT_MATTER = re.compile(r"\A(---|\+\+\+)[ \t]*\n(?=[\w\"'-]+[ \t]*[:=]|#)(?:.*\n)*?(?:\1|\.\.\.)[ \t]*(?:\n|\Z)")
_BREAK = re.compile(r"</?(?:p|div|li|br|t[dhr])\b", re.IGNORECASE)
_SIGNS = re.compile(r"\A\[(?:![A-Z]+|[ xX])\]\s+|\[\^[^\[\]\s]+\]")  # > [!NOTE], - [ ] a task, a footnote[^1]
_PIECE = re.compile(r".{1,3000}(?:\n|\Z)|.{1,3000}(?!\S)|.{1,3000}", re.DOTALL)  # up to the end of a line, or a blank
_DEEPEST = 10  # brackets within each other in it; blocks: 100


def read_bytes(raw: bytes, suffix: str, name: str) -> tuple[str, str]:
    """Format and prose of a file in one of the formats of `READ_AS_BYTES`; ``suffix`` in lower case."""
    if suffix == ".eml":
        return "mail", mail_text(message_from_bytes(raw, policy=_Headers()))
    kind = "page" if suffix in PAGES else suffix.removeprefix(".")
    text = page_text(raw) if suffix in PAGES else _office_text(raw, suffix, name)
    if not text.strip():
        raise DataError(f"{name} has no text: it may be scanned, or a script writes it. Save its text as .txt.")
    return kind, text


def suffix_of(raw: bytes) -> str:
    """The suffix that a PDF, DOCX, PPTX or EPUB file or a notebook should have, by its content; empty for others."""
    if raw.startswith(b"%PDF-"):
        return ".pdf"
    if raw[:1] == b"{" and b'"nbformat"' in raw and b'"cells"' in raw:
        return ".ipynb"
    with suppress(zipfile.BadZipFile, OSError):
        names = zipfile.ZipFile(io.BytesIO(raw)).namelist() if raw.startswith(b"PK") else ()
        kinds = {"word/document.xml": ".docx", "ppt/presentation.xml": ".pptx", "META-INF/container.xml": ".epub"}
        return next((kinds[name] for name in names if name in kinds), "")
    return ""


def as_prose(text: str, suffix: str = "") -> tuple[str, str]:
    """Format and prose of a text, by the suffix of its name or how it looks; ``("text", text)`` where neither tells.
    Only of a page the prose may be empty. Raises ModuleNotFoundError where a page needs the extra ``documents``."""
    text, plain = with_line_feeds(text), suffix in ("", ".txt")
    kind, prose = "text", ""
    if suffix in SUBTITLES or (plain and _CUE.match(text)):
        kind, prose = "subtitles", subtitle_text(text)
    elif suffix in MARKDOWN or (not suffix and is_markdown(text)):
        kind, prose = "markdown", markdown_text(text)
    elif plain and _PAGE.match(text[:2000]):
        kind, prose = "page", page_text(text)
    elif plain and _is_mail(text):
        kind, prose = "mail", mail_text(message_from_bytes(text.encode(errors="replace"), policy=_Headers()))
    if kind == "text" and plain:  # HTML that somebody put a text into, where entities or several ends of lines say so
        tags = TAGS.findall(text)
        if sum(_BREAK.match(tag) is not None for tag in tags) > 1:
            text = TAGS.sub(lambda tag: "\n" if _BREAK.match(tag[0]) else "" if tag[0][0] == "<" else tag[0], text)
        text = unescape(text) if any(tag[0] == "&" for tag in tags) else text
    return (kind, prose) if prose.strip() or kind == "page" else ("text", text)


def page_text(page: str | bytes) -> str:
    """The prose of the main part of a web page, by trafilatura; empty where it finds none."""
    import trafilatura

    found = trafilatura.extract(page, output_format="markdown", include_comments=False, include_links=False)
    return markdown_text(found) if found else ""


def _office_text(raw: bytes, suffix: str, name: str) -> str:
    import markitdown

    try:
        _check_size(raw, suffix, name)
        converter = markitdown.MarkItDown(enable_plugins=False)
        stream = markitdown.StreamInfo(extension=suffix)
        found = converter.convert_stream(io.BytesIO(raw), stream_info=stream).markdown
    except (DataError, ModuleNotFoundError):
        raise
    except Exception as error:  # whatever the libraries raise on damaged files
        reason = str(error).strip().split("\n")[0][:200] or type(error).__name__
        raise DataError(f"{name} cannot be read as {suffix} ({reason}); the file may be damaged.") from None
    if suffix == ".pdf":  # lines of plain text, indented or divided
        found = WRAPPED.sub("", "\n".join(line.strip() for line in with_line_feeds(found).split("\n")))
    return markdown_text(found)


def _check_size(raw: bytes, suffix: str, name: str) -> None:
    if suffix == ".pdf":
        import pypdfium2

        if (pages := len(pypdfium2.PdfDocument(raw))) > MOST_PAGES:
            raise DataError(f"{name} has {pages:,} pages; at most {MOST_PAGES:,} are read. Save the pages you want.")
    elif suffix != ".ipynb":
        with zipfile.ZipFile(io.BytesIO(raw)) as parts:
            texts = (part.file_size for part in parts.infolist() if part.filename.lower().endswith(("ml", ".htm")))
            if sum(texts) > MOST_UNPACKED:
                raise DataError(f"{name} has more than {MOST_UNPACKED:,} bytes of text; save it as .txt.")


class _Headers(policy.EmailPolicy):
    """Headers cut at 2,000 characters: to parse one takes the square of its length."""

    def header_fetch_parse(self, name: str, value: str) -> Any:
        return super().header_fetch_parse(name, value[:2000])


def _is_mail(text: str) -> bool:
    """Does the text begin with the header of a mail?"""
    headers = message_from_string(text[:5000])
    return "From" in headers and any(name in headers for name in ("To", "Subject", "Date"))


def mail_text(message: Any) -> str:
    """The text that the sender of a mail wrote; empty where it has no text."""
    with suppress(LookupError, ValueError, TypeError, AttributeError, RecursionError):  # of damaged ones
        part = message.get_body(("plain", "html"))
        raw, charset = part.get_payload(decode=True), part.get_content_charset("latin-1")
        with suppress(UnicodeDecodeError):
            raw.decode()
            charset = "utf-8"  # whatever the header says
        text = raw.decode(charset, "replace")
        return own_words(text if part.get_content_subtype() != "html" else "\n\n".join(_between_tags(text)))
    return ""


def own_words(text: str) -> str:
    """The newest message in the text of a mail, without quotations, signature and disclaimers (mail-parser-reply)."""
    from mailparser_reply.parser import MAIL_LANGUAGES, EmailMessage

    text = with_line_feeds(text).replace("\ue000", "")
    lines = [line.strip() for line in text.split("\n") if not line.startswith((">", "|"))]
    short = (line if len(line) <= _LONG_LINE else f"\ue000{number}\ue000" for number, line in enumerate(lines))
    given = re.sub(r"\n{3,}", "\n\n", "\n".join(short)).strip()
    head, rest = given[:_HEAD_OF_MAIL], given[_HEAD_OF_MAIL:]
    newest = EmailMessage(head, languages=[*MAIL_LANGUAGES], keep_hyphen_lists=True).read().replies[0]
    whole = newest.body + (rest if head.endswith(newest.body) else "") or given
    return re.sub("\ue000(\\d+)\ue000", lambda found: lines[int(found[1])], whole)


def subtitle_text(text: str) -> str:
    """What is spoken in SubRip, WebVTT or SBV subtitles, without numbers, times, notes and repeated lines."""
    spoken: list[str] = []
    for cue in _CUES.split(text)[1:]:
        lines = _MARK_OF_CUE.sub("", re.split(r"\n[ \t]*\n", cue[1:])[0]).split("\n")
        spoken += [line for line in map(str.strip, lines) if line and line not in spoken[-2:]]
    return unescape(" ".join(spoken))


def is_markdown(text: str) -> bool:
    """Does the text have a Markdown heading, and links or blocks of code besides? Comments of programs do not."""
    linked = _LINK.search(text) is not None or len(_FENCE.findall(text)) > 1
    return linked and _HEADING.search(text) is not None and not text.startswith("#!") and not _PAGE.match(text[:2000])


def markdown_text(document: str) -> str:
    """The paragraphs and list items of CommonMark with tables, without code, tables, pictures and lists of links.

    The headings where there is no paragraph; where there is neither, the text without its comments. Short words that
    are alone under a heading, as MIT under License, are dropped with it.
    """
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark", {"maxNesting": 100}).enable(["table", "strikethrough"])
    parser.core.ruler.at("inline", _parse_in_pieces)
    blocks = list(_blocks(parser.parse(_FRONT_MATTER.sub("", with_line_feeds(document)))))
    kinds = ["heading", *(kind for kind, _ in blocks), "heading"]
    prose = [
        text
        for number, (kind, text) in enumerate(blocks)
        if kind == "prose" and ("prose" in kinds[number : number + 3 : 2] or _is_prose(text) or not text[-1].isalnum())
    ]
    return "\n\n".join(prose or [text for _, text in blocks]) or _UNSEEN.sub("", document)


def _parse_in_pieces(state: StateCore) -> None:
    """Parse paragraphs by pieces: for an unclosed ``[`` or ``<![CDATA[`` the parser takes the square of a piece."""
    state.md.options["maxNesting"] = _DEEPEST
    for token in state.tokens:
        if token.type == "inline":
            token.children = []
            for piece in _PIECE.findall(token.content):
                children: list[Token] = []  # all of those that the parser is given are looked at again
                state.md.inline.parse(piece, state.md, state.env, children)
                token.children += children


def _blocks(tokens: Iterable[Token]) -> Iterator[tuple[str, str]]:
    """Blocks of text with their kinds, ``heading`` or ``prose``."""
    heading = table = 0
    for token in tokens:
        heading += token.nesting if token.type.startswith("heading_") else 0
        table += token.nesting if token.type.startswith("table_") else 0
        if token.type == "inline" and not table and (text := _inline_text(token.children or ())):
            yield "heading" if heading else "prose", text
        elif token.type == "html_block":
            yield from (("prose", block) for block in _between_tags(token.content) if _is_prose(block))


def _inline_text(tokens: Sequence[Token]) -> str:
    """The words of a block; empty where all of them are short links, as of badges and contents, or code."""
    text, prose, link, links, struck = "", False, "", 0, 0
    for token in tokens if [token.type for token in tokens] != ["code_inline"] else ():
        if token.type.startswith("link_"):
            links += token.nesting
            prose, link = prose or _is_prose(link), ""
        elif token.type.startswith("s_"):
            struck += token.nesting
        elif token.type in ("text", "code_inline") and not struck:
            text += token.content
            link += token.content if links else ""
            prose = prose or (not links and any(map(str.isalnum, token.content)))
        elif token.type in ("softbreak", "hardbreak") or (token.type == "html_inline" and _BREAK.match(token.content)):
            text += " "
    return " ".join(_SIGNS.sub("", text).split()) if prose and not text.startswith("[^") else ""


def _between_tags(text: str) -> list[str]:
    """The text between the tags of HTML blocks."""
    parts = (_TAG.sub("", part) for part in _END_OF_BLOCK.split(_UNSEEN.sub("\n\n", text)) if part)
    return list(filter(None, (" ".join(unescape(part).split()) for part in parts)))


def _is_prose(text: str) -> bool:
    return len(re.findall(r"[^\W\d_]{2,}", text)) + sum(map(is_unspaced, text)) // 2 >= _FEWEST_WORDS
