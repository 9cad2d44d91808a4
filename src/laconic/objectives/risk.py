"""Training on what is measured: the expected reward of the summaries that the model itself writes.

`MinimumRisk` (Shen et al. 2016, "Minimum risk training for neural machine translation"): the expectation over a set
S of candidates, with the model's probabilities sharpened or flattened by alpha and renormalised on S,

    Q(y) = P(y | x)^alpha / sum_{y' in S} P(y' | x)^alpha,      risk = sum_{y in S} Q(y) (1 - r(y))

Our reading: S are the hypotheses of the run's own beam search (as Edunov et al. 2018 do for summaries), not samples,
so that what is improved is what will be written; the gold summary is not among them. Q is that of the search, where
the decoder has no dropout; the gradient is that of the risk by log P, passed on to the log P of the training pass.
Without dropout the two are the same. So the loss's derivative is known before the pass, which spares the vocabulary's
projection half of its products (`laconic.layers.vocabulary`).

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
"""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Literal

import torch
from pydantic import Field
from torch import Tensor

from laconic.config.base import ConfigBase
from laconic.config.schema import RunConfig
from laconic.errors import ConfigError
from laconic.metrics.rouge_engine import RougeEngine, make_options, parse_kind
from laconic.metrics.rouge_text import TextOptions, shared_text, stem_rouge155
from laconic.metrics.words import smart_stop_words
from laconic.objectives.base import Objective
from laconic.objectives.candidates import beam_config, draw_candidates, score_candidates, search_candidates
from laconic.text.base import Tokenizer
from laconic.types import PLAIN_PASS, Hypothesis, ModelOutput, Term, TrainingBatch, UpdateContext

Candidates = list[list[Hypothesis]]

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
        self._engine = RougeEngine([parse_kind(kind, options) for kind in ("1", "2", "L")], _PROFILE, options)
        text = shared_text(
            _PROFILE, TextOptions(options.stem, options.exceptions, options.remove_stop_words, options.better)
        )
        self._words = text.words

    def __call__(self, summary: str, gold: str, document: str) -> float:
        """At most 1, for the gold summary itself; 0 for an empty one."""
        scores, _, _ = self._engine.score(summary, [gold])
        words, wanted = self._words(summary), self._words(gold)
        if not words:
            return 0.0
        repeated = repeated_words(words, wanted) / len(words)
        unsupported = unsupported_words(words, [*wanted, *self._words(document)]) / len(words)
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
        ConfigError: the model cannot take up a memory again.
        """
        if not model.shares_memory:
            raise ConfigError(
                f"The objective '{self.name}' scores summaries that the model writes, which {run.model['type']} cannot "
                "do in training: set model.type to seq2seq, transformer, bart or distraction, or leave it out."
            )
        self._parts = (model, tokenizer)  # in a tuple: not a submodule
        self._greedy = beam_config(run, 1)
        self._prepare(run)

    @abstractmethod
    def _prepare(self, run: RunConfig) -> None:
        """Take what candidates need to know of the run."""

    @abstractmethod
    def _candidates(self, output: ModelOutput, batch: TrainingBatch, context: UpdateContext) -> Candidates:
        """Of each document, best first."""

    @abstractmethod
    def _losses(
        self,
        output: ModelOutput,
        batch: TrainingBatch,
        context: UpdateContext,
        candidates: Candidates,
        rewards: list[list[float]],
    ) -> Tensor:
        """Of each document, (B,)."""

    def forward(self, output: ModelOutput, batch: TrainingBatch, context: UpdateContext = PLAIN_PASS) -> Term:
        model, _ = self._parts
        mask = output.counted(batch)
        count = mask.any(dim=1).sum().to(output.gold_log_probs.dtype)
        if torch.is_grad_enabled():
            candidates = self._candidates(output, batch, context)
            rewards = self.rewards(batch, candidates)
            losses = self._losses(output, batch, context, candidates, rewards)
            best = torch.tensor([own[0] for own in rewards])
            self._seen = {f"{self.name}_reward": best.mean()}
        elif model.training:  # only the count is asked for
            losses = torch.zeros_like(output.gold_log_probs)
        else:
            assert output.memory is not None
            written = search_candidates(model, output.memory, self._greedy)
            losses = 1 - output.gold_log_probs.new_tensor(self.rewards(batch, written))
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

    def _prepare(self, run: RunConfig) -> None:
        self._search = beam_config(run, self.config.candidates)

    def _candidates(self, output: ModelOutput, batch: TrainingBatch, context: UpdateContext) -> Candidates:
        assert output.memory is not None
        return search_candidates(self._parts[0], output.memory, self._search)

    def _losses(
        self,
        output: ModelOutput,
        batch: TrainingBatch,
        context: UpdateContext,
        candidates: Candidates,
        rewards: list[list[float]],
    ) -> Tensor:
        like, mask = output.gold_log_probs, _mask(candidates).to(output.gold_log_probs.device)
        searched, worth = (
            like.new_zeros(mask.shape).masked_scatter(mask, like.new_tensor(values))
            for values in ([h.log_prob for own in candidates for h in own], [r for own in rewards for r in own])
        )
        risk = expected_risk(searched.requires_grad_(), worth, mask, self.config.alpha)
        (slopes,) = torch.autograd.grad(risk.sum(), searched)
        log_probs = score_candidates(self._parts[0], output, batch, context, candidates, slopes[mask].tolist())
        change = torch.zeros_like(searched).masked_scatter(mask, log_probs - log_probs.detach())
        return risk.detach() + (slopes * change).sum(dim=-1)


class SelfCritical(RewardObjective):
    """A sample against the greedy summary; see the file's docstring."""

    class Config(RewardObjective.Config):
        """``samples`` a document; the gradient is their mean."""

        samples: int = Field(1, ge=1)

    name = "self_critical"

    def _prepare(self, run: RunConfig) -> None:
        self._max_length = run.text.max_target_tokens

    def _candidates(self, output: ModelOutput, batch: TrainingBatch, context: UpdateContext) -> Candidates:
        """The greedy one first."""
        model, samples = self._parts[0], self.config.samples
        assert output.memory is not None
        return draw_candidates(model, output.memory, batch, context, samples=samples, max_length=self._max_length)

    def _losses(
        self,
        output: ModelOutput,
        batch: TrainingBatch,
        context: UpdateContext,
        candidates: Candidates,
        rewards: list[list[float]],
    ) -> Tensor:
        drawn = [own[1:] for own in candidates]
        worth = output.gold_log_probs.new_tensor(rewards)
        hint = (worth[:, :1] - worth[:, 1:]).flatten().tolist()
        log_probs = score_candidates(self._parts[0], output, batch, context, drawn, hint)
        return self_critical_loss(log_probs.view(len(drawn), -1), worth[:, 1:], worth[:, 0])


def _mask(candidates: Sequence[Sequence[Hypothesis]]) -> Tensor:
    """(B, N) which places hold a candidate."""
    counts = torch.tensor([len(own) for own in candidates])
    return torch.arange(int(counts.max())) < counts.unsqueeze(1)
