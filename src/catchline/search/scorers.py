"""Scorers: what forbids tokens, changes scores or ranks hypotheses, and how a configuration asks for them.

A scorer belongs to one search at a time: `Scorer.start` resets it, and what it remembers has N rows in front and
is re-ordered by `Scorer.select`. Search records what each scorer added to each hypothesis under its ``name``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import ClassVar

import numpy as np
from pydantic import Field

from catchline.config.base import ConfigBase
from catchline.config.names import SCORERS, build
from catchline.config.schema import LengthConfig, SearchConfig
from catchline.search.hypotheses import top_candidates
from catchline.text.normalization import FUNCTION_WORDS, UNIT, may_not_repeat
from catchline.text.sentences import sentence_spans
from catchline.types import Memory, StepOutput, Summary

_LONG_WORD = 20  # characters: where fewer are left, the next word may be too long
AHEAD = 16  # tokens that are tried where a text has reached its length


@dataclass(frozen=True, slots=True)
class SpecialIds:
    """The ids that search must know: ``bos_id`` is what the decoder reads first, ``separator_id`` the token between
    sentences, where the texts have one. ``vocabulary`` has the token of every id; ``whole_words``: each is a word;
    ``decode`` makes a text of extended ids and the strings of an example's own words."""

    unk_id: int
    bos_id: int
    eos_id: int
    pad_id: int
    separator_id: int | None = None
    vocabulary: Sequence[str] = field(default=(), repr=False)
    whole_words: bool = False
    decode: Callable[[Sequence[int], Sequence[str]], str] | None = field(default=None, repr=False)


@dataclass(slots=True)
class HypothesesView:
    """What a scorer may look at: the prefixes of the N rows and the output of the present step (``None`` where
    hypotheses are ranked); ``ended``: do the hypotheses that are ranked end in EOS, which ``ids`` never holds?"""

    ids: np.ndarray  # (N, length), without BOS
    output: StepOutput | None = None
    ended: bool = False

    @property
    def length(self) -> int:
        """The number of tokens of each prefix, BOS not counted; also the number of steps done."""
        return int(self.ids.shape[1])


class Scorer:
    """Base of the scorers; every hook here does nothing. ``adds_to_tokens`` must be true if `on_tokens` changes any
    score otherwise than to minus infinity. ``carries_rows`` false takes back what `on_rows` added once the candidates
    of the step are chosen: it decides which live on, and counts in no total and no final score."""

    class Config(ConfigBase):
        """Options of the scorer, as they stand below ``search.scorers`` in a recipe."""

    name: ClassVar[str]
    adds_to_tokens: ClassVar[bool] = False
    carries_rows: bool = True

    def __init__(self, config: ConfigBase, *, specials: SpecialIds):
        self.config = config
        self.specials = specials

    def start(self, memory: Memory, num_rows: int) -> None:
        """Forget the last search. ``num_rows`` is N; row ``b * K + k`` belongs to document b."""

    def on_rows(self, totals: np.ndarray, view: HypothesesView) -> np.ndarray:
        """The running totals (N,) of the prefixes, changed by what is the same for every next token; must not write
        into ``totals``."""
        return totals

    def on_tokens(self, scores: np.ndarray, view: HypothesesView) -> np.ndarray:
        """Change the scores (N, X) of the next tokens, by index (they may lie on a GPU), and return them."""
        return scores

    def on_hypotheses(self, scores: np.ndarray, view: HypothesesView) -> np.ndarray:
        """The final scores (N,) of hypotheses that stop here, from their totals; returns a new array."""
        return scores

    def bound(self, scores: np.ndarray, length: int, max_length: int) -> np.ndarray:
        """An upper bound of `on_hypotheses` for prefixes of ``length`` tokens however they go on, with totals of at
        most ``scores`` (N,). The default suits scorers that add nothing positive."""
        return scores

    def select(self, index: np.ndarray) -> None:
        """Re-order what is remembered: row i becomes what row ``index[i]`` was."""

    def _from_start(self, ids: np.ndarray) -> np.ndarray:
        """The prefixes (N, t) with the start token in front, (N, 1 + t)."""
        return np.concatenate([np.full((len(ids), 1), self.specials.bos_id), ids], axis=1)


def build_scorers(config: SearchConfig, specials: SpecialIds) -> list[Scorer]:
    """The scorers of the plain options of ``config``, then ``config.scorers`` in their order. Raises ConfigError: an
    unknown scorer or option."""
    scorers: list[Scorer] = []
    forbidden = [specials.unk_id] * config.forbid_unk + [specials.pad_id, specials.bos_id] * config.forbid_specials
    if forbidden:
        scorers.append(ForbidTokens(ForbidTokens.Config(ids=tuple(forbidden)), specials=specials))
    longest = config.max_length if config.num_steps > config.max_length else None
    if config.min_length or longest:
        scorers.append(LengthBounds(specials, config.min_length, config.min_length_share, longest))
    if (length := Length.of(config)) is not None and specials.decode is not None:
        scorers.append(ShownLength(specials, length, specials.decode))
    if config.no_repeat_ngram:  # where the start token may come again it begins the first n-gram
        scorers.append(NgramBlocking(specials, config.no_repeat_ngram, from_start=not config.forbid_specials))
    if config.no_repeat_word and specials.whole_words:  # a piece of a word that comes again need not be the same word
        scorers.append(WordBlocking(Scorer.Config(), specials=specials))
    if config.distraction is not None and config.distraction.active:  # before what divides by the length
        spec = {"type": "distraction", **config.distraction.model_dump()}
        scorers.append(build("scorer", SCORERS, spec, specials=specials))
    if config.length_normalisation != "none":
        scorers.append(LengthNormalisation(specials, config.length_normalisation, config.length_alpha))
    return [*scorers, *(build("scorer", SCORERS, spec, specials=specials) for spec in config.scorers)]


# ------------------------------------------------------------------------------------------------ which tokens may come


class ForbidTokens(Scorer):
    """Some ids are never predicted. EOS cannot be forbidden: where BOS or PAD is the same id it stays."""

    class Config(ConfigBase):
        ids: tuple[int, ...] = ()

    name = "forbid_tokens"
    config: ForbidTokens.Config

    def __init__(self, config: ConfigBase, *, specials: SpecialIds):
        super().__init__(config, specials=specials)
        ids = {id_ for id_ in self.config.ids if id_ >= 0 and id_ != specials.eos_id}
        self._ids = np.array(sorted(ids), dtype=np.int64)

    def on_tokens(self, scores: np.ndarray, view: HypothesesView) -> np.ndarray:
        ids = self._ids[: self._ids.searchsorted(scores.shape[1])]
        if view.length:
            scores[:, ids] = -np.inf
        else:  # the one word that a model begins with may be any
            best = top_candidates(scores, 2)[0]
            scores[np.ix_((best[:, 0] == -np.inf) | (best[:, -1] > -np.inf), ids)] = -np.inf
        return scores


class NgramBlocking(Scorer):
    """Forbid every token that would make an n-gram occur a second time in the summary. ``from_start``: the token that
    decoding starts from is the first of the summary, as in transformers."""

    name = "ngram_blocking"

    def __init__(self, specials: SpecialIds, size: int, *, from_start: bool = False):
        super().__init__(ConfigBase(), specials=specials)
        self._size, self._from_start_token = size, from_start

    def on_tokens(self, scores: np.ndarray, view: HypothesesView) -> np.ndarray:
        ids, size = self._from_start(view.ids) if self._from_start_token else view.ids, self._size
        if ids.shape[1] >= size:
            windows = np.lib.stride_tricks.sliding_window_view(ids, size, axis=1)  # (N, T - n + 1, n)
            begun = ids[:, ids.shape[1] - size + 1 :]  # (N, n - 1) what the next token would complete
            rows, starts = (windows[:, :, :-1] == begun[:, None, :]).all(axis=-1).nonzero()
            scores[rows, ids[rows, starts + size - 1]] = -np.inf
        return scores


def is_content(word: str) -> bool:
    """Is the lower-cased word more than a function word, a sign, a number or a letter or two?"""
    return len(word) > 2 and word[0].isalnum() and may_not_repeat(word) and word not in FUNCTION_WORDS


class WordBlocking(Scorer):
    """Forbid every content word that the summary already holds; function words, signs and numbers may come again."""

    name = "word_blocking"

    def start(self, memory: Memory, num_rows: int) -> None:
        specials, words = self.specials, memory.oov_words or [[]]
        self._once = np.full(len(specials.vocabulary), -1, dtype=np.int8)  # V: is it a content word? -1: not asked yet
        reserved = [specials.unk_id, specials.bos_id, specials.eos_id, specials.pad_id, specials.separator_id]
        self._once[[id_ for id_ in reserved if id_ is not None]] = False
        most = max(map(len, words))
        own = [[*map(is_content, map(str.lower, listed)), *[True] * (most - len(listed))] for listed in words]
        self._own = np.array(own, dtype=bool).repeat(num_rows // len(words), axis=0)  # (N, X - V) by the words V lacks
        self._first = memory.extended_vocab_size - most  # V

    def select(self, index: np.ndarray) -> None:
        self._own = self._own[index]

    def on_tokens(self, scores: np.ndarray, view: HypothesesView) -> np.ndarray:
        known = view.ids[view.ids < self._first]
        for id_ in {*known[self._once[known] < 0].tolist()}:
            self._once[id_] = is_content(self.specials.vocabulary[id_].lower())
        once = self._once.take(view.ids, mode="clip") > 0
        rows, steps = (view.ids >= self._first).nonzero()
        once[rows, steps] = self._own[rows, view.ids[rows, steps] - self._first]
        rows, steps = once.nonzero()
        scores[rows, view.ids[rows, steps]] = -np.inf
        return scores


# ------------------------------------------------------------------------------------------------ what a token is worth


class RepetitionPenalty(Scorer):
    """The log-probability of every token that the hypothesis holds, the start token too, times ``penalty``, as in
    transformers' beam search. The CTRL paper (Keskar et al. 2019, section 4.1) divides logits."""

    class Config(ConfigBase):
        penalty: float = Field(1.0, gt=0)

    name = "repetition_penalty"
    adds_to_tokens = True
    config: RepetitionPenalty.Config

    def on_tokens(self, scores: np.ndarray, view: HypothesesView) -> np.ndarray:
        held, penalty = self._from_start(view.ids), self.config.penalty
        values = np.take_along_axis(scores, held, axis=1)
        np.put_along_axis(scores, held, np.where(values < 0, values * penalty, values / penalty), axis=1)
        return scores


class Renormalise(Scorer):
    """What is left after tokens were forbidden sums to one again (``renormalize_logits`` of transformers)."""

    name = "renormalise"
    adds_to_tokens = True

    def on_tokens(self, scores: np.ndarray, view: HypothesesView) -> np.ndarray:
        top = scores.max(axis=-1, keepdims=True)
        shifted = scores - np.where(top > -np.inf, top, 0)
        sums = np.exp(shifted).sum(axis=-1, keepdims=True)
        return shifted - np.log(sums, where=sums > 0, out=np.zeros_like(sums))


# ------------------------------------------------------------------------------------- what a whole hypothesis is worth


class LengthBounds(Scorer):
    """No EOS before ``minimum`` tokens, and nothing but EOS after ``maximum``. Both count tokens before EOS. Forbidding
    EOS leaves the same hypotheses as dropping what ends too early, as See et al.'s code and fairseq do. A short
    document has a smaller minimum: at most ``share`` of its tokens (none: the same for all), but at least one.
    ``maximum`` none leaves the maximum to the search, which takes no step after it."""

    name = "length_bounds"
    _least: np.ndarray | None = None  # (N,) the minimum of each row

    def __init__(self, specials: SpecialIds, minimum: int, share: float | None, maximum: int | None):
        super().__init__(ConfigBase(), specials=specials)
        self._minimum, self._share, self._maximum = minimum, share, maximum

    def start(self, memory: Memory, num_rows: int) -> None:
        if self._share is not None:
            tokens = memory.mask.reshape(memory.mask.shape[0], -1).sum(axis=1)
            share = tokens.astype(np.float32) * np.float32(self._share)
            allowed = np.clip(share.astype(np.int64), 1, self._minimum)
            self._least = allowed.repeat(num_rows // memory.mask.shape[0])

    def select(self, index: np.ndarray) -> None:
        if self._least is not None:
            self._least = self._least[index]

    def on_tokens(self, scores: np.ndarray, view: HypothesesView) -> np.ndarray:
        eos_id = self.specials.eos_id
        if view.length < self._minimum:
            short = slice(None) if self._least is None else view.length < self._least
            scores[short, eos_id] = -np.inf
        elif self._maximum is not None and view.length >= self._maximum:
            kept = scores[:, eos_id].copy()
            scores.fill(-np.inf)
            scores[:, eos_id] = kept
        return scores


@dataclass(frozen=True, slots=True)
class Length:
    """Bounds of the text that is shown: at least ``least`` words; at most ``words``, ``characters`` and ``sentences``
    (None: any). A word is what stands between blanks, or a character of a script that is written without them."""

    least: int = 0
    words: int | None = None
    characters: int | None = None
    sentences: int | None = None

    @classmethod
    def of(cls, config: LengthConfig) -> Length | None:
        """The bounds that settings ask for, if any."""
        least, _, most = (config.words or "").rpartition("-")
        found = cls(int(least or 0), int(most) if most else None, config.characters, config.sentences)
        return None if found == cls() else found

    def missing(self, text: str) -> int:
        """How many words ``text`` has too few."""
        return max(0, self.least - len(UNIT.findall(text))) if self.least else 0

    def end(self, text: str) -> int:
        """Where ``text`` has to end: behind a word or a sentence, or within a word that is too long by itself."""
        ends = [match.end() for match in UNIT.finditer(text)] or [0]
        found = [len(text)]
        if self.words is not None and len(ends) > self.words:
            found.append(ends[self.words - 1])
        if self.characters is not None and len(text) > self.characters:
            found.append(max((end for end in ends if end <= self.characters), default=self.characters))
        if self.sentences is not None:
            found += [end for _, end in islice(sentence_spans(text), self.sentences)][self.sentences - 1 :]
        return min(found)

    def reached(self, text: str) -> bool:
        """May the next word be too much?"""
        full = self.words is not None and len(UNIT.findall(text)) >= self.words
        full = full or (self.characters is not None and len(text) + _LONG_WORD > self.characters)
        return full or (self.sentences is not None and text[-1:] in set(".!?…。！？"))

    def within(self, document: str, start: int, end: int) -> tuple[int, int]:
        """A span of ``document`` that has these bounds, as far as the document has the words."""
        if self.missing(document[start:end]):
            words = list(islice(UNIT.finditer(document, start), self.least))
            end = words[-1].end()
        return start, start + self.end(document[start:end])

    def cut(self, summary: Summary) -> Summary:
        """The summary up to where it has to end, with the provenance of its words."""
        end = self.end(summary.text)
        if end == len(summary.text):
            return summary
        words = tuple(word for word in summary.words if word.end <= end)
        chunks = tuple(replace(chunk, weights=chunk.weights[: len(words)]) for chunk in summary.chunks)
        return replace(summary, text=summary.text[:end], words=words, chunks=chunks)


class ShownLength(Scorer):
    """No EOS before the least words of the text, and behind its bounds nothing but EOS and, of the best tokens, those
    that continue the last word or close up to it."""

    name = "shown_length"

    def __init__(self, specials: SpecialIds, length: Length, decode: Callable[[Sequence[int], Sequence[str]], str]):
        super().__init__(ConfigBase(), specials=specials)
        self._length, self._decode = length, decode

    def start(self, memory: Memory, num_rows: int) -> None:
        words = memory.oov_words or [[]]
        self._own = [own for own in words for _ in range(num_rows // len(words))]

    def select(self, index: np.ndarray) -> None:
        self._own = [self._own[row] for row in index.tolist()]

    def on_tokens(self, scores: np.ndarray, view: HypothesesView) -> np.ndarray:
        eos_id, length = self.specials.eos_id, self._length
        for row, ids in enumerate(view.ids.tolist()):
            text = self._decode(ids, self._own[row])
            if length.missing(text):
                scores[row, eos_id] = -np.inf
            if not length.reached(text):
                continue
            ahead = top_candidates(scores[row : row + 1], AHEAD)[1][0].tolist()
            texts = [self._decode([*ids, id_], self._own[row]) for id_ in ahead]
            allowed = [id_ for id_, longer in zip(ahead, texts, strict=True) if length.end(longer) == len(longer)]
            kept = scores[row, np.array([eos_id, *allowed])].copy()
            scores[row] = -np.inf
            scores[row, np.array([eos_id, *allowed])] = kept
        return scores


class LengthNormalisation(Scorer):
    """Rank hypotheses by their total divided by a function of their length.

    * ``average``: the number of tokens including start and stop (See et al. 2017, released code:
      ``log_prob / len(tokens)``). A hypothesis cut at the maximum length has no stop token.
    * ``predicted``: the number of predicted tokens, stop counted, to the power ``alpha`` (Chen et al. 2016, released
      code: 1; the length penalty of fairseq and transformers).
    * ``gnmt``: ``lp(Y) = (5 + |Y|)^alpha / (5 + 1)^alpha`` (Wu et al. 2016, equation 14). Our reading:
      ``|Y|`` counts the predicted tokens, EOS included.
    """

    name = "length_normalisation"

    def __init__(self, specials: SpecialIds, kind: str, alpha: float):
        super().__init__(ConfigBase(), specials=specials)
        self._kind, self._alpha = kind, alpha

    def on_hypotheses(self, scores: np.ndarray, view: HypothesesView) -> np.ndarray:
        return scores / self._divisor(view.length + view.ended)

    def bound(self, scores: np.ndarray, length: int, max_length: int) -> np.ndarray:
        # The divisor is monotone in the length, so the best end is the shortest or the longest.
        return np.maximum(scores / self._divisor(length + 1), scores / self._divisor(max_length + 1))

    def _divisor(self, predicted: int) -> float:
        if self._kind == "predicted":
            return float(max(predicted, 1) ** self._alpha)  # a hypothesis of no token at all has the score 0 anyway
        if self._kind == "gnmt":
            return float(((5.0 + predicted) / 6.0) ** self._alpha)
        return predicted + 1.0
