"""The terms of distraction against their definitions, and how their scorer keeps the past."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from search_tables import SPECIALS
from slow_distraction_search import Settings, SlowSearch

from catchline.config.names import MODELS, build
from catchline.config.schema import DistractionTerms, SearchConfig
from catchline.errors import ConfigError
from catchline.search.distraction import DistractionScorer, divergence_sides
from catchline.search.distraction import _vectors as vectors_of
from catchline.search.scorers import HypothesesView, build_scorers
from catchline.search.torch_bridge import decode
from catchline.types import Batch, Memory, StepOutput
from samples import EOS, IDS, one_example, random_batch, randomise

WEIGHTS = {"attention": 0.7, "context": -0.4, "state": -1.3}


def softmax(scores: np.ndarray) -> np.ndarray:
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


def scorer_of(**options: object) -> DistractionScorer:
    return DistractionScorer(DistractionTerms(**options), specials=SPECIALS)


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


@pytest.mark.parametrize("name", ["attention", "context", "state"])
def test_what_the_model_does_not_show_is_named(name: str) -> None:
    vectors = {each: softmax(np.ones((2, 3))) for each in WEIGHTS if each != name}
    nothing, mask = np.zeros((2, 1)), np.ones((2, 3), dtype=bool)

    def work(weights: dict[str, float]) -> None:
        scorer = scorer_of(**weights)
        scorer.start(Memory(nothing, mask, nothing, 9), 2)
        scorer.on_rows(np.zeros(2), HypothesesView(nothing[:, :0], StepOutput(nothing, nothing, **vectors)))

    with pytest.raises(ConfigError, match=rf"search\.distraction\.{name} needs a model that returns its {name}"):
        work(WEIGHTS)
    work(WEIGHTS | {name: 0.0})  # not needed, not asked for


def test_the_bound_is_never_below_what_can_come() -> None:
    totals = np.array([-1.0, -np.inf])
    assert scorer_of(attention=1.0).bound(totals, 2, 9).tolist() == [np.inf, -np.inf]
    assert scorer_of(attention=-1.0).bound(totals, 2, 9).tolist() == [-1.0, -np.inf]
    assert float(scorer_of(context=-0.5).bound(totals, 2, 9)[0]) == pytest.approx(-1 + 0.5 * 8)
    released = scorer_of(attention=-1.0, context=-0.5, state=0.25, variant="released")  # distances are at most 2
    assert float(released.bound(totals, 2, 9)[0]) == pytest.approx(-1 + 0.75 * 8 * 2)
    assert scorer_of(attention=1.0, accumulate=False).bound(totals, 2, 9).tolist() == totals.tolist()


def test_it_is_built_when_any_weight_is_not_zero() -> None:
    for options, built in (({}, False), ({"attention": 0.0}, False), ({"state": -0.1}, True)):
        names = [scorer.name for scorer in build_scorers(SearchConfig(distraction=options), SPECIALS)]
        assert ("distraction" in names[:-1]) == built, "before the length normalisation"


MAX_LENGTH = 7
LAMBDAS = (0.6, -0.8, -1.5)


@cache
def network() -> tuple[Any, Batch]:
    """A model that stops now and then, as random ones hardly ever do, and three documents."""
    attention = {"type": "distraction", "size": 6, "content": True, "history": True}
    spec = {"type": "distraction", "embedding_size": 5, "hidden_size": 4, "attention": attention}
    model = build("model", MODELS, spec, vocab_size=20, **IDS).double()
    randomise(model, seed=5, scale=2.0)
    with torch.no_grad():
        model.head.projection.bias[EOS] += 2.0
    return model.eval(), random_batch((9, 6, 4), (2, 2, 2), seed=1)


@cache
def readings(index: int) -> dict[Any, Any]:
    """What the model said after which words of a document, whatever search asked it first."""
    return {}


@pytest.mark.parametrize("accumulate", [True, False])
@pytest.mark.parametrize("variant", ["paper", "released"])
@pytest.mark.parametrize("beam", [pytest.param(1, marks=pytest.mark.slow), 3, 5])
def test_equals_the_slow_search(beam: int, variant: str, accumulate: bool) -> None:
    (model, batch), terms = network(), {"variant": variant, "accumulate": accumulate}
    rules = {"beam_size": beam, "num_return": beam, "shrink_beam": True, "length_normalisation": "predicted"}
    weights = dict(zip(WEIGHTS, LAMBDAS, strict=True))
    config = SearchConfig(max_length=MAX_LENGTH, distraction=weights | terms, **rules)
    search = SlowSearch(model, Settings(beam, MAX_LENGTH, LAMBDAS, **terms))
    for index, hypotheses in enumerate(decode(model, batch, config, **IDS)):
        expected = search(one_example(batch, index), readings(index))
        assert [(h.ids, h.finished) for h in hypotheses] == [(ids, finished) for _, ids, finished in expected]
        assert [h.score for h in hypotheses] == pytest.approx([score for score, _, _ in expected], abs=1e-9)
