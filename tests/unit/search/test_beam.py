"""Beam search, a beam of one among them, against exhaustive search, a slow search with lists, and sums done by hand."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from search_tables import BOS, EOS, SPECIALS, TableModel, exhaustive, search, slow_beam, total_log_prob
from torch import Tensor

from catchline.config.schema import SearchConfig
from catchline.errors import ModelError
from catchline.search.scorers import HypothesesView, Scorer
from catchline.types import Hypothesis, StepOutput

A, B, C = 4, 5, 6


def same_hypothesis(one: Hypothesis, two: Hypothesis) -> None:
    for name in ("ids", "finished", "score", "log_prob", "token_log_probs", "terms", "attention"):
        assert getattr(one, name) == pytest.approx(getattr(two, name), abs=1e-9), name
    details, others = ({name: value.tolist() for name, value in h.details.items()} for h in (one, two))
    assert details == others


Rows = dict[Any, dict[int, float]]
ROWS: Rows = {BOS: {A: 0.6, B: 0.4}, A: {A: 0.3, B: 0.3, EOS: 0.4}, B: {B: 0.1, EOS: 0.9}}
TWO = {"beam_size": 2, "num_return": 2, "length_normalisation": "none"}
SHRINKING = TWO | {"shrink_beam": True}


def hand_model(rows: Rows = ROWS) -> TableModel:
    """The probabilities of the next token, by the last one or by the words so far (at most two)."""
    model = TableModel(1, 6, source=2)
    model.log_probs[:] = -torch.inf
    model.attention[:] = torch.tensor([0.5, 0.5])
    for read, row in rows.items():
        last = (0, BOS, *read)[-2:] if isinstance(read, tuple) else (slice(None), read)
        for token, probability in row.items():
            model.log_probs[0, *last, token] = math.log(probability)
    return model


# Nothing (.3) has finished; then both A and B could. The first fills the beam, B (which would be better) is too late.
TOO_LATE: Rows = {(): {A: 0.5, B: 0.2, EOS: 0.3}, (A,): {A: 0.1, EOS: 0.9}, (B,): {B: 0.05, EOS: 0.95}}
# A and B end at the second and third place of a step: `see` has two finished then, a beam of two one.
PLACES: Rows = {
    **{(): {A: 0.6, B: 0.4}, (A,): {A: 0.5, B: 0.05, EOS: 0.45}, (B,): {A: 0.3, B: 0.05, EOS: 0.65}},
    **{(A, A): {A: 0.02, B: 0.02, EOS: 0.96}, (B, A): {EOS: 0.4, A: 0.3}},
}
# The empty summary and A are worth the same as they stand; with its end, A would become better.
TIE: Rows = {BOS: {A: 0.5, EOS: 0.5}, A: {EOS: 1.0}}
# Two have finished, nothing and B; as it stands A A is worth less than the worse of them, with its end more.
LATE: Rows = {
    **{(): {EOS: 0.4, B: 0.4, A: 0.2}, (A,): {A: 0.75, B: 0.25}},
    **{words: {EOS: 1.0} for words in ((B,), (A, A), (A, B))},
}
# Of A, nothing and B the beam of two takes the first two; A has one place then, and A A takes it.
GIVEN_UP: Rows = {BOS: {A: 0.5, EOS: 0.3, B: 0.2}, A: {A: 0.55, EOS: 0.45}, B: {EOS: 1.0}}
LIVING: Rows = {BOS: {A: 0.7, EOS: 0.3}, A: {A: 1.0}}
BEGUN: Rows = {BOS: {A: 0.5, B: 0.3}}  # after which nothing may come: it has begun and has not ended
PREDICTED = {"length_normalisation": "predicted", "max_length": 3}
# what: the table, the options, and of each hypothesis the words, whether it ended (.) and its score where it says more
HAND: dict[str, tuple[Rows, dict[str, Any], dict[str, float | None]]] = {
    "products": (ROWS, TWO, {"B.": math.log(0.4 * 0.9), "A.": math.log(0.6 * 0.4)}),
    "greedy takes the worse path": (ROWS, {**PREDICTED, "beam_size": 1}, {"A.": math.log(0.6 * 0.4) / 2}),
    "an average counts start and stop": (ROWS, {"beam_size": 2}, {"B.": math.log(0.4 * 0.9) / 3}),
    "no more finish than are missing": (
        TOO_LATE,
        TWO | {"length_normalisation": "average"},
        {"A.": math.log(0.5 * 0.9) / 3, ".": math.log(0.3) / 2},
    ),
    "ends of See": (PLACES, TWO | {"finish": "see"}, {"A.": None, "B.": None}),
    "ends within the beam": (PLACES, TWO | {"finish": "within_beam"}, {"AA.": None, "A.": None}),
    **{
        f"one beam and a tie, {early}": (TIE, PREDICTED | {"early_stopping": early}, {".": None})
        for early in (True, False, "never")
    },
    "as they stand": (LATE, TWO | PREDICTED | {"early_stopping": False}, {"B.": None, ".": None}),
    "to the end": (LATE, TWO | PREDICTED | {"early_stopping": "never"}, {"B.": None, "AA.": None}),
    "a place given up": (GIVEN_UP, SHRINKING | {"max_length": 2}, {".": math.log(0.3), "AA": math.log(0.275)}),
    "none given up": (GIVEN_UP, TWO | {"max_length": 2}, {".": None, "A.": None}),
    "what lives competes": (LIVING, SHRINKING | {"max_length": 3}, {"AAA": None, ".": None}),
    "and usually does not": (LIVING, TWO | {"max_length": 3}, {".": None, "AAA": None}),
    "two tokens, the end counted": (
        {BOS: {A: 1.0}, A: {A: 0.6, EOS: 0.4}},
        SHRINKING | {"max_length": 2},
        {"AA": None, "A.": None},
    ),
    "all have finished": ({BOS: {EOS: 0.6, A: 0.4}, A: {EOS: 0.9, A: 0.1}}, SHRINKING, {".": None, "A.": None}),
    "cut": (
        {BOS: {A: 0.6, B: 0.4}, A: {A: 1.0}, B: {B: 1.0}},
        TWO | {"max_length": 3, "unfinished": "drop", "length_normalisation": "average"},
        {"AAA": math.log(0.6) / 4, "BBB": math.log(0.4) / 4},
    ),
    **{
        f"begun, {options}": (BEGUN, TWO | options, {"A": None, "B": None})
        for options in ({}, {"finish": "within_beam"}, {"early_stopping": "never"}, {"shrink_beam": True})
    },
    "one begun in a beam of two": ({BOS: {A: 1.0}}, SHRINKING, {"A": None}),
}
STEPS = {"all have finished": 2, "cut": 3}  # a step more would be one that nothing can come of


@pytest.mark.parametrize("case", HAND)
def test_products_a_human_can_multiply(case: str) -> None:
    rows, options, expected = HAND[case]
    model, config = hand_model(rows), SearchConfig(**options)
    found = search(model, config)[0]
    assert ["".join("AB"[i - A] for i in h.ids) + "." * h.finished for h in found] == list(expected)
    for hypothesis, (words, score) in zip(found, expected.items(), strict=True):
        assert score is None or hypothesis.score == pytest.approx(score)
        assert len(hypothesis.token_log_probs) == len(hypothesis.attention) == len(words)
        assert sum(hypothesis.token_log_probs) == pytest.approx(hypothesis.log_prob)
    if case in STEPS:
        assert len(model.steps) == STEPS[case]


CASES = {
    "plain": {"length_normalisation": "none"},
    "average": {},
    "gnmt": {"length_normalisation": "gnmt", "length_alpha": 0.6},
    "predicted": {"length_normalisation": "predicted"},
    "predicted, squared": {"length_normalisation": "predicted", "length_alpha": 2.0},
    "at least two": {"min_length": 2},
    "exactly three": {"min_length": 4, "length_normalisation": "none"},
    "unigrams once": {"no_repeat_ngram": 1},
    "trigrams once": {"no_repeat_ngram": 3},
    "with unk": {"forbid_unk": False, "max_length": 3},
    "all at once": {"min_length": 1, "no_repeat_ngram": 2},
}


@pytest.mark.parametrize("early_stopping", [True, "never"])
@pytest.mark.parametrize("case", CASES)
def test_a_wide_beam_equals_exhaustive_search(case: str, early_stopping: bool | str) -> None:
    model = TableModel(3, vocab=7, seed=len(case))
    options = {"max_length": 4, **CASES[case]}
    config = SearchConfig(beam_size=130, num_return=8, early_stopping=early_stopping, **options)
    results = search(model, config)
    for document, hypotheses in enumerate(results):
        expected = exhaustive(model, document, config)[:8]
        assert [tuple(h.ids) for h in hypotheses] == [ids for _, ids in expected]
        assert [h.score for h in hypotheses] == pytest.approx([score for score, _ in expected], abs=1e-9)
        assert all(h.finished for h in hypotheses)
        log_probs = [total_log_prob(model, document, ids, True) for _, ids in expected]
        assert [h.log_prob for h in hypotheses] == pytest.approx(log_probs, abs=1e-9)


UNFINISHED = ("drop", "compete", "force_end", "free_end")


# What the rules say of a width they say of the next; of one beam and of three, the plainest case and that of all rules.
WIDTHS = [(case, size) for case in CASES for size in (1, 2, 3) if size == 2 or case in ("average", "all at once")]
STOPPING = [True, False, "never"]


@pytest.mark.parametrize("early_stopping", STOPPING)
@pytest.mark.parametrize(("case", "beam_size"), WIDTHS)
def test_a_narrow_beam_equals_the_slow_search(case: str, beam_size: int, early_stopping: bool | str) -> None:
    model = TableModel(3, vocab=9, seed=beam_size, sharpness=1.0)
    for turn, (finish, unfinished) in enumerate(itertools.product(("see", "within_beam"), UNFINISHED)):
        if case != "average" and (turn + turn // 4 + STOPPING.index(early_stopping)) % 2:
            continue  # every rule meets every other in pairs; all of them where nothing else is special
        rules = {"finish": finish, "unfinished": unfinished, "early_stopping": early_stopping, "max_length": 5}
        config = SearchConfig(beam_size=beam_size, num_return=beam_size, **rules | CASES[case])
        for document, hypotheses in enumerate(search(model, config)):
            expected = slow_beam(model, document, config)
            assert [(tuple(h.ids), h.finished) for h in hypotheses] == [(ids, ended) for _, ids, ended in expected]
            assert [h.score for h in hypotheses] == pytest.approx([score for score, _, _ in expected], abs=1e-9)


@pytest.mark.parametrize(("alpha", "num_return"), [(0.0, 1), (0.7, 1), (0.7, 4), (1.5, 2)])
def test_the_bound_stops_early_and_changes_nothing(alpha: float, num_return: int) -> None:
    model = TableModel(4, vocab=9, seed=5, sharpness=1.5)
    options = {"beam_size": 4, "num_return": num_return, "length_normalisation": "gnmt", "length_alpha": alpha}
    config = SearchConfig(max_length=30, early_stopping="never", **options)
    results = search(model, config)
    for document, hypotheses in enumerate(results):
        expected = slow_beam(model, document, config)
        assert [tuple(h.ids) for h in hypotheses] == [ids for _, ids, _ in expected]
    if alpha < 1.5:
        full = 31 * 4 * config.beam_size
        assert sum(model.steps) < full, "every document was searched up to the maximum length"


EVERYTHING = {"beam_size": 6, "num_return": 4, "max_length": 6, "min_length": 2, "no_repeat_ngram": 2}


@pytest.mark.parametrize("stop", [True, False])
@pytest.mark.parametrize("rule", UNFINISHED)
def test_everything_lies_on_the_winning_path_and_the_terms_sum_to_the_score(rule: str, stop: bool) -> None:
    """The n best are distinct, and in order: what has finished before what has not."""
    model = TableModel(6, vocab=9, seed=11, sharpness=1.0)
    config = SearchConfig(**EVERYTHING, early_stopping=stop, unfinished=rule)
    for document, hypotheses in enumerate(search(model, config)):
        assert len({tuple(h.ids) for h in hypotheses}) == len(hypotheses) > 1
        for finished in (True, False):
            scores = [h.score for h in hypotheses if h.finished is finished]
            assert scores == sorted(scores, reverse=True)
        for hypothesis in hypotheses:
            ids, rows = tuple(hypothesis.ids), len(hypothesis.ids) + hypothesis.finished
            assert hypothesis.attention.tolist() == model.attention_rows(document, ids, rows)
            read, tokens = [BOS, *ids][:rows], [*ids, EOS][:rows]
            assert hypothesis.details["seen"].tolist() == read
            assert hypothesis.details["path"].tolist() == [sum(read[: t + 1]) for t in range(rows)]
            expected = [model.log_prob(document, ids[:t], token) for t, token in enumerate(tokens)]
            assert hypothesis.token_log_probs == pytest.approx(expected)
            assert sum(expected) == pytest.approx(hypothesis.log_prob, abs=1e-9)
            assert hypothesis.terms["model"] == pytest.approx(hypothesis.log_prob, abs=1e-9)
            assert sum(hypothesis.terms.values()) == pytest.approx(hypothesis.score, abs=1e-9)
            assert hypothesis.terms["length_normalisation"] > 0


@pytest.mark.parametrize(
    "options",
    [
        *({"early_stopping": stop} for stop in (True, False)),
        *({"shrink_beam": True, "length_normalisation": kind} for kind in ("average", "predicted", "gnmt")),
    ],
    ids=str,
)
def test_a_batch_equals_its_documents(options: dict[str, Any]) -> None:
    model = TableModel(9, vocab=10, seed=21, sharpness=2.0)
    usual = EVERYTHING | {"max_length": 12, "length_normalisation": "none"}
    config = SearchConfig(**usual | {"early_stopping": True} | options)
    together = search(model, config)
    assert len(set(model.steps)) > 1, "no document was dropped from the batch"
    for document, hypotheses in list(enumerate(together))[::2]:
        alone = search(model.only([document]), config)[0]
        for one, two in zip(alone, hypotheses, strict=True):
            same_hypothesis(one, two)
        if config.shrink_beam:
            assert [h.score for h in hypotheses] == sorted((h.score for h in hypotheses), reverse=True)


@pytest.mark.parametrize("beam_size", [1, 3])
def test_a_dead_end_gives_what_there_was(beam_size: int) -> None:
    """Every word may occur once and EOS only after ten words: after three words nothing is left."""
    model = TableModel(2, vocab=7)
    options = {"max_length": 12, "min_length": 10, "min_length_share": None, "no_repeat_ngram": 1}
    config = SearchConfig(beam_size=beam_size, **options)
    for hypotheses in search(model, config):
        assert sorted(hypotheses[0].ids) == [A, B, C]
        assert not hypotheses[0].finished
        assert math.isfinite(hypotheses[0].score)
        assert len(hypotheses[0].attention) == 3


def test_nothing_allowed_at_all_and_scores_that_are_not_numbers() -> None:
    model = TableModel(2, vocab=7)
    model.log_probs[:] = -torch.inf
    results = search(model, SearchConfig(beam_size=1, max_length=5, length_normalisation="predicted"))
    assert [(h.ids, h.score) for hypotheses in results for h in hypotheses] == [([], 0.0), ([], 0.0)]
    model.log_probs[0, :, BOS, 5] = torch.nan
    with pytest.raises(ModelError, match="not a number"):
        search(model, SearchConfig(beam_size=1))


def test_ties_go_to_the_lower_id() -> None:
    model = TableModel(1, vocab=7)

    def uniform(last_ids: Tensor, state: dict) -> tuple[StepOutput, dict]:
        log_probs = torch.full((len(last_ids), 5000), -math.log(5000))
        return StepOutput(log_probs.clone(), log_probs), state

    config = SearchConfig(beam_size=3, num_return=3, max_length=1, min_length=1, length_normalisation="none")
    results = search(model, config, step=uniform)
    assert [h.ids for h in results[0]] == [[4], [5], [6]]
    assert results[0][0].attention is None


@pytest.mark.parametrize("beam_size", [1, 3])
@pytest.mark.parametrize("worth", [-math.inf, math.nan, math.inf])
def test_a_scorer_that_leaves_no_summary_is_refused(worth: float, beam_size: int) -> None:
    class Worthless(Scorer):
        name = "worthless"

        def on_hypotheses(self, scores: np.ndarray, view: HypothesesView) -> np.ndarray:
            return scores + worth

    scorer = Worthless(Scorer.Config(), specials=SPECIALS)
    with pytest.raises(ModelError, match="not a finite number"):
        search(TableModel(1, vocab=7), SearchConfig(beam_size=beam_size), scorers=[scorer])


def test_scores_are_not_log_probs() -> None:
    """Search adds scores up as they are; log-probabilities are reported beside."""
    model = TableModel(1, vocab=7, seed=9)

    def doubled(last_ids: Tensor, state: dict) -> tuple[StepOutput, dict]:
        output, state = model.step(last_ids, state)
        output.scores = 2 * output.scores - 0.25
        return output, state

    for size in (4, 1):
        config = SearchConfig(beam_size=size, num_return=size, max_length=4, length_normalisation="none")
        for hypothesis in search(model, config, step=doubled)[0]:
            log_prob = total_log_prob(model, 0, tuple(hypothesis.ids), hypothesis.finished)
            assert hypothesis.log_prob == pytest.approx(log_prob)
            predicted = len(hypothesis.ids) + hypothesis.finished
            assert hypothesis.score == pytest.approx(2 * log_prob - 0.25 * predicted)
            assert hypothesis.terms == pytest.approx({"model": hypothesis.score})
