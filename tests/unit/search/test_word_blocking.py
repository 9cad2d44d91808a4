"""No content word twice."""

from __future__ import annotations

import torch

from laconic.config.schema import SearchConfig
from laconic.search.scorers.base import HypothesesView, SpecialIds
from laconic.search.scorers.build import build_scorers
from laconic.search.scorers.words import WordBlocking, with_word_blocking
from laconic.text.tokenizer import BpeTokenizer, WordTokenizer

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
    tokenizer = words()
    config = with_word_blocking(SearchConfig(no_repeat_word=True), tokenizer)
    specials = SpecialIds(tokenizer.unk_id, tokenizer.bos_id, tokenizer.eos_id, tokenizer.pad_id)
    (scorer,) = (found for found in build_scorers(config, specials) if isinstance(found, WordBlocking))
    the, tool, river = (tokenizer.token_id(word) for word in ("the", "tool", "river"))
    own = tokenizer.vocab_size  # a word that the vocabulary lacks
    scores = scorer.on_tokens(torch.zeros(2, own + 2), HypothesesView(torch.tensor([[the, tool], [river, own]])))
    assert (scores == -torch.inf).nonzero().tolist() == sorted([[0, tool], [1, river], [1, own]])


def test_pieces_of_words_are_left_alone() -> None:
    tokenizer = BpeTokenizer(BpeTokenizer.Config(vocab_size=40, min_frequency=1))
    tokenizer.train([TEXT])
    config = SearchConfig(no_repeat_word=True)
    assert with_word_blocking(config, tokenizer) is config
    assert with_word_blocking(SearchConfig(), words()).scorers == ()
