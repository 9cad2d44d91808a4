"""Beam search with distraction against the slow search and all sequences; and that mistakes would be noticed."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import pytest
import torch
from slow_distraction_search import Found, Settings, SlowSearch, every_sequence

from catchline.config.names import MODELS, build
from catchline.config.schema import SearchConfig
from catchline.search.torch_bridge import decode
from catchline.types import Batch, Hypothesis
from samples import EOS, IDS, one_example, random_batch, randomise, tiny_seq2seq

MAX_LENGTH = 7
BATCHES = [random_batch((9, 6, 4, 1), (2, 2, 2, 2), seed=seed) for seed in (1, 2, 4)]


def ending(model: Any, more: float = 2.0) -> Any:
    """Random models hardly ever stop; this one does, sometimes."""
    with torch.no_grad():
        model.head.projection.bias[EOS] += more
    return model.eval()


@cache
def plain_attention() -> Any:
    options = {"attention": {"type": "additive", "size": 6}, "head": {"type": "vocabulary"}}
    return ending(tiny_seq2seq(**options, scale=2.0, seed=3))


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
    "attention": plain_attention,
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


@pytest.mark.parametrize("variant", ["paper", "released"])
def test_terms_that_are_not_carried_leave_plain_log_probabilities(variant: str) -> None:
    model, batch = distraction_network(), BATCHES[0]
    options = {"beam": 5, "lambdas": LAMBDAS["all"], "variant": variant}
    found = fast(model, batch, **options, accumulate=False)
    for hypothesis in found[0]:
        predicted = len(hypothesis.ids) + hypothesis.finished
        assert hypothesis.score == pytest.approx(hypothesis.log_prob / predicted)
        assert "distraction" not in hypothesis.terms
    assert words(found) != words(fast(model, batch, beam=5))
    assert words(found) != words(fast(model, batch, **options))


@pytest.mark.parametrize("network", NETWORKS)
def test_equals_exhaustive_search_on_a_toy(network: str) -> None:
    """Three words, up to three of them: 40 sequences, and a beam that holds them all and what does not finish."""
    model, batch = NETWORKS[network](), random_batch((6, 3), (2, 2), seed=3, with_oov=False)
    forbidden = [4 + i for i in range(3, 16)]
    found = fast(
        model,
        batch,
        beam=130,
        lambdas=LAMBDAS["all"],
        max_length=3,
        shrink=False,
        scorers=({"type": "forbid_tokens", "ids": forbidden},),
    )
    for index, hypotheses in enumerate(found):
        settings = Settings(40, 3, LAMBDAS["all"])
        expected = every_sequence(model, one_example(batch, index), [4, 5, 6], settings)
        assert len(expected) == 40
        hypotheses = [h for h in hypotheses if h.finished]
        assert [h.ids for h in hypotheses] == [ids for _, ids, _ in expected]
        assert [h.score for h in hypotheses] == pytest.approx([score for score, _, _ in expected], abs=1e-9)
        plain = every_sequence(model, one_example(batch, index), [4, 5, 6], Settings(40, 3))
        assert [ids for _, ids, _ in plain] != [ids for _, ids, _ in expected]
