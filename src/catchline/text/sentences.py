"""Where sentences begin and end, offline, and the word between them: where it stands among a text's tokens.

The separator is an ordinary word of the vocabulary with an embedding of its own. It stands between sentences, not
behind the last one, and belongs to no characters: its span is the empty one behind the token before it.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise

import sentencex

from catchline.text.languages import goes_on, is_foreign, unseen_ends
from catchline.text.mending import FUNCTION_WORDS, RULER
from catchline.text.normalization import encodable, is_unspaced

Span = tuple[int, int]
ENGLISH = "en"
# Short forms after which nothing ends, though sentencex says so.
_SHORT = re.compile(r"(?:^|[\s(\[])(?:resp|approx|incl|excl|[Ee]qs?|[Ff]igs|[Rr]efs|spp|aka)\.\s*$")
_PANICS = re.compile(r"([A-Z]\s*)[^\S\x00-\x7f](?=\.)")  # sentencex does, at "C\xa0.", and not at the blank of ASCII
_WORD = re.compile(r"__\w|[^\W\d_]+")
_ETC = re.compile(r"\betc\.\)?\s+(?=[A-Z])")
_OPENING_WORDS = (
    "here there such one two however moreover furthermore finally additionally thus hence although because since using "
    "based given unlike compared experiments results extensive specifically first second third secondly further her "
    "instead overall together despite"
)
_OPENERS = FUNCTION_WORDS | frozenset(_OPENING_WORDS.split())
_SAYS_NOTHING = FUNCTION_WORDS | frozenset(["attached", "enclosed", "following", "below", "above", "here"])
_AHEAD = "a an the of and or from with its their our your my his"  # a line with such a word at its end goes on
_GOES_BEFORE = frozenset(_AHEAD.split())
_HEADING = 4  # words of a heading in capitals, at most, over an indented text
WRAPPED = re.compile(
    r"(?<=[a-z][-‐])[^\S\n]*+\n\s*+(?!(?:and|or|to|und|oder)\b)(?=[a-z])"
)  # a word, at the end of a line
NARROWEST = 60  # characters: no prose is taken to be wrapped at less
_NOUN = (  # the article of a noun that says what something is
    r"(?:an?\s+(?!(?:few|lot|number|part|bit|must|kind|result)\b)|the\s+(?!(?:same|following|only|first|most|result|one)\b))"
)
_NO_NOUN = r"(?!(?:an?|the|th[ie]s|these|that|it|all|no|some|several|many|following)\b)"
# "Foo is a tool for ...", "This package provides ...", "Foo allows you to ...", "In this paper, we propose a ..."
_LEAD = re.compile(
    rf"""(?ix)(?:
        (?!(?:there|one|what|which|here|if|when|while|as|how|because|since|note|and|but|or|s?he|each|every|some|all)\b)
        [^\s,;()]*[^\s,;:()]
        (?:\s+(?!(?:which|that|who|should|can|could|will|would|must|may|to|not|only|does|do|did)\b)[^\s,;()]+){{0,3}}?\s+
        (?:(?:is|are)\s+{_NOUN}
        |(?:provide|contain|implement|offer)s?\s+(?:{_NOUN})?{_NO_NOUN}
        |(?:allow|enable|let|help)s?\s+(?:you|one|users?|developers?|programmers?)\s+(?:to\s+)?
        |(?:is|are|can\s+be)\s+(?:used|designed|intended|meant)\s+to\s+(?!be\b))
      |(?:[^,;]{{0,80}},\s+)?(?:we|this\s+(?:paper|work|article|study|report|letter)|the\s+authors)\s+
        (?:(?:also|then|first)\s+)?
        (?:stud(?:y|ies)|(?:present|propose|introduce|describe|develop|investigate|consider|analy[sz]e|explore|address
        |examine)(?:e?s)?)
        \s+(?!(?:both|whether|that|if|how|when|what|this|these|it)\b)(?:{_NOUN})?)"""
)
# A verb of what was left out: "we study rivers and show that ...", "Foo is a tool for rivers and will ..."
_GOES_ON = re.compile(
    r"(?i)[^;:]*?,\s+and\s+(?:show|find|prove|demonstrate|observe|argue|report|reveal|conclude)\s+that\b|"
    r"(?:(?!\b(?:that|which|who|whose|where|to|can|could|will|would|how|whether|if)\b)[^;:])*?\band\s+(?:\w+ly\s+|then\s+|also\s+)?"
    r"(?:show|find|prove|demonstrate|observe|argue|report|reveal|conclude|evaluate|propose|introduce|present|develop"
    r"|construct|provide|will|can|is|are|was|has|does|provides|includes|contains|supports|allows|behaves|aims|uses)\s"
)
_EXAMPLES = re.compile(r"(?:,\s+(?:like|for example|for instance|namely)|(?<!\s),?\s+(?:including|such as))[\s.:,;]*\Z")
_COMMAND = re.compile(
    r"\\(?:text(?:bf|it|md|rm|sc|sf|sl|tt|up)?|emph|underline|math(?:bf|it|rm|sf|tt))\s*\{"
    r"|\{\\(?:bf|em|it|rm|sc|sf|sl|tt)(?![a-z])\s*|\\?[{}]"
)
_CITATION = re.compile(  # and references to parts of the text, and the names of these
    r"\s\((?:see|cf\.)?[^()\\{}]{0,20}\\(?:S\s?\\)?(?:auto|eq|[cC])?ref\{[^{}]*\}\)[.,;]?"
    r"|(?:(?<=\S)|~)\\[cC]ite\w*\{[^{}]*\}|(?:~|\b\s)?\\(?:auto|eq|page|[cC])?ref\{[^{}]*\}|(?<!\s)\s*+\\label\{[^{}]*\}"
    r"|\[/?(?:quote|url|img)(?:=[^\]\s]*)?\]"  # of forums
)
_FORMULA = re.compile(r"\$([^$]{1,80})\$")
_BLANK = re.compile(r"\\(?= )")  # what makes a blank of a formula one that is shown
_LINK = re.compile(
    r"(?<![\w\]])(!?\[)((?:[^\[\]]|\[[^\[\]]*\])*)(\](?:\([^()\s]*(?:\([^()\s]*\)[^()\s]*)?\)|\[[^\[\]\s]*\]))"
)
_WIKI = re.compile(
    r"\[\[(?:[^\[\]|\n]{1,200}(?:\||\]\[))?([^\[\]\n]{1,200})\]\]|(?<!')'{2,3}(?=[^'\s])([^'\n]{1,200})'{2,3}(?!')"
)
_STRESSED = re.compile(r"(?<![^\s(\[{\"'])(\*{1,3})(?=[^\s*])([^*]{1,200}?)(?<=[^\s*])(\1)(?![^\s.,;:!?)\]}\"'])")
_EMPHASIS = re.compile(  # not of names like __init__
    r"(?<![^\s(\[{\"'])(_|__(?![a-z\d]+__))(?=[^\W_])([^_\n]{1,200})(?<=[^\W_])(\1)(?![^\s.,;:!?)\]}\"'])"
)
_STRUCK = re.compile(r"(?<![^\s(\[{\"'])~~(?=[^\s~])[^~\n]{1,200}(?<=\S)~~(?:\s|(?![^.,;:!?)\]}\"']))")
_SIGNS = re.compile(r"[\\\[*_]|~~|''")  # one of which each of these has
_NAMED = re.compile(  # "foo - print all bars" at the beginning, "LONDON, May 2 (Reuters) -", "[9:02] anna: could you"
    r"(?:\A\s*(?=[^\w\s]*\w)\S{1,60}(?:, \S{1,60}){0,5}|[A-Z][^\n.!?;()]{0,50}\s(?:\([A-Z][^\n()]{0,30}\)|/\w{3,20}/)"
    r"|[A-Z][A-Z .]{2,30}, [^\n.!?;()]{0,30}\d{4})"
    r"\s{1,9}(?:--?|[\u2013\u2014])\s{1,9}(?=\S+\s+\S+\s)"
    r"|\[?(?:[\d/.-]{6,10},? )?\d\d?:\d\d(?::\d\d)?(?: ?[AaPp][Mm])?\]?(?: -)? [^\W\d][^:\n]{0,25}: (?=\S+\s+\S+\s)"
)
PIECE, AHEAD = 10_000, 2_000  # characters that sentencex sees at once, of which so many may hold the end of a quotation
_MARK = re.compile(  # in front of an item: "- ", "[ ] ", "2. ", "3.1 You may", "Q: "
    r"(?:(?:\[[ xX]\]|[>*•–—#-]+|\\item|[QA]:|(?:\d{1,2}[.)]|\d{1,2}(?:\.\d{1,2})+\.?)(?=\s+[A-Z][a-z]*\s))\s+)+"
)


def split_sentences(text: str, language: str | None = None) -> list[tuple[int, int]]:
    """Return the character spans of the sentences of ``text``, in order, white space around them left out. Without a
    ``language`` (an ISO code) the text tells whether it is English (`is_foreign`).

    A blank line always ends a sentence, and so does the end of a line that nobody wrapped (`_line_ends`); text between
    two spans is white space only.
    """
    return list(sentence_spans(text, language))


def sentence_spans(text: str, language: str | None = None) -> Iterator[tuple[int, int]]:
    """Those of `split_sentences`, one by one: whoever stops asking does not pay for the rest."""
    ends = _line_ends(text)
    if language in (None, ENGLISH) and "etc." in text:  # found quickly
        ends = sorted({*ends, *(found.end() for found in _ETC.finditer(text))})
    first, foreign = 0, is_foreign(text) if language is None else language != ENGLISH
    ends = sorted({*ends, *unseen_ends(text)}) if foreign else ends
    safe = text if text.isascii() else _PANICS.sub(r"\1 ", encodable(text))
    for last in _ends(safe, language or ENGLISH):
        short = last < len(text) and (_SHORT.search(text, max(first, last - 12), last) or _in_name(text, last))
        before = bisect_left(ends, last)
        if short or (foreign and goes_on(text, max(first, ends[before - 1] if before else 0), last)):
            continue
        cuts = [first, *ends[bisect_right(ends, first) : before], last]
        yield from [part for cut in pairwise(cuts) if (part := bounds(text, *cut))[0] < part[1]]
        first = last


def _ends(text: str, language: str) -> Iterator[int]:
    """Where sentences end to sentencex. It sees a long text in pieces, and again what it saw of a sentence that may go
    on behind one: what it takes goes with the square of what it sees, where that is full of backquotes or of Chinese
    full stops, and nothing else in the process runs meanwhile."""
    start = 0
    while start < len(text):
        piece = text[start : start + PIECE]
        found = [start + boundary["end_index"] for boundary in sentencex.get_sentence_boundaries(language, piece)]
        if start + PIECE < len(text):
            found = [end for end in found[:-1] if end <= start + PIECE - AHEAD]
        yield from found
        start = found[-1] if found else start + PIECE


def shortened(text: str, start: int, end: int, *, subject: bool = False) -> Span:
    """The part of an English sentence that could stand above the text: where it says what its subject is or does, or
    begins the text with a name and a dash, what stands behind that; the whole of any other. Without a lead to examples
    that it does not have. A ``subject`` stays, where wanted, if it says anything ("Attached is a ..." does not)."""
    start = behind_mark(text, start, end)
    lead = _LEAD.match(text, start, end)
    if lead and subject and not _SAYS_NOTHING.issuperset(_WORD.findall(lead[0].lower())):
        lead = None
    lead = lead or _NAMED.match(text, start, end)
    if lead and len(text[lead.end() : end].split()) > 2 and not _GOES_ON.match(text, lead.end(), end):
        start = lead.end()
    return start, start + (len(_EXAMPLES.sub("", text[start:end]).rstrip(" \n:,;")) or end - start)


def behind_mark(text: str, start: int, end: int) -> int:
    """Where the item begins of which the mark of a list, or a number, stands at ``start``."""
    mark = _MARK.match(text, start, end)
    return mark.end() if mark and mark.end() < end else start


def markup(text: str) -> list[Span]:
    """The signs in ``text`` that say how it shall look, in order: LaTeX's commands for fonts with their braces and what
    is left of a formula (``$\\textbf{R}$``), Markdown's stars, its links without their text, its pictures, and what it
    strikes through, links and stress of a wiki."""
    if not _SIGNS.search(text):
        return []
    found = [one.span() for sign in (_CITATION, _STRUCK) for one in sign.finditer(text)]
    for link in _LINK.finditer(text):
        of_wiki = link[3].startswith("][") and text[link.start() - 1 : link.start()] == "["  # [[http://x][docs]]
        if _WORD.search(link[2]) and not of_wiki:  # else perhaps two references
            found += [link.span()] if link[1] == "![" else [link.span(1), link.span(3)]
    for one in _WIKI.finditer(text):
        inner = one.span(1) if one[1] else one.span(2)
        found += [(one.start(), inner[0]), (inner[1], one.end())]
    for one in (*_STRESSED.finditer(text), *_EMPHASIS.finditer(text)):
        found += [one.span(1), one.span(3)]
    open_braces: list[Span | None] = []
    for one in _COMMAND.finditer(text):
        if one[0] == "{" or len(one[0]) > 2:
            open_braces.append(one.span() if len(one[0]) > 2 else None)
        elif one[0] == "}" and open_braces and (command := open_braces.pop()):
            found += [command, one.span()]
    for formula in _FORMULA.finditer(text):
        signs = [span for span in found if formula.start() < span[0] and span[1] < formula.end()]
        blanks = [one.span() for one in _BLANK.finditer(text, *formula.span(1))]
        if signs and not re.search(r"[\\^_={}<>]", without(text, signs + blanks, *formula.span(1))):
            found += [*blanks, (formula.start(), formula.start() + 1), (formula.end() - 1, formula.end())]
    return sorted(found)


def without(text: str, left_out: Sequence[Span], start: int = 0, end: int | None = None) -> str:
    """The part of ``text`` that stands from ``start`` to ``end`` and in none of the spans."""
    end = len(text) if end is None else end
    gone = {place for span in left_out for place in range(max(start, span[0]), min(end, span[1]))}
    return "".join(text[place] for place in range(start, end) if place not in gone) if gone else text[start:end]


def _in_name(text: str, end: int) -> bool:
    """Is the full stop that ends here one of a name (ASP.NET, io.Reader, README.Debian, .NET, x.__init__)? A letter
    stands behind it, in front of it a letter or a blank, and the word behind it is not one that begins a sentence whose
    blank was forgotten ("here.The rest")."""
    before, behind = text[end - 2 : end - 1], _WORD.match(text, end)
    named = text[end - 1] == "." and (before.isalpha() or before in " \t\n(/") and not is_unspaced(text[end])
    return named and behind is not None and behind[0].lower() not in _OPENERS


def _line_ends(text: str) -> list[int]:
    """The ends of lines that were ended on purpose, as in lists, minutes and mails: the next line is blank, or its
    first word would have fitted in and does not begin in lower case, nor does the line end in "of" or the like. So are
    headings, in capitals or underlined. The longest line tells the width of prose that was wrapped, where it has the 60
    characters that such prose usually has."""
    lines = text.split("\n")
    width = max(NARROWEST, *map(len, lines))
    found, place = [], 0
    for line, following in pairwise(lines):
        place += len(line) + 1
        word = following.split(maxsplit=1)[:1]
        fitted = word and not word[0][0].islower() and len(line.rstrip()) + 1 + len(word[0]) <= width
        fitted = fitted and line.rstrip().rpartition(" ")[2].strip("(").lower() not in _GOES_BEFORE
        heading = line.isupper() and len(line.split()) <= _HEADING and following[:1].isspace()
        if not word or fitted or heading or RULER.fullmatch(line.strip()) or RULER.fullmatch(word[0]):
            found.append(place)
    return found


def sentence_strings(text: str, language: str | None = None) -> list[str]:
    return [text[start:end] for start, end in split_sentences(text, language)]


def bounds(text: str, start: int, end: int) -> tuple[int, int]:
    """The span without the blanks at its ends, which some tokenizers count to a word."""
    found = text[start:end].lstrip()
    return end - len(found), end - len(found) + len(found.rstrip())


def sentence_gaps(text: str, separator: str, sentences: Sequence[str] = (), *, by_line: bool = False) -> list[Span]:
    """The stretches between the sentences of ``text`` (often one blank) where ``separator`` belongs: there alone where
    it holds the separator already, between blanks. Else sentences are ``sentences`` where they all stand in the text,
    or with ``by_line`` its lines if it has several, or those of `split_sentences`."""
    if separator in text:
        mark = re.escape(separator)
        return [found.span() for found in re.finditer(rf"\s*(?<!\S){mark}(?!\S)(?:\s+{mark}(?!\S))*\s*", text)]
    lines = re.finditer(r"[^\s](?:[^\n]*[^\s])?", text if by_line and "\n" in text.strip() else "")
    spans = _located(text, sentences) or [line.span() for line in lines] or split_sentences(text, ENGLISH)
    return [(before[1], after[0]) for before, after in pairwise(spans)]


def between_gaps(text: str, gaps: Sequence[Span]) -> list[str]:
    """What stands in front of the gaps, between them and behind them."""
    edges = [0, *(edge for gap in gaps for edge in gap), len(text)]
    return [text[start:end] for start, end in zip(edges[::2], edges[1::2], strict=True)]


def _located(text: str, sentences: Sequence[str]) -> list[Span]:
    spans, end = [], 0
    for sentence in filter(None, map(str.strip, sentences)):
        if (start := text.find(sentence, end)) < 0:
            return []
        spans.append((start, end := start + len(sentence)))
    return spans


def insert_separators(
    ids: Sequence[int], tokens: Sequence[str], offsets: Sequence[Span], gaps: Sequence[Span], separator: tuple[int, str]
) -> tuple[list[int], list[str], list[Span]]:
    """Put ``separator`` (id, string) where gaps, in order and apart, lie between two tokens; those within are left out.
    Gaps without a token on either side, or without one between them, give no second separator."""
    rows: list[tuple[int, str, Span]] = []
    passed, pending = 0, False
    for row in zip(ids, tokens, offsets, strict=True):
        start, _ = row[2]
        while passed < len(gaps) and start >= gaps[passed][1]:
            passed, pending = passed + 1, True
        if passed < len(gaps) and start >= gaps[passed][0]:
            continue  # a blank, or the separator spelled out
        if pending and rows:
            _, _, (_, end) = rows[-1]
            rows.append((*separator, (end, end)))
        pending = False
        rows.append(row)
    return [index for index, _, _ in rows], [token for _, token, _ in rows], [span for _, _, span in rows]
