"""The extended vocabulary of one example: ids from V on stand for source words that the vocabulary lacks.

Numbering is by first appearance within the (truncated) source, so what the decoder may copy is exactly what
the encoder has read, and the numbering of a shorter truncation is a prefix of that of a longer one.
"""

from __future__ import annotations

from collections.abc import Sequence

from laconic.types import TokenizedText


def extend_source(encoding: TokenizedText, vocab_size: int, unk_id: int) -> tuple[list[int], list[str]]:
    """Return the extended ids of a source and the strings of V, V + 1, ... .

    Args:
        encoding: the truncated source.
        vocab_size: V.
        unk_id: the id that words outside the vocabulary have in ``encoding``.
    """
    numbers: dict[str, int] = {}
    extended = list(encoding.ids)
    for position, value in enumerate(extended):
        if value == unk_id:
            extended[position] = numbers.setdefault(encoding.tokens[position], vocab_size + len(numbers))
    return extended, list(numbers)


def extend_target(encoding: TokenizedText, oov_words: Sequence[str], vocab_size: int, unk_id: int) -> list[int]:
    """Return the extended ids of a target: words of ``oov_words`` get V + k, other unknown words stay UNK."""
    numbers = {word: vocab_size + index for index, word in enumerate(oov_words)}
    return [
        numbers.get(token, unk_id) if value == unk_id else value
        for value, token in zip(encoding.ids, encoding.tokens, strict=True)
    ]
