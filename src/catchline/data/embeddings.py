"""Pre-trained word vectors in GloVe's text format: a word and its numbers, one a line."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import numpy as np

from catchline.data.lines import raw_lines
from catchline.errors import DataError
from catchline.text.base import Tokenizer


def load_glove(path: str | Path, tokenizer: Tokenizer, seed: int = 1) -> tuple[np.ndarray, float]:
    """Read the vectors of a tokenizer's vocabulary: the matrix (V, E) float32, and the share of the vocabulary (special
    tokens aside) that the file has.

    A word2vec header line (count and width) is passed over, words may hold spaces, ``.gz`` is read. Where the
    vocabulary is lower-cased the file's words are matched as they are, then lower-cased, the first wins. Rows of words
    that the file lacks are drawn with ``seed`` from N(0, s), s being the standard deviation of all vectors read; the
    row of PAD is zeros. Raises DataError: a line has no word, a different number of values or one that is no finite
    number (with the line), or no word of the vocabulary is in the file.
    """
    file = Path(path)
    first = next(raw_lines(file), (1, b""))[1].split()
    header = len(first) == 2
    width = int(first[1]) if header and first[1].isdigit() else len(first) - 1
    if width < 1:
        raise DataError(f"{path}: expected a word and its vector on each line (GloVe's text format).")
    specials = {tokenizer.pad_id, tokenizer.unk_id, tokenizer.bos_id, tokenizer.eos_id}
    wanted = {token: index for index, token in enumerate(tokenizer.vocabulary) if index not in specials}
    rows, inexact = dict[int, np.ndarray](), dict[int, np.ndarray]()
    total, squares, count = 0.0, 0.0, 0
    for number, line in islice(raw_lines(file), int(header), None):
        if not line.strip():
            continue
        word, vector = _parse(f"{file}:{number}", line, width)
        total, squares, count = total + float(vector.sum()), squares + float(vector @ vector), count + width
        if word in wanted:
            rows.setdefault(wanted[word], vector)
        elif word.lower() in wanted:
            inexact.setdefault(wanted[word.lower()], vector)
    rows = inexact | rows
    if not rows:
        raise DataError(f"{file}: the file has none of the vocabulary's {len(wanted):,} words; is it the right one?")
    deviation = float(np.sqrt(max(squares / count - (total / count) ** 2, 0.0)))
    matrix = np.random.default_rng(seed).normal(0.0, deviation, (tokenizer.vocab_size, width)).astype(np.float32)
    for index, vector in rows.items():
        matrix[index] = vector
    matrix[tokenizer.pad_id] = 0.0
    return matrix, len(rows) / max(1, len(wanted))


def _parse(origin: str, line: bytes, width: int) -> tuple[str, np.ndarray]:
    word, *values = line.strip().rsplit(maxsplit=width)
    try:
        vector = np.array(values, dtype=np.float64)
        if len(vector) == width and np.isfinite(vector).all():
            return word.decode("utf-8", errors="replace"), vector
    except ValueError:
        pass
    raise DataError(f"{origin}: expected a word and {width} finite numbers; the file is damaged or cut off.")
