"""How likely a reader is to accept what a model wrote, whether the text is of a kind that the model knows, and the
sentence of the text that answers if not.

Confidence is a logistic regression over a few facts that decoding leaves anyway (`FACTS`). A text is out of domain if
the mean over its words of ln p(w, English of no particular kind) / p(w, the model's documents) is above that of nearly
all of the model's documents (Ren et al., NeurIPS 2019, with unigram models). Words that the vocabulary lacks count as
one word, so that texts in other languages are out of domain as well.
"""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import Field, FiniteFloat, TypeAdapter, ValidationError

from catchline.errors import ModelError
from catchline.files import write_json
from catchline.text.normalization import UNIT, is_unspaced
from catchline.text.sentences import sentence_spans
from catchline.types import Hypothesis, TokenizedText

FILE = "calibration.json"
_STEPS = 8  # of a unit of packed logarithms
Facts = dict[str, float]
FACTS = (
    "mean_log_prob",  # of the summary's tokens, END counted
    "least_log_prob",  # of its least likely token
    "last_log_prob",  # of its END
    "new_words",  # share of its tokens that the document, as read, does not hold
    "log_source_tokens",
)
Vector = Annotated[tuple[FiniteFloat, ...], Field(min_length=len(FACTS), max_length=len(FACTS))]
Packed = Annotated[str, Field(pattern=r"^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$")]


@dataclass(frozen=True, slots=True)
class Calibration:
    """How to turn facts into confidence (the vectors follow `FACTS`), and which documents the model knows."""

    mean: Vector
    deviation: Vector
    weight: Vector
    bias: FiniteFloat
    threshold: Annotated[float, Field(ge=0, le=1)]  # below this confidence the answer is a sentence of the document
    word_ratios: Packed = ""  # `packed` log ratios, one an id of the vocabulary
    most_ratio: FiniteFloat = 100.0  # what nearly all documents of the training data have at most
    accepted: str = ""  # what counted as that when the regression was fitted, in words
    records: int = 0  # that it was fitted on
    english: Packed = ""  # of the bundled model: `packed` ln p of each id of its vocabulary in English of no kind

    @classmethod
    def blank(cls) -> Calibration:
        """One that is always sure: what a model has while its own is being fitted."""
        zeros, ones = (0.0,) * len(FACTS), (1.0,) * len(FACTS)
        return cls(zeros, ones, zeros, bias=30.0, threshold=0.0)

    def confidence(self, facts: Mapping[str, float]) -> float:
        """The probability, between 0 and 1, that a reader accepts a summary with these facts."""
        terms = zip(FACTS, self.weight, self.mean, self.deviation, strict=True)
        return float(sigmoid(self.bias + sum(weight * (facts[name] - mean) / by for name, weight, mean, by in terms)))

    def out_of_domain(self, facts: Mapping[str, float]) -> str:
        """Why the document is, in words; empty if it is not."""
        if facts["word_ratio"] <= self.most_ratio:
            return ""
        return unknown_words(facts["source_unknown"]) or "its words differ from the training texts'"

    def save(self, folder: Path) -> None:
        write_json(folder / FILE, asdict(self), indent=2)

    @classmethod
    def load(cls, folder: Path) -> Calibration | None:
        """The calibration of a model folder, ``None`` where there is none; a `ModelError` if it is damaged."""
        path = folder / FILE
        if not path.is_file():
            return None
        try:
            found = _STORED.validate_json(path.read_bytes(), strict=True)
        except (OSError, ValidationError) as error:
            said = error.errors()[0]["msg"] if isinstance(error, ValidationError) else error
            raise ModelError(f"{path} is damaged ({said}); delete it, then run `catchline calibrate`.") from None
        if min(found.deviation) <= 0:
            raise ModelError(f"{path} is damaged (a deviation of 0); delete it, then run `catchline calibrate`.")
        return found


_STORED = TypeAdapter(Calibration)


def unknown_words(share: float) -> str:
    """The clause that says that most words are, if they are."""
    return f"{share:.0%} of its words are unknown to the model" if share > 0.5 else ""


def packed(logs: np.ndarray) -> str:
    """Logarithms (V,) between -16 and 16, to an eighth, as text."""
    return base64.b64encode(np.rint(logs * _STEPS).clip(-127, 127).astype(np.int8).tobytes()).decode("ascii")


@lru_cache(maxsize=4)
def unpacked(text: str) -> np.ndarray:
    """The logarithms (V,) of `packed`."""
    return np.frombuffer(base64.b64decode(text), np.int8) / _STEPS


def word_ids(source: TokenizedText) -> list[int]:
    """The ids of the tokens with a letter."""
    return [id_ for id_, token in zip(source.ids, source.tokens, strict=True) if any(map(str.isalpha, token))]


def mean_ratio(ids: Sequence[int], ratios: np.ndarray) -> float:
    """The mean of the words' log ratios (V,), 0 without any."""
    known = np.asarray(ids, dtype=np.int64)
    known = known[known < len(ratios)]
    return float(ratios[known].mean()) if len(known) else 0.0


def facts_of(
    hypothesis: Hypothesis, extended_source_ids: Sequence[int], source: TokenizedText, unk_id: int, word_ratios: str
) -> Facts:
    """`FACTS` of a summary, and the two figures of its document that `Calibration.out_of_domain` looks at."""
    read, known = word_ids(source), set(extended_source_ids)
    steps = [max(-50.0, value) for value in hypothesis.token_log_probs] or [-50.0]
    return {
        "mean_log_prob": sum(steps) / len(steps),
        "least_log_prob": min(steps),
        "last_log_prob": steps[-1],
        "new_words": sum(id_ not in known for id_ in hypothesis.ids) / max(1, len(hypothesis.ids)),
        "log_source_tokens": math.log(max(1, source.total or len(source.ids))),
        "source_unknown": read.count(unk_id) / max(1, len(read)),
        "word_ratio": mean_ratio(read, unpacked(word_ratios)),
    }


def sigmoid(value: Any) -> Any:
    """Of a number or an array."""
    return 1 / (1 + np.exp(-np.clip(value, -30.0, 30.0)))


# -------------------------------------------------------------------------------------------- the sentence that answers

_LONGEST, _SHORTEST = 20, 8  # words of an answer, and of what a clause leaves of a longer sentence
_LONGEST_WORDS = 400  # characters of these, where a text has hardly any blanks
_END = re.compile(r"[.!?…。！？][\"'’”)\]]*\Z")
_ITEM = re.compile(r"[-–—*•>#|<\[\]({=~]|\(?(?:\d+|\w)[.)]\s")
_SPEAKER = re.compile(r"[\[(\d:., \])-]*[#A-Z][\w#.-]*(?: [A-Z\d][\w.-]*)?:\s+")
_CLAUSE = re.compile(r"[,;:]\s|[，；：]|\s[–—(-]")


def prose_sentence(document: str) -> tuple[int, int]:
    """Where the first prose sentence of a document begins and ends, cut at a clause if it has more than 20 words; where
    there is none, the first sentence. One speaker's mark alone is part of a sentence (``Lost: a grey cat``)."""
    spans = [(span, _SPEAKER.match(document, *span)) for span in sentence_spans(document)]
    spoken = sum(match is not None for _, match in spans) > 1
    bounds = [(mark.end() if spoken and mark and mark.end() < end else start, end) for (start, end), mark in spans]
    start, end = next((span for span in bounds if _is_prose(document, *span)), bounds[0])
    words = [match.end() for match in UNIT.finditer(document, start, end)]
    longest = 2 * _LONGEST if is_unspaced(document[start : start + 1]) else _LONGEST  # characters, words
    if len(words) > longest:
        end = words[longest - 1]
        clauses = [match.start() for match in _CLAUSE.finditer(document, words[_SHORTEST - 1], end + 1)]
        end = clauses[-1] if clauses else end
    return start, min(end, start + _LONGEST_WORDS)


def _is_prose(document: str, start: int, end: int) -> bool:
    """A prose sentence ends with a stop or its line, is no list, and has four words without capitals or more, which are
    half of its words at least: a verb and what it needs."""
    sentence = document[start:end]
    words = sentence.split()
    small = sum(map(str.islower, words))
    ends = _END.search(sentence) or document[end : end + 1] in ("", "\n")
    return bool(ends) and small >= 4 and 2 * small >= len(words) and not (_ITEM.match(sentence) or sentence[-1] in ",:")
