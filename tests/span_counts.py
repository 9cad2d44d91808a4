"""Overlap of neighbouring spans by plain counting, a textbook's dynamic programme and exact fractions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from catchline_study.spans.scoring import Shape

Counts = tuple[int, int, int]


def longest(left: Sequence[Hashable], right: Sequence[Hashable]) -> int:
    """The textbook's table, a row at a time."""
    row = [0] * (len(right) + 1)
    for a in left:
        diagonal = 0
        for j, b in enumerate(right, start=1):
            above = row[j]
            row[j] = diagonal + 1 if a == b else max(above, row[j - 1])
            diagonal = above
    return row[-1]


def counted(tokens: Sequence[Hashable], start: int, shape: Shape) -> Counts:
    left = list(tokens[start : start + shape.input])
    right = list(tokens[start + shape.input : start + shape.window])
    return (
        (Counter(left) & Counter(right)).total(),
        (Counter(pairwise(left)) & Counter(pairwise(right))).total(),
        longest(left, right),
    )


def scored(counts: Counts, weights: Sequence[Fraction], shape: Shape) -> Fraction:
    """F1 from precision and recall, as one writes it down."""

    def f1(matches: int, left: int, right: int) -> Fraction:
        if not matches:
            return Fraction(0)
        precision, recall = Fraction(matches, right), Fraction(matches, left)
        return 2 * precision * recall / (precision + recall)

    sizes = [(shape.input, shape.output), (shape.input - 1, shape.output - 1), (shape.input, shape.output)]
    return sum(
        (weight * f1(count, *size) for weight, count, size in zip(weights, counts, sizes, strict=True)), Fraction(0)
    )
