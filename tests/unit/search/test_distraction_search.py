"""The terms of distraction against their definitions, and how their scorer keeps the past."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from search_tables import SPECIALS
from slow_distraction_search import Found, Settings, SlowSearch

from catchline.config.names import MODELS, build
from catchline.config.schema import DistractionTerms, SearchConfig
from catchline.errors import ConfigError
from catchline.search.distraction import DistractionScorer, divergence_sides
from catchline.search.distraction import _vectors as vectors_of
from catchline.search.scorers import HypothesesView, build_scorers
from catchline.search.torch_bridge import decode
from catchline.types import Batch, Hypothesis, Memory, StepOutput
from samples import EOS, IDS, one_example, random_batch, randomise, tiny_seq2seq

DOCUMENTS, BEAMS, SOURCE = 2, 3, 6
ROWS = DOCUMENTS * BEAMS
WEIGHTS = {"attention": 0.7, "context": -0.4, "state": -1.3}


def softmax(scores: np.ndarray) -> np.ndarray:
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def drawn(seed: int, *, rows: int = ROWS, source: int = SOURCE, dtype: type = np.float64) -> StepOutput:
    random = np.random.default_rng(seed)
    attention = softmax(2 * random.standard_normal((rows, source)))
    context, state = (random.standard_normal((rows, width)) for width in (5, 4))
    nothing = np.zeros((rows, 1))
    return StepOutput(nothing, nothing, attention.astype(dtype), context.astype(dtype), state.astype(dtype))


def scorer_of(documents: int = DOCUMENTS, beams: int = BEAMS, **options: object) -> DistractionScorer:
    scorer = DistractionScorer(DistractionTerms(**(options or WEIGHTS)), specials=SPECIALS)
    mask = np.ones((documents, SOURCE), dtype=bool)
    scorer.start(Memory(np.zeros((documents, SOURCE, 1)), mask, mask.astype(int), 9), documents * beams)
    return scorer


def said(scorer: DistractionScorer, output: StepOutput) -> np.ndarray:
    """What the scorer adds to rows at zero."""
    rows = len(output.scores)
    return scorer.on_rows(np.zeros(rows), HypothesesView(np.zeros((rows, 0)), output))


# ---------------------------------------------------------------------------------------- equations


def kl(p: list[float], q: list[float]) -> float:
    return float((divergence_sides(np.float32([p]))[0] * divergence_sides(np.float32([q]))[1]).sum())


def test_divergence_is_finite_where_weights_underflow_and_keeps_its_precision() -> None:
    """A floor such as 1e-6 inside the logarithm would halve that of a peaked attention."""
    assert kl([1.0, 0.0, 0.0], [0.0, 1.0, 0.0]) == pytest.approx(-math.log(np.finfo(np.float32).tiny), rel=1e-6)
    assert kl([1.0, 0.0, 0.0], [1.0, 0.0, 0.0]) == 0.0
    assert kl([1e-12, 1.0], [1.0, 1e-12]) == pytest.approx(12 * math.log(10), rel=1e-5)


@pytest.mark.parametrize("scale", [1.0, 100.0, 1000.0])
def test_no_weight_underflows_where_the_scores_are_known(scale: float) -> None:
    """In 32 bits as in 64, whichever of two weights that are zero in 32 bits is the larger; padding stays out."""
    scores = scale * np.random.default_rng(1).standard_normal((2, 9))
    scores[:, -2:] = -np.inf
    found = []
    for dtype in (np.float32, np.float64):
        outputs = [StepOutput(row, row, softmax(row), attention_scores=row) for row in scores[:, None].astype(dtype)]
        (left, _), (_, right) = (divergence_sides(*vectors_of(output, "attention")) for output in outputs)
        found.append((left * right).sum(-1).astype(np.float64))
    shifted = scores[:, :-2] - scores[:, :-2].max(axis=1, keepdims=True)
    logs = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    np.testing.assert_allclose(found[1], (np.exp(logs[0]) * (logs[0] - logs[1])).sum(-1, keepdims=True))
    np.testing.assert_allclose(found[0], found[1], rtol=1e-4, atol=1e-4)


# ------------------------------------------------------------------------------------------- scorer


@pytest.mark.parametrize("name", ["attention", "context", "state"])
def test_what_the_model_does_not_show_is_named(name: str) -> None:
    output = drawn(0)
    setattr(output, name, None)
    with pytest.raises(ConfigError, match=rf"search\.distraction\.{name} needs a model that returns its {name}"):
        said(scorer_of(), output)
    said(scorer_of(**{**WEIGHTS, name: 0.0}), output)  # not needed, not asked for


def test_the_bound_is_never_below_what_can_come() -> None:
    totals = np.array([-1.0, -np.inf])
    assert scorer_of(attention=1.0).bound(totals, 2, 9).tolist() == [np.inf, -np.inf]
    assert scorer_of(attention=-1.0).bound(totals, 2, 9).tolist() == [-1.0, -np.inf]
    assert float(scorer_of(context=-0.5).bound(totals, 2, 9)[0]) == pytest.approx(-1 + 0.5 * 8)
    released = scorer_of(attention=-1.0, context=-0.5, state=0.25, variant="released")  # distances are at most 2
    assert float(released.bound(totals, 2, 9)[0]) == pytest.approx(-1 + 0.75 * 8 * 2)
    assert scorer_of(attention=1.0, accumulate=False).bound(totals, 2, 9).tolist() == totals.tolist()


# ------------------------------------------------------------------------------------- configuration


def test_it_is_built_when_any_weight_is_not_zero() -> None:
    for options, built in (({}, False), ({"attention": 0.0}, False), ({"state": -0.1}, True)):
        names = [scorer.name for scorer in build_scorers(SearchConfig(distraction=options), SPECIALS)]
        assert ("distraction" in names[:-1]) == built, "before the length normalisation"


MAX_LENGTH = 7
BATCHES = [random_batch((9, 6, 4, 1), (2, 2, 2, 2), seed=seed) for seed in (1, 2, 4)]


def ending(model: Any, more: float = 2.0) -> Any:
    """Random models hardly ever stop; this one does, sometimes."""
    with torch.no_grad():
        model.head.projection.bias[EOS] += more
    return model.eval()


@cache
def pointer_with_coverage() -> Any:
    return ending(tiny_seq2seq(attention={"type": "additive", "size": 6, "coverage": True}, scale=2.0, seed=4), 5.0)


@cache
def distraction_network() -> Any:
    attention = {"type": "distraction", "size": 6, "content": True, "history": True}
    spec = {"type": "distraction", "embedding_size": 5, "hidden_size": 4, "attention": attention}
    model = build("model", MODELS, spec, vocab_size=20, **IDS).double()
    randomise(model, seed=5, scale=2.0)
    return ending(model)


NETWORKS: dict[str, Callable[[], Any]] = {
    "pointer, coverage": pointer_with_coverage,
    "distraction": distraction_network,
}
LAMBDAS = {
    "all": (0.6, -0.8, -1.5),
    "attention": (1.5, 0.0, 0.0),
    "context": (0.0, -2.5, 0.0),
    "state": (0.0, 0.0, -2.5),
    "the other signs": (-0.4, 0.9, 1.2),
}


def fast(model: Any, batch: Batch, **options: Any) -> list[list[Hypothesis]]:
    lambdas = options.pop("lambdas", (0.0, 0.0, 0.0))
    weights = dict(zip(("attention", "context", "state"), lambdas, strict=True))
    terms = {name: options.pop(name) for name in ("variant", "accumulate") if name in options}
    beam = options.pop("beam")
    config = SearchConfig(
        beam_size=beam,
        num_return=beam,
        max_length=options.pop("max_length", MAX_LENGTH),
        length_normalisation="predicted",
        shrink_beam=options.pop("shrink", True),
        distraction={**weights, **terms},
        **options,
    )
    return decode(model, batch, config, **IDS)


def slow(model: Any, batch: Batch, **options: Any) -> list[Found]:
    options.setdefault("max_length", MAX_LENGTH)
    search = SlowSearch(model, Settings(**options))
    alone = [one_example(batch, index) for index in range(len(batch.source_ids))]
    return [search(one, readings(model, _numbered(batch), index)) for index, one in enumerate(alone)]


@cache
def readings(model: Any, batch: int, index: int) -> dict[Any, Any]:
    """What a model said after which words of a document, whatever search asked it first."""
    return {}


def _numbered(batch: Batch) -> int:
    return next(number for number, one in enumerate(BATCHES) if one is batch)


def agree(found: list[list[Hypothesis]], expected: list[Found]) -> bool:
    return all(
        [(h.ids, h.finished) for h in hypotheses] == [(ids, finished) for _, ids, finished in known[: len(hypotheses)]]
        and len(hypotheses) == len(known)
        and [h.score for h in hypotheses] == pytest.approx([score for score, _, _ in known], abs=1e-9)
        for hypotheses, known in zip(found, expected, strict=True)
    )


def words(found: list[list[Hypothesis]]) -> list[list[list[int]]]:
    return [[h.ids for h in hypotheses] for hypotheses in found]


# The rules of the search know nothing of the network: one has all of them, the others the widest beam's.
RULES = [
    pytest.param(
        *(network, beam, variant, accumulate, shrink),
        marks=[] if (network == "distraction" and beam > 1) or (beam, variant) == (5, "paper") else pytest.mark.slow,
    )
    for network in NETWORKS
    for beam in (1, 3, 5)
    for variant in ("paper", "released")
    for accumulate in (True, False)
    for shrink in (True, False)
]


@pytest.mark.parametrize(("network", "beam", "variant", "accumulate", "shrink"), RULES)
def test_equals_the_slow_search(network: str, beam: int, variant: str, accumulate: bool, shrink: bool) -> None:
    model, batch = NETWORKS[network](), BATCHES[0]
    options = {"beam": beam, "variant": variant, "accumulate": accumulate, "shrink": shrink, "lambdas": LAMBDAS["all"]}
    assert agree(fast(model, batch, **options), slow(model, batch, **options))
