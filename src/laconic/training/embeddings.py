"""Pre-trained word vectors (GloVe, word2vec text format) for a vocabulary."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from laconic.errors import ConfigError


def read_embeddings(path: Path, vocabulary: Sequence[str], *, missing: Literal["normal", "zeros"]) -> Tensor:
    """The matrix (V, E) of the vectors in ``path`` for ``vocabulary``, in its order.

    Words without a vector get N(0, s) with the standard deviation s of the vectors found (our reading; drawn from
    torch's global generator), or zeros. A first line "count width" (word2vec) is skipped.

    Raises:
        ConfigError: no such file, a line that is no vector, or no word in common.
    """
    place = {word: index for index, word in enumerate(vocabulary)}
    vectors: dict[int, np.ndarray] = {}
    width = 0
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            for number, line in enumerate(file, start=1):
                word, _, rest = line.rstrip("\n").partition(" ")
                if number == 1 and rest.strip().isdigit():
                    continue
                if word not in place:
                    continue
                vector = _numbers(rest)
                width = width or len(vector)
                if not width or len(vector) != width:
                    raise ConfigError(f"{path}:{number} is no vector of {width} numbers; is it a GloVe text file?")
                vectors[place[word]] = vector
    except OSError as error:
        raise ConfigError(f"text.pretrained_embeddings: cannot read {path} ({error.strerror}).") from None
    if not vectors:
        raise ConfigError(f"{path} has no vector for any word of the vocabulary; check language and letter case.")
    found = np.stack(list(vectors.values()))
    matrix = torch.zeros(len(vocabulary), width)
    if missing == "normal":
        matrix.normal_(0.0, float(found.std()))
    matrix[list(vectors)] = torch.from_numpy(found)
    return matrix


def _numbers(text: str) -> np.ndarray:
    try:
        return np.array(text.split(), dtype=np.float32)
    except ValueError:
        return np.zeros(0, dtype=np.float32)
