"""What texts are about: vectors learnt from pairs, and the cosine that a summary is chosen by."""

from __future__ import annotations

import numpy as np
import pytest

from laconic.config.schema import TextConfig
from laconic.data.dataset import EncodedDataset
from laconic.metrics.confidence import TOPIC_SIZE, direction, packed
from laconic.study.topic import learn_word_vectors
from laconic.text.tokenizer import WordTokenizer
from laconic.types import Record

SUBJECTS = [
    [f"{stem}{ending}" for ending in ("a", "e", "i", "o", "u", "y")] for stem in ("riv", "lamp", "corn", "sail")
]
FILLERS = ["the", "of", "some", "very", "about", "with"]


def pairs(count: int, seed: int) -> list[Record]:
    """A text has words of its subject and fillers; its summary other words of that subject and fillers."""
    drawn = np.random.default_rng(seed)
    made = []
    for number in range(count):
        subject = SUBJECTS[number % len(SUBJECTS)]
        text = [*drawn.choice(subject, 3), *drawn.choice(FILLERS, 9)]
        summary = [drawn.choice(subject), *drawn.choice(FILLERS, 2)]
        made.append(Record(" ".join(text), " ".join(summary), id=str(number)))
    return made


@pytest.fixture(scope="module")
def tokenizer() -> WordTokenizer:
    made = WordTokenizer(WordTokenizer.Config(min_frequency=1))
    made.train([record.document for record in pairs(200, 1)])
    return made


def learnt(tokenizer: WordTokenizer, updates: int = 60) -> np.ndarray:
    return learn_word_vectors(EncodedDataset.build(pairs(200, 1), tokenizer, TextConfig()), tokenizer, updates=updates)


def test_summaries_find_the_texts_of_their_subject(tokenizer: WordTokenizer) -> None:
    vectors = learnt(tokenizer)
    assert vectors.shape == (tokenizer.vocab_size, TOPIC_SIZE)
    kept = packed(vectors)

    def about(text: str) -> np.ndarray:
        return direction(tokenizer.encode(text).ids, kept)

    fresh = pairs(40, 2)
    texts = [about(record.document) for record in fresh]
    for number, record in enumerate(fresh):
        cosines = np.array([text @ about(record.summary) for text in texts])
        same = np.arange(40) % len(SUBJECTS) == number % len(SUBJECTS)
        assert cosines[same].min() > cosines[~same].max(), "any text of its subject is nearer than any other one"
    lengths = np.linalg.norm(vectors, axis=1)
    fillers = [tokenizer.encode(word).ids[0] for word in FILLERS]
    subjects = [tokenizer.encode(word).ids[0] for subject in SUBJECTS for word in subject]
    assert lengths[fillers].max() < lengths[subjects].min(), "words that all texts have say little"
    assert not vectors[[*tokenizer.special_ids, tokenizer.unk_id]].any(), "neither ends nor unknown words say anything"


def test_equal_arguments_give_equal_vectors(tokenizer: WordTokenizer) -> None:
    np.testing.assert_array_equal(learnt(tokenizer, 3), learnt(tokenizer, 3))


def test_a_direction_is_the_sum_of_the_words_in_the_vocabulary() -> None:
    vectors = np.zeros((6, TOPIC_SIZE))
    vectors[4, :2], vectors[5, :2] = (1.0, 1.0), (2.0, 3.0)
    found = direction([4, 5, 4, 2, 6, 900], packed(vectors))
    np.testing.assert_allclose(found[:2], np.array([4.0, 5.0]) / np.sqrt(41.0), atol=1e-6)
    assert not found[2:].any(), "words outside the vocabulary do not count"
    assert not direction([2, 3], packed(vectors)).any()
    assert not direction([4], "").any(), "nothing learnt: no topic"
