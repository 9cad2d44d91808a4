"""Scorers: what forbids tokens, changes scores or ranks hypotheses, and how a configuration asks for them.

A scorer belongs to one search at a time: `Scorer.start` resets it, and what it remembers has N rows in front and
is re-ordered by `Scorer.select`. Search records what each scorer added to each hypothesis under its ``name``.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np
from pydantic import Field, model_validator

from catchline.config.base import ConfigBase
from catchline.config.names import SCORERS, build
from catchline.config.schema import SearchConfig, Spec
from catchline.errors import ConfigError
from catchline.search.topk import top_candidates
from catchline.text.base import Tokenizer
from catchline.text.mending import is_content
from catchline.types import Memory, StepOutput


@dataclass(frozen=True, slots=True)
class SpecialIds:
    """The ids that search must know: ``bos_id`` is what the decoder reads first, ``separator_id`` the token between
    sentences, where the texts have one. ``vocabulary`` has the token of every id, for scorers that look at words."""

    unk_id: int
    bos_id: int
    eos_id: int
    pad_id: int
    separator_id: int | None = None
    vocabulary: Sequence[str] = field(default=(), repr=False)


@dataclass(slots=True)
class HypothesesView:
    """What a scorer may look at: the prefixes of the N rows and the output of the present step (``None`` where
    hypotheses are ranked); ``ended`` says whether the hypotheses that are ranked end in EOS, which ``ids`` never holds.
    """

    ids: np.ndarray  # (N, length), without BOS
    output: StepOutput | None = None
    ended: bool = False

    @property
    def length(self) -> int:
        """The number of tokens of each prefix, BOS not counted; also the number of steps done."""
        return int(self.ids.shape[1])


class Scorer:
    """Base of the scorers; every hook here does nothing.

    ``adds_to_tokens`` must be true if `on_tokens` changes any score otherwise than to minus infinity.
    ``carries_rows`` false takes back what `on_rows` added once the candidates of the step are chosen: it decides
    which live on, and counts neither in the running totals nor in the final score.
    ``num_groups`` above one splits the beams of a document (see `on_group`).
    """

    class Config(ConfigBase):
        """Options of the scorer, as they stand below ``search.scorers`` in a recipe."""

    name: ClassVar[str]
    adds_to_tokens: ClassVar[bool] = False
    carries_rows: bool = True
    num_groups: int = 1

    def __init__(self, config: ConfigBase, *, specials: SpecialIds):
        self.config = config
        self.specials = specials

    def start(self, memory: Memory | None, num_rows: int) -> None:
        """Forget the last search. ``num_rows`` is N; row ``b * K + k`` belongs to document b."""

    def on_rows(self, totals: np.ndarray, view: HypothesesView) -> np.ndarray:
        """The running totals (N,) of the prefixes, changed by what is the same for every next token; must not write
        into ``totals``."""
        return totals

    def on_tokens(self, scores: np.ndarray, view: HypothesesView) -> np.ndarray:
        """Change the scores (N, X) of the next tokens, by index (they may lie on a GPU), and return them."""
        return scores

    def on_group(self, scores: np.ndarray, chosen: np.ndarray, alive: np.ndarray) -> np.ndarray:
        """Change the token scores (D, K / groups, X) of a later group of beams; may write into them.

        ``chosen`` (D, m) are the tokens that the earlier groups of the same document chose at this step, and count
        where ``alive`` (D, m) is true.
        """
        return scores

    def on_hypotheses(self, scores: np.ndarray, view: HypothesesView) -> np.ndarray:
        """The final scores (N,) of hypotheses that stop here, from their totals; return a new tensor."""
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
    """The scorers of the plain options of ``config``, then ``config.scorers`` in their order.

    Raises:
        ConfigError: an unknown scorer or option, or a number of groups that does not divide the beam.
    """
    forbid = config.forbid_specials
    specs: list[Spec] = [{"type": "forbid_tokens", "unk": config.forbid_unk, "pad": forbid, "bos": forbid}]
    longest = config.max_length if config.num_steps > config.max_length else None
    if config.min_length or longest:
        bounds = {"min_length": config.min_length, "share": config.min_length_share, "max_length": longest}
        specs.append({"type": "length_bounds", **bounds})
    if config.no_repeat_ngram:  # where the start token may come again it begins the first n-gram
        specs.append({"type": "ngram_blocking", "size": config.no_repeat_ngram, "start": not forbid})
    if config.diverse_groups > 1:
        groups = {"groups": config.diverse_groups, "strength": config.diversity_strength}
        specs.append({"type": "diverse_groups", **groups})
    if config.distraction is not None and config.distraction.active:  # before what divides by the length
        specs.append({"type": "distraction", **config.distraction.model_dump()})
    if config.length_normalisation != "none":
        kind, alpha = config.length_normalisation, config.length_alpha
        specs.append({"type": "length_normalisation", "kind": kind, "alpha": alpha})
    if config.coverage_penalty != "none":
        specs.append({"type": "coverage_penalty", "kind": config.coverage_penalty, "beta": config.coverage_beta})
    scorers = [build("scorer", SCORERS, spec, specials=specials) for spec in [*specs, *config.scorers]]
    grouped = [scorer.num_groups for scorer in scorers if scorer.num_groups > 1]
    if len(grouped) > 1 or any(config.beam_size % groups for groups in grouped):
        raise ConfigError(
            f"search.beam_size {config.beam_size} cannot be split into groups {grouped}: "
            "use one diverse_groups whose number of groups divides the beam size."
        )
    if grouped and config.shrink_beam:
        raise ConfigError("search.shrink_beam cannot be combined with groups of beams: use one of them.")
    return scorers


# ------------------------------------------------------------------------------------------------ which tokens may come


class ForbidTokens(Scorer):
    """Some ids are never predicted. EOS cannot be forbidden: where BOS or PAD is the same id it stays."""

    class Config(ConfigBase):
        """``ids`` are further ids of the vocabulary."""

        unk: bool = True
        pad: bool = True
        bos: bool = True
        ids: tuple[int, ...] = ()

    name = "forbid_tokens"
    config: ForbidTokens.Config

    def __init__(self, config: ConfigBase, *, specials: SpecialIds):
        super().__init__(config, specials=specials)
        named = {"unk": specials.unk_id, "pad": specials.pad_id, "bos": specials.bos_id}
        forbidden = set(self.config.ids) | {id_ for name, id_ in named.items() if getattr(self.config, name)}
        self._ids = np.array(sorted(id_ for id_ in forbidden if id_ >= 0 and id_ != specials.eos_id), dtype=np.int64)

    def on_tokens(self, scores: np.ndarray, view: HypothesesView) -> np.ndarray:
        ids = self._ids[: self._ids.searchsorted(scores.shape[1])]
        if view.length:
            scores[:, ids] = -np.inf
        else:  # the one word that a model begins with may be any
            best = top_candidates(scores, 2)[0]
            scores[np.ix_((best[:, 0] == -np.inf) | (best[:, -1] > -np.inf), ids)] = -np.inf
        return scores


def repeating_tokens(ids: np.ndarray, size: int) -> tuple[np.ndarray, np.ndarray]:
    """The next tokens that would complete an n-gram, n = ``size``, that its row of the prefixes ``ids`` (N, T) already
    holds: rows (M,) and token ids (M,), possibly with repetitions."""
    length = ids.shape[1]
    if length < size:
        return ids.ravel()[:0], ids.ravel()[:0]
    windows = np.lib.stride_tricks.sliding_window_view(ids, size, axis=1)  # (N, T - n + 1, n)
    begun = ids[:, length - size + 1 :]  # (N, n - 1) what the next token would complete
    rows, starts = (windows[:, :, :-1] == begun[:, None, :]).all(axis=-1).nonzero()
    return rows, ids[rows, starts + size - 1]


class NgramBlocking(Scorer):
    """Forbid every token that would make an n-gram occur a second time in the summary."""

    class Config(ConfigBase):
        """``start``: the token that decoding starts from is the first of the summary, as in transformers."""

        size: int = Field(3, ge=1)
        start: bool = False

    name = "ngram_blocking"
    config: NgramBlocking.Config

    def on_tokens(self, scores: np.ndarray, view: HypothesesView) -> np.ndarray:
        prefix = self._from_start(view.ids) if self.config.start else view.ids
        rows, ids = repeating_tokens(prefix, self.config.size)
        scores[rows, ids] = -np.inf
        return scores


class WordBlocking(Scorer):
    """Forbid every token that the summary already holds, but for those that may come again."""

    class Config(ConfigBase):
        """``free`` are the ids of the vocabulary that may come again: function words, signs, numbers. Of the words
        that it lacks those that are no content words may."""

        free: tuple[int, ...] = ()

    name = "word_blocking"
    config: WordBlocking.Config

    def __init__(self, config: ConfigBase, *, specials: SpecialIds):
        super().__init__(config, specials=specials)
        free = {*self.config.free, specials.eos_id}
        self._once = np.ones(max(free) + 2, dtype=bool)  # by id; the last stands for all that are larger
        self._once[list(free)] = False
        self._first, self._own = sys.maxsize, np.empty((0, 0), dtype=bool)  # V, and (N, X - V) by the words V lacks

    def start(self, memory: Memory | None, num_rows: int) -> None:
        words = (memory and memory.oov_words) or [[]]
        most = max(map(len, words))
        self._first = memory.extended_vocab_size - most if memory else sys.maxsize
        own = [[*map(is_content, map(str.lower, listed)), *[True] * (most - len(listed))] for listed in words]
        self._own = np.array(own, dtype=bool).repeat(num_rows // len(words), axis=0)

    def select(self, index: np.ndarray) -> None:
        self._own = self._own[index]

    def on_tokens(self, scores: np.ndarray, view: HypothesesView) -> np.ndarray:
        once = self._once.take(view.ids, mode="clip")
        rows, steps = (view.ids >= self._first).nonzero()
        once[rows, steps] = self._own[rows, view.ids[rows, steps] - self._first]
        rows, steps = once.nonzero()
        scores[rows, view.ids[rows, steps]] = -np.inf
        return scores


def with_word_blocking(config: SearchConfig, tokenizer: Tokenizer) -> SearchConfig:
    """``config`` with the scorer that ``no_repeat_word`` asks for.

    A vocabulary of pieces has none: a piece that comes again need not be the same word.
    """
    free = tokenizer.repeatable_ids
    if not config.no_repeat_word or free is None:
        return config
    return config.model_copy(update={"scorers": (*config.scorers, {"type": "word_blocking", "free": free})})


# ------------------------------------------------------------------------------------------------ what a token is worth


class RepetitionPenalty(Scorer):
    """The log-probability of every token that the hypothesis holds, the start token too, times ``penalty``.

    The CTRL paper (Keskar et al. 2019, section 4.1) divides logits; transformers' beam search does this to
    log-probabilities, and so do we.
    """

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


class DiverseGroups(Scorer):
    """The beams of a document form groups; each group searches by itself, one after the other in a step.

    A token loses ``strength`` for every beam of an earlier group that chose it at the same step (Hamming
    diversity, equation 5 of the paper with its section 5.1). The penalty stays in the running total.
    """

    class Config(ConfigBase):
        groups: int = Field(1, ge=1)
        strength: float = Field(0.5, ge=0, le=1000)

    name = "diverse_groups"
    config: DiverseGroups.Config

    def __init__(self, config: ConfigBase, *, specials: SpecialIds):
        super().__init__(config, specials=specials)
        self.num_groups = self.config.groups

    def on_group(self, scores: np.ndarray, chosen: np.ndarray, alive: np.ndarray) -> np.ndarray:
        documents, rows = np.arange(scores.shape[0])[:, None, None], np.arange(scores.shape[1])[:, None]
        penalty = self.config.strength * alive.astype(scores.dtype)
        np.subtract.at(scores, (documents, rows, chosen[:, None, :]), penalty[:, None, :])
        return scores


# ------------------------------------------------------------------------------------- what a whole hypothesis is worth


class LengthBounds(Scorer):
    """No EOS before ``min_length`` tokens, and nothing but EOS after ``max_length``.

    Both count tokens before EOS. Forbidding EOS leaves the same hypotheses as dropping what ends too early, as See et
    al.'s code and fairseq do. A short document has a smaller minimum: at most ``share`` of its tokens (none: the same
    for all), but at least one. ``max_length`` none leaves the maximum to the search, which takes no step after it.
    """

    class Config(ConfigBase):
        min_length: int = Field(0, ge=0)
        share: float | None = Field(None, gt=0)
        max_length: int | None = Field(None, ge=1)

        @model_validator(mode="after")
        def _fits(self) -> LengthBounds.Config:
            if self.max_length is not None and self.min_length > self.max_length:
                raise ValueError(f"min_length {self.min_length} is more than max_length {self.max_length}")
            return self

    name = "length_bounds"
    config: LengthBounds.Config
    _least: np.ndarray | None = None  # (N,) the minimum of each row

    def start(self, memory: Memory | None, num_rows: int) -> None:
        if memory is not None and self.config.share is not None:
            tokens = memory.mask.reshape(len(memory.mask), -1).sum(axis=1)
            share = tokens.astype(np.float32) * np.float32(self.config.share)
            allowed = np.clip(share.astype(np.int64), 1, self.config.min_length)
            self._least = allowed.repeat(num_rows // memory.batch_size)

    def select(self, index: np.ndarray) -> None:
        if self._least is not None:
            self._least = self._least[index]

    def on_tokens(self, scores: np.ndarray, view: HypothesesView) -> np.ndarray:
        eos_id = self.specials.eos_id
        if view.length < self.config.min_length:
            short = slice(None) if self._least is None else view.length < self._least
            scores[short, eos_id] = -np.inf
        elif self.config.max_length is not None and view.length >= self.config.max_length:
            kept = scores[:, eos_id].copy()
            scores.fill(-np.inf)
            scores[:, eos_id] = kept
        return scores


class LengthNormalisation(Scorer):
    """Rank hypotheses by their total divided by a function of their length.

    * ``average``: the number of tokens including start and stop (See et al. 2017, released code:
      ``log_prob / len(tokens)``). A hypothesis cut at the maximum length has no stop token.
    * ``predicted``: the number of predicted tokens, stop counted, to the power ``alpha`` (Chen et al. 2016, released
      code: 1; the length penalty of fairseq and transformers).
    * ``gnmt``: ``lp(Y) = (5 + |Y|)^alpha / (5 + 1)^alpha`` (Wu et al. 2016, equation 14). Our reading:
      ``|Y|`` counts the predicted tokens, EOS included.
    * ``none``: the total itself.
    """

    class Config(ConfigBase):
        """``alpha`` belongs to ``gnmt`` and ``predicted``."""

        kind: Literal["none", "average", "predicted", "gnmt"] = "average"
        alpha: float = Field(1.0, ge=-10, le=10)

    name = "length_normalisation"
    config: LengthNormalisation.Config

    def on_hypotheses(self, scores: np.ndarray, view: HypothesesView) -> np.ndarray:
        return scores / self._divisor(view.length + view.ended)

    def bound(self, scores: np.ndarray, length: int, max_length: int) -> np.ndarray:
        # The divisor is monotone in the length, so the best end is the shortest or the longest.
        return np.maximum(scores / self._divisor(length + 1), scores / self._divisor(max_length + 1))

    def _divisor(self, predicted: int) -> float:
        kind, alpha = self.config.kind, self.config.alpha
        if kind == "predicted":
            return float(max(predicted, 1) ** alpha)  # a hypothesis of no token at all has the score 0 anyway
        if kind == "gnmt":
            return float(((5.0 + predicted) / 6.0) ** alpha)
        return predicted + 1.0 if kind == "average" else 1.0


def wu_coverage(coverage: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """``sum_i log(min(sum_t a_ti, 1))`` over real source tokens (Wu et al. 2016, equation 14), at most 0.

    ``coverage`` and ``mask`` are (N, S); returns (N,). Our reading: a token never attended to counts the
    smallest positive number instead of log 0.
    """
    return np.where(mask, np.log(coverage.clip(np.finfo(coverage.dtype).tiny, 1.0)), 0.0).sum(axis=-1)


def summary_coverage(coverage: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """``n - sum_i max(sum_t a_ti, 1)`` over the n real source tokens (Gehrmann et al. 2018, section 5), at most 0."""
    return np.where(mask, 1.0 - np.maximum(coverage, 1.0), 0.0).sum(axis=-1)


class CoveragePenalty(Scorer):
    """Add ``beta`` times the penalty of the accumulated attention to the final score.

    Added after length normalisation, as in Wu et al.; the attention of the step that predicts EOS counts.
    """

    class Config(ConfigBase):
        kind: Literal["wu", "summary"] = "summary"
        beta: float = Field(1.0, ge=0, le=1000)

    name = "coverage_penalty"
    config: CoveragePenalty.Config

    def start(self, memory: Memory | None, num_rows: int) -> None:
        if memory is None:
            raise ConfigError("coverage_penalty needs the source mask, but the search was given no memory.")
        self._mask = memory.mask.repeat(num_rows // memory.batch_size, axis=0)
        self._coverage = np.zeros(self._mask.shape, dtype=np.float32)

    def on_tokens(self, scores: np.ndarray, view: HypothesesView) -> np.ndarray:
        attention = view.output.attention if view.output else None
        if attention is None:
            raise ConfigError("coverage_penalty needs a model with attention; set search.coverage_penalty to none.")
        self._coverage = self._coverage + attention
        return scores

    def on_hypotheses(self, scores: np.ndarray, view: HypothesesView) -> np.ndarray:
        penalty = {"wu": wu_coverage, "summary": summary_coverage}[self.config.kind]
        return scores + self.config.beta * penalty(self._coverage, self._mask)

    def select(self, index: np.ndarray) -> None:
        self._mask, self._coverage = self._mask[index], self._coverage[index]
