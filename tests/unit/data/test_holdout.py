"""Pairs of one file, held out."""

from __future__ import annotations

import random

from catchline.data.holdout import ENOUGH_FOR_TEST, LEAST, hold_out
from catchline.types import Record

WORDS = [f"w{number}" for number in range(400)]


def pairs(count: int, seed: int = 0) -> list[Record]:
    draw = random.Random(seed)
    return [Record(" ".join(draw.sample(WORDS, 30)), "s", str(number)) for number in range(count)]


def test_sizes_and_order() -> None:
    records = pairs(300)
    found = hold_out(records).splits
    assert {name: len(kept) for name, kept in found.items()} == {"train": 240, "validation": 30, "test": 30}
    for kept in found.values():
        assert [int(record.id) for record in kept] == sorted(int(record.id) for record in kept)
    assert sorted(int(r.id) for kept in found.values() for r in kept) == list(range(300))
    assert set(hold_out(pairs(ENOUGH_FOR_TEST - 1)).splits) == {"train", "validation"}
    assert set(hold_out(pairs(LEAST - 1)).splits) == {"train"}
    assert set(hold_out(pairs(ENOUGH_FOR_TEST), test=False).splits) == {"train", "validation"}


def test_seed_decides_and_the_order_of_the_file_does_not() -> None:
    records = pairs(100)
    held = {record.id for record in hold_out(records).splits["validation"]}
    assert held == {record.id for record in hold_out(records[::-1]).splits["validation"]}
    assert held != {record.id for record in hold_out(records, seed=2).splits["validation"]}
    records += [Record(f"{r.document} again", "s", f"{r.id}-near") for r in records]
    held = {record.id for record in hold_out(records).splits["validation"]}
    assert held == {record.id for record in hold_out(records[::-1]).splits["validation"]}


def test_near_duplicates_are_in_one_split() -> None:
    records = pairs(120)
    doubles = [Record(f"{r.document} again", "s", f"{r.id}-near") for r in records]
    found = hold_out(records + doubles)
    assert found.doubles == 120
    for kept in found.splits.values():
        names = {record.id for record in kept}
        assert all(f"{name.removesuffix('-near')}-near" in names for name in names)
        assert all(name.removesuffix("-near") in names for name in names)
