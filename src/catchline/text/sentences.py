"""Where sentences begin and end, offline, and the word between them: where it stands among a text's tokens.

English goes by syntok, other languages by sentencex, each with a few rules of ours. The separator is an ordinary word
of the vocabulary with its own embedding. It stands between sentences, not behind the last one, and belongs to no
characters: its span is the empty one behind the token before it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise

import sentencex
from syntok import segmenter
from syntok.tokenizer import Tokenizer

from catchline.text.normalization import FUNCTION_WORDS, encodable, is_english, is_unspaced, with_line_feeds

Span = tuple[int, int]
ENGLISH = "en"
WRAPPED = re.compile(  # between the parts of a word that the end of a line divides
    r"(?<=[a-z][-‐])[^\S\n]*+\n\s*+(?!(?:and|or|to|und|oder)\b)(?=[a-z])"
)
RULER = re.compile(r"([-=~*#_+^])\1{3,}")  # under a heading, or between parts

# ------------------------------------------------------------------------------------------------------ languages

_LOOKED_AT = 2_000  # characters at the beginning of a text, which tell its language
_LETTERS = re.compile(r"[^\W\d_]+")
_FREQUENT = {  # words that English does not have
    "de": "der das und ist nicht den von mit dem ein eine einer auf für sich zu im sie er es wurde wird am vom zum",
    "fr": "le les des est une dans du qui pour sur il elle avec au et la de",
    "es": "el los las y una del por se su que con la en un de",
    "it": "il di che della gli un per sono dal nel alla con nei dei la",
    "pt": "os uma com em da dos na do para não que de",
    "pl": "w z i się nie jest od po że na do",
    "tr": "bir ve bu için ile",
    "nl": "het een van dat niet de en",
    "sv": "och det som av på",
    "da": "og det som af på",
}
_LANGUAGES = {language: frozenset(words.split()) for language, words in _FREQUENT.items()}
_SCRIPTS = "ja \u3041-\u30ff ko \uac00-\ud7a3 zh \u4e00-\u9fff th \u0e00-\u0e7f ru \u0400-\u04ff hi \u0900-\u097f"
_SCRIPTS += " ar \u0600-\u06ff"
_LETTERS_OF = {
    language: re.compile(f"[{found}]") for language, found in zip(*[iter(_SCRIPTS.split())] * 2, strict=True)
}
_FEWEST, _SHARE = 4, 0.2  # of such words, or words with a letter that English has not, in a text of another language


@lru_cache(8)
def language_of(text: str) -> str:
    """The language of a text as an ISO code, by its first 2,000 characters; ``en`` unless it is certainly another."""
    head = text[:_LOOKED_AT].lower()
    if head.isascii() and sum(map(head.count, (" the ", " of ", " and ", " to "))) > 0.06 * head.count(" "):
        return ENGLISH  # the common case, for speed
    letters = sum(map(str.isalpha, head))
    for language, pattern in _LETTERS_OF.items():
        if 3 * len(pattern.findall(head)) > letters:
            return language
    words = _LETTERS.findall(head)
    counts = {language: sum(word in own for word in words) for language, own in _LANGUAGES.items()}
    foreign = sum(not word.isascii() or any(word in own for own in _LANGUAGES.values()) for word in words)
    if foreign < max(_FEWEST, _SHARE * len(words)) or is_english(words):
        return ENGLISH
    return max(counts, key=lambda language: counts[language])


# ------------------------------------------------------------------------------- rules beside syntok and sentencex

_ENGLISH_FORMS = (  # titles, places, law: a sentence goes on behind them with a capital or a number
    "Adm App Art Asst Attn Bldg Br Bus Capt Ch Cir Civ Cmdr Co Col Comm Conn Const Cpl Crim Ct Def Dept Dist Dr Engl "
    "Ex Fed Fig Figs Fr Ft Gen Gov Hon Insp Inst Lt Maj Med Messrs Mr Mrs Ms Mt Nat No Nos Para Pl Pp Pres Prof Pt "
    "Pub Reg Rep Rev Rm Sci Sec Sect Sen Sgt Sr St Stat Sup Supp Supt Tab Univ Vol Vols Ala Ariz Ark Cal Calif Colo "
    "Fla Ga Ill Ind Kan Ky La Mass Md Mich Minn Mo Mont Neb Nev Okla Pa Tenn Tex Va Vt Wash Wis"
)
_BEFORE_NUMBERS = (
    "app approx apt art assoc aver bldg ca ch chap col corresp ed eq eqs est ex fig figs incl max min no nos p para "
    "pg pl pp pt ref rm sec sect tab tel temp v vol vols jan feb mar apr jun jul aug sep sept oct nov dec"
)
_OTHER_FORMS = (  # of other languages
    "dr prof hr hrn fr frl vgl str st mm mme mlle mgr bd boul sr sra srta dña av avda gral lic ing exmo sig dott avv "
    "geom ul al inż św ул пл пр им проф акад doç yrd sn cad sok डॉ श्री प्रो د ดร พ.ศ nr abs art pp pag pág cap fig "
    "réf sez núm tel abb tab kap vol rozdz rys ust pkt str гл рис см ст стр кв ок bkz ca mio mrd tsd h"
)
_FORMS, _NUMBERED = frozenset(_ENGLISH_FORMS.split()), frozenset(_BEFORE_NUMBERS.split())
_FOREIGN_FORMS = frozenset(_OTHER_FORMS.split())
_ALWAYS = frozenset(("e.g", "i.e", "cf", "vs", "v", "viz", "p.s"))
_MORE_OPENERS = "finally additionally however moreover furthermore nobody thus since one two three each until"
_OPENERS = FUNCTION_WORDS.union(_MORE_OPENERS.split()) - {"a", "i", "no", "will", "may", "can", "who", "so"}
_OPENER = "|".join(sorted(word.capitalize() for word in _OPENERS if word.isalpha()))
_SHORT = re.compile(r"(?:^|[\s'’(\[\"])([^\s'’(\[\"]+)\.\s*\Z")
_LABEL = re.compile(  # a number in front of an item: 1. 2.1. II. Q1. Step 1.
    r"\W*(?:(?:Step|Part|Section|Article|Chapter|Rule|Day|Question|Answer|No)[. ]\s?|[QA])?"
    r"(?:(?:\d{1,4}\.\s*)+|[IVXLC]+\.)\s*"
)
_ORDINAL = re.compile(
    r"(?i)\b(?:de[rmns]|die|das|[ai]m|vom|zu[mr]|beim|und|bis)\s\d{1,2}\.\s*\Z"
)  # German, before a noun
_MISSED = re.compile(  # ends that syntok does not see
    r"\b(?:etc\.\)?|[ap]\.m\.|\w\.[a-z]{2,5}\.)\s+(?=[A-Z][a-z]+\b(?!\.))"
    rf"|(?<=[^\W_][.!?])[\"”’)\]]?\s+(?=(?:{_OPENER})\b)"
    r"|(?<=[a-z]{5}\.)\s+(?=[a-z])|(?<=[a-z]{3}[.!?])\s+(?=\d{3})|(?<=[.!?;])\s+(?=(?:\d{1,2}\.)+\s+[A-Z])"
)
_UNSEEN = re.compile(  # ends that sentencex does not see
    "[。？](?=\\d)|……(?=[\u4e00-\u9fff“「])|(?<=[\u0e00-\u0eff]{20})\\s(?=[\u0e00-\u0eff])"
    "|(?<=[.!?;])\\s+(?=(?:\\d{1,2}\\.)+\\s+[^\\W\\d_])"
)
_SYLLABIC = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff]")  # Thai and its kin end no sentence with a sign
_AGGLUTINATED = re.compile("[\u3041-\u3096\uac00-\ud7a3]")  # kana and Hangul, which follow a quotation
_GLUED = re.compile(
    r"(?<![\w.@/:-])(\w+(?:\.\w+)*)([.!?])[\"”’)]?(?=([A-Z][a-z]*)\s+([a-z]+)\b)"
)  # ends without a blank behind
_CODE = re.compile(r"[`_(){}<>=]|\w\.[a-z]")
PIECE, AHEAD = 10_000, 2_000  # characters that sentencex sees at once, of which so many may hold the end of a quotation


def _opens(word: str) -> bool:
    return word.lower() in _OPENERS and word[:1].isupper()


def _without_blanks(text: str) -> set[int]:
    """The ends of English sentences behind which the blank was forgotten; names (ASP.NET, io.Reader) have none."""
    likely, words, ends = set[int](), set[str](), set[int]()
    long = False  # is the sentence in front of one of the likely ends that of prose?
    for match in _GLUED.finditer(text):
        word, sign, opener, following = match.groups()
        if sign != "." or word.isdigit() or _opens(opener):
            ends.add(match.end())
        elif len(word) > 2 and "." not in word:
            likely.add(match.end())
            if following not in FUNCTION_WORDS:
                words.add(word)
                before = text[max(0, match.start() - 200) : match.start()]
                long = long or len(re.split(r"[.!?]\s", before)[-1].split()) > 4
    return ends | likely if len(words) > 1 or (long and not _CODE.search(text)) else ends


def goes_on(text: str, first: int, last: int, language: str) -> bool:
    """Does the sentence that begins at ``first`` go on behind the end that a library sees at ``last``?"""
    before, behind = text[max(first, last - 60) : last], text[last : last + 40].lstrip()
    if not behind or (last - first < 30 and _LABEL.fullmatch(before)):
        return bool(behind)
    short, next_word = _SHORT.search(before[-20:]), _LETTERS.match(behind)
    form = short[1] if short else ""
    if language == ENGLISH:
        if form.lower() in _ALWAYS:
            return True
        if next_word and _opens(next_word[0]):
            return False
        numbered = not behind[0].isupper() or (next_word is not None and len(next_word[0]) == 1)
        return form in _FORMS or (numbered and form.lower() in _NUMBERED)
    begun = _LETTERS.search(text, first, last)
    if behind.lstrip("—–- ")[:1].islower() and begun is not None and begun[0][0].isupper():
        return True
    if before.rstrip()[-1] in "”“»\"'」』" and next_word and next_word[0].lower() == next_word[0].upper():
        quoted = text[first : first + 9].lstrip()[:1] in "“„«\"'「『"  # its speaker follows
        return quoted or (not before[-1].isspace() and bool(_AGGLUTINATED.match(behind)))
    initial = form[-1:].isupper() and len(re.split(r"[.\-]", form)[-1]) == 1 and not behind[0].isdigit()
    ordinal = language == "de" and _ORDINAL.search(before)
    return initial or form.lower() in _FOREIGN_FORMS or bool(ordinal or (short and _SYLLABIC.match(form[-1:])))


# ------------------------------------------------------------------------------------------------------- sentences


def split_sentences(text: str, language: str | None = None) -> list[Span]:
    """Return the character spans of the sentences of ``text``, in order, white space around them left out.

    Without a ``language`` (an ISO code) the text tells it (`language_of`). A blank line always ends a sentence, and so
    does the end of a line that nobody wrapped; text between two spans is white space only.
    """
    return list(sentence_spans(text, language))


def sentence_spans(text: str, language: str | None = None) -> Iterator[Span]:
    """Those of `split_sentences`, one by one: whoever stops asking does not pay for the rest."""
    language = language or language_of(text)
    text = with_line_feeds(encodable(text))
    for start, end in pairwise([0, *_line_ends(text), len(text)]):
        block, first = text[start:end], 0
        for last in _ends(block, language):
            if last == len(block) or not goes_on(block, first, last, language):
                span = bounds(text, start + first, start + last)
                first = last
                if span[0] < span[1]:
                    yield span


def _ends(block: str, language: str) -> Iterator[int]:
    """Where sentences may end in a block, its own end among them."""
    small = block.lower() == block and (language == ENGLISH or language in _LANGUAGES)
    if language != ENGLISH or small:  # else a small letter begins no sentence
        ends = {
            *_sentencex_ends(block, ENGLISH if small else language),
            *(match.end() for match in _UNSEEN.finditer(block)),
        }
        yield from sorted({*ends, len(block)})
        return
    glued = _without_blanks(block)
    missed = sorted({*glued, *(match.end() for match in _MISSED.finditer(block)), len(block)}, reverse=True)
    for sentence in segmenter.segment(Tokenizer(replace_not_contraction=False).tokenize(block)):
        last = sentence[-1].offset + len(sentence[-1].value)
        while missed and missed[-1] < last:
            yield missed.pop()
        stopped = block[max(0, last - 9) : last].rstrip("\"')]}”’»")[-1:] in (".", "!", "?", "…")
        named = block[last - 1] == "." and not block[last : last + 1].isspace() and last not in glued
        if stopped and not (named and not is_unspaced(block[last : last + 1])):
            yield last
    yield from reversed(missed)


def _sentencex_ends(text: str, language: str) -> Iterator[int]:
    """Where sentences end to sentencex. It sees a long text in pieces, and again what it saw of a sentence that may go
    on behind one: what it takes goes with the square of what it sees, where that is full of backquotes or of Chinese
    full stops. A blank beyond ASCII before a full stop makes it panic."""
    text, start = re.sub(r"[^\S\n]", " ", text), 0
    while start < len(text):
        piece = text[start : start + PIECE]
        found = [start + boundary["end_index"] for boundary in sentencex.get_sentence_boundaries(language, piece)]
        if start + PIECE < len(text):
            found = [end for end in found[:-1] if end <= start + PIECE - AHEAD]
        yield from found
        start = found[-1] if found else start + PIECE


_AHEAD = "a an the of and or from with its their our your my his"  # a line with such a word at its end goes on
_GOES_BEFORE = frozenset(_AHEAD.split())
_BULLETS = ("*", "-", "•", "–")
_HEADING = 4  # words of a heading in capitals, at most, over an indented text
NARROWEST = 60  # characters: no prose is taken to be wrapped at less


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
        ruled = word and (word[0] in _BULLETS or RULER.fullmatch(word[0]) or RULER.fullmatch(line.strip()))
        if not word or fitted or heading or ruled:
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
    lines = with_line_feeds(text) if by_line else ""
    found = re.finditer(r"[^\s](?:[^\n]*[^\s])?", lines if "\n" in lines.strip() else "")
    spans = _located(text, sentences) or [line.span() for line in found] or split_sentences(text, ENGLISH)
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


# ------- read by metrics/confidence until its answer sentences go

_WORD = re.compile(r"__\w|[^\W\d_]+")
_SAYS_NOTHING = FUNCTION_WORDS | frozenset(["attached", "enclosed", "following", "below", "above", "here"])
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
_MARK = re.compile(  # in front of an item: "- ", "[ ] ", "2. ", "3.1 You may", "Q: "
    r"(?:(?:\[[ xX]\]|[>*•–—#-]+|\\item|[QA]:|(?:\d{1,2}[.)]|\d{1,2}(?:\.\d{1,2})+\.?)(?=\s+[A-Z][a-z]*\s))\s+)+"
)


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
