"""Training on what is measured: the expected reward of the summaries that the model itself writes.

`MinimumRisk` (Shen et al. 2016, "Minimum risk training for neural machine translation"): the expectation over a set
S of candidates, with the model's probabilities sharpened or flattened by alpha and renormalised on S,

    Q(y) = P(y | x)^alpha / sum_{y' in S} P(y' | x)^alpha,      risk = sum_{y in S} Q(y) (1 - r(y))

Our reading: S are the hypotheses of the run's own beam search (as Edunov et al. 2018 do for summaries), not samples,
so that what is improved is what will be written; the gold summary is not among them. Q is that of the search, where
the decoder has no dropout; the gradient is that of the risk by log P, passed on to the log P of the training pass.
Without dropout the two are the same. So the loss's derivative is known before the pass, which spares the vocabulary's
projection half of its products (`catchline.layers.vocabulary`).

`SelfCritical` (Paulus, Xiong and Socher 2018, equation 15; Rennie et al. 2017): a sample y^s against the greedy y^,

    L_rl = (r(y^) - r(y^s)) sum_t log p(y^s_t | y^s_<t, x)

whose gradient is on average that of -E[r]. Equation 16, L = gamma L_rl + (1 - gamma) L_ml, is the weights of two
objectives: this one's gamma and 1 - gamma of ``nll`` with ``reduction: sentence``, for equation 14 sums over words.

What a summary is worth is ROUGE against the gold one, less what a reader would strike out:

    r(y) = (ROUGE-1 + ROUGE-2 + ROUGE-L) / 3 - repetition * R(y) - support * U(y)

ROUGE is F of the library's scorer in its profile ``unicode``, on the decoded texts. R is the share of y's words that
say a word again, U the share of its content words and numbers that nobody gave it. What the gold summary does is no
fault: a word may stand as often as there, and what the gold summary says counts as given. Validation has no candidates
to weigh: there both objectives report 1 - r(y^).

**Candidates** are summaries that the model writes while it is trained, and what it then thinks of them. The encoder
runs once: they are searched or drawn from the memory of the training pass, without gradients and with the decoder's
dropout off; then they are further targets of the same documents in one teacher-forced pass, which has gradients,
dropout, and that memory too. What is drawn for a document is a function of (seed of the update, number of the example,
number of the sample, step) and of nothing else: not of the other documents of the batch, and no generator's state is
touched.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache, partial
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from catchline.config.base import ConfigBase
from catchline.config.schema import LONGEST, RunConfig, SearchConfig
from catchline.decoding import evaluating, search_memory
from catchline.errors import ConfigError
from catchline.layers.noise import ExampleNoise, bits, mixed
from catchline.metrics.rouge import RougeEngine, make_options, parse_kind
from catchline.metrics.rouge_text import stem_rouge155
from catchline.metrics.words import smart_stop_words
from catchline.objectives.base import Objective
from catchline.search.decode import switched
from catchline.search.scorers import HypothesesView, Scorer, SpecialIds
from catchline.search.state import select
from catchline.text.base import Tokenizer
from catchline.types import PLAIN_PASS, Batch, Hypothesis, Memory, ModelOutput, Term, TrainingBatch, UpdateContext

_SAMPLES = 11  # the key of this use of the examples' noise


class Draw(Scorer):
    """Samples: leaves each row the one token that it draws with the probability the model gives it, of those whose
    score allows them. (The score itself is no probability where an opponent has a say in it.)

    ``keys`` (N,) are the rows' keys of noise; rows where ``drawn`` (N,) is false are left as they are.
    """

    name: ClassVar[str] = "draw"

    def __init__(self, keys: Tensor, drawn: Tensor, specials: SpecialIds) -> None:
        super().__init__(ConfigBase(), specials=specials)
        self.keys, self.drawn = keys, drawn

    def on_tokens(self, scores: np.ndarray, view: HypothesesView) -> np.ndarray:
        """Where the row's uniform number falls among the cumulated probabilities, found where the keys are."""
        assert view.output is not None, "tokens are drawn in a step"
        allowed = np.where(scores > -np.inf, view.output.log_probs, -np.inf)
        sums = torch.from_numpy(allowed).to(self.keys.device).double().softmax(dim=-1).cumsum(dim=-1)
        uniform = bits(mixed(0, self.keys, torch.full_like(self.keys, view.length)), 1).double() / 2**32
        found = torch.searchsorted(sums, uniform * sums[:, -1:], right=True).clamp_max(scores.shape[1] - 1)
        rows = self.drawn.nonzero().squeeze(-1).cpu().numpy()
        chosen = found.squeeze(-1).cpu().numpy()[rows]
        kept = scores[rows, chosen]
        scores[rows] = -np.inf
        scores[rows, chosen] = kept
        return scores


def specials_of(model: Any) -> SpecialIds:
    return SpecialIds(model.unk_id, model.decoder_start_id, model.eos_id, model.pad_id)


def longest(run: RunConfig, model: Any) -> int:
    """How long candidates may be: as the training's summaries, as far as the model has positions, one for the end."""
    most, positions = run.text.max_target_tokens, model.max_target_tokens
    return most if positions is None else min(most, positions - 1)


def beam_config(run: RunConfig, model: Any, beam_size: int) -> SearchConfig:
    """The run's own search with ``beam_size`` hypotheses, all of them returned and as long as the training's
    summaries; without blocking of repeated n-grams and without a least length beyond one word, so that what the model
    does of itself is seen."""
    changes = {"beam_size": beam_size, "num_return": beam_size, "diverse_groups": 1, "shrink_beam": False}
    length = {"max_length": longest(run, model), "min_length": min(1, run.search.min_length)}
    scorers = [scorer for scorer in run.search.scorers if scorer.get("type") != "diverse_groups"]
    return run.search.model_copy(update={**changes, **length, "no_repeat_ngram": 0, "scorers": scorers})


@torch.no_grad()
def search_candidates(model: Any, memory: Memory, config: SearchConfig) -> list[list[Hypothesis]]:
    """The hypotheses of a beam search, best first; fewer than asked for where there are no more."""
    with _decoding(model), switched(model, config.model):
        return search_memory(model, memory, config, specials_of(model))


@torch.no_grad()
def draw_candidates(
    model: Any, memory: Memory, batch: Batch, context: UpdateContext, *, samples: int, max_length: int
) -> list[list[Hypothesis]]:
    """Of each document the greedy summary and then ``samples`` drawn from the model's distribution, UNK left out."""
    specials, count = specials_of(model), samples + 1
    config = SearchConfig(max_length=max_length, length_normalisation="none", forbid_unk=True)
    number = torch.arange(count, device=memory.mask.device)
    examples = ExampleNoise.of(batch, context.noise_seed).examples.repeat_interleave(count)
    keys = mixed(_SAMPLES, examples, number.repeat(memory.batch_size))
    draw = Draw(keys, (number > 0).repeat(memory.batch_size), specials)
    with _decoding(model):
        found = search_memory(model, widened(memory, count), config, specials, [draw])
    # What is cut has no probability of going on: at full length EOS is not asked for, whether it came or not.
    flat = [replace(h, finished=h.finished and len(h.ids) < max_length) for (h,) in found]
    return [flat[first : first + count] for first in range(0, len(flat), count)]


def widened(memory: Memory, count: int | Sequence[int]) -> Memory:
    """The memory with each document ``count`` times over (or as often as its own number says), with gradients."""
    device = memory.mask.device
    counts = torch.as_tensor(count, device=device).expand(memory.batch_size)
    rows = torch.arange(memory.batch_size, device=device).repeat_interleave(counts)
    return select(memory, rows)


def score_candidates(
    model: Any,
    memory: Memory,
    batch: Batch,
    context: UpdateContext,
    candidates: Sequence[Sequence[Hypothesis]],
    weights: Sequence[float],
) -> Tensor:
    """The model's log-probability of every candidate, documents one after the other: (R,), with gradients.

    ``weights`` (R) are what each will weigh in the loss, as far as that is known: a hint (`GoldTokens`).
    """
    counts = [len(own) for own in candidates]
    rows = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts)).to(batch.source_ids.device)
    targets = _targets(model, [hypothesis for own in candidates for hypothesis in own], batch, rows)
    hint = torch.tensor(weights, device=rows.device, dtype=torch.float32)
    asked = UpdateContext(
        token_weights=hint.unsqueeze(1) * targets.target_mask if weights else None, noise_seed=context.noise_seed
    )
    return model(targets, widened(memory, counts), asked).gold_log_probs.sum(dim=1)


def _targets(model: Any, hypotheses: Sequence[Hypothesis], batch: Batch, rows: Tensor) -> TrainingBatch:
    """The documents ``rows`` (R,) of ``batch`` with the hypotheses as targets (R, T), with EOS where they end."""
    ids = [torch.tensor([*h.ids, model.eos_id] if h.finished else h.ids, dtype=torch.int64) for h in hypotheses]
    lengths = torch.tensor([len(row) for row in ids])
    mask = torch.arange(max(1, int(lengths.max()))) < lengths.unsqueeze(1)
    target = torch.full(mask.shape, model.pad_id).masked_scatter(mask, torch.cat(ids))
    known = target.masked_fill(target >= model.vocab_size, model.unk_id)
    read = torch.cat([torch.full_like(known[:, :1], model.decoder_start_id), known[:, :-1]], dim=1)
    device = batch.source_ids.device
    return TrainingBatch(
        source_ids=batch.source_ids[rows],
        source_extended_ids=batch.source_extended_ids[rows],
        source_mask=batch.source_mask[rows],
        extended_vocab_size=batch.extended_vocab_size,
        target_ids=target.to(device),
        target_input_ids=read.masked_fill(~mask, model.pad_id).to(device),
        target_mask=mask.to(device),
    )


@contextmanager
def _decoding(model: Any) -> Iterator[None]:
    """The model as it decodes, inside only: without dropout, in full precision."""
    with evaluating(model), torch.autocast(next(model.parameters()).device.type, enabled=False):
        yield


Candidates = list[list[Hypothesis]]
Score = Callable[[Candidates, Sequence[float]], Tensor]  # `score_candidates` of a pass's documents

_PROFILE = "unicode"
_stem = lru_cache(maxsize=100_000)(stem_rouge155)


class RewardConfig(ConfigBase):
    """The weights of the two penalties; each share is between 0 and 1."""

    repetition: float = Field(1.0, ge=0)
    support: float = Field(0.5, ge=0)


def repeated_words(words: Sequence[str], gold: Sequence[str]) -> int:
    """How many words were said before, more often than ``gold`` says them.

    Function words (of English) may come again, but not one directly after the other.
    """
    allowed, seen, count = Counter(gold), Counter[str](), 0
    for place, word in enumerate(words):
        seen[word] += 1
        doubled = place > 0 and words[place - 1] == word
        count += (doubled or word not in smart_stop_words()) and seen[word] > max(1, allowed[word])
    return count


def unsupported_words(words: Sequence[str], given: Sequence[str]) -> int:
    """How many content words and numbers have no form of theirs (equal Porter stem) among the words ``given``."""
    stems = {_stem(word) for word in given}
    return sum(word not in smart_stop_words() and _stem(word) not in stems for word in words)


class SummaryReward:
    """``reward(summary, gold, document)`` of three texts; r(y) of the file's docstring."""

    def __init__(self, config: RewardConfig) -> None:
        self.config = config
        options = make_options(_PROFILE, {})
        self._engine = RougeEngine([parse_kind(kind) for kind in ("1", "2", "L")], _PROFILE, options)

    def __call__(self, summary: str, gold: str, document: str) -> float:
        """At most 1, for the gold summary itself; 0 for an empty one."""
        scores, _, _ = self._engine.score(summary, [gold])
        words_of = self._engine.text.words
        words, wanted = words_of(summary), words_of(gold)
        if not words:
            return 0.0
        repeated = repeated_words(words, wanted) / len(words)
        unsupported = unsupported_words(words, [*wanted, *words_of(document)]) / len(words)
        fall = self.config.repetition * repeated + self.config.support * unsupported
        return sum(score.f for score in scores) / len(scores) - fall


def expected_risk(log_probs: Tensor, rewards: Tensor, mask: Tensor, alpha: float) -> Tensor:
    """``sum_{y in S} Q(y) (1 - r(y))`` of each document: (B, N) each, ``mask`` true at real candidates -> (B,)."""
    shares = (alpha * log_probs).masked_fill(~mask, -torch.inf).softmax(dim=-1)
    return (shares * (1 - rewards)).sum(dim=-1)


def self_critical_loss(log_probs: Tensor, rewards: Tensor, baseline: Tensor) -> Tensor:
    """Equation 15: ``(r(y^) - r(y^s)) log p(y^s)``, a mean over samples: (B, n), (B, n), (B,) -> (B,)."""
    return ((baseline.unsqueeze(1) - rewards) * log_probs).mean(dim=-1)


class RewardObjective(Objective):
    """What both have in common: candidates, their rewards, and one more pass for their probabilities."""

    class Config(Objective.Config):
        """``reward``: the weights of its penalties."""

        reduction: Literal["sentence"] = "sentence"
        reward: RewardConfig = RewardConfig()

    config: Any
    counts_words = True

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.reward = SummaryReward(config.reward)
        self._seen: dict[str, Tensor] = {}

    def attach(self, model: Any, tokenizer: Tokenizer, run: RunConfig) -> None:
        """Raises:
        ConfigError: the model cannot take up a memory again, or summaries are longer than search writes.
        """
        if not model.shares_memory:
            raise ConfigError(
                f"The objective '{self.name}' scores summaries that the model writes, which {run.model['type']} cannot "
                "do in training: set model.type to seq2seq, transformer, bart or distraction, or leave it out."
            )
        if (most := longest(run, model)) > LONGEST:
            raise ConfigError(
                f"The objective '{self.name}' lets the model write as many tokens as text.max_target_tokens, {most:,}, "
                f"and search writes {LONGEST:,} at most: set that lower."
            )
        self._parts, self._run = (model, tokenizer), run  # in a tuple: not a submodule

    @abstractmethod
    def _candidates(self, memory: Memory, batch: TrainingBatch, context: UpdateContext) -> Candidates:
        """Of each document, best first."""

    @abstractmethod
    def _losses(self, candidates: Candidates, rewards: list[list[float]], like: Tensor, score: Score) -> Tensor:
        """Of each document, (B,), on the device and in the type of ``like``."""

    def forward(self, output: ModelOutput, batch: TrainingBatch, context: UpdateContext = PLAIN_PASS) -> Term:
        model, _ = self._parts
        like = output.gold_log_probs
        memory: Any = output.memory  # which models with `shares_memory` leave
        if torch.is_grad_enabled():
            candidates = self._candidates(memory, batch, context)
            rewards = self.rewards(batch, candidates)
            losses = self._losses(candidates, rewards, like, partial(score_candidates, model, memory, batch, context))
            self._seen = {f"{self.name}_reward": like.new_tensor([own[0] for own in rewards]).mean()}
        elif model.training:  # only the count is asked for
            losses = torch.zeros_like(like)
        else:
            written = search_candidates(model, memory, beam_config(self._run, model, 1))
            losses = 1 - like.new_tensor(self.rewards(batch, written))
        count = output.counted(batch).any(dim=1).sum().to(like.dtype)
        return Term(self.name, losses.sum(), count, self.config.weight)

    def rewards(self, batch: TrainingBatch, candidates: Candidates) -> list[list[float]]:
        """r of every candidate of every document, against the gold summary and the document as the model reads them."""
        _, tokenizer = self._parts
        found = []
        texts = (batch.target_ids.tolist(), batch.source_extended_ids.tolist(), batch.oov_words)
        for own, gold_ids, source_ids, words in zip(candidates, *texts, strict=True):
            gold, document = tokenizer.decode(gold_ids, words), tokenizer.decode(source_ids, words)
            found.append([self.reward(tokenizer.decode(each.ids, words), gold, document) for each in own])
        return found

    def figures(self, output: ModelOutput, batch: TrainingBatch) -> dict[str, Tensor]:
        """The mean reward of what the model would have written for the last micro-batch."""
        return self._seen


class MinimumRisk(RewardObjective):
    """The expected risk over a beam; see the file's docstring."""

    class Config(RewardObjective.Config):
        """``candidates``: the beam. ``alpha`` 1 weighs them as the model does, less makes them more alike."""

        candidates: int = Field(4, ge=2)
        alpha: float = Field(1.0, gt=0)

    name = "minimum_risk"

    def _candidates(self, memory: Memory, batch: TrainingBatch, context: UpdateContext) -> Candidates:
        model = self._parts[0]
        return search_candidates(model, memory, beam_config(self._run, model, self.config.candidates))

    def _losses(self, candidates: Candidates, rewards: list[list[float]], like: Tensor, score: Score) -> Tensor:
        counts = torch.tensor([len(own) for own in candidates])
        mask = (torch.arange(int(counts.max())) < counts.unsqueeze(1)).to(like.device)  # (B, N) which are there
        searched, worth = (
            like.new_zeros(mask.shape).masked_scatter(mask, like.new_tensor(values))
            for values in ([h.log_prob for own in candidates for h in own], [r for own in rewards for r in own])
        )
        risk = expected_risk(searched.requires_grad_(), worth, mask, self.config.alpha)
        (slopes,) = torch.autograd.grad(risk.sum(), searched)
        log_probs = score(candidates, slopes[mask].tolist())
        change = torch.zeros_like(searched).masked_scatter(mask, log_probs - log_probs.detach())
        return risk.detach() + (slopes * change).sum(dim=-1)


class SelfCritical(RewardObjective):
    """A sample against the greedy summary; see the file's docstring."""

    class Config(RewardObjective.Config):
        """``samples`` a document; the gradient is their mean."""

        samples: int = Field(1, ge=1)

    name = "self_critical"

    def _candidates(self, memory: Memory, batch: TrainingBatch, context: UpdateContext) -> Candidates:
        """The greedy one first."""
        model = self._parts[0]
        sizes = {"samples": self.config.samples, "max_length": longest(self._run, model)}
        return draw_candidates(model, memory, batch, context, **sizes)

    def _losses(self, candidates: Candidates, rewards: list[list[float]], like: Tensor, score: Score) -> Tensor:
        drawn, worth = [own[1:] for own in candidates], like.new_tensor(rewards)
        log_probs = score(drawn, (worth[:, :1] - worth[:, 1:]).flatten().tolist())
        return self_critical_loss(log_probs.view(len(drawn), -1), worth[:, 1:], worth[:, 0])
