"""What every scorer of the table must keep to."""

from __future__ import annotations

import numpy as np
import pytest

from catchline.config.schema import SearchConfig
from catchline.search.scorers import HypothesesView, Scorer, SpecialIds, build_scorers
from catchline.types import Memory, StepOutput

VOCABULARY = ["<pad>", "<unk>", "<s>", "</s>", "house", "river", "the", "old", "cat"]
SPECIALS = SpecialIds(unk_id=1, bos_id=2, eos_id=3, pad_id=0, vocabulary=VOCABULARY, whole_words=True)
CONFIG = SearchConfig(  # every scorer, with options by which it does something
    min_length=2,
    max_length=4,
    min_length_share=None,
    no_repeat_ngram=2,
    no_repeat_word=True,
    distraction={"attention": 0.7, "context": -0.4, "state": 0.3},
    scorers=[{"type": "repetition_penalty", "penalty": 1.5}, {"type": "renormalise"}],
)
SCORERS = [scorer.name for scorer in build_scorers(CONFIG, SPECIALS)]
DOCUMENTS, BEAMS, SOURCE, VOCAB = 2, 4, 6, len(VOCABULARY)
ROWS = DOCUMENTS * BEAMS


def scorer_of(name: str) -> Scorer:
    (scorer,) = (one for one in build_scorers(CONFIG, SPECIALS) if one.name == name)
    scorer.start(memory(), ROWS)
    return scorer


def memory() -> Memory:
    mask = np.ones((DOCUMENTS, SOURCE), dtype=bool)
    return Memory(np.zeros((DOCUMENTS, SOURCE, 1)), mask, mask.astype(int), VOCAB)


def normalised(random: np.random.Generator, width: int) -> np.ndarray:
    drawn = np.exp(random.standard_normal((ROWS, width), dtype=np.float32))
    return drawn / drawn.sum(axis=1, keepdims=True)


def output_of(random: np.random.Generator) -> StepOutput:
    log_probs, attention = np.log(normalised(random, VOCAB)), normalised(random, SOURCE)
    context, state = (random.standard_normal((ROWS, width), dtype=np.float32) for width in (5, 3))
    return StepOutput(log_probs.copy(), log_probs, attention, context, state)


def reordered(output: StepOutput, order: np.ndarray) -> StepOutput:
    names = ("scores", "log_probs", "attention", "context", "state")
    return StepOutput(**{name: getattr(output, name)[order] for name in names})


def run(scorer: Scorer, reorder: np.ndarray | None, at: int, steps: int = 5) -> list[np.ndarray]:
    """Everything the scorer says over some steps, its rows re-ordered before step ``at``.

    The rows are told apart by what they hold: with a re-ordering, so are the steps' inputs afterwards.
    """
    random = np.random.default_rng(0)
    ids = np.zeros((ROWS, 0), dtype=np.int64)
    said = []
    for step in range(steps):
        output = output_of(random)
        tokens = random.integers(4, 6, (ROWS, 1))
        order = np.arange(ROWS) if reorder is None or step < at else reorder
        if reorder is not None and step == at:
            scorer.select(reorder)
        view = HypothesesView(ids[order], reordered(output, order))
        totals = scorer.on_rows(np.arange(ROWS, dtype=np.float64)[order], view)
        scores = scorer.on_tokens(output.scores[order].copy(), view)
        finals = scorer.on_hypotheses(-np.ones(ROWS), HypothesesView(ids[order], ended=True))
        said.append(np.concatenate([totals[:, None], scores, finals[:, None]], axis=1))
        ids = np.concatenate([ids, tokens], axis=1)
    return said


@pytest.mark.parametrize("name", SCORERS)
def test_reordering_commutes_with_stepping(name: str) -> None:
    """And a scorer can be used again."""
    reorder, scorer = np.array([1, 1, 0, 3, 7, 4, 4, 5]), scorer_of(name)
    plain = run(scorer, None, at=3)
    scorer.start(memory(), ROWS)
    for one, two in zip(plain, run(scorer, None, at=3), strict=True):
        assert np.array_equal(one, two)
    scorer.start(memory(), ROWS)
    reordered = run(scorer, reorder, at=3)
    for step, (one, two) in enumerate(zip(plain, reordered, strict=True)):
        # not bit for bit: a row's place decides whether its logarithms are computed eight at a time or singly
        np.testing.assert_allclose(one if step < 3 else one[reorder], two, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", SCORERS)
def test_only_declared_scorers_add_finite_amounts(name: str) -> None:
    scorer, random = scorer_of(name), np.random.default_rng(1)
    for length in range(5):
        output = output_of(random)
        before = output.scores.copy()
        ids = random.integers(4, 6, (ROWS, length))
        after = scorer.on_tokens(output.scores, HypothesesView(ids, output))
        changed = after != before
        assert scorer.adds_to_tokens or (after[changed] == -np.inf).all()


@pytest.mark.parametrize("name", SCORERS)
def test_the_ranking(name: str) -> None:
    """Its arguments are left alone, no score is above the bound, and what is dead stays dead."""
    scorer = scorer_of(name)
    assert scorer.name == name
    run(scorer, None, at=0)
    totals, dead = np.linspace(-5, -1, ROWS), np.full(ROWS, -np.inf)
    before = totals.copy()
    bound = scorer.bound(totals, 5, 9)
    for length in range(5, 10):
        view = HypothesesView(np.full((ROWS, length), 4), ended=True)
        assert (bound >= scorer.on_hypotheses(totals, view) - 1e-12).all()
        assert (scorer.on_hypotheses(dead, view) == -np.inf).all()
    assert (scorer.bound(dead, 5, 9) == -np.inf).all()
    assert np.array_equal(totals, before)
