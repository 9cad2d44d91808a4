"""Where sentences of other languages than English go on, though a full stop or a quotation ends, and where they end.

sentencex has lists of short forms by language, but parts ``M. Dupont`` with the French one. What stands here is added
to it and knows no single language, only that a text is certainly not English: no other text is touched.
"""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import accumulate

from catchline.text.mending import is_english
from catchline.text.normalization import MARKS

_LOOKED_AT = 2_000  # characters at the beginning of a text, which tell whether it is English
_NEAR = 300  # characters in which a quotation ends
_LETTERS = re.compile(r"[^\W\d_]+")
_FREQUENT = (  # words of languages in Latin letters, of which English has none
    "der das und ist nicht den von mit dem ein eine einer auf für sich zu im sie er es wurde wird am vom zum le les "
    "des est une la con dei nel alla dans du qui pour sur il elle avec au el los las y una del por se su que di della "
    "gli un per sono dal os uma com em da dos na w z i nie jest od po bir ve bu için ile het een van dat niet och det "
    "som av på og"
)
_FOREIGN = frozenset(_FREQUENT.split())
_SURE = " the ", " of ", " and ", " to "  # where they are many, the text is English
_FEWEST, _SHARE = 4, 0.2  # of these words, or with a letter that English has not, in a text of another language
_TITLES = (  # short, and what stands behind them goes on with a capital or a number
    "dr prof hr hrn fr frl vgl gem str st mm mme mlle mgr pr bd bld boul sr sra srta dña dra ud uds ee "
    "avda gral lic ing arq exa exmo excmo profa gen sig dott avv geom on rag dep pl zob por ul al os inż św dn hab "
    "ks płk ул пл пр им ген проф доц акад doç yrd sn hz cad sok mah şti univ üniv av डॉ श्री प्रो"
)
_PARTS = (  # with a number
    "nr abs art pp chap cap fig réf pág págs pag pagg sez núm no tel séc sec abb tab kap vol rozdz rys ust pkt гл рис "
    "см ст стр кв тел böl şek bkz ок ok ca aprox env"
)
_AMOUNTS = frozenset(("mio", "mrd", "tsd"))
_NAMED, _NUMBERED = frozenset(_TITLES.split()), frozenset(_PARTS.split())
_ORDINAL = re.compile(r"(?i)\b(?:de[rmns]|die|das|[ai]m|vom|zu[mr]|beim)\s\d{1,2}\.\Z")  # German, before a noun
_MONTH = re.compile(r"(?:Jan|Feb|Mär|Apr|Mai|Jun|Jul|Aug|Sep|Okt|Nov|Dez)[a-z]*\b|Jahrhundert")
_NUMBERS = re.compile(r"(?:\d+\.\s*)+|[IVX]+\.")
_LAST_WORDS = re.compile(r"(?:(\S+)\s+)?[^\w\s]*(\S*?)\.\Z")
_ROMAN = re.compile(r"[IVX]+\Z|.*\d\Z")
_MARK = re.compile(f"[{MARKS}]")
_SYLLABIC = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff]")  # Thai and its kin end no sentence with a sign
_KOREAN, _KANA = re.compile("[\uac00-\ud7a3]"), re.compile("[\u3041-\u3096]")
_CLOSING, _OPENING = "”“»’\"'」』", "“„«\"'「『"
_PAIRS = (("『", "』"), ("„", "”“"))  # which sentencex does not know, or not in all languages
_UNSEEN = re.compile(  # ends to readers, not to sentencex
    r"[。？](?=\d)|(?:……|⋯⋯)(?=[\u4e00-\u9fff“「])|(?<=[\u0e00-\u0eff]{20})\s(?=[\u0e00-\u0eff])"
)


@lru_cache(8)
def is_foreign(text: str) -> bool:
    """Is the text certainly not English? By its first 2,000 characters it is mostly in other letters than Latin ones,
    or a fifth of its words are frequent in another language or have letters of its own, and hardly any are English."""
    head = text[:_LOOKED_AT].lower()
    sure, enough = accumulate(map(head.count, _SURE)), 0.06 * head.count(" ")  # counted until they are enough
    if len(head.encode(errors="replace")) < 1.1 * len(head) and any(found > enough for found in sure):
        return False  # found quickly
    words = _LETTERS.findall(head)
    if 2 * sum(word[0] > "\u024f" and not "\u1e00" <= word[0] <= "\u1eff" for word in words) > len(words):
        return True
    told = sum(word in _FOREIGN or not word.isascii() for word in words)
    return told >= max(_FEWEST, _SHARE * len(words)) and not is_english(words)


def is_turkish(text: str) -> bool:
    """Has it, or a language like it, an i without a dot?"""
    return any(letter in text for letter in "ıİğ") and is_foreign(text)


def unseen_ends(text: str) -> list[int]:
    """The ends of sentences that sentencex does not see: in front of a digit, Chinese dots, and the blank behind a long
    clause of Thai or Lao, which have no sign for it; none in quotations."""
    return [
        found.end()
        for found in _UNSEEN.finditer(text)
        if not any(_is_open(text, 0, found.end(), *pair) for pair in ("“”", "「」", *_PAIRS))
    ]


def goes_on(text: str, start: int, end: int) -> bool:
    """Does the sentence of another language than English that begins at ``start`` go on at ``end``, where sentencex
    ends it? It does in front of a small letter, of what follows a quotation, behind a short form and an ordinal."""
    before, behind = text[max(start, end - 60) : end].rstrip(), text[end : end + 40].lstrip()
    if not before or not behind:
        return False
    last, head, opening = before[-1], behind[0], text[start : start + 9].lstrip()[:1]
    if any(_is_open(text, start, end, *pair) for pair in _PAIRS):
        return True
    if last in _CLOSING and _LETTERS.match(head) and head.lower() == head.upper():  # a script without capitals
        joined = not text[end - 1].isspace() and not text[end].isspace()
        return opening in _OPENING or (joined and bool(_KOREAN.match(head) or _KANA.match(head)))
    begun = _LETTERS.search(text, 0, _LOOKED_AT)
    if behind.lstrip("—–- \xa0")[:1].islower() and (last in _CLOSING or (begun and begun[0][0].isupper())):
        return True  # unless nobody wrote capitals
    numbers = end - start < 60 and _NUMBERS.fullmatch(before.lstrip())
    return last == "." and bool(numbers or _is_short(before, behind))


def _is_short(before: str, behind: str) -> bool:
    """Is the full stop at the end of ``before`` that of an ordinal or a short form?"""
    head, found = behind[0], _LAST_WORDS.search(before)
    if found is None or _SYLLABIC.match(before[-2:]):
        return found is not None
    word = re.split("['’]", found[2].lower())[-1]
    if word[-1:].isdigit():
        german = head.isupper() and (_ORDINAL.search(before) or (len(word) < 3 and _MONTH.match(behind)))
        return bool(german or _KOREAN.match(head))
    letter = _MARK.sub("", re.split(r"[.\-‐]", word)[-1])
    if len(letter) == 1 and letter.isalpha():  # behind a number it may end: Это было в 2024 г. Затем
        only_a_date = len(before.split()) < 4
        return only_a_date or head.isdigit() or found[2].isupper() or not _ROMAN.match(found[1] or "")
    if word in _NUMBERED and (head.isdigit() or _ROMAN.match(behind.split()[0])):
        return True
    amount = (found[1] or "").isdigit()  # 10 Mio. Euro, but 50 Hz. Danach
    return word in _AMOUNTS if amount else word in _NAMED or word.endswith("str")  # Goethestr. 7


def _is_open(text: str, start: int, end: int, opening: str, closing: str) -> bool:
    """Is a quotation of this kind open at ``end`` that closes soon?"""
    near = text[max(start, end - _NEAR) : end]
    place = near.rfind(opening)
    if place < 0 or any(sign in near[place:] for sign in closing):
        return False
    return any(sign in text[end : end + _NEAR] for sign in closing)
