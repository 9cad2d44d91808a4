"""Each scorer by itself against a slow reference; models of torch at the search's edge."""

from __future__ import annotations

import math
import random
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from search_tables import BOS, EOS, SPECIALS, Encoding, TableModel, batch_of

from catchline.config.names import SCORERS, build
from catchline.config.schema import SearchConfig
from catchline.errors import ConfigError
from catchline.search import torch_bridge as decoding
from catchline.search.scorers import (
    HypothesesView,
    LengthBounds,
    LengthNormalisation,
    NgramBlocking,
    Scorer,
    SpecialIds,
    WordBlocking,
    build_scorers,
)
from catchline.search.torch_bridge import DeviceScores, decode
from catchline.text.base import Tokenizer
from catchline.text.tokenizer import BpeTokenizer, WordTokenizer
from catchline.types import Memory
from samples import IDS


def slow_repeats(prefix: list[int], size: int) -> set[int]:
    grams = {tuple(prefix[i : i + size]) for i in range(len(prefix) - size + 1)}
    return {token for token in range(10) if tuple([*prefix, token][-size:]) in grams and len(prefix) + 1 >= size}


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_ngrams_against_a_slow_reference(size: int) -> None:
    random_ = random.Random(size)
    for length in range(12):
        prefixes = [[random_.randrange(3) for _ in range(length)] for _ in range(6)]
        view = HypothesesView(np.array(prefixes, dtype=np.int64).reshape(6, length))
        scores = NgramBlocking(SPECIALS, size).on_tokens(np.zeros((6, 10)), view)
        found = [{*np.flatnonzero(row == -np.inf).tolist()} for row in scores]
        assert found == [slow_repeats(prefix, size) for prefix in prefixes]


NEVER, NO_WORDS = -math.inf, np.zeros((1, 0), dtype=int)
BART = SpecialIds(unk_id=-1, bos_id=2, eos_id=2, pad_id=1)  # decoding starts from the token that ends it


def named(kind: str, **options: Any) -> Scorer:
    return build("scorer", SCORERS, {"type": kind, **options}, specials=SPECIALS)


def forbidding(specials: SpecialIds = SPECIALS, **options: Any) -> Scorer:
    return build_scorers(SearchConfig(**options), specials)[0]


# the scorer, the scores, the words so far, what comes of it; scores as a number: so many zeros, and what is blocked
TOKENS: list[tuple[Scorer, Any, Any, Any]] = [
    (NgramBlocking(SPECIALS, 2), 8, [[4, 5, 4], [4, 5, 6]], [[5], []]),
    *(
        (LengthBounds(SPECIALS, 2, None, 3), 6, np.zeros((1, length)), [blocked])
        for length, blocked in enumerate([[EOS], [EOS], [], [0, 1, 2, 4, 5], [0, 1, 2, 4, 5]])
    ),
    (named("forbid_tokens", ids=[5, 7, 9]), 7, NO_WORDS, [[5]]),  # of seven words
    (forbidding(), 7, NO_WORDS, [[0, 1, BOS]]),
    (forbidding(forbid_unk=False), 7, NO_WORDS, [[0, BOS]]),
    (forbidding(BART), 5, NO_WORDS, [[1]]),
    (
        named("repetition_penalty", penalty=2.0),  # makes every token that is held worth less
        [[1.0, -1.0, -3.0, 2.0, -1.0, 0.5], [-2.0, 0.0, 4.0, -4.0, 1.0, -8.0]],
        [[4, 5], [0, 0]],
        [[1.0, -1.0, -6.0, 2.0, -2.0, 0.25], [-4.0, 0.0, 2.0, -4.0, 1.0, -8.0]],
    ),
    (named("renormalise"), [[math.log(0.2), math.log(0.3), NEVER]], [[4]], [[math.log(0.4), math.log(0.6), NEVER]]),
    (named("renormalise"), np.log([[0.1, 0.3]]), [[4]], np.log([[0.25, 0.75]])),
    (named("renormalise"), [[NEVER, 0.5], [NEVER, NEVER]], [[4], [4]], [[NEVER, 0.0], [NEVER, NEVER]]),
]


@pytest.mark.parametrize(("scorer", "scores", "ids", "expected"), TOKENS)
def test_what_becomes_of_the_next_words(scorer: Scorer, scores: Any, ids: Any, expected: Any) -> None:
    view = HypothesesView(np.asarray(ids))
    if isinstance(scores, int):
        found = scorer.on_tokens(np.zeros((len(view.ids), scores)), view)
        assert [np.flatnonzero(row == NEVER).tolist() for row in found] == expected
        assert set(found[found > NEVER]) <= {0.0}
    else:
        np.testing.assert_allclose(scorer.on_tokens(np.array(scores), view), expected)


def test_a_short_document_has_a_smaller_minimum() -> None:
    """Of 12, 7 and 2 tokens a third is 4, 2 and 0: the minimum of 3 is 3, 2 and 1 there, wherever the rows stand."""
    mask = np.arange(12) < np.array([12, 7, 2])[:, None]
    memory = Memory(np.zeros((3, 12, 1)), mask, mask.astype(int), 6)
    scorer = LengthBounds(SPECIALS, 3, 1 / 3, None)
    scorer.start(memory, 6)
    for length, free in enumerate(([], [4, 5], [2, 3, 4, 5], [0, 1, 2, 3, 4, 5])):
        scores = scorer.on_tokens(np.zeros((6, 6)), HypothesesView(np.zeros((6, length), dtype=int)))
        assert np.flatnonzero(scores[:, EOS] == 0).tolist() == free
        assert (scores[:, 4] == 0).all()
    scorer.select(np.array([4, 5, 0, 1]))
    scores = scorer.on_tokens(np.zeros((4, 6)), HypothesesView(np.zeros((4, 1), dtype=int)))
    assert (scores[:, EOS] == 0).tolist() == [True, True, False, False]


def test_length_normalisation() -> None:
    for kind, alpha, ended, expected in (
        ("average", 1.0, True, -6.0 / 5),  # start, three tokens, stop
        ("predicted", 1.0, True, -6.0 / 4),  # three tokens, stop
        ("predicted", 1.0, False, -6.0 / 3),
        ("average", 1.0, False, -6.0 / 4),
        ("gnmt", 1.0, True, -6.0 / (9 / 6)),
        ("gnmt", 0.5, True, -6.0 / math.sqrt(9 / 6)),
    ):
        view = HypothesesView(np.zeros((1, 3), dtype=int), ended=ended)
        found = LengthNormalisation(SPECIALS, kind, alpha).on_hypotheses(np.array([-6.0]), view)
        assert found.item() == pytest.approx(expected)


def test_the_one_word_that_a_summary_may_begin_with_is_not_forbidden() -> None:
    """As where a model's forced first token is the one that decoding starts from; of two words one is enough."""
    scorer = forbidding()
    scores = np.full((3, 8), -np.inf)
    scores[0, SPECIALS.bos_id] = scores[1] = scores[2, [SPECIALS.bos_id, 5]] = 0.0
    for length, possible in ((0, [1, 5, 1]), (1, [0, 5, 1])):
        view = HypothesesView(np.zeros((3, length), dtype=np.int64))
        assert np.isfinite(scorer.on_tokens(scores.copy(), view)).sum(axis=1).tolist() == possible


def test_built_from_the_configuration() -> None:
    rules = {"min_length": 2, "no_repeat_ngram": 3}
    config = SearchConfig(beam_size=4, **rules, scorers=({"type": "forbid_tokens", "ids": [9]},))
    names = [scorer.name for scorer in build_scorers(config, SPECIALS)]
    assert names == ["forbid_tokens", "length_bounds", "ngram_blocking", "length_normalisation", "forbid_tokens"]
    names = [scorer.name for scorer in build_scorers(SearchConfig(), SPECIALS)]
    assert names == ["forbid_tokens", "length_bounds", "length_normalisation"]
    with pytest.raises(ConfigError, match="Did you mean 'penalty'"):
        build_scorers(SearchConfig(scorers=({"type": "repetition_penalty", "penaltey": 3},)), SPECIALS)


TEXT = "the tool of 12 rivers , a river in the 妈 妈 's old data isn't"


def words() -> WordTokenizer:
    made = WordTokenizer(WordTokenizer.Config(min_frequency=1))
    made.train([TEXT])
    return made


def blocking(tokenizer: Tokenizer) -> list[WordBlocking]:
    specials = SpecialIds(**tokenizer.search_ids(BOS))
    scorers = build_scorers(SearchConfig(no_repeat_word=True), specials)
    return [scorer for scorer in scorers if isinstance(scorer, WordBlocking)]


def test_a_word_of_the_prefix_cannot_come_again_in_its_own_row() -> None:
    """Only words that say something are blocked; and of the words that the vocabulary lacks, or all where nothing is
    known of them."""
    pieces, tokenizer = BpeTokenizer(BpeTokenizer.Config(max_vocabulary=40, min_frequency=1)), words()
    pieces.train([TEXT])
    assert not blocking(pieces), "pieces of words are left alone"
    (scorer,) = blocking(tokenizer)
    first, mask = tokenizer.vocab_size, np.ones((2, 3), dtype=bool)
    memory = Memory(mask, mask, mask.astype(int), first + 3)

    def blocked(ids: Any) -> list[list[int]]:
        scores = scorer.on_tokens(np.zeros((len(ids), first + 3)), HypothesesView(np.array(ids)))
        return [np.flatnonzero(row == -np.inf).tolist() for row in scores]

    scorer.start(memory, 2)
    everything = blocked([range(first), range(first)])[0]
    assert {tokenizer.token(id_) for id_ in everything} == {"tool", "rivers", "river", "old", "data"}
    the, tool, river = (tokenizer.token_id(word) for word in ("the", "tool", "river"))
    own = [["1987", "Zebratown", "\u6c34"], ["Ellinghaus"]]
    memory.oov_words = own
    scorer.start(memory, 4)
    assert blocked([[the, tool], [river, first], [the, first], [river, the]]) == [[tool], [river], [first], [river]]
    ids = np.array([[first, first + 1, first + 2]] * 2 + [[first] * 3] * 2)
    expected = [[first + 1]] * 2 + [[first]] * 2
    assert blocked(ids) == expected
    scorer.select(np.array([3, 2, 1]))
    assert blocked(ids[[3, 2, 1]]) == [expected[row] for row in (3, 2, 1)]


def test_threads_share_those_of_torch_and_leave_them_as_they_were() -> None:
    meeting = threading.Barrier(2, timeout=30)

    def in_another(work: Callable[[], object]) -> None:
        another = threading.Thread(target=work)
        another.start()
        another.join(30)

    def work(_: int, go_on: Any) -> int:
        meeting.wait()
        in_another(lambda: torch.set_num_threads(3))  # which says it of those to come
        torch.ones(300, 300) @ torch.ones(300, 300)
        return torch.get_num_threads()

    with decoding.threads(4):  # whatever the machine has
        assert list(decoding.in_threads(work, range(4), 2)) == [2, 2, 2, 2]
        assert torch.get_num_threads() == 4
        later = list[int]()
        in_another(lambda: later.append(torch.get_num_threads()))
        assert later == [4], "what a share was does not stay"
        assert list(decoding.in_threads(lambda *_: torch.get_num_threads(), range(2), 1)) == [4, 4]
        with pytest.raises(ZeroDivisionError):
            list(decoding.in_threads(lambda *_: 1 // 0, range(2), 2))
        assert torch.get_num_threads() == 4


WAYS: list[dict[str, Any]] = [
    {"beam_size": 1, "min_length": 3, "no_repeat_ngram": 2},
    {"beam_size": 3, "min_length": 3, "no_repeat_ngram": 2, "length_normalisation": "average"},
    {"beam_size": 3, "unfinished": "force_end", "forbid_specials": False, "finish": "see", "early_stopping": "never"},
    {"beam_size": 3, "shrink_beam": True, "scorers": [{"type": "repetition_penalty", "penalty": 1.2}]},
    {"beam_size": 3, "scorers": [{"type": "renormalise"}, {"type": "forbid_tokens", "ids": [5]}]},
]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: "-".join(list(way)[1:]))
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_scores_that_stay_on_their_device_give_the_same_summaries(
    monkeypatch: pytest.MonkeyPatch, way: dict[str, Any], dtype: torch.dtype
) -> None:
    model, batch = TableModel(4, vocab=9), batch_of(torch.full((4, 5), 4), 9)
    model.log_probs = model.log_probs.to(dtype)
    config = SearchConfig(max_length=8, num_return=min(2, way["beam_size"]), **way)
    here = decode(Encoding(model), batch, config, **IDS)
    monkeypatch.setattr(decoding, "_scores", DeviceScores)
    for mine, expected in zip(decode(Encoding(model), batch, config, **IDS), here, strict=True):
        assert [h.ids for h in mine] == [h.ids for h in expected]
        np.testing.assert_allclose([h.score for h in mine], [h.score for h in expected], rtol=1e-12)
        for one, other in zip(mine, expected, strict=True):
            assert one.terms == pytest.approx(other.terms)
