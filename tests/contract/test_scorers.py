"""What every scorer of the table must keep to."""

from __future__ import annotations

import pytest
import torch

from laconic.config.names import SCORERS, build, parse
from laconic.errors import ConfigError
from laconic.search.scorers import HypothesesView, Scorer, SpecialIds
from laconic.types import Memory, StepOutput

SPECIALS = SpecialIds(unk_id=1, bos_id=2, eos_id=3, pad_id=0)
OPTIONS = {  # what makes each scorer do something
    "coverage_penalty": {"kind": "summary", "beta": 0.5},
    "distraction": {"attention": 0.7, "context": -0.4, "state": 0.3},
    "diverse_groups": {"groups": 2, "strength": 0.5},
    "forced_prefix": {"ids": [4, 5]},
    "length_bounds": {"min_length": 2, "max_length": 4},
    "ngram_blocking": {"size": 2},
    "repetition_penalty": {"penalty": 1.5},
}
DOCUMENTS, BEAMS, SOURCE, VOCAB = 2, 4, 6, 9
ROWS = DOCUMENTS * BEAMS


def scorer_of(name: str) -> Scorer:
    scorer = build("scorer", SCORERS, {"type": name, **OPTIONS.get(name, {})}, specials=SPECIALS)
    scorer.start(memory(), ROWS)
    return scorer


def memory() -> Memory:
    mask = torch.ones(DOCUMENTS, SOURCE, dtype=torch.bool)
    return Memory(torch.zeros(DOCUMENTS, SOURCE, 1), mask, mask.long(), VOCAB)


def output_of(generator: torch.Generator) -> StepOutput:
    log_probs = torch.randn(ROWS, VOCAB, generator=generator).log_softmax(-1)
    attention = torch.randn(ROWS, SOURCE, generator=generator).softmax(-1)
    context, state = torch.randn(ROWS, 5, generator=generator), torch.randn(ROWS, 3, generator=generator)
    return StepOutput(log_probs.clone(), log_probs, attention, context, state)


def reordered(output: StepOutput, order: torch.Tensor) -> StepOutput:
    names = ("scores", "log_probs", "attention", "context", "state")
    return StepOutput(**{name: getattr(output, name)[order] for name in names})


def run(scorer: Scorer, reorder: torch.Tensor | None, at: int, steps: int = 5) -> list[torch.Tensor]:
    """Everything the scorer says over some steps, its rows re-ordered before step ``at``.

    The rows are told apart by what they hold: with a re-ordering, so are the steps' inputs afterwards.
    """
    generator = torch.Generator().manual_seed(0)
    ids = torch.zeros(ROWS, 0, dtype=torch.long)
    said = []
    for step in range(steps):
        output = output_of(generator)
        tokens = torch.randint(4, 6, (ROWS, 1), generator=generator)
        order = torch.arange(ROWS) if reorder is None or step < at else reorder
        if reorder is not None and step == at:
            scorer.select(reorder)
        view = HypothesesView(ids[order], reordered(output, order))
        totals = scorer.on_rows(torch.arange(ROWS, dtype=torch.float64)[order], view)
        scores = scorer.on_tokens(output.scores[order].clone(), view)
        finals = scorer.on_hypotheses(-torch.ones(ROWS, dtype=torch.float64), HypothesesView(ids[order], ended=True))
        said.append(torch.cat([totals[:, None], scores, finals[:, None]], dim=1))
        ids = torch.cat([ids, tokens], dim=1)
    return said


@pytest.mark.parametrize("name", SCORERS)
def test_reordering_commutes_with_stepping(name: str) -> None:
    reorder = torch.tensor([1, 1, 0, 3, 7, 4, 4, 5])
    plain, reordered = run(scorer_of(name), None, at=3), run(scorer_of(name), reorder, at=3)
    for step, (one, two) in enumerate(zip(plain, reordered, strict=True)):
        # not bit for bit: a row's place decides whether its logarithms are computed eight at a time or singly
        torch.testing.assert_close(one if step < 3 else one[reorder], two)


@pytest.mark.parametrize("name", SCORERS)
def test_a_scorer_can_be_used_again(name: str) -> None:
    scorer = scorer_of(name)
    first = run(scorer, None, at=0)
    scorer.start(
        Memory(torch.zeros(2, SOURCE, 1), torch.ones(2, SOURCE, dtype=torch.bool), torch.zeros(2, SOURCE), 9), ROWS
    )
    for one, two in zip(first, run(scorer, None, at=0), strict=True):
        assert torch.equal(one, two)


@pytest.mark.parametrize("name", SCORERS)
def test_only_declared_scorers_add_finite_amounts(name: str) -> None:
    scorer, generator = scorer_of(name), torch.Generator().manual_seed(1)
    for length in range(5):
        output = output_of(generator)
        before = output.scores.clone()
        ids = torch.randint(4, 6, (ROWS, length), generator=generator)
        after = scorer.on_tokens(output.scores, HypothesesView(ids, output))
        changed = after != before
        assert scorer.adds_to_tokens or bool((after[changed] == -torch.inf).all())


@pytest.mark.parametrize("name", SCORERS)
def test_arguments_of_the_ranking_are_left_alone(name: str) -> None:
    scorer = scorer_of(name)
    run(scorer, None, at=0)
    totals = torch.linspace(-5, -1, ROWS, dtype=torch.float64)
    before = totals.clone()
    view = HypothesesView(torch.full((ROWS, 5), 4), ended=True)
    scorer.on_hypotheses(totals, view)
    scorer.bound(totals, 5, 9)
    assert torch.equal(totals, before)


@pytest.mark.parametrize("name", SCORERS)
def test_the_bound_is_not_below_the_score(name: str) -> None:
    scorer = scorer_of(name)
    run(scorer, None, at=0)
    totals = torch.linspace(-5, -1, ROWS, dtype=torch.float64)
    for length in range(5, 10):
        final = scorer.on_hypotheses(totals, HypothesesView(torch.full((ROWS, length), 4), ended=True))
        assert bool((scorer.bound(totals, 5, 9) >= final - 1e-12).all())


@pytest.mark.parametrize("name", SCORERS)
def test_dead_rows_stay_dead(name: str) -> None:
    scorer = scorer_of(name)
    run(scorer, None, at=0)
    dead = torch.full((ROWS,), -torch.inf, dtype=torch.float64)
    view = HypothesesView(torch.full((ROWS, 5), 4), ended=True)
    assert bool((scorer.on_hypotheses(dead, view) == -torch.inf).all())
    assert bool((scorer.bound(dead, 5, 9) == -torch.inf).all())


@pytest.mark.parametrize("name", SCORERS)
def test_unknown_options_are_refused(name: str) -> None:
    cls, _ = parse("scorer", SCORERS, {"type": name, **OPTIONS.get(name, {})})
    assert cls.name == name
    with pytest.raises(ConfigError, match="Unknown key"):
        build("scorer", SCORERS, {"type": name, **OPTIONS.get(name, {}), "colour": 1}, specials=SPECIALS)
