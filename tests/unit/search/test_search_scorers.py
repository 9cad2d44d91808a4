"""Each scorer by itself against a slow reference."""

from __future__ import annotations

import math
import random
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from search_tables import BOS, EOS, SPECIALS, TableModel, least_length, search, slow_beam

from catchline.config.base import ConfigBase
from catchline.config.names import SCORERS, build
from catchline.config.schema import SearchConfig
from catchline.errors import ConfigError
from catchline.search.hypotheses import History
from catchline.search.scorers import (
    CoveragePenalty,
    ForbidTokens,
    HypothesesView,
    LengthBounds,
    LengthNormalisation,
    Scorer,
    SpecialIds,
    WordBlocking,
    build_scorers,
    repeating_tokens,
    summary_coverage,
    with_word_blocking,
    wu_coverage,
)
from catchline.summarizer import Summarizer
from catchline.text.tokenizer import BpeTokenizer, WordTokenizer
from catchline.types import Memory


def slow_repeats(prefix: list[int], size: int) -> set[int]:
    grams = {tuple(prefix[i : i + size]) for i in range(len(prefix) - size + 1)}
    return {token for token in range(10) if tuple([*prefix, token][-size:]) in grams and len(prefix) + 1 >= size}


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_ngrams_against_a_slow_reference(size: int) -> None:
    random_ = random.Random(size)
    for length in range(12):
        prefixes = [[random_.randrange(3) for _ in range(length)] for _ in range(6)]
        rows, ids = repeating_tokens(np.array(prefixes, dtype=np.int64).reshape(6, length), size)
        found = [{int(i) for r, i in zip(rows, ids, strict=True) if r == row} for row in range(6)]
        assert found == [slow_repeats(prefix, size) for prefix in prefixes]


NEVER, NO_WORDS = -math.inf, np.zeros((1, 0), dtype=int)
BART = SpecialIds(unk_id=-1, bos_id=2, eos_id=2, pad_id=1)  # decoding starts from the token that ends it
# the scorer, the scores, the words so far, what comes of it; scores as a number: so many zeros, and what is blocked
TOKENS: list[tuple[dict[str, Any], SpecialIds, Any, Any, Any]] = [
    ({"type": "ngram_blocking", "size": 2}, SPECIALS, 8, [[4, 5, 4], [4, 5, 6]], [[5], []]),
    *(
        ({"type": "length_bounds", "min_length": 2, "max_length": 3}, SPECIALS, 6, np.zeros((1, length)), [blocked])
        for length, blocked in enumerate([[EOS], [EOS], [], [0, 1, 2, 4, 5], [0, 1, 2, 4, 5]])
    ),
    ({"type": "forbid_tokens", "ids": [5, 7, 9]}, SPECIALS, 7, NO_WORDS, [[0, 1, BOS, 5]]),  # of seven words
    ({"type": "forbid_tokens", "unk": False}, SPECIALS, 7, NO_WORDS, [[0, BOS]]),
    ({"type": "forbid_tokens"}, BART, 5, NO_WORDS, [[1]]),
    (
        {"type": "repetition_penalty", "penalty": 2.0},  # makes every token that is held worth less
        SPECIALS,
        [[1.0, -1.0, -3.0, 2.0, -1.0, 0.5], [-2.0, 0.0, 4.0, -4.0, 1.0, -8.0]],
        [[4, 5], [0, 0]],
        [[1.0, -1.0, -6.0, 2.0, -2.0, 0.25], [-4.0, 0.0, 2.0, -4.0, 1.0, -8.0]],
    ),
    (
        {"type": "renormalise"},
        SPECIALS,
        [[math.log(0.2), math.log(0.3), NEVER]],
        [[4]],
        [[math.log(0.4), math.log(0.6), NEVER]],
    ),
    ({"type": "renormalise"}, SPECIALS, np.log([[0.1, 0.3]]), [[4]], np.log([[0.25, 0.75]])),
    ({"type": "renormalise"}, SPECIALS, [[NEVER, 0.5], [NEVER, NEVER]], [[4], [4]], [[NEVER, 0.0], [NEVER, NEVER]]),
]


@pytest.mark.parametrize(("spec", "specials", "scores", "ids", "expected"), TOKENS)
def test_what_becomes_of_the_next_words(spec: Any, specials: SpecialIds, scores: Any, ids: Any, expected: Any) -> None:
    scorer, view = build("scorer", SCORERS, spec, specials=specials), HypothesesView(np.asarray(ids))
    if isinstance(scores, int):
        found = scorer.on_tokens(np.zeros((len(view.ids), scores)), view)
        assert [np.flatnonzero(row == NEVER).tolist() for row in found] == expected
        assert set(found[found > NEVER]) <= {0.0}
    else:
        np.testing.assert_allclose(scorer.on_tokens(np.array(scores), view), expected)


def test_what_cannot_be_met_is_refused_and_the_base_changes_nothing() -> None:
    with pytest.raises(ValueError, match="min_length 4 is more than max_length 3"):
        LengthBounds.Config(min_length=4, max_length=3)
    assert LengthBounds.Config(min_length=3, max_length=3).max_length == 3
    base, scores, view = Scorer(ConfigBase(), specials=SPECIALS), np.zeros((2, 3)), HypothesesView(np.zeros((2, 1)))
    assert base.on_rows(scores, view) is base.on_tokens(scores, view) is base.on_hypotheses(scores, view) is scores
    assert base.on_group(scores, scores, scores) is base.bound(scores, 1, 2) is scores
    assert History().paths(*[np.zeros(0, dtype=int)] * 3) == []


def test_a_short_document_has_a_smaller_minimum() -> None:
    """Of 12, 7 and 2 tokens a third is 4, 2 and 0: the minimum of 3 is 3, 2 and 1 there, wherever the rows stand."""
    mask = np.arange(12) < np.array([12, 7, 2])[:, None]
    memory = Memory(np.zeros((3, 12, 1)), mask, mask.astype(int), 6)
    scorer = LengthBounds(LengthBounds.Config(min_length=3, share=1 / 3), specials=SPECIALS)
    scorer.start(memory, 6)
    for length, free in enumerate(([], [4, 5], [2, 3, 4, 5], [0, 1, 2, 3, 4, 5])):
        scores = scorer.on_tokens(np.zeros((6, 6)), HypothesesView(np.zeros((6, length), dtype=int)))
        assert np.flatnonzero(scores[:, EOS] == 0).tolist() == free
        assert (scores[:, 4] == 0).all()
    scorer.select(np.array([4, 5, 0, 1]))
    scores = scorer.on_tokens(np.zeros((4, 6)), HypothesesView(np.zeros((4, 1), dtype=int)))
    assert (scores[:, EOS] == 0).tolist() == [True, True, False, False]


def test_the_share_holds_in_beams_that_are_reordered_and_dropped() -> None:
    model = TableModel(6, vocab=9, seed=3, sharpness=1.0)
    model.mask[1, 2:] = model.mask[3, 4:] = False
    config = SearchConfig(beam_size=3, num_return=3, min_length=4, min_length_share=0.8, max_length=8)
    assert [least_length(model, document, config) for document in range(6)] == [4, 1, 4, 3, 4, 4]
    found = search(model, config)
    for document, hypotheses in enumerate(found):
        assert [tuple(h.ids) for h in hypotheses] == [ids for _, ids, _ in slow_beam(model, document, config)]


@pytest.mark.parametrize(
    ("kind", "alpha", "ended", "expected"),
    [
        ("none", 1.0, True, -6.0),
        ("average", 1.0, True, -6.0 / 5),  # start, three tokens, stop
        ("predicted", 1.0, True, -6.0 / 4),  # three tokens, stop
        ("predicted", 1.0, False, -6.0 / 3),
        ("average", 1.0, False, -6.0 / 4),
        ("gnmt", 1.0, True, -6.0 / (9 / 6)),
        ("gnmt", 0.5, True, -6.0 / math.sqrt(9 / 6)),
    ],
)
def test_length_normalisation(kind: str, alpha: float, ended: bool, expected: float) -> None:
    scorer = LengthNormalisation(LengthNormalisation.Config(kind=kind, alpha=alpha), specials=SPECIALS)
    view = HypothesesView(np.zeros((1, 3), dtype=int), ended=ended)
    assert scorer.on_hypotheses(np.array([-6.0]), view).item() == pytest.approx(expected)


@pytest.mark.parametrize("kind", ["none", "average", "predicted", "gnmt"])
@pytest.mark.parametrize("alpha", [-1.0, 0.0, 2.0])
@pytest.mark.parametrize("total", [-3.0, 4.0])
def test_the_bound_is_one(kind: str, alpha: float, total: float) -> None:
    scorer = LengthNormalisation(LengthNormalisation.Config(kind=kind, alpha=alpha), specials=SPECIALS)
    bound = scorer.bound(np.array([total]), 2, 9).item()
    ends = [
        scorer.on_hypotheses(np.array([total]), HypothesesView(np.zeros((1, n)), ended=True)).item()
        for n in range(2, 10)
    ]
    assert bound == pytest.approx(max(ends))


def test_coverage_by_hand() -> None:
    coverage = np.array([[0.5, 1.5, 0.25, 9.0]])
    mask = np.array([[True, True, True, False]])
    assert wu_coverage(coverage, mask).item() == pytest.approx(math.log(0.5) + math.log(0.25))
    assert summary_coverage(coverage, mask).item() == pytest.approx(-0.5)
    assert math.isfinite(wu_coverage(np.zeros((1, 4)), mask).item())


def test_coverage_needs_attention() -> None:
    model = TableModel(1, vocab=7)

    def blind(last_ids, state):
        output, state = model.step(last_ids, state)
        output.attention = None
        return output, state

    config = SearchConfig(beam_size=2, coverage_penalty="wu", coverage_beta=1.0)
    with pytest.raises(ConfigError, match="needs a model with attention"):
        search(model, config, step=blind)
    for kind, said in (("coverage_penalty", "source mask"), ("distraction", "know the documents")):
        with pytest.raises(ConfigError, match=said):
            build("scorer", SCORERS, {"type": kind}, specials=SPECIALS).start(None, 2)


def test_padding_is_not_covered() -> None:
    model = TableModel(2, vocab=7)
    model.mask[1, 3:] = False
    model.attention[1, :, 3:] = 0.0
    config = SearchConfig(beam_size=3, max_length=4, coverage_penalty="wu", coverage_beta=0.5)
    result = search(model, config)[1][0]
    expected = sum(math.log(min(1.0, c)) for c in result.attention[:, :3].sum(0))
    assert result.terms["coverage_penalty"] == pytest.approx(0.5 * expected)
    assert CoveragePenalty.Config().kind == "summary"


def test_the_one_word_that_a_summary_may_begin_with_is_not_forbidden() -> None:
    """As where a model's forced first token is the one that decoding starts from; of two words one is enough."""
    scorer = ForbidTokens(ForbidTokens.Config(), specials=SPECIALS)
    scores = np.full((3, 8), -np.inf)
    scores[0, SPECIALS.bos_id] = scores[1] = scores[2, [SPECIALS.bos_id, 5]] = 0.0
    for length, possible in ((0, [1, 5, 1]), (1, [0, 5, 1])):
        view = HypothesesView(np.zeros((3, length), dtype=np.int64))
        assert np.isfinite(scorer.on_tokens(scores.copy(), view)).sum(axis=1).tolist() == possible


def test_diverse_groups_against_searches_one_after_the_other() -> None:
    """Group g is a beam search of its own whose tokens cost more where earlier groups chose them at that step."""
    strength, size = 0.8, 2
    model = TableModel(4, vocab=9, seed=17, sharpness=1.0)
    options = {"max_length": 5, "min_length": 5, "min_length_share": None, "early_stopping": "never"}
    options["length_normalisation"] = "none"
    grouped = SearchConfig(beam_size=4, num_return=4, diverse_groups=2, diversity_strength=strength, **options)
    results = search(model, grouped)
    alone = SearchConfig(beam_size=size, num_return=size, **options)
    for document, hypotheses in enumerate(results):
        chosen = live_tokens(model, document, alone)

        def penalty(step: int, token: int, chosen: list[list[int]] = chosen) -> float:
            return strength * chosen[step].count(token) if step < len(chosen) else 0.0

        first = slow_beam(model, document, alone)
        second = slow_beam(model, document, alone, penalty=penalty)
        assert {tuple(h.ids) for h in hypotheses} == {ids for _, ids, _ in [*first, *second]}
        for hypothesis in hypotheses:
            if tuple(hypothesis.ids) in {ids for _, ids, _ in first}:
                continue
            expected = sum(penalty(step, token) for step, token in enumerate(hypothesis.ids))
            assert hypothesis.terms.get("diverse_groups", 0.0) == pytest.approx(-expected)


def live_tokens(model: TableModel, document: int, config: SearchConfig) -> list[list[int]]:
    """The tokens that a beam without EOS goes on with at each step."""
    live, chosen = [(0.0, ())], []
    for _ in range(config.max_length):
        grown = [
            (total + model.log_prob(document, ids, token), (*ids, token))
            for total, ids in live
            for token in range(4, 9)
        ]
        live = sorted(grown, key=lambda pair: -pair[0])[: config.beam_size]
        chosen.append([ids[-1] for _, ids in live])
    return chosen


def test_groups_without_strength_search_alike() -> None:
    model = TableModel(4, vocab=9, seed=18)
    plain = SearchConfig(beam_size=2, num_return=2, max_length=5)
    grouped = SearchConfig(beam_size=4, num_return=4, max_length=5, diverse_groups=2)
    one = search(model, plain)
    two = search(model, grouped)
    for few, many in zip(one, two, strict=True):
        assert [h.ids for h in few] == [h.ids for h in many][:2]


def test_built_from_the_configuration() -> None:
    rules = {"min_length": 2, "no_repeat_ngram": 3, "diverse_groups": 2, "coverage_penalty": "wu", "coverage_beta": 0.1}
    config = SearchConfig(beam_size=4, **rules, scorers=({"type": "forbid_tokens", "ids": [9]},))
    names = [scorer.name for scorer in build_scorers(config, SPECIALS)]
    tokens, ranking = ["ngram_blocking", "diverse_groups"], ["length_normalisation", "coverage_penalty"]
    assert names == ["forbid_tokens", "length_bounds", *tokens, *ranking, "forbid_tokens"]
    names = [scorer.name for scorer in build_scorers(SearchConfig(), SPECIALS)]
    assert names == ["forbid_tokens", "length_bounds", "length_normalisation"]


def test_groups_that_do_not_fit_and_misspelt_options_are_refused() -> None:
    for groups in ((3,), (2, 2)):
        wrong = SearchConfig(beam_size=4, scorers=[{"type": "diverse_groups", "groups": count} for count in groups])
        with pytest.raises(ConfigError, match="cannot be split"):
            build_scorers(wrong, SPECIALS)
    with pytest.raises(ConfigError, match="Did you mean 'size'"):
        build_scorers(SearchConfig(scorers=({"type": "ngram_blocking", "sise": 3},)), SPECIALS)


# --------------------------------------------------------------------------- no content word twice

TEXT = "the tool of 12 rivers , a river in the 妈 妈 's old data isn't"


def words() -> WordTokenizer:
    made = WordTokenizer(WordTokenizer.Config(min_frequency=1))
    made.train([TEXT])
    return made


def test_only_words_that_say_something_are_blocked() -> None:
    tokenizer = words()
    content = {tokenizer.token(id) for id in set(range(tokenizer.vocab_size)) - set(tokenizer.repeatable_ids)}
    assert content == {"tool", "rivers", "river", "old", "data"}


def test_a_word_of_the_prefix_cannot_come_again_in_its_own_row() -> None:
    """Of the words that the vocabulary lacks only content words are blocked, or all where nothing is known of them."""
    tokenizer = words()
    config = with_word_blocking(SearchConfig(no_repeat_word=True), tokenizer)
    (scorer,) = (found for found in build_scorers(config, SPECIALS) if isinstance(found, WordBlocking))
    the, tool, river = (tokenizer.token_id(word) for word in ("the", "tool", "river"))
    first, mask = tokenizer.vocab_size, np.ones((2, 3), dtype=bool)

    def blocked(ids: Any) -> list[list[int]]:
        scores = scorer.on_tokens(np.zeros((len(ids), first + 3)), HypothesesView(np.array(ids)))
        return [np.flatnonzero(row == -np.inf).tolist() for row in scores]

    scorer.start(None, 2)
    assert blocked([[the, tool], [river, first]]) == [[tool], sorted([river, first])]
    own = [["1987", "Zebratown", "\u6c34"], ["Ellinghaus"]]
    scorer.start(Memory(mask, mask, mask.astype(int), first + 3, oov_words=own), 4)
    ids = np.array([[first, first + 1, first + 2]] * 2 + [[first] * 3] * 2)
    expected = [[first + 1]] * 2 + [[first]] * 2
    assert blocked(ids) == expected
    scorer.select(np.array([3, 2, 1]))
    assert blocked(ids[[3, 2, 1]]) == [expected[row] for row in (3, 2, 1)]


def test_pieces_of_words_are_left_alone() -> None:
    tokenizer = BpeTokenizer(BpeTokenizer.Config(vocab_size=40, min_frequency=1))
    tokenizer.train([TEXT])
    config = SearchConfig(no_repeat_word=True)
    assert with_word_blocking(config, tokenizer) is config
    assert with_word_blocking(SearchConfig(), words()).scorers == ()


@pytest.mark.parametrize("bonus", [-2.0, 0.5, 4.0])
def test_the_example_of_the_docs_finds_what_a_search_to_the_end_finds(bonus: float) -> None:
    page = (Path(__file__).parents[3] / "docs/decoding.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(import numpy.*?)```", page, re.DOTALL)
    names: dict[str, type[Scorer]] = {}
    exec(code, names)
    shorter = names["Shorter"]
    patient = type("Patient", (shorter,), {"bound": lambda self, scores, *_: scores + 1e6})
    config = SearchConfig(beam_size=3, max_length=6, early_stopping="never")
    for seed in range(8):
        model = TableModel(3, 7, seed=seed, sharpness=3.0)
        found = [search(model, config, [cls(cls.Config(bonus=bonus), specials=SPECIALS)]) for cls in (shorter, patient)]
        lines, to_the_end = ([[one.ids for one in listed] for listed in each] for each in found)
        assert lines == to_the_end


class Without(Scorer):
    """One's own, which looks at words."""

    class Config(ConfigBase):
        word: str

    name = "without"
    config: Config

    def on_tokens(self, scores: np.ndarray, view: HypothesesView) -> np.ndarray:
        scores[:, self.specials.vocabulary.index(self.config.word)] = -np.inf
        return scores


def test_a_scorer_of_ones_own_knows_the_words_of_the_ids() -> None:
    text = "A library for reading and writing compressed archives of many formats. It is fast."
    summarizer, own = Summarizer.from_pretrained("oneline"), f"{__name__}:Without"
    lines = [
        summarizer.summarize(text, always_write=True, scorers=scorers).text.lower()
        for scorers in ([], [{"type": own, "word": "archives"}])
    ]
    assert ["archives" in line for line in lines] == [True, False]
