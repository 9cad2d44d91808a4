"""Word vectors in GloVe's format."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from catchline.data.embeddings import load_glove
from catchline.errors import DataError
from catchline.text.tokenizer import WordTokenizer

TOKENIZER = WordTokenizer(WordTokenizer.Config(min_frequency=1))
TOKENIZER.train(["the cat sat"])


def row(matrix: np.ndarray, word: str) -> list[float]:
    index = TOKENIZER.token_id(word)
    assert index is not None
    return matrix[index].tolist()


@pytest.fixture
def write(tmp_path: Path):
    def _write(text: str) -> Path:
        path = tmp_path / "vectors.txt"
        path.write_text(text)
        return path

    return _write


def test_vectors_coverage_and_padding(write) -> None:
    matrix, coverage = load_glove(write("the 1 2 3\n. . 7 8 9\nCat 4 5 6\ncat 1 1 1\nThe 0 0 0\n"), TOKENIZER)
    assert matrix.shape == (TOKENIZER.vocab_size, 3)
    assert matrix.dtype == np.float32
    assert row(matrix, "the") == [1, 2, 3]
    assert row(matrix, "cat") == [1, 1, 1]
    assert matrix[0].tolist() == [0, 0, 0]
    assert coverage == pytest.approx(2 / 3)
    assert np.any(matrix[TOKENIZER.token_id("sat")])


def test_missing_words(write) -> None:
    text = "".join(f"w{number} {number % 7 - 3} {number % 5 - 2} 1\n" for number in range(200)) + "the 1 2 3\n"
    values = np.array([[number % 7 - 3, number % 5 - 2, 1] for number in range(200)] + [[1, 2, 3]])
    path = write(text)
    tokenizer = WordTokenizer(WordTokenizer.Config(min_frequency=1))
    tokenizer.train(["the " + " ".join(f"z{number}" for number in range(3000))])
    drawn, _ = load_glove(path, tokenizer, seed=3)
    assert drawn[5:].std() == pytest.approx(values.std(), rel=0.05)
    assert np.array_equal(drawn, load_glove(path, tokenizer, seed=3)[0])
    assert not np.array_equal(drawn, load_glove(path, tokenizer, seed=4)[0])


def test_word2vec_header_and_gzip(tmp_path: Path) -> None:
    path = tmp_path / "v.txt.gz"
    path.write_bytes(gzip.compress(b"2 3\nthe 1 2 3\ncat 4 5 6 \n"))
    matrix, _ = load_glove(path, TOKENIZER)
    assert row(matrix, "cat") == [4, 5, 6]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        *(
            (f"the 1 2 3\ncat 4 {rest}\n", r":2: expected a word and 3 finite numbers")
            for rest in ("5", "x 6", "nan 6")
        ),
        ("hello\n", "expected a word and its vector"),
        ("", "expected a word and its vector"),
        ("zz 1 2\nyy 3 4\n", "none of the vocabulary's 3 words"),
    ],
)
def test_bad_files(write, text: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        load_glove(write(text), TOKENIZER)
