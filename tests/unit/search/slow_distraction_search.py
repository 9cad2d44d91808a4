"""Beam search with distraction, one document and one hypothesis at a time, in plain Python.

Written from Algorithm 1 and equations (15) to (18) of Chen et al. (IJCAI 2016) and from the description of the
released code's bookkeeping (docs/distraction.md, rows 37 to 41), not from the toolkit's search. A hypothesis
carries its own words, model state and lists of past vectors; nothing is batched, masked or re-ordered.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from catchline.types import Batch

UNK, BOS, EOS, PAD = 1, 2, 3, 0


def kl(p: np.ndarray, q: np.ndarray) -> float:
    real = p > 0
    return float((p[real] * (np.log(p[real]) - np.log(q[real]))).sum())


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    return float(a @ b) / (max(math.sqrt(a @ a), 1e-8) * max(math.sqrt(b @ b), 1e-8))


@dataclass
class Vectors:
    """What one step of one hypothesis shows: alpha_t, c_t, s_t."""

    attention: np.ndarray
    context: np.ndarray
    state: np.ndarray


def distraction(now: Vectors, past: list[Vectors], lambdas: tuple[float, float, float], variant: str) -> float:
    """What a step adds to the score of its hypothesis."""
    if not past:
        return 0.0
    l1, l2, l3 = lambdas
    contexts = [cosine(now.context, before.context) for before in past]
    states = [cosine(now.state, before.state) for before in past]
    if variant == "paper":
        divergence = min(kl(now.attention, before.attention) for before in past)
        return l1 * divergence + l2 * max(contexts) + l3 * max(states)
    divergence = min(kl(before.attention, now.attention) for before in past)
    cost = l2 * max(1 - c for c in contexts) + l3 * max(1 - c for c in states)
    return l1 * divergence - cost


@dataclass
class Slow:
    """One hypothesis; ``carried`` is its score so far."""

    words: list[int]
    model_state: Any
    past: list[Vectors] = field(default_factory=list)
    carried: float = 0.0


@dataclass
class Settings:
    beam: int
    max_length: int
    lambdas: tuple[float, float, float]
    variant: str
    accumulate: bool


Found = list[tuple[float, list[int], bool]]  # final score, words, finished


class SlowSearch:
    """``search(batch of one document)``: all hypotheses, best first. ``readings`` keeps what the model said of that
    document by the words it had read, for the next search of the same document."""

    def __init__(self, model: Any, settings: Settings) -> None:
        self.model, self.settings = model, settings

    def __call__(self, batch: Batch, readings: dict[Any, Any]) -> Found:
        """The released code: the best (width - finished) candidates; one in EOS gives up its place."""
        self.readings = readings
        with torch.no_grad():
            live, done = [Slow([], self.model.start(self.model.encode(batch)))], Found()
            for _ in range(self.settings.max_length):
                candidates = sorted(self._candidates(live), key=lambda c: -c[0])
                live = []
                for _, word, grown in candidates[: self.settings.beam - len(done)]:
                    if word == EOS:
                        done.append(self._final(grown, finished=True))
                    else:
                        live.append(grown)
                if not live or len(done) == self.settings.beam:
                    break
            return sorted(done + [self._final(h, finished=False) for h in live], key=lambda d: -d[0])

    def _candidates(self, live: list[Slow]) -> Iterator[tuple[float, int, Slow]]:
        """(score that decides in this step, word, what the hypothesis becomes)."""
        s = self.settings
        for hypothesis in live:
            log_probs, now, state = self.read(hypothesis)
            term = distraction(now, hypothesis.past, s.lambdas, s.variant)
            for word, log_prob in enumerate(log_probs):
                if word in (UNK, BOS, PAD):
                    continue
                decides = hypothesis.carried + term + log_prob
                carried = decides if s.accumulate else hypothesis.carried + log_prob
                yield decides, word, Slow([*hypothesis.words, word], state, [*hypothesis.past, now], carried)

    def read(self, hypothesis: Slow) -> tuple[list[float], Vectors, Any]:
        """One step of the model for this hypothesis alone."""
        words = tuple(hypothesis.words)
        if words not in self.readings:
            output, state = self.model.step(torch.tensor([(BOS, *words)[-1]]), hypothesis.model_state)
            vectors = (np.asarray(v[0].double()) for v in (output.attention, output.context, output.state))
            self.readings[words] = output.log_probs[0].tolist(), Vectors(*vectors), state
        return self.readings[words]

    def _final(self, hypothesis: Slow, *, finished: bool) -> tuple[float, list[int], bool]:
        words = hypothesis.words[:-1] if finished else hypothesis.words
        return hypothesis.carried / len(hypothesis.words), words, finished  # of what was predicted, EOS counted
