"""From one docstring to its summary line and the prose of its body, or nothing.

Cut away: parameter lists (Google, NumPy and Sphinx style), examples, doctests, code blocks, tables,
directives, references, mark-up. What is left are paragraphs of sentences.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator

# Sections that are not prose: everything up to the next section is dropped.
_DROPPED_SECTIONS = frozenset(
    """args arguments params parameters param keyword_args keyword_arguments keywords kwargs other_parameters
    other_params returns return yields yield raises raise exceptions attributes attrs methods fields members
    properties inputs input outputs output options example examples usage sample_usage see_also seealso
    references reference citation todo todos warns receives shape shapes side_effects call_arguments call_args
    throws constants slots variables tests test doctests doctest code syntax index routine_listings
    related_functions authors author copyright license history changelog bibliography resources links footnotes
    contents functions classes commands template input_shape output_shape""".split()  # noqa: SIM905
)
_SECTIONS = _DROPPED_SECTIONS | frozenset(  # with those that are prose
    """note notes description details remark remarks overview background explanation caveats caution warning
    warnings important tip summary discussion implementation_notes implementation introduction""".split()  # noqa: SIM905
)
UNDERLINE = re.compile(r"([-=~^\"'`*+#])\1{2,}\s*\Z")
SECTION = re.compile(
    r"(?:\*\*|\.\.\s+|#+\s+)?([A-Za-z][A-Za-z /_\-]{1,30}?)(?:\*\*)?\s*(?:\(.*\)\s*)?(::?)(?:\*\*)?\s*\Z"
)
FIELD = re.compile(r":(?:\w+)(?:\s+[^:]{0,80})?:(?:\s|\Z)|@(?:param|return|raise|type|rtype)\b")
_DIRECTIVE = re.compile(r"\.\.\s+([\w\-]+)::\s*(.*)")
_KEPT_DIRECTIVES = frozenset(["note", "warning", "tip", "important", "caution", "attention", "hint", "admonition"])
LIST_ITEM = re.compile(r"(?:[-*+•]|\(?\d{1,2}[.)]|\([a-z]\))\s+")
_PARAMETER = re.compile(
    r"[`'\"*]{0,4}[\w.*\[\]]{1,200}[`'\"*]{0,4}\s*(?:\([^)]*\)\s*)?(?::(?=\s|\Z)|--|—|–|\s-\s|\s=\s)|\w+\s+:\s"
)
_TABLE = re.compile(r"\s*(?:\||\+[-=+]{3,}|[=\-]{3,}(?:\s+[=\-]{2,})*\s*\Z)")
_BORDER = re.compile(r"\s*={2,}(?:\s+={2,})+\s*\Z")  # of a table without vertical lines
_KEPT_LABEL = re.compile(r"(?:notes?|warning|important|caution|tip|remark|attention)\s*:\s+", re.IGNORECASE)
_FENCE = re.compile(r"\s*(?:```|~~~)")
# whole sentences, or at least words, where that can be
_PIECE = re.compile(r".{1,4000}(?:(?<=[.!?])(?=\s)|\Z)|.{1,4000}(?!\S)|.{1,4000}", re.DOTALL)

_INLINE = (
    (re.compile(r"<!--.*?-->|</?(?:[a-zA-Z][\w\-]*)(?:\s[^<>]*)?/?>", re.DOTALL), " "),
    (re.compile(r"!\[[^\]]*\]\([^)]*\)"), " "),
    (re.compile(r"\[\[?([^\[\]]+)\]?\]\((?:[^()]|\([^()]*\))*\)"), r"\1"),  # [text](link)
    (re.compile(r"\[`([^`\[\]]+)`\]"), r"\1"),
    (re.compile(r":[\w:+\-]{1,60}:`!?(?:[^`<>]*[^`<>\s])\s*<([^`<>]+)>`"), r"\1"),  # :class:`text <target>`
    (re.compile(r":[\w:+\-]{1,60}:`~(?:[^`]*\.)?([^`.]+)`"), r"\1"),  # :class:`~package.Name`
    (re.compile(r":[\w:+\-]{1,60}:`[!.]?([^`]+)`"), r"\1"),
    (re.compile(r"`([^`<>]+?)\s*<[^`<>]+>`__?"), r"\1"),  # `text <link>`_
    (re.compile(r"\s*\[[\w#*.\-]{1,12}\]_(?!\w)|\s*\[\d{1,2}\](?!\w)"), ""),  # footnotes
    (re.compile(r"\(?\bhttps?://[^\s)>]+\)?|<https?://[^>]+>"), ""),
    (re.compile(r"``([^`]+)``"), r"\1"),
    (re.compile(r"`([^`]+)`_{0,2}"), r"\1"),
    (re.compile(r"\*\*([^*\n]+)\*\*"), r"\1"),
    (re.compile(r"(?<![\w*])\*([^*\s](?:[^*\n]*[^*\s])?)\*(?![\w*])"), r"\1"),
    (re.compile(r"\|([\w \-]+)\|_{0,2}"), r"\1"),
    (re.compile(r"\\([*_`|\s])"), r"\1"),
)
_LAST_SENTENCE = re.compile(r"(.*[.!?]\s+)?(.*)\Z", re.DOTALL)
_LEAD_IN = re.compile(
    r"(?:for example|examples?|e\.g|for instance|usage|here|so|like|as follows|i\.e)\b", re.IGNORECASE
)
WORD = re.compile(r"[A-Za-z][A-Za-z'’\-]*")


def paragraphs(text: str) -> Iterator[str]:
    """What a text of reStructuredText says in sentences, without headings, blocks, lists of parameters and mark-up."""
    cleaned = (_without_lead_in(clean_inline(paragraph)) for paragraph in _prose(text))
    return filter(None, cleaned)


def _prose(text: str) -> Iterator[str]:
    """The paragraphs of the body that are not in a dropped section, block or list of parameters."""
    dropped = False
    lines = [*_without_blocks(text.split("\n")), ""]
    paragraph: list[str] = []
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        stripped, header = line.strip(), _header(line, following)
        begins = header is not None or FIELD.match(stripped)  # another section, or parameters
        if begins or not stripped or LIST_ITEM.match(stripped):
            yield from _joined(paragraph, dropped)
            paragraph = []
        if begins:
            dropped = header is None or header in _DROPPED_SECTIONS
        elif stripped and not UNDERLINE.match(stripped):
            paragraph.append(line)


def _header(line: str, following: str) -> str | None:
    """The folded name of a section that begins at ``line``, or ``None``."""
    stripped = line.strip()
    if _underlined(stripped, following.strip()):
        return _fold(stripped)
    match = SECTION.match(stripped)
    name = _fold(match[1]) if match else None
    return name if name in _SECTIONS else None


def _fold(name: str) -> str:
    return re.sub(r"[^a-z]+", "_", name.lower()).strip("_")


def _joined(paragraph: list[str], dropped: bool) -> Iterator[str]:
    if not paragraph or dropped:
        return
    first = paragraph[0].strip()
    if item := LIST_ITEM.match(first):
        first = first[item.end() :]
    if label := _KEPT_LABEL.match(first):
        first = first[label.end() :]
    if _PARAMETER.match(first) and (item or len(paragraph) == 1 or paragraph[1][:1].isspace()):
        return  # "name: what it is" is a parameter list, whatever its heading
    yield " ".join([first, *(line.strip() for line in paragraph[1:])])


def _without_blocks(lines: list[str]) -> list[str]:
    """Drop doctests, code blocks, fenced blocks, tables and directives with what is indented below them."""
    kept: list[str] = []
    skip_deeper_than: int | None = None
    fenced = doctest = False
    for line in _without_bordered_tables(lines):
        stripped = line.strip()
        indent = len(line) - len(line.lstrip())
        if _FENCE.match(line):
            fenced = not fenced
            kept.append("")
            continue
        if fenced:
            continue
        doctest = stripped.startswith(">>>") or (doctest and bool(stripped))
        if doctest:
            continue
        if skip_deeper_than is not None:
            if not stripped or indent > skip_deeper_than:
                continue
            skip_deeper_than = None
            kept.append("")
        if directive := _DIRECTIVE.match(stripped):
            kept.append("")
            if directive[1] in _KEPT_DIRECTIVES:
                kept.append(directive[2])
            else:
                skip_deeper_than = indent
        elif stripped.startswith(".. "):
            skip_deeper_than = indent  # a comment, target or footnote
        elif stripped.endswith("::") and _header(stripped, "") is None:
            kept.append(line.rstrip()[:-1])
            skip_deeper_than = indent
        elif _TABLE.match(line) and not (kept and _underlined(kept[-1].strip(), stripped)):
            kept.append("")
        elif indent >= 4 and kept and not kept[-1].strip() and not LIST_ITEM.match(stripped) and _code_like(stripped):
            skip_deeper_than = indent - 1
        else:
            kept.append(line)
    return kept


def _without_bordered_tables(lines: list[str]) -> list[str]:
    """Drop tables framed by ``===  ===``: from the first border to the last one of the same block of lines."""
    borders = [number for number, line in enumerate(lines) if _BORDER.match(line)]
    dropped: set[int] = set()
    for first, last in itertools.pairwise(borders):
        if last - first <= 60:
            dropped.update(range(first, last + 1))
    return ["" if number in dropped else line for number, line in enumerate(lines)]


def _underlined(line: str, following: str) -> bool:
    return 0 < len(line) <= 60 and bool(UNDERLINE.match(following))


def _code_like(line: str) -> bool:
    return bool(re.search(r"[=(\[{}\])]|\A(?:import|from|def|class|for|return|with)\s|[$#%>]\s", line)) or (
        len(WORD.findall(line)) < 4
    )


# ------------------------------------------------------------------------------------------ inline


def clean_inline(text: str) -> str:
    """A paragraph without mark-up, a piece at a time: what it takes goes with the square of a piece's length."""
    pieces = _PIECE.findall(re.sub(r"\s+", " ", text))
    for pattern, replacement in _INLINE:
        pieces = [pattern.sub(replacement, piece) for piece in pieces]
    text = "".join(pieces)
    text = re.sub(r"\s+", " ", text)
    return re.sub(r"\s+([.,;:!?)])(?!\w)", r"\1", text).strip()  # .NET


def _without_lead_in(paragraph: str) -> str:
    """Drop "For example:" and the like before a block that is gone; other colons become full stops."""
    if not paragraph.endswith(":"):
        return paragraph
    before, last = _LAST_SENTENCE.match(paragraph).groups()  # type: ignore[union-attr]
    return (before or "").strip() if _LEAD_IN.match(last) else paragraph[:-1].rstrip(" .") + "."


# ---------------------------------------------------------------------------------------- docstrings

_MESSY = re.compile(
    r"\\[a-zA-Z]|>>>|[{}$^~|\\]|==|\+=|::|->|=>|\w=[\w\"'\[(]|https?:|\.\.\.\s|__\w+__\s*=|[<>]{1,2}=?\s*\w+\s*[<>]"
)


def clean_docstring(text: str) -> tuple[str, str]:
    """The summary line and the body of a docstring whose indentation `inspect.cleandoc` has removed, both cleaned. The
    summary must read like a sentence of 3 to 20 words, else both are empty; the body are the paragraphs of prose that
    remain after it, if any, joined by line breaks."""
    head, _, rest = text.strip().partition("\n\n")
    summary = _clean_summary(head)
    return summary, "\n".join(filter(_reads_like_prose, paragraphs(rest))) if summary else ""


def _clean_summary(head: str) -> str:
    lines = [line.strip() for line in head.split("\n")]
    if len(lines) > 3 or any(UNDERLINE.match(line) or FIELD.match(line) or LIST_ITEM.match(line) for line in lines):
        return ""
    summary = clean_inline(" ".join(lines)).strip(" :")
    words = WORD.findall(summary)
    if not 3 <= len(words) <= 20 or _MESSY.search(summary):
        return ""
    if not summary[0].isalnum() or summary.endswith((",", "(", " the", " a", " of")) or SECTION.match(summary):
        return ""
    if re.match(r"[\w.]+\(|(?:deprecated|todo|fixme|copyright|version|test for|tests? that)\b", summary, re.IGNORECASE):
        return ""
    return summary if _mostly_words(summary) else ""


def _reads_like_prose(paragraph: str) -> bool:
    words = WORD.findall(paragraph)
    if len(words) < 5 or not _mostly_words(paragraph):
        return False
    return len(_MESSY.findall(paragraph)) <= len(words) // 25


def _mostly_words(text: str) -> bool:
    letters = sum(len(word) for word in WORD.findall(text))
    visible = sum(not character.isspace() for character in text)
    return letters >= 0.8 * visible and text.isprintable() and sum(map(str.isascii, text)) >= 0.97 * len(text)
