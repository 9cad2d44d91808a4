"""Distraction in search (M3): preference for hypotheses that read and say what they have not read and said before.

Chen et al., "Distraction-Based Neural Networks for Document Summarization" (IJCAI 2016), section 3.3:
equations (15) to (18) of `catchline.papers.distraction`, with its readings, over the steps of a hypothesis.

| paper | here |
| --- | --- |
| alpha_t, c_t, s_t, as the output layer read them | ``output.attention`` (N, S), ``context`` (N, D), ``state`` (N, H) |
| lambda_1, lambda_2, lambda_3 | ``config.attention``, ``config.context``, ``config.state`` |

The three terms depend on y_1 .. y_{t-1} only, so they are one number a hypothesis: they decide between hypotheses,
never between the words of one, and do nothing with one beam.

``variant: released`` is the formula of the authors' code instead: KL(alpha_i || alpha_t), and of the cosine
*distances* the largest is subtracted, ``- lambda max_i (1 - cos)``. ``accumulate: false`` is the code's bookkeeping:
the terms choose among the candidates of a step; what is carried on and finally decides is the plain sum of
log-probabilities.

The vectors of a step are written once and do not move; what follows the beams is a small table of places, one for each
past step of each row. A term is an inner product of a present and a past vector, so one batched product compares every
row of a document with all that is written for it, and the table picks each row's own past.
"""

from __future__ import annotations

import numpy as np

from catchline.config.base import ConfigBase
from catchline.config.schema import DistractionTerms
from catchline.errors import ConfigError
from catchline.search.scorers import HypothesesView, Scorer, SpecialIds
from catchline.types import Memory, StepOutput

NORM_FLOOR = 1e-8

# ---------------------------------------------------------------------------------------- equations


def divergence_sides(weights: np.ndarray, scores: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Equation (15)'s divergence as an inner product, KL(p || q) = <left(p), right(q)>. Attention (N, S) -> left
    [p; sum p log p] and right [-log q; 1], each (N, S + 1). The logarithms are those of the ``scores`` of which the
    weights are the softmax; without these a weight that underflowed counts as the smallest normal number."""
    if scores is None:
        logs = np.log(np.maximum(weights, np.finfo(weights.dtype).tiny))
    else:
        shifted = scores - scores.max(axis=-1, keepdims=True)
        logs = shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
        logs[scores == -np.inf] = 0.0  # at padding
    left = np.concatenate([weights, (weights * logs).sum(axis=-1, keepdims=True)], axis=-1)
    return left, np.concatenate([-logs, np.ones_like(weights[..., :1])], axis=-1)


def directions(vectors: np.ndarray) -> np.ndarray:
    """The vectors (N, W) at length one: the cosine of equations (16) and (17) is their inner product."""
    norms = np.sqrt(np.einsum("...w,...w->...", vectors, vectors))[..., None]
    return vectors / np.maximum(norms, NORM_FLOOR)


# ------------------------------------------------------------------------------------------- scorer


class StepHistory:
    """The vectors of past steps, by name, and where each row finds its own. ``vectors[name]`` (B, K t, W) hold what the
    K rows of each document gave, step by step. They do not move when beams are re-ordered; ``places`` (N, t) say where
    each row's ancestors are, step by step."""

    def __init__(self, documents: int, beams: int) -> None:
        self.documents, self.beams = documents, beams
        self.vectors: dict[str, np.ndarray] = {}
        self.places = np.empty((documents * beams, 0), dtype=np.int64)

    def products(self, name: str, present: np.ndarray) -> np.ndarray:
        """Inner products of vectors (N, W) with those of each past step of the same row, (N, t)."""
        everything = present.reshape(self.documents, self.beams, -1) @ self.vectors[name].swapaxes(1, 2)  # (B, K, K t)
        return np.take_along_axis(everything.reshape(len(present), -1), self.places, axis=1)

    def add(self, name: str, vectors: np.ndarray) -> None:
        """Append the present step's vectors (N, W)."""
        present = vectors.reshape(self.documents, self.beams, -1)
        self.vectors[name] = np.concatenate([self.vectors.get(name, present[:, :0]), present], axis=1)

    def close_step(self) -> None:
        """The present step becomes part of the past; each row is its own ancestor there."""
        present = np.tile(np.arange(self.beams), self.documents) + self.places.shape[1] * self.beams
        self.places = np.concatenate([self.places, present[:, None]], axis=1)

    def select(self, index: np.ndarray) -> None:
        """Row i becomes what row ``index[i]`` of the same document was; documents may disappear."""
        self.places = self.places[index]
        documents = index[:: self.beams] // self.beams
        if len(documents) != self.documents:
            self.documents = len(documents)
            self.vectors = {name: past[documents] for name, past in self.vectors.items()}


class DistractionScorer(Scorer):
    """Adds the weighted terms to every hypothesis at every step; see the file's docstring. Works in 32-bit floats at
    least. A weight of 0 leaves its term out, and the model need not give its vectors."""

    class Config(DistractionTerms):
        """The keys of ``search.distraction``."""

    name = "distraction"
    config: DistractionScorer.Config

    def __init__(self, config: ConfigBase, *, specials: SpecialIds):
        super().__init__(config, specials=specials)
        self.carries_rows = self.config.accumulate
        weighted = [(name, float(getattr(self.config, name))) for name in ("attention", "context", "state")]
        self._weights = {name: weight for name, weight in weighted if weight}
        self._past = StepHistory(0, 1)

    def start(self, memory: Memory, num_rows: int) -> None:
        self._past = StepHistory(memory.mask.shape[0], num_rows // memory.mask.shape[0])

    def on_rows(self, totals: np.ndarray, view: HypothesesView) -> np.ndarray:
        past, released, added = self._past, self.config.variant == "released", None
        for name, weight in self._weights.items():
            vectors = _vectors(view.output, name)
            if name == "attention":  # released: KL(past || present), the same sides the other way round
                present, kept = divergence_sides(*vectors)[:: -1 if released else 1]
            else:
                present = kept = directions(vectors[0])
            if past.places.shape[1]:
                products = past.products(name, present)
                if name == "attention":
                    term = products.min(axis=-1)
                else:  # released: minus the largest cosine distance
                    term = products.min(axis=-1) - 1.0 if released else products.max(axis=-1)
                added = weight * term if added is None else added + weight * term
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


def _vectors(output: StepOutput | None, name: str) -> tuple[np.ndarray, np.ndarray | None]:
    """The step's vectors, in 32-bit floats at least, and of attention its scores, where the model has them."""
    vectors: np.ndarray | None = getattr(output, name, None)
    if output is None or vectors is None:
        raise ConfigError(
            f"search.distraction.{name} needs a model that returns its {name} at every step, and this one does not: "
            f"set search.distraction.{name} to 0 or search.distraction to null."
        )
    wide = np.result_type(vectors.dtype, np.float32)
    scores = output.attention_scores if name == "attention" else None
    return vectors.astype(wide, copy=False), None if scores is None else scores.astype(wide, copy=False)
