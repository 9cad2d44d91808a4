"""Distraction in search (M3): hypotheses that go on reading and saying other things than before are preferred.

Chen et al., "Distraction-Based Neural Networks for Document Summarization" (IJCAI 2016), section 3.3:
equations (15) to (18) of `catchline.papers.distraction`, with its readings, over the steps of a hypothesis.

| paper | here |
| --- | --- |
| alpha_t, c_t, s_t, as the output layer read them | ``output.attention`` (N, S), ``context`` (N, D), ``state`` (N, H) |
| lambda_1, lambda_2, lambda_3 | ``config.attention``, ``config.context``, ``config.state`` |

The three terms depend on y_1 .. y_{t-1} only, so they are one number a live hypothesis: they decide between hypotheses,
never between the words of one, and do nothing with one beam.

``variant: released`` is the formula of the authors' code instead: KL(alpha_i || alpha_t), and of the cosine
*distances* the largest is subtracted, ``- lambda max_i (1 - cos)``. ``accumulate: false`` is the code's bookkeeping:
the terms choose among the candidates of a step; what is carried on and finally decides is the plain sum of
log-probabilities.

How it is fast. The vectors of a step are written once and stay where they are; what follows the beams is a small table
of places, one for each past step of each row. A term is an inner product of a present and a past vector, so one batched
product gives every row of a document against all that is written for it, and the table picks each row's own past.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from catchline.config.base import ConfigBase
from catchline.config.schema import DistractionTerms
from catchline.errors import ConfigError
from catchline.search.scorers import HypothesesView, Scorer, SpecialIds
from catchline.types import Memory, StepOutput

NORM_FLOOR = 1e-8
FIRST_STEPS = 32  # room for so many steps at first; doubled when it is full
COLLECT_EVERY = 16  # steps after which vectors that no living row descends from are dropped

# ---------------------------------------------------------------------------------------- equations


def log_weights(weights: np.ndarray) -> np.ndarray:
    """log alpha (N, S), finite everywhere: a weight that underflowed counts as the smallest normal number.

    At padding the weight is 0 and is multiplied with this logarithm, which gives 0.
    """
    return np.log(np.maximum(weights, np.finfo(weights.dtype).tiny))


def exact_logs(scores: np.ndarray) -> np.ndarray:
    """log alpha (N, S) from the scores of which alpha is the softmax: no weight underflows. 0 at padding."""
    shifted = scores - scores.max(axis=-1, keepdims=True)
    logs = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    logs[scores == -np.inf] = 0.0
    return logs


def divergence_sides(weights: np.ndarray, logs: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Equation (15)'s divergence as an inner product, KL(p || q) = <left(p), right(q)>.

    Attention (N, S) and its logarithms, where they are known -> left [p; sum p log p] and right [-log q; 1], each
    (N, S + 1).
    """
    logs = log_weights(weights) if logs is None else logs
    left = np.concatenate([weights, (weights * logs).sum(axis=-1, keepdims=True)], axis=-1)
    return left, np.concatenate([-logs, np.ones_like(weights[..., :1])], axis=-1)


def cosine_sides(vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The cosine of equations (16) and (17) as an inner product: both sides are the vector at length one, (N, W)."""
    norms = np.sqrt(np.einsum("...w,...w->...", vectors, vectors))[..., None]
    direction = vectors / np.maximum(norms, NORM_FLOOR)
    return direction, direction


def nearest(divergences: np.ndarray) -> np.ndarray:
    """Equation (15): KL to each past step (N, t) -> d_alpha (N,)."""
    return divergences.min(axis=-1)


def most_similar(cosines: np.ndarray) -> np.ndarray:
    """Equations (16) and (17): cosines with each past step (N, t) -> d_c or d_s (N,)."""
    return cosines.max(axis=-1)


def least_similar(cosines: np.ndarray) -> np.ndarray:
    """The released code's term: minus the largest cosine distance, ``-max_i (1 - cos)`` (N,)."""
    return cosines.min(axis=-1) - 1.0


# Of each term: what stands for a step's vectors when it is the present one and when it is past, whose inner product is
# taken; and which of the past steps counts.
VARIANTS: dict[str, dict[str, tuple[Callable[..., tuple[np.ndarray, np.ndarray]], Callable[..., np.ndarray]]]] = {
    "paper": {
        "attention": (divergence_sides, nearest),
        **dict.fromkeys(("context", "state"), (cosine_sides, most_similar)),
    },
    "released": {  # KL(past || present): the same sides the other way round
        "attention": (lambda *given: divergence_sides(*given)[::-1], nearest),
        **dict.fromkeys(("context", "state"), (cosine_sides, least_similar)),
    },
}


# ------------------------------------------------------------------------------------------- scorer


class Past:
    """The vectors of past steps, by name, and where each row finds its own.

    ``vectors[name]`` (D, room, W) are filled up to ``written``: step by step what the K rows of each document gave.
    They do not move when beams are re-ordered; ``places`` (N, room) say where each row's ancestors are, step by step.
    Now and then what is no living row's ancestor is dropped: a little way back, all beams descend from a few rows.
    """

    def __init__(self, documents: int, beams: int) -> None:
        self.documents, self.beams, self.steps, self.written = documents, beams, 0, 0
        self.vectors: dict[str, np.ndarray] = {}
        self.places = np.empty((documents * beams, 0), dtype=np.int64)

    def products(self, name: str, present: np.ndarray) -> np.ndarray:
        """Inner products of vectors (N, W) with those of each past step of the same row, (N, t)."""
        written = self.vectors[name][:, : self.written]
        everything = present.reshape(self.documents, self.beams, -1) @ written.swapaxes(1, 2)  # (D, K, written)
        return np.take_along_axis(everything.reshape(len(present), -1), self.places[:, : self.steps], axis=1)

    def add(self, name: str, vectors: np.ndarray) -> None:
        """Write the present step's vectors (N, W)."""
        present, end = vectors.reshape(self.documents, self.beams, -1), self.written + self.beams
        held = _with_room(self.vectors.get(name, present[:, :0]), end, FIRST_STEPS * self.beams)
        held[:, self.written : end] = present
        self.vectors[name] = held

    def close_step(self) -> None:
        """The present step becomes part of the past; each row is its own ancestor there."""
        self.places = _with_room(self.places, self.steps + 1, FIRST_STEPS)
        self.places[:, self.steps] = np.tile(np.arange(self.written, self.written + self.beams), self.documents)
        self.steps += 1
        self.written += self.beams

    def select(self, index: np.ndarray) -> None:
        """Row i becomes what row ``index[i]`` of the same document was; documents may disappear."""
        self.places = self.places[index]
        documents = index[:: self.beams] // self.beams
        if len(documents) != self.documents:
            self.documents = len(documents)
            self.vectors = {name: held[documents] for name, held in self.vectors.items()}
        if self.steps % COLLECT_EVERY == 0:
            self._collect(self.places[:, : self.steps])

    def _collect(self, places: np.ndarray) -> None:
        """Keep only the vectors that ``places`` (N, t) speak of, in their order."""
        places = places.reshape(self.documents, -1)  # (D, K * t)
        used = np.zeros((self.documents, self.written), dtype=bool)
        np.put_along_axis(used, places, True, axis=1)
        kept = int(used.sum(axis=1).max())
        if 2 * kept > self.written:
            return
        order = (~used).argsort(axis=1, kind="stable")[:, :kept]
        documents = np.arange(self.documents)[:, None]
        for held in self.vectors.values():
            held[:, :kept] = held[documents, order]
        moved = np.take_along_axis(used.cumsum(axis=1) - 1, places, axis=1)
        self.places[:, : self.steps] = moved.reshape(-1, self.steps)
        self.written = kept


def _with_room(held: np.ndarray, size: int, first: int) -> np.ndarray:
    """``held`` or, where its second axis is shorter than ``size``, an array with room for twice as much."""
    if held.shape[1] >= size:
        return held
    wider = np.empty((held.shape[0], max(size, first, 2 * held.shape[1]), *held.shape[2:]), held.dtype)
    wider[:, : held.shape[1]] = held
    return wider


class DistractionScorer(Scorer):
    """Adds the weighted terms to every hypothesis at every step; see the file's docstring.

    Works in 32-bit floats at least. A weight of 0 leaves its term out, and the model need not give its vectors.
    """

    class Config(DistractionTerms):
        """The keys of ``search.distraction``."""

    name = "distraction"
    config: DistractionScorer.Config

    def __init__(self, config: ConfigBase, *, specials: SpecialIds):
        super().__init__(config, specials=specials)
        self.carries_rows = self.config.accumulate
        weighted = [(name, float(getattr(self.config, name))) for name in ("attention", "context", "state")]
        self._weights = {name: weight for name, weight in weighted if weight}
        self._past = Past(0, 1)

    def start(self, memory: Memory | None, num_rows: int) -> None:
        if memory is None:
            raise ConfigError("search.distraction needs to know the documents, but the search was given no memory.")
        self._past = Past(memory.batch_size, num_rows // memory.batch_size)

    def on_rows(self, totals: np.ndarray, view: HypothesesView) -> np.ndarray:
        past, added = self._past, None
        for name, weight in self._weights.items():
            sides, reduce = VARIANTS[self.config.variant][name]
            present, kept = sides(*_given(view.output, name))
            if past.steps:
                term = weight * reduce(past.products(name, present))
                added = term if added is None else added + term
            past.add(name, kept)
        past.close_step()
        return totals if added is None else totals + added

    def bound(self, scores: np.ndarray, length: int, max_length: int) -> np.ndarray:
        """Cosines are at most 1 a step and the released terms at most 0; a rewarded divergence has no bound."""
        if not self.config.accumulate:
            return scores
        growth = 0.0
        for name, weight in self._weights.items():
            if name == "attention":
                growth += np.inf if weight > 0 else 0.0
            else:
                growth += abs(weight) * (max_length + 1 - length) * (1 if self.config.variant == "paper" else 2)
        bound = scores.copy()
        bound[scores > -np.inf] += growth
        return bound

    def select(self, index: np.ndarray) -> None:
        self._past.select(index)


def _given(output: StepOutput | None, name: str) -> tuple[np.ndarray, ...]:
    """The step's vectors, in 32-bit floats at least; of attention its logarithms too, where the model has its scores.

    Raises:
        ConfigError: the model does not give them.
    """
    vectors: np.ndarray | None = getattr(output, name, None)
    if output is None or vectors is None:
        raise ConfigError(
            f"search.distraction.{name} needs a model that shows its {name} at every step, and this one does not: "
            f"set search.distraction.{name} to 0 or search.distraction to null."
        )
    wide = np.result_type(vectors.dtype, np.float32)
    if name != "attention" or output.attention_scores is None:
        return (vectors.astype(wide, copy=False),)
    return vectors.astype(wide, copy=False), exact_logs(output.attention_scores.astype(wide, copy=False))
