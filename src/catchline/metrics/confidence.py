"""Knowing which and when not to: the best of several summaries of a text, how likely a reader is to accept it, and
whether the text is of a kind that the model knows.

Four questions, answered from what decoding leaves anyway and the text (no second pass, no tensor library):

1. Is the document like those that the model was trained on? Four plain figures of it are held against the range they
   had there (`Ranges`): how many tokens it has, how many of its words the vocabulary lacks, how many are among the
   vocabulary's hundred most frequent ones (in another language hardly any are), and the mean over its words of

       ln p(w, English of no particular kind) / p(w, the model's documents)

   the likelihood ratio that tells texts of another domain (Ren et al., NeurIPS 2019, with unigram models; e-mails given
   to a model of abstracts). A text that is only longer is not strange: the model reads its beginning, and the summary
   says how much (``truncated``).
2. Would a reader accept the summary? Confidence is a logistic regression over a few facts (`FEATURES`), fitted on
   validation records (`catchline calibrate`), so that of summaries with confidence 0.7 about seven in ten are accepted:

       confidence = sigmoid(bias + sum_j weight_j (fact_j - mean_j) / deviation_j)

3. Which hypothesis of the search is the best? Its probability knows little of that: the one with the highest ROUGE is
   often another one. A linear regression predicts by how much a hypothesis's ROUGE differs from the mean over those of
   its document, from facts of `FEATURES` and from how much it agrees with the others (`catchline.metrics.consensus`),
   and the highest is taken (``search.choose: rerank``; reranking of N-best lists: Och et al. 2004).
4. Which sentence of the document would answer in place of the summary, and would it do better? One is chosen by what
   it says of the summary, by its place and its form (`WORTH`), and has a chance of being accepted of its own, by the
   same regression over `SENTENCE`, fitted on sentences that readers have rated.

A `Calibration` lies in the model folder as ``calibration.json``. A model without one has neither answer.
"""

from __future__ import annotations

import base64
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, TypeVar

import numpy as np
from pydantic import Field, FiniteFloat, TypeAdapter, ValidationError

from catchline.errors import ModelError
from catchline.files import write_json
from catchline.metrics.words import is_stop_word, ordinary_stems, stem, words
from catchline.text.normalization import FUNCTION_WORDS
from catchline.text.sentences import WRAPPED, behind_mark, sentence_strings, shortened, split_sentences
from catchline.types import Hypothesis, TokenizedText

T = TypeVar("T")
FILE = "calibration.json"
_BASE64 = r"^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"
_STEPS = 20  # of a ratio's unit
_OPENING = 2000  # characters in which the first sentence is looked for
COMMON = 100  # so many of the vocabulary's first words count as common
Facts = dict[str, float]
FEATURES = (
    "mean_log_prob",  # of the summary's tokens, END counted
    "least_log_prob",  # of its least likely token
    "tokens",
    "new_words",  # share of its words that the document, as read, does not hold
    "source_unknown",  # share of the document's words that the vocabulary lacks
    "log_source_tokens",
    "last_log_prob",  # of its END
    "said_often",  # share of its words, each counted once, whose stem the document has more than once; no stop words
    "joins",  # neighbours among its content words that are no neighbours among the document's
    "opening",  # how many of its content words the document's first sentence has
    "longest_run",  # of its words, how many at most follow each other in the document
)
CHOOSING = (
    *("agreement", "mean_log_prob", "least_log_prob", "last_log_prob", "tokens", "new_words", "said_often"),
    *("joins", "opening", "longest_run"),
)
SENTENCE = (
    "says",  # the share of the summary's content words that a sentence of the document holds
    "long",  # how many words it has beyond ``LINE``
    "hangs",  # does its first word lean on what was said before?
    "place",  # how many sentences stand before it, five at most
    "confidence",  # in the summary
    "first",  # does it stand before all others?
    "last",  # behind all others?
    "alone",  # is there no other?
    "states",  # does it begin with its subject and what that is or does (`shortened`)?
    "presents",  # "we propose ...", "this paper studies ..."
    "packages",  # "this package provides ..."
    "asides",  # of how many other things it speaks: what comes along, versions and people, where to look
    "background",  # does it stand before the first in which a paper's authors say what they do?
)
WORTH = {  # of a sentence, in points of readers who rated from 0 to 3: least squares over 4,021 rated sentences
    **{"says": 1.11, "long": -0.006, "hangs": -0.073, "place": -0.058, "first": 0.23, "last": -0.17},
    **{"states": 0.38, "presents": 0.43, "packages": 0.2, "asides": -0.19, "background": -0.53},
}
LINE = 25  # words
FEWER, FEW = 8, 0.13  # of a text of another kind a sentence with fewer words loses so many points for each
ABSTRACT = 12  # sentences, in one of which a paper's authors say what they do
_LEANING = (
    " it its they them their these those that such however also then but and so thus therefore moreover furthermore "
    "additionally besides instead to in note see by when if for you as "
)
_PRESENTS = re.compile(
    r"(?i)\b(?:we|this (?:paper|work|article|study))\b[^.]{0,40}"
    r"\b(?:present|propose|introduce|describe|develop|study|investigate|analy[sz]e|show|examine|explore)"
    r"|\bthis (?:policy|document|guide|page|notice|manual|tutorial|report|memo|chapter) "
    r"(?:describe|explain|cover|specif|show|set)"
)
_AUTHORS = re.compile(  # of a paper, who say what they do: what stands before is its background
    r"(?i)\bwe (?:(?!(?:c|w|sh)ould|can|will|must|may|might|to)\w+ )?(?:present|propose|introduce|describe|develop"
    r"|study|investigate|analy[sz]e|show|examine|explore|evaluate|compare|formali[sz]e|formulate|test|assess|consider"
    r"|address|construct|design|derive|prove|argue|find that|demonstrate|extend|apply|conduct)"
    r"|\bthis (?:\w+ )?(?:paper|article|study|survey|thesis)\b|\bin this (?:work|report|letter)\b|\bthis work \w{3,}s\b"
)
_PACKAGES = re.compile(
    r"(?i)\b(?:this|the|these|it)\b[^.]{0,30}\b(?:packages?|metapackage|dummy|transitional|source)\b[^.]{0,40}"
    r"\b(?:contains?|includes?|installs?|depends?|provides?|is|are|ships?|holds?|part of|for use)\b"
)
_ASIDES = (
    re.compile(
        r"(?i)\b(?:development files|headers|header files|documentation|debug(?:ging)? symbols|"
        r"(?:shared|static) librar(?:y|ies)|python ?[23]|examples|plugins? for|dependenc(?:y|ies)|metapackage|"
        r"transitional|install(?:s|ed|ation|ing)?|tests?)\b"
    ),
    re.compile(
        r"(?i)\b(?:versions?|released?|maintain(?:s|ed|er|ers)?|licen[cs]ed?|authors?|written by|upstream|deprecated|"
        r"stars?|contribut(?:e[ds]?|ions?|ors?|ing)|thanks|sponsors?)\b"
    ),
    re.compile(r"(?i)https?:|www\.|`|\b(?:here|npm|yarn|pip|github)\b"),
)
_FIELD = re.compile(r"[\]\[<>=@|\\{}]|:\s|://|\w\(|\(\W*\d|\d\)")  # what a sentence seldom has, but for a function word
_DIVIDED = re.compile(rf"(?<![\w-])([^\W\d_]+)[-\u2010]{WRAPPED.pattern}([^\W\d_]+)")
_BEFORE = re.compile(  # a heading, that of a part of an abstract, a salutation, "Anna  9:41 AM"
    r"(?:A ?bstract|A ?BSTRACT|Summary|SUMMARY)(?:\s*[.:\u2013\u2014]+\s*(?=\S)|\s+(?=(?:We|In|The|This|An?|Our)\s))"
    r"|(?:BACKGROUND|Background|OBJECTIVES?|Objectives?|AIMS?|Aims?|PURPOSE|Purpose|METHODS|Methods|RESULTS|Results"
    r"|CONCLUSIONS?|Conclusions?):\s+(?=\S)|(?:Hello|Hi|Hey|Dear)\b[^\n]{0,40},\n\s*(?=\S)"
    r"|[A-Z][^\s.]*(?: [A-Z][^\s.]*){0,2}\s+(?:(?:Today|Yesterday) at )?\d\d?:\d\d(?: ?[AP]M)?\n\s*(?=\S)"
)
_POSTED = re.compile(r"\n\s*\S+(?: \S+)?(?P<all>\s+[\u2022\u00b7|\u00bb]\s.*\d.*)?\Z")  # "anna83 • Jan 14 • 23 replies"
_REFERENCES = re.compile(r"(?im)^[ \t\d.#*IVX]{0,9}(?:references|bibliography|works cited)[ \t:*]{0,9}$")
_CAPTIONS = re.compile(
    r"(?m)^(?:(?:F(?:ig|IG)(?:ure|URE|\.)|T(?:able|ABLE))\s*\d[\d.-]*\s*[.:|\u2013\u2014]|\[\d{1,3}\]\s+[A-Z])"
    r"(?:.*\S\n?){1,4}"  # the lines of its paragraph
)
_LEGEND = re.compile(  # an option, what a paper has around its text, LaTeX's commands
    r"(?i)\[?--?\w|(?:key\s?words|index terms)\s*[:.\u2013\u2014-]|source:\s|received\W.*\d{4}"
    r"|permission to make|please cite|correspond(?:ing author|ence to)"
    r"|%|\\(?:begin|end|(?:sub)*section|chapter|caption|label|title|author|usepackage|documentclass|newcommand)\b"
)
_HEAD = re.compile(  # of pages and papers, and what leads to a page, columns
    r"(?i)\bpage\s+\d|\S@\w|\.{4}|(?:\s\.){3}|[\u00a9\u2020\u2021]|\b(?:vol|no)\.\s\d|\S(?: {4,}|\t\s*)\S"
    r"|(?:\S {2,}\S.*){2}|all rights reserved"
    r"|\A\W{0,9}\d?\s?(?:department|faculty|institute|school|university|college|laboratory)\s+(?:of|for)\b"
)
_NAMES = re.compile(r"\b[A-Z]\.\s|\A(?=[^:]*\Z)[A-Z\d][^,]*,\s*\S")
_STOP = re.compile(r"\A[Uu]sage:|[.!?\u2026\u3002\uff01\uff1f][\"'\u2019\u201d)\]]*\Z")
_KEYED = re.compile(r"[A-Z][\w/-]*(?: [\w/-]+){0,2}: (?!An? |The )(?:\S+\s+){0,8}\S+\Z")  # "Pay: 12 an hour plus tips"
_STOCK = re.compile(  # what stands in all texts of a kind, and says nothing of this one
    r"(?i)\bthank(?:s| you) for (?:contacting|calling|reaching out)\b|\bend-to-end encrypted\b"
    r"|\Ano one outside of this chat\b|\bmeeting to order\b|\bminutes of the (?:last|previous|\d)"
    r"|\bmeeting (?:was )?(?:closed|adjourned|opened)\b|\bno(?:ted)? (?:further business|apologies)\b"
    r"|\A(?:this|the) (?:project|format) (?:adheres to|is based on) |\Aall notable changes\b|\Acopyright \W*\d"
    r"|\A(?:issued|posted|published|(?:last )?updated|written|reviewed) (?:by|on|at|\d)\b[^.!?]*\Z"
    r"|\Athis page was last edited\b|\Atext is available under\b"
    r"|\A\W*start of (?:the|this) project gutenberg\b|\A\[?transcriber's note"
    r"|\byou must (?:log in|register)\b|\bclear and concise description\b"
    r"|\Asteps to reproduce\b|\Aadd any other context\b|\A(?:read|accept|review) (?:these|the) terms\b"
)
LEADS_ELSEWHERE = re.compile(  # where the reader shall look in place of this text
    r"(?i)\W*(?:please |you can )?(?:also )?(?:see (?:the|this|also|our|here)\b|check out (?:the|this|our)\b|refer to\b"
    r"|click\b|read (?:on|more)\b|visit (?:the|our)\b[^.]*\b(?:web ?site|page|docs|documentation|homepage|wiki)\b"
    r"|for (?:more|further) (?:information|details|examples)\b|\[see\b)"
)
_SAID_LINE = re.compile(r"(?m)^[^\w\n]*+\w.*")  # sought at the beginnings of lines alone: no line takes its square
_SPOKEN = re.compile('["\u201c\u2018\'](?=\\w)[^"\u201c\u201d]*[,.!?\u2026]["\u201d\u2019\']')
_HEADING = 5  # words, at most, without a stop, of a text that has pages
LONGEST = 500  # words of a summary that are looked at together; with more, it copied a "word" of thousands of signs
FEWEST_WORDS = 4  # of a sentence that may answer, where there is such a one: not "Hi Anna,"


def unknown_words(share: float) -> str:
    """The clause that says so."""
    return f"{share:.0%} of its words are unknown to the model"


@dataclass(frozen=True, slots=True)
class Ranges:
    """What nearly all documents of the training data have at least, or at most."""

    least_tokens: int
    most_unknown: FiniteFloat
    least_common: FiniteFloat
    most_ratio: FiniteFloat = 100.0  # none has as much: for a calibration without word ratios

    def unlike(self, facts: Mapping[str, float]) -> tuple[str, ...]:
        """In what a document differs from the training data, a clause each; empty where it does not."""
        found = []
        if facts["source_tokens"] < self.least_tokens:
            tokens = round(facts["source_tokens"])
            size = f"{tokens} token{'' if tokens == 1 else 's'}"
            found.append(f"it is shorter than what the model learnt from ({size})")
        if facts["source_common"] < self.least_common:
            found.append("it does not look like the language the model learnt")
        elif facts["source_unknown"] > self.most_unknown:
            found.append(unknown_words(facts["source_unknown"]))
        elif facts["source_ratio"] > self.most_ratio:
            found.append("it is of another kind, by the frequencies of its words")
        return tuple(found)


@dataclass(frozen=True, slots=True)
class Calibration:
    """How to turn facts into confidence (the vectors follow `FEATURES`), and what documents the model knows."""

    mean: tuple[FiniteFloat, ...]
    deviation: tuple[FiniteFloat, ...]
    weight: tuple[FiniteFloat, ...]
    bias: FiniteFloat
    threshold: FiniteFloat  # below this confidence an extractive answer is given instead
    ranges: Ranges
    accepted: str = ""  # what counted as that when the regression was fitted, in words
    records: int = 0  # that it was fitted on
    choosing: tuple[FiniteFloat, ...] = ()  # ROUGE points a unit of each fact of `CHOOSING`; none: not fitted
    word_ratios: Annotated[str, Field(pattern=_BASE64)] = ""  # `packed` log ratios, one an id of the vocabulary
    sentence: tuple[FiniteFloat, ...] = ()  # the weights of `SENTENCE`, as they are, and the bias; none: not fitted

    @classmethod
    def blank(cls) -> Calibration:
        """One that is always sure: what a model has while its own is being found."""
        size = len(FEATURES)
        ranges = Ranges(least_tokens=0, most_unknown=1.0, least_common=0.0)
        return cls((0.0,) * size, (1.0,) * size, (0.0,) * size, bias=30.0, threshold=0.0, ranges=ranges)

    def confidence(self, facts: Mapping[str, float]) -> float:
        """The probability, between 0 and 1, that a reader accepts a summary with these facts."""
        terms = zip(FEATURES, self.weight, self.mean, self.deviation, strict=True)
        return float(sigmoid(self.bias + sum(weight * (facts[name] - mean) / by for name, weight, mean, by in terms)))

    def sentence_confidence(self, facts: Mapping[str, float]) -> float:
        """The probability that a reader accepts a sentence with these facts (`SENTENCE`) as the summary; 0 where that
        was not learnt."""
        if not self.sentence:
            return 0.0
        *weights, bias = self.sentence
        return float(sigmoid(bias + sum(weight * facts[name] for name, weight in zip(SENTENCE, weights, strict=True))))

    def order(self, found: Sequence[Mapping[str, float]]) -> list[int]:
        """The places of a document's hypotheses, whose facts these are, the one expected to score best first."""
        weights = list(zip(CHOOSING, self.choosing, strict=True))
        points = [sum(weight * facts[name] for name, weight in weights) for facts in found]
        return sorted(range(len(found)), key=points.__getitem__, reverse=True)

    def save(self, folder: Path) -> None:
        write_json(folder / FILE, asdict(self), indent=2)

    @classmethod
    def load(cls, folder: Path) -> Calibration | None:
        """The calibration of a model folder, ``None`` where there is none; a `ModelError` where it is damaged."""
        found = stored(folder / FILE, _STORED)
        if found is None:
            return None
        # one from before the last facts were added has shorter vectors
        lacking = len(FEATURES) - len(found.weight)
        zeros, ones = (0.0,) * lacking, (1.0,) * lacking
        mean, deviation, weight = found.mean + zeros, found.deviation + ones, found.weight + zeros
        choosing = found.choosing and found.choosing + (0.0,) * (len(CHOOSING) - len(found.choosing))
        *learnt, bias = found.sentence or (0.0,)
        sentence = found.sentence and (*learnt, *(0.0,) * (len(SENTENCE) - len(learnt)), bias)
        found = replace(found, mean=mean, deviation=deviation, weight=weight, choosing=choosing, sentence=sentence)
        whole = len(mean) == len(deviation) == len(weight) == len(FEATURES)
        whole = whole and len(choosing) in (0, len(CHOOSING)) and len(found.sentence) in (0, len(SENTENCE) + 1)
        if not whole or min(deviation) <= 0 or not 0 <= found.threshold <= 1:
            raise ModelError(
                f"{folder / FILE} does not fit this version of catchline; run `catchline calibrate` again."
            )
        return found


_STORED = TypeAdapter(Calibration)


def stored(path: Path, kind: TypeAdapter[T]) -> T | None:
    """What `catchline calibrate` left in a model folder, or ``None``; a `ModelError` where it is damaged."""
    if not path.is_file():
        return None
    try:
        return kind.validate_json(path.read_bytes(), strict=True)
    except (OSError, ValidationError) as error:
        said = error.errors()[0]["msg"] if isinstance(error, ValidationError) else error
        raise ModelError(f"{path} is damaged ({said}); delete it, then run `catchline calibrate`.") from None


def packed(ratios: np.ndarray) -> str:
    """Log ratios (V,) between -6 and 6, to a twentieth, as text."""
    return base64.b64encode(np.rint(ratios * _STEPS).clip(-127, 127).astype(np.int8).tobytes()).decode("ascii")


@lru_cache(maxsize=4)
def unpacked(text: str) -> np.ndarray:
    """The log ratios (V,) of `packed`."""
    return np.frombuffer(base64.b64decode(text), np.int8) / _STEPS


def mean_ratio(ids: Sequence[int], ratios: np.ndarray, reserved: int) -> float:
    """The mean of the words' log ratios (V,); words outside the vocabulary and special tokens do not count."""
    known = np.asarray(ids, dtype=np.int64)
    known = known[(known >= reserved) & (known < len(ratios))]
    return float(ratios[known].mean()) if len(known) else 0.0


def word_ids(source: TokenizedText) -> list[int]:
    """The ids of the tokens with a letter."""
    return [id_ for id_, token in zip(source.ids, source.tokens, strict=True) if any(map(str.isalpha, token))]


def facts_of(
    hypothesis: Hypothesis,
    extended_source_ids: Sequence[int],
    source: TokenizedText,
    *,
    unk_id: int,
    reserved: int,
    word_ratios: str = "",
    wording: Mapping[str, float],
) -> Facts:
    """`FEATURES` of a summary, with its ``wording`` (what `DocumentWords` finds), and the figures of its document that
    `Ranges` looks at. ``reserved`` special tokens stand in the vocabulary before its words."""
    read = word_ids(source)
    count, length = max(1, len(read)), max(1, source.total or len(source.ids))
    steps = [max(-50.0, value) for value in hypothesis.token_log_probs] or [-50.0]
    known = set(extended_source_ids)
    return {
        "mean_log_prob": sum(steps) / len(steps),
        "least_log_prob": min(steps),
        "tokens": float(len(hypothesis.ids)),
        "new_words": sum(id_ not in known for id_ in hypothesis.ids) / max(1, len(hypothesis.ids)),
        "source_unknown": read.count(unk_id) / count,
        "source_common": sum(reserved <= id_ < reserved + COMMON for id_ in read) / count,
        "source_ratio": mean_ratio(read, unpacked(word_ratios), reserved),
        "source_tokens": float(length),
        "log_source_tokens": math.log(length),
        "last_log_prob": steps[-1],
        **wording,
    }


class DocumentWords:
    """A document's words, by their stems, and what of a summary's wording shows when it is held against them."""

    def __init__(self, document: str) -> None:
        said = words(document)
        self._neighbours = set(pairwise(_content(said)))
        stems = list(map(stem, said))
        self._times, self._said = Counter(stems), f" {' '.join(stems)} "
        self._opening = set(_content(words(next(iter(sentence_strings(document[:_OPENING])), ""))))

    def facts(self, summary: str) -> Facts:
        """Those of `FEATURES` that a summary's words alone decide."""
        said = words(summary)
        content = _content(said)
        stems = set(content)
        return {
            "said_often": sum(self._times[one] > 1 for one in stems) / max(1, len(said)),
            "joins": float(sum(pair not in self._neighbours for pair in pairwise(content))),
            "opening": float(len(stems & self._opening)),
            "longest_run": float(self._longest_run(list(map(stem, said)))),
        }

    def _longest_run(self, said: Sequence[str]) -> int:
        """The most words of ``said`` in a row that stand in a row in the document."""
        longest, said = 0, said[:LONGEST]
        for place in range(len(said)):
            while place + longest < len(said) and f" {' '.join(said[place : place + longest + 1])} " in self._said:
                longest += 1
        return longest


def telling_sentences(document: str) -> list[tuple[int, int, int]]:
    """The sentences that may answer in place of a summary: where each begins, and where its `shortened` form begins and
    ends."""
    heads = ((_BEFORE.match(document, *span), span) for span in split_sentences(document))
    spans = [(head.end() if head else behind_mark(document, start, end), end) for head, (start, end) in heads]
    posted = ((_POSTED.search(document, *span), span) for span in spans)
    spans = [
        (start, by.start() if by and (by["all"] or document[end : end + 2].strip() == "\u2022") else end)
        for by, (start, end) in posted
    ]
    said, furniture = {span: document[slice(*span)] for span in spans}, _furniture(document)
    for tells in (
        lambda span: len(words(said[span])) >= FEWEST_WORDS,
        lambda span: not _is_entry(said[span]),
        lambda span: 1 not in furniture or _STOP.search(said[span]) or len(words(said[span])) > _HEADING,
        lambda span: not furniture[span[0]],
        lambda span: not said[span].endswith(","),  # "Dear Anna,"
        lambda span: not _SPOKEN.match(said[span]),
        lambda span: not _STOCK.search(said[span]),
        lambda span: not said[span].isupper() or (not span[0] and not _STOP.search(said[span])),  # it may be the title
    ):
        spans = list(filter(tells, spans)) or spans
    return [(start, *shortened(document, start, end)) for start, end in spans]


def divided(document: str, start: int, end: int) -> list[tuple[int, int]]:
    """Of the part of a document from ``start`` to ``end`` the hyphens that divide a word at the end of a line, counted
    from ``start``: no others ("well-\\nknown")."""
    found = []
    for one in _DIVIDED.finditer(document, start, end):
        whole, *parts = (stem(word.lower()) in ordinary_stems() for word in (one[1] + one[2], *one.groups()))
        if whole or not any(parts) or one[1] + one[2] in document:
            found.append((one.end(1) - start, one.end(1) + 1 - start))
    return found


def _furniture(document: str) -> bytes:
    """Of each character, does it stand in what pages of paper have beside their text? Lines that come again, but for
    their numbers, captions and references."""
    lines = [(found, re.sub(r"\d+", "0", found[0].strip())) for found in _SAID_LINE.finditer(document)]
    times, marked = Counter(line for _, line in lines), bytearray(len(document))
    again = [found for found, line in lines if times[line] > (1 if "0" in line else 2)]
    for found in (*again, *_CAPTIONS.finditer(document)):
        marked[slice(*found.span())] = bytes([1]) * len(found[0])
    *_, references = (len(document), *(found.end() for found in _REFERENCES.finditer(document)))
    return bytes(marked[:references]) + bytes([1]) * (len(document) - references)


def _is_entry(text: str) -> bool:
    """Is it an option, the head of a page, a field, an address, names, a row of a table, a line of code or of a log,
    rather than a sentence? It ends without a stop and has no word that holds others together, its keys ("To: Anna") and
    those of names aside; usage says enough."""
    said = text.replace("...", " ").strip()
    told = FUNCTION_WORDS.intersection(words(re.sub(r"(?<!\S)[A-Z](?:[\w-]*:|\.)\s", "", said)))
    if _LEGEND.match(said) or 2 * sum(not any(map(str.isalpha, one)) for one in said.split()) >= len(said.split()) > 2:
        return True
    heads = (
        _HEAD.search(text)
        or (told <= {"and", "of", "for"} and _NAMES.search(said))
        or (not told and _FIELD.search(said))
        or _KEYED.match(said)
    )
    return bool(heads) and not _STOP.search(said)


def told_sentences(document: str, summary: str) -> list[tuple[tuple[int, int, int], Facts]]:
    """`telling_sentences`, and of each its `SENTENCE` beside a summary, whose confidence aside."""
    spans, wanted, found = telling_sentences(document), Counter(_content(words(summary))), []
    beginning = enumerate(spans[:ABSTRACT])
    authors = next((place for place, (begins, _, end) in beginning if _AUTHORS.search(document, begins, end)), 0)
    for place, (begins, start, end) in enumerate(spans):
        said, whole = words(document[start:end]), document[begins:end]
        facts = {
            "says": (Counter(_content(said)) & wanted).total() / (wanted.total() or 1),
            "long": max(0, len(said) - LINE),
            "hangs": bool(said) and f" {said[0]} " in _LEANING,
            "place": min(place, 5),
            "first": place == 0,
            "last": 0 < place == len(spans) - 1,
            "alone": len(spans) == 1,
            "states": start > begins,
            "presents": bool(_PRESENTS.search(whole)),
            "packages": bool(_PACKAGES.search(whole)),
            "asides": sum(bool(aside.search(whole)) for aside in _ASIDES),
            "background": place < authors,
        }
        found.append(((begins, start, end), {name: float(value) for name, value in facts.items()}))
    return found


def answering_sentence(document: str, summary: str, *, strange: bool = False) -> tuple[tuple[int, int, int], Facts]:
    """The one of `told_sentences` that is worth most in place of ``summary``; of equals the first. In a ``strange``
    text, of another kind than the model knows, words of courtesy and talk are many, and short; and no heading that the
    model learnt names its subject, so that a sentence keeps it."""

    def worth(one: tuple[tuple[int, int, int], Facts]) -> float:
        (_, start, end), facts = one
        lacks = max(0, FEWER - len(words(document[start:end]))) if strange else 0
        return sum(weight * facts[name] for name, weight in WORTH.items()) - FEW * lacks

    told = told_sentences(document, summary)
    told = [one for one in told if not LEADS_ELSEWHERE.match(document, one[0][0])] or told
    (begins, start, end), facts = max(told, key=worth)
    return (begins, *(shortened(document, begins, end, subject=True) if strange else (start, end))), facts


def _content(said: Sequence[str]) -> list[str]:
    """The stems of words that are no stop words."""
    return [stem(word) for word in said if not is_stop_word(word)]


def sigmoid(value: Any) -> Any:
    """Of a number or an array."""
    return 1 / (1 + np.exp(-np.clip(value, -30.0, 30.0)))
