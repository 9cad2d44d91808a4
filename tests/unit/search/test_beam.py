"""Beam and greedy search against exhaustive search, a slow search with lists, and sums done by hand."""

from __future__ import annotations

import gc
import itertools
import math
import weakref
from typing import Any

import numpy as np
import pytest
import torch
from search_tables import BOS, EOS, SPECIALS, TableModel, exhaustive, search, slow_beam, total_log_prob
from torch import Tensor

from laconic.config.schema import SearchConfig
from laconic.errors import ConfigError, ModelError
from laconic.search import beam
from laconic.search.beam import beam_search
from laconic.search.greedy import greedy_search
from laconic.search.scorers import HypothesesView, Scorer, build_scorers
from laconic.types import Hypothesis, StepOutput

A, B, C = 4, 5, 6


def same_hypothesis(one: Hypothesis, two: Hypothesis) -> None:
    assert one.ids == two.ids
    assert one.finished == two.finished
    assert one.score == pytest.approx(two.score, abs=1e-9)
    assert one.log_prob == pytest.approx(two.log_prob, abs=1e-9)
    assert one.token_log_probs == pytest.approx(two.token_log_probs)
    assert one.terms == pytest.approx(two.terms, abs=1e-9)
    assert one.attention.tolist() == two.attention.tolist()
    assert one.details.keys() == two.details.keys()
    for name, value in one.details.items():
        assert value.tolist() == two.details[name].tolist()


# ------------------------------------------------------------------------------- sums done by hand


ROWS = {BOS: {A: 0.6, B: 0.4}, A: {A: 0.3, B: 0.3, EOS: 0.4}, B: {B: 0.1, EOS: 0.9}}


def hand_model(rows: dict[int, dict[int, float]] = ROWS) -> TableModel:
    """The probabilities of the next token by the last one."""
    model = TableModel(1, 6, source=2)
    model.log_probs[:] = -torch.inf
    model.attention[:] = torch.tensor([0.5, 0.5])
    for last, row in rows.items():
        for token, probability in row.items():
            model.log_probs[0, :, last, token] = math.log(probability)
    return model


def test_products_a_human_can_multiply() -> None:
    config = SearchConfig(beam_size=2, num_return=2, max_length=3, length_normalisation="none")
    best, second = search(hand_model(), config)[0]
    assert best.ids == [B]
    assert best.score == pytest.approx(math.log(0.4 * 0.9))
    assert best.token_log_probs == pytest.approx([math.log(0.4), math.log(0.9)])
    assert second.ids == [A]
    assert second.log_prob == pytest.approx(math.log(0.6 * 0.4))
    assert best.finished
    assert best.attention.shape == (2, 2)


def test_greedy_takes_the_worse_path_that_a_beam_avoids() -> None:
    model = hand_model()
    config = SearchConfig(beam_size=1, max_length=3, length_normalisation="none")
    hypothesis = search(model, config)[0][0]
    assert hypothesis.ids == [A]
    assert hypothesis.score == pytest.approx(math.log(0.6 * 0.4))


def test_average_counts_start_and_stop() -> None:
    config = SearchConfig(beam_size=2, max_length=3, length_normalisation="average")
    hypothesis = search(hand_model(), config)[0][0]
    assert hypothesis.ids == [B]
    assert hypothesis.score == pytest.approx(math.log(0.4 * 0.9) / 3)  # BOS, B, EOS
    assert hypothesis.terms["model"] == pytest.approx(math.log(0.36))


def test_a_step_finishes_no_more_than_are_missing() -> None:
    """Nothing (.3) has finished; then both A and B could. The first fills the beam, B comes too late."""
    model = hand_model()
    model.log_probs[0, 0, BOS, [A, B, EOS]] = torch.tensor([0.5, 0.2, 0.3]).double().log()
    model.log_probs[0, BOS, A, [A, EOS]] = torch.tensor([0.1, 0.9]).double().log()
    model.log_probs[0, BOS, B, [B, EOS]] = torch.tensor([0.05, 0.95]).double().log()
    config = SearchConfig(beam_size=2, num_return=2, max_length=3)
    assert [h.ids for h in search(model, config)[0]] == [[A], []]
    assert math.log(0.2 * 0.95) / 3 > math.log(0.3) / 2, "B would have displaced the empty one"


# --------------------------------------------------------------------------- against all sequences

CASES = {
    "plain": {"length_normalisation": "none"},
    "average": {},
    "gnmt": {"length_normalisation": "gnmt", "length_alpha": 0.6},
    "gnmt, long ones preferred": {"length_normalisation": "gnmt", "length_alpha": 2.0},
    "predicted": {"length_normalisation": "predicted"},
    "predicted, squared": {"length_normalisation": "predicted", "length_alpha": 2.0},
    "at least two": {"min_length": 2},
    "exactly three": {"min_length": 4, "length_normalisation": "none"},
    "unigrams once": {"no_repeat_ngram": 1},
    "bigrams once": {"no_repeat_ngram": 2},
    "trigrams once": {"no_repeat_ngram": 3},
    "wu": {"coverage_penalty": "wu", "coverage_beta": 0.2},
    "summary": {"coverage_penalty": "summary", "coverage_beta": 0.5},
    "with unk": {"forbid_unk": False, "max_length": 3},
    "all at once": {"min_length": 1, "no_repeat_ngram": 2, "coverage_penalty": "summary", "coverage_beta": 0.3},
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
        for hypothesis in hypotheses:
            assert hypothesis.finished
            assert hypothesis.log_prob == pytest.approx(
                total_log_prob(model, document, tuple(hypothesis.ids), True), abs=1e-9
            )


UNFINISHED = ("drop", "compete", "force_end", "free_end")


# What the rules say of a width they say of the next; of one beam and of three, the plainest case and that of all rules.
WIDTHS = [
    pytest.param(case, size, marks=[] if size == 2 or case in ("average", "all at once") else pytest.mark.slow)
    for case in CASES
    for size in (1, 2, 3, 5)
]


@pytest.mark.parametrize("early_stopping", [True, False, "never"])
@pytest.mark.parametrize(("case", "beam_size"), WIDTHS)
def test_a_narrow_beam_equals_the_slow_search(case: str, beam_size: int, early_stopping: bool | str) -> None:
    for finish, unfinished in itertools.product(("see", "within_beam"), UNFINISHED):
        rules = {"finish": finish, "unfinished": unfinished, "early_stopping": early_stopping}
        equals_the_slow_search(SearchConfig(**{**BASE, **rules, **CASES[case]}, **beams(beam_size)))


def beams(size: int) -> dict[str, int]:
    return {"beam_size": size, "num_return": size}


BASE = {"max_length": 5}


def equals_the_slow_search(config: SearchConfig, documents: int = 3) -> None:
    model = TableModel(documents, vocab=9, seed=config.beam_size, sharpness=1.0)
    for document, hypotheses in enumerate(search(model, config)):
        expected = slow_beam(model, document, config)
        assert [(tuple(h.ids), h.finished) for h in hypotheses] == [(ids, ended) for _, ids, ended in expected]
        assert [h.score for h in hypotheses] == pytest.approx([score for score, _, _ in expected], abs=1e-9)


@pytest.mark.parametrize("num_return", [1, 2, 4])
@pytest.mark.parametrize("alpha", [0.0, 0.7, 1.5])
def test_the_bound_stops_early_and_changes_nothing(num_return: int, alpha: float) -> None:
    model = TableModel(8, vocab=9, seed=5, sharpness=1.5)
    options = {"beam_size": 4, "num_return": num_return, "length_normalisation": "gnmt", "length_alpha": alpha}
    config = SearchConfig(max_length=30, early_stopping="never", **options)
    results = search(model, config)
    for document, hypotheses in enumerate(results):
        expected = slow_beam(model, document, config)
        assert [tuple(h.ids) for h in hypotheses] == [ids for _, ids, _ in expected]
    if alpha < 1.5:
        full = 31 * 8 * config.beam_size
        assert sum(model.steps) < full, "every document was searched up to the maximum length"


# --------------------------------------------------------------------- what a hypothesis carries


EVERYTHING = {
    "beam_size": 6,
    "num_return": 4,
    "max_length": 6,
    "min_length": 2,
    "no_repeat_ngram": 2,
    "coverage_penalty": "wu",
    "coverage_beta": 0.1,
    "early_stopping": "never",
}


@pytest.mark.parametrize("groups", [1, 2, 3])
def test_terms_sum_to_the_score(groups: int) -> None:
    config = SearchConfig(**EVERYTHING, diverse_groups=groups, diversity_strength=0.7)
    model = TableModel(5, vocab=9, seed=3)
    found = [h for hypotheses in search(model, config) for h in hypotheses]
    for hypothesis in found:
        assert sum(hypothesis.terms.values()) == pytest.approx(hypothesis.score, abs=1e-9)
        assert sum(hypothesis.token_log_probs) == pytest.approx(hypothesis.log_prob, abs=1e-9)
        assert hypothesis.terms["model"] == pytest.approx(hypothesis.log_prob, abs=1e-9)
        assert hypothesis.terms["coverage_penalty"] < 0 < hypothesis.terms["length_normalisation"]
    assert any("diverse_groups" in h.terms for h in found) == (groups > 1)


@pytest.mark.parametrize("unfinished", UNFINISHED)
@pytest.mark.parametrize("early_stopping", [True, False])
def test_everything_lies_on_the_winning_path(early_stopping: bool, unfinished: str) -> None:
    model = TableModel(6, vocab=9, seed=11, sharpness=1.0)
    config = SearchConfig(**{**EVERYTHING, "early_stopping": early_stopping, "unfinished": unfinished})
    for document, hypotheses in enumerate(search(model, config)):
        for hypothesis in hypotheses:
            ids, rows = tuple(hypothesis.ids), len(hypothesis.ids) + hypothesis.finished
            assert hypothesis.attention.tolist() == model.attention_rows(document, ids, rows)
            read = [BOS, *ids][:rows]
            assert hypothesis.details["seen"].tolist() == read
            assert hypothesis.details["path"].tolist() == [sum(read[: t + 1]) for t in range(rows)]
            tokens = [*ids, EOS][:rows]
            assert hypothesis.token_log_probs == pytest.approx(
                [model.log_prob(document, ids[:t], token) for t, token in enumerate(tokens)]
            )


def test_details_that_are_not_of_rows_are_left_out() -> None:
    model = TableModel(1, vocab=7)

    def more(last_ids: Tensor, state: dict) -> tuple[StepOutput, dict]:
        output, state = model.step(last_ids, state)
        output.details |= {"one": torch.tensor(2.0), "table": torch.zeros(7)}
        return output, state

    (found,) = search(model, SearchConfig(beam_size=2, max_length=3), step=more)
    assert set(found[0].details) == {"path", "seen"}


def test_n_best_are_distinct_and_in_order() -> None:
    for groups in (1, 2, 4):
        config = SearchConfig(
            beam_size=8, num_return=8, max_length=5, diverse_groups=groups, diversity_strength=0.1, min_length=1
        )
        for hypotheses in search(TableModel(6, vocab=8, seed=groups), config):
            assert len({tuple(h.ids) for h in hypotheses}) == len(hypotheses) > 1
            for finished in (True, False):
                scores = [h.score for h in hypotheses if h.finished is finished]
                assert scores == sorted(scores, reverse=True)


def test_what_reaches_the_maximum_is_cut_and_says_so() -> None:
    model = TableModel(1, vocab=7)
    model.log_probs[..., EOS] = -50.0
    config = SearchConfig(beam_size=2, num_return=2, max_length=4, unfinished="drop")
    for hypothesis in search(model, config)[0]:
        assert not hypothesis.finished
        assert len(hypothesis.ids) == len(hypothesis.attention) == len(hypothesis.token_log_probs) == 4
        assert hypothesis.score == pytest.approx(total_log_prob(model, 0, tuple(hypothesis.ids), False) / 5)
    assert len(model.steps) == 4, "a step was taken that nothing could come of"


EMPTY, END = math.log(0.01), math.log(0.15)
AT_THE_MAXIMUM = {  # A has 0.99 and then EOS 0.15; (ids, finished, score)
    "drop": [([], True, EMPTY), ([A], False, math.log(0.99))],
    "compete": [([A], False, math.log(0.99)), ([], True, EMPTY)],
    "free_end": [([A], False, math.log(0.99) / 2), ([], True, EMPTY)],
    "force_end": [([A], True, (math.log(0.99) + END) / 2), ([], True, EMPTY)],
}


@pytest.mark.parametrize("unfinished", AT_THE_MAXIMUM)
@pytest.mark.parametrize("beam_size", [2, 4])
def test_what_becomes_of_a_hypothesis_of_the_maximum_length(unfinished: str, beam_size: int) -> None:
    """At the one step more of ``force_end`` other words take no places from the ends of those that live."""
    model = hand_model()
    model.log_probs[0, 0, BOS, [A, B, EOS]] = torch.tensor([0.99, 0.0, 0.01]).double().log()
    model.log_probs[0, :, A] = math.log(0.16)  # five words are likelier than EOS
    model.log_probs[0, :, A, EOS] = END
    options = {"max_length": 1, "length_normalisation": "predicted", "unfinished": unfinished}
    found = search(model, SearchConfig(**options, **beams(beam_size)))[0]
    assert [(h.ids, h.finished) for h in found] == [(ids, ended) for ids, ended, _ in AT_THE_MAXIMUM[unfinished]]
    assert [h.score for h in found] == pytest.approx([score for *_, score in AT_THE_MAXIMUM[unfinished]])
    assert len(model.steps) == 1 + (unfinished == "force_end")


def test_which_ends_finish() -> None:
    """[A] and [B] end at the second and third place of a step: `see` has two finished then, a beam of two one."""
    model = hand_model()
    model.log_probs[0, 0, BOS, [A, B]] = torch.tensor([0.6, 0.4]).double().log()
    model.log_probs[0, BOS, A, [A, B, EOS]] = torch.tensor([0.5, 0.05, 0.45]).double().log()
    model.log_probs[0, BOS, B, [A, B, EOS]] = torch.tensor([0.3, 0.05, 0.65]).double().log()
    model.log_probs[0, A, A, [A, B, EOS]] = torch.tensor([0.02, 0.02, 0.96]).double().log()
    options = {**beams(2), "length_normalisation": "none", "max_length": 4}
    assert [h.ids for h in search(model, SearchConfig(**options, finish="see"))[0]] == [[A], [B]]
    assert [h.ids for h in search(model, SearchConfig(**options, finish="within_beam"))[0]] == [[A, A], [A]]


@pytest.mark.parametrize(("early_stopping", "best"), [(True, []), (False, []), ("never", [A])])
def test_the_tie_of_what_has_finished_and_what_is_under_way(early_stopping: bool | str, best: list[int]) -> None:
    """The empty summary and A are worth the same as they stand; with its end, A becomes better."""
    model = hand_model({BOS: {A: 0.5, EOS: 0.5}, A: {EOS: 1.0}})
    config = SearchConfig(early_stopping=early_stopping, length_normalisation="predicted", max_length=3)
    assert search(model, config)[0][0].ids == best


# --------------------------------------------------------------- a document's companions do not matter


@pytest.mark.parametrize("early_stopping", [True, False])
@pytest.mark.parametrize("groups", [1, 2])
def test_a_batch_equals_its_documents(early_stopping: bool, groups: int) -> None:
    model = TableModel(9, vocab=10, seed=21, sharpness=2.0)
    options = {**EVERYTHING, "max_length": 12, "early_stopping": early_stopping, "length_normalisation": "none"}
    config = SearchConfig(**options, diverse_groups=groups, diversity_strength=0.4)
    together = search(model, config)
    assert len(set(model.steps)) > 2, "no document was dropped from the batch"
    for document, hypotheses in enumerate(together):
        alone = search(model.only([document]), config)[0]
        assert len(alone) == len(hypotheses)
        for one, two in zip(alone, hypotheses, strict=True):
            same_hypothesis(one, two)


def test_dropping_finished_documents_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    config = SearchConfig(**{**EVERYTHING, "max_length": 12, "length_normalisation": "none"})
    model = TableModel(9, vocab=10, seed=22, sharpness=2.0)
    results = []
    for share in (0.0, 0.75, 1.0):
        monkeypatch.setattr(beam, "COMPACT_BELOW", share)
        model.steps.clear()
        results.append(search(model, config))
        assert (len(set(model.steps)) > 1) == (share > 0)
    for others in results[1:]:
        for one, two in zip(results[0], others, strict=True):
            for left, right in zip(one, two, strict=True):
                same_hypothesis(left, right)


def test_documents_of_different_extended_vocabularies() -> None:
    """Two documents with 3 and 1 words of their own: the others' columns hold minus infinity."""
    model = TableModel(2, vocab=10, seed=4, sharpness=1.0)
    model.log_probs[1, ..., 8:] = -torch.inf
    config = SearchConfig(beam_size=4, num_return=4, max_length=4)
    together = search(model, config)
    narrow = model.only([1])
    narrow.log_probs = narrow.log_probs[..., :8]
    for one, two in zip(together[1], search(narrow, config)[0], strict=True):
        assert one.ids == two.ids
        assert one.score == two.score
    assert any(id_ >= 8 for h in together[0] for id_ in h.ids)
    assert all(id_ < 8 for h in together[1] for id_ in h.ids)


@pytest.mark.parametrize("unfinished", UNFINISHED)
@pytest.mark.parametrize("case", CASES)
def test_a_beam_of_one_is_greedy(case: str, unfinished: str) -> None:
    model = TableModel(7, vocab=9, seed=31)
    config = SearchConfig(beam_size=1, unfinished=unfinished, **{"max_length": 6, **CASES[case]})
    greedy = search(model, config, by=greedy_search)
    for one, two in zip(search(model, config), greedy, strict=True):
        same_hypothesis(one[0], two[0])


def test_greedy_gives_one_hypothesis_only() -> None:
    with pytest.raises(ConfigError, match="one hypothesis"):
        search(TableModel(1, vocab=7), SearchConfig(beam_size=2, num_return=2), by=greedy_search)


# ------------------------------------------------------------------------------------ the edges


@pytest.mark.parametrize("beam_size", [1, 3])
def test_a_dead_end_gives_what_there_was(beam_size: int) -> None:
    """Every word may occur once and EOS only after ten words: after three words nothing is left."""
    model = TableModel(2, vocab=7)
    options = {"max_length": 12, "min_length": 10, "min_length_share": None, "no_repeat_ngram": 1}
    config = SearchConfig(beam_size=beam_size, **options)
    for decode in (beam_search, greedy_search):
        results = search(model, config, by=decode)
        for hypotheses in results:
            assert sorted(hypotheses[0].ids) == [A, B, C]
            assert not hypotheses[0].finished
            assert math.isfinite(hypotheses[0].score)
            assert len(hypotheses[0].attention) == 3


def test_nothing_allowed_at_all() -> None:
    model = TableModel(2, vocab=7)
    model.log_probs[:] = -torch.inf
    for decode in (beam_search, greedy_search):
        config = SearchConfig(beam_size=1, max_length=5, length_normalisation="predicted")
        results = search(model, config, by=decode)
        assert [(h.ids, h.score) for hypotheses in results for h in hypotheses] == [([], 0.0), ([], 0.0)]


@pytest.mark.parametrize("options", [{}, {"finish": "within_beam"}, {"early_stopping": "never"}, {"shrink_beam": True}])
def test_nothing_allowed_after_the_first_word(options: dict) -> None:
    """What has begun is kept, unfinished; what may not end has not ended."""
    model = TableModel(1, vocab=7)
    first = model.log_probs[:, 0, BOS].clone()
    first[:, EOS] = -torch.inf
    model.log_probs[:] = -torch.inf
    model.log_probs[:, 0, BOS] = first
    (found,) = search(model, SearchConfig(beam_size=2, num_return=2, max_length=5, **options))
    best = (first[0, 4:].topk(2).indices + 4).tolist()
    assert [(h.ids, h.finished) for h in found] == [([id_], False) for id_ in best]


def test_more_beams_than_words() -> None:
    model = TableModel(1, vocab=6)
    config = SearchConfig(beam_size=50, num_return=50, max_length=2, length_normalisation="none")
    found = [tuple(h.ids) for h in search(model, config)[0]]
    assert found == [ids for _, ids in exhaustive(model, 0, config)]
    assert len(found) == 7  # (), A, B, AA, AB, BA, BB


def test_ties_go_to_the_lower_id() -> None:
    model = TableModel(1, vocab=7)

    def uniform(last_ids: Tensor, state: dict) -> tuple[StepOutput, dict]:
        log_probs = torch.full((len(last_ids), 5000), -math.log(5000))
        return StepOutput(log_probs.clone(), log_probs), state

    config = SearchConfig(beam_size=3, num_return=3, max_length=1, min_length=1, length_normalisation="none")
    results = search(model, config, step=uniform)
    assert [h.ids for h in results[0]] == [[4], [5], [6]]
    assert results[0][0].attention is None


def test_scores_that_are_not_numbers_are_refused() -> None:
    model = TableModel(1, vocab=7)
    model.log_probs[0, :, BOS, 5] = torch.nan
    for decode in (beam_search, greedy_search):
        with pytest.raises(ModelError, match="not a number"):
            search(model, SearchConfig(beam_size=1), by=decode)


@pytest.mark.parametrize("decode", [beam_search, greedy_search])
def test_nobody_asks_what_comes_after_the_end(decode: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(beam, "COMPACT_BELOW", 0.0)  # the ended document stays in the batch
    model = TableModel(2, vocab=7)
    model.log_probs[0, 0, BOS, EOS] = 0.0
    model.log_probs[0, BOS] = torch.nan
    model.log_probs[1, ..., EOS] = -torch.inf
    config = SearchConfig(max_length=4)
    ended, other = search(model, config, by=decode)
    assert ended[0].ids == []
    same_hypothesis(other[0], search(model.only([1]), config, by=decode)[0][0])


@pytest.mark.parametrize("worth", [-math.inf, math.nan])
def test_greedy_refuses_a_scorer_that_leaves_no_summary(worth: float) -> None:
    class Worthless(Scorer):
        name = "worthless"

        def on_hypotheses(self, scores: np.ndarray, view: HypothesesView) -> np.ndarray:
            return scores + worth

    scorer = Worthless(Scorer.Config(), specials=SPECIALS)
    with pytest.raises(ModelError, match="not a finite number"):
        search(TableModel(1, vocab=7), SearchConfig(beam_size=1), by=greedy_search, scorers=[scorer])


def test_scores_are_not_log_probs() -> None:
    """Search adds scores up as they are; log-probabilities are reported beside."""
    model = TableModel(1, vocab=7, seed=9)

    def doubled(last_ids: Tensor, state: dict) -> tuple[StepOutput, dict]:
        output, state = model.step(last_ids, state)
        output.scores = 2 * output.scores - 0.25
        return output, state

    for size, decode in ((4, beam_search), (1, greedy_search)):
        config = SearchConfig(**beams(size), max_length=4, length_normalisation="none")
        for hypothesis in search(model, config, step=doubled, by=decode)[0]:
            log_prob = total_log_prob(model, 0, tuple(hypothesis.ids), hypothesis.finished)
            assert hypothesis.log_prob == pytest.approx(log_prob)
            predicted = len(hypothesis.ids) + hypothesis.finished
            assert hypothesis.score == pytest.approx(2 * log_prob - 0.25 * predicted)
            assert hypothesis.terms == pytest.approx({"model": hypothesis.score})


def test_positive_scores_switch_the_bound_off() -> None:
    model = TableModel(1, vocab=6, seed=2)

    def shifted(last_ids: Tensor, state: dict) -> tuple[StepOutput, dict]:
        output, state = model.step(last_ids, state)
        output.scores = output.scores + 5.0  # every further token is worth having
        return output, state

    config = SearchConfig(beam_size=8, max_length=3, length_normalisation="none", early_stopping="never")
    hypothesis = search(model, config, step=shifted)[0][0]
    assert len(hypothesis.ids) == 3


def test_a_document_beside_one_of_positive_scores_is_as_alone() -> None:
    model = TableModel(2, vocab=6)
    model.log_probs = torch.full((2, 6, 6, 6), -9.0, dtype=torch.float64)
    model.log_probs[0, 0, BOS, [EOS, 4]] = torch.tensor([-1.0, -2.0]).double()
    model.log_probs[0, BOS, 4, 4] = 4.0  # which a search that stops early does not see
    model.log_probs[0, 4, 4, EOS] = model.log_probs[1, :, 4, EOS] = -0.1
    model.log_probs[1, 0, BOS, 4] = 1.0
    config = SearchConfig(beam_size=2, max_length=3, early_stopping="never", length_normalisation="none")
    together = search(model, config)
    for document in range(2):
        assert [h.ids for h in search(model.only([document]), config)[0]] == [h.ids for h in together[document]]
    assert [h.ids for h in together[0]] == [[]]


class RowBonus(Scorer):
    """A term that is the same for every next word, from this step's attention."""

    name = "row_bonus"

    def on_rows(self, totals: np.ndarray, view: HypothesesView) -> np.ndarray:
        assert view.output is not None
        assert view.output.attention is not None
        return totals - view.output.attention[:, 0]


class WordBonus(Scorer):
    """A finite amount for one word."""

    name = "word_bonus"
    adds_to_tokens = True

    def on_tokens(self, scores: np.ndarray, view: HypothesesView) -> np.ndarray:
        scores[:, B] += 0.5
        return scores


@pytest.mark.parametrize("beam_size", [1, 40])
def test_scorers_of_rows_and_of_tokens_are_recorded(beam_size: int) -> None:
    model = TableModel(2, vocab=7, seed=13)
    config = SearchConfig(beam_size=beam_size, max_length=3, length_normalisation="none", early_stopping="never")
    extra = [cls(Scorer.Config(), specials=SPECIALS) for cls in (RowBonus, WordBonus, WordBonus)]
    scorers = [*build_scorers(config, SPECIALS), *extra]
    searches = [beam_search, greedy_search] if beam_size == 1 else [beam_search]
    for decode in searches:
        results = search(model, config, scorers, by=decode)
        for document, (hypothesis,) in enumerate(results):
            rows = model.attention_rows(document, tuple(hypothesis.ids), len(hypothesis.ids) + hypothesis.finished)
            assert hypothesis.terms["row_bonus"] == pytest.approx(-sum(row[0] for row in rows))
            assert hypothesis.terms.get("word_bonus", 0.0) == pytest.approx(hypothesis.ids.count(B))
            assert sum(hypothesis.terms.values()) == pytest.approx(hypothesis.score)
            if beam_size > 1:
                assert hypothesis.ids == list(best_with_bonuses(model, document, config))
        assert any(B in hypothesis.ids for (hypothesis,) in results)


def best_with_bonuses(model: TableModel, document: int, config: SearchConfig) -> tuple[int, ...]:
    def score(ids: tuple[int, ...]) -> float:
        rows = model.attention_rows(document, ids, len(ids) + 1)
        return total_log_prob(model, document, ids, True) - sum(r[0] for r in rows) + ids.count(B)

    return max((ids for _, ids in exhaustive(model, document, config)), key=score)


def test_what_scorers_lend_to_the_choice_is_taken_back() -> None:
    """Two of them: rows are chosen by both terms, and keep neither."""
    model = TableModel(4, vocab=7, seed=13)
    config = SearchConfig(**beams(2), max_length=4, length_normalisation="none")
    lent = type("Lent", (RowBonus,), {"carries_rows": False})
    plain, *others = (
        search(model, config, [*build_scorers(config, SPECIALS), *scorers])
        for scorers in ([], [lent(Scorer.Config(), specials=SPECIALS) for _ in range(2)])
    )
    assert [h.ids for found in others[0] for h in found] != [h.ids for found in plain for h in found]
    for document, found in enumerate(others[0]):
        for hypothesis in found:
            assert hypothesis.terms == {"model": pytest.approx(hypothesis.score)}
            total = total_log_prob(model, document, tuple(hypothesis.ids), hypothesis.finished)
            assert hypothesis.score == pytest.approx(total)


def test_the_models_tensors_are_let_go() -> None:
    """No (N, X) tensor of an earlier step is kept alive by the history."""
    model, seen = TableModel(2, vocab=7), []

    def step(last_ids: Tensor, state: dict) -> tuple[StepOutput, dict]:
        gc.collect()
        assert sum(reference() is not None for reference in seen) <= 1
        output, state = model.step(last_ids, state)
        output.log_probs = output.scores
        seen.append(weakref.ref(output.scores))
        return output, state

    config = SearchConfig(beam_size=3, max_length=6, min_length=6, min_length_share=None)
    search(model, config, step=step)
    assert len(seen) == 7


# --------------------------------------------- the beam that a finished hypothesis leaves smaller


def shrinking(model: TableModel, beam: int, max_length: int, **options: object) -> list[Hypothesis]:
    config = SearchConfig(
        **{"length_normalisation": "none", "shrink_beam": True, **options},
        beam_size=beam,
        num_return=beam,
        max_length=max_length,
    )
    return search(model, config)[0]


def test_a_finished_hypothesis_gives_up_its_place() -> None:
    """Of A .5, EOS .3, B .2 the beam of two takes A and EOS; A has one place then, and A A takes it."""
    model = hand_model({BOS: {A: 0.5, EOS: 0.3, B: 0.2}, A: {A: 0.55, EOS: 0.45}, B: {EOS: 1.0}})
    found = shrinking(model, 2, 2)
    assert [(h.ids, h.finished) for h in found] == [([], True), ([A, A], False)]
    assert [h.score for h in found] == pytest.approx([math.log(0.3), math.log(0.5 * 0.55)])
    usual = shrinking(model, 2, 2, shrink_beam=False)
    assert [h.ids for h in usual] == [[], [A]]


def test_what_still_lives_competes_with_what_has_finished() -> None:
    model = hand_model({BOS: {A: 0.7, EOS: 0.3}, A: {A: 1.0}})
    assert [(h.ids, h.finished) for h in shrinking(model, 2, 3)] == [([A, A, A], False), ([], True)]
    assert [(h.ids, h.finished) for h in shrinking(model, 2, 3, shrink_beam=False)] == [([], True), ([A, A, A], False)]


def test_the_maximum_length_counts_the_end_token() -> None:
    """Two tokens: A and EOS fit, A A and EOS do not."""
    model = hand_model({BOS: {A: 1.0}, A: {A: 0.6, EOS: 0.4}})
    found = shrinking(model, 2, 2)
    assert [(h.ids, h.finished) for h in found] == [([A, A], False), ([A], True)]
    assert len(found[0].token_log_probs) == len(found[0].attention) == 2


def test_a_beam_that_shrinks_ends_when_all_have_finished() -> None:
    model = hand_model({BOS: {EOS: 0.6, A: 0.4}, A: {EOS: 0.9, A: 0.1}})
    found = shrinking(model, 2, 20)
    assert [h.ids for h in found] == [[], [A]]
    assert len(model.steps) == 2


def test_hypotheses_after_which_nothing_may_come_are_kept() -> None:
    config = SearchConfig(beam_size=2, shrink_beam=True, max_length=5)
    found = search(hand_model({BOS: {A: 1.0}}), config)[0]  # nothing may follow A
    assert [(h.ids, h.finished) for h in found] == [([A], False)]


@pytest.mark.parametrize("predicted", ["average", "predicted", "gnmt"])
def test_beams_side_by_side_are_as_alone(predicted: str) -> None:
    model = TableModel(6, vocab=9, seed=1, sharpness=1.0)
    config = SearchConfig(beam_size=3, num_return=3, max_length=6, shrink_beam=True, length_normalisation=predicted)

    for document, together in enumerate(search(model, config)):
        alone = search(model.only([document]), config)[0]
        assert [(h.ids, h.finished) for h in together] == [(h.ids, h.finished) for h in alone]
        assert [h.score for h in together] == pytest.approx([h.score for h in alone])
        assert [h.score for h in together] == sorted((h.score for h in together), reverse=True)


@pytest.mark.parametrize(
    "options",
    [
        {"early_stopping": False},
        {"early_stopping": "never"},
        {"finish": "within_beam"},
        {"unfinished": "drop"},
        {"diverse_groups": 2, "beam_size": 4},
    ],
)
def test_what_a_beam_that_shrinks_cannot_be_combined_with(options: dict) -> None:
    name = next(iter(options))
    wanted = rf"shrink_beam ends by its own rules and in one group: set {name}={getattr(SearchConfig(), name)}\b"
    with pytest.raises(ValueError, match=wanted):
        SearchConfig(shrink_beam=True, **options)
    with pytest.raises(ConfigError, match="shrink_beam"):
        shrinking(TableModel(1, 6), 4, 3, scorers=({"type": "diverse_groups", "groups": 2},))
