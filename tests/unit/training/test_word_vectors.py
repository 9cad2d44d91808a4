"""Pre-trained word vectors for a vocabulary."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from laconic.errors import ConfigError
from laconic.training.embeddings import read_embeddings
from laconic.training.loop import train

VOCABULARY = ["<pad>", "<unk>", "cat", "dog"]


def test_known_words_get_their_vector(tmp_path: Path) -> None:
    path = tmp_path / "glove.txt"
    path.write_text("the 9 9\ndog 1 -2.5\ncat 0.5 1e-2\n")
    matrix = read_embeddings(path, VOCABULARY, missing="zeros")
    assert matrix.tolist() == [[0, 0], [0, 0], [0.5, pytest.approx(0.01)], [1, -2.5]]
    torch.manual_seed(0)
    random = read_embeddings(path, VOCABULARY, missing="normal")
    assert torch.equal(random[2:], matrix[2:])
    assert bool((random[:2] != 0).all())


def test_word2vec_text_has_a_first_line(tmp_path: Path) -> None:
    (tmp_path / "w2v.txt").write_text("2 3\ncat 1 2 3\ndog 4 5 6\n")
    assert read_embeddings(tmp_path / "w2v.txt", VOCABULARY, missing="zeros").shape == (4, 3)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cat 1 2\ndog 1 2 3\n", ":2 is no vector"),
        ("cat one two\n", ":1 is no vector"),
        ("bird 1 2\n", "no vector for any"),
    ],
)
def test_bad_files(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "bad.txt").write_text(text)
    with pytest.raises(ConfigError, match=message):
        read_embeddings(tmp_path / "bad.txt", VOCABULARY, missing="zeros")


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read"):
        read_embeddings(tmp_path / "none.txt", VOCABULARY, missing="zeros")


def test_training_starts_from_them(make_run: Any, make_trainer: Any, tmp_path: Path) -> None:
    path = tmp_path / "vectors.txt"
    path.write_text("word3 " + " ".join(["0.25"] * 6) + "\n")
    trainer = make_trainer(**{"text.pretrained_embeddings": str(path)})
    place = trainer.parts.tokenizer.token_id("word3")
    assert trainer.model.embedding.weight[place].tolist() == [0.25] * 6
    (tmp_path / "wide.txt").write_text("word3 1 2 3\n")
    run = make_run(**{"text.pretrained_embeddings": str(tmp_path / "wide.txt")})
    with pytest.raises(ConfigError, match="embedding_size"):
        train(run, tmp_path / "other", on_message=lambda message: None)
