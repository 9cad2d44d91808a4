"""Pairs of one file that are held out for validation and test: the same each time, and nothing nearly the same in two
splits."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from catchline.data.checks import duplicates, sketches_of
from catchline.data.subset import WORD
from catchline.jobs import batches
from catchline.types import Record

SHARE, MOST = 10, 1000  # a tenth of the pairs for each split, and never more than so many
LEAST = 20  # pairs of which some can be held out
ENOUGH_FOR_TEST = 200


@dataclass(frozen=True, slots=True)
class HeldOut:
    """The splits by name, in the order of the file; ``doubles`` are documents (nearly) the same as an earlier one."""

    splits: dict[str, list[Record]]
    doubles: int


def hold_out(records: Sequence[Record], seed: int = 1, *, test: bool = True) -> HeldOut:
    """Split ``records`` into ``train``, ``validation`` and, where there are enough and it is wanted, ``test``.

    Documents that are nearly the same (`catchline.data.checks`) are one group, and a group is in one split. Which
    groups are held out depends on the seed and their texts only, not on the order of the file.
    """
    groups = list(range(len(records)))
    texts = ([WORD.findall(record.document.lower()) for record in some] for some in batches(records, 1000))
    for number, earlier, _ in duplicates(list(map(sketches_of, texts))):
        groups[number] = groups[earlier]
    members: dict[int, list[int]] = {}
    for number, group in enumerate(groups):
        members.setdefault(group, []).append(number)
    held = ["validation", "test"] if test and len(records) >= ENOUGH_FOR_TEST else ["validation"]
    room = 0 if len(records) < LEAST else max(2, min(MOST, len(records) // SHARE))
    left = dict.fromkeys(held, room)
    places = ["train"] * len(records)
    for group in sorted(members, key=lambda group: min(_drawn(seed, records[number]) for number in members[group])):
        size = len(members[group])
        split = next((name for name in held if size <= left[name]), None)
        if split is None:
            continue
        left[split] -= size
        for number in members[group]:
            places[number] = split
    found = {name: [r for r, place in zip(records, places, strict=True) if place == name] for name in ("train", *held)}
    return HeldOut({name: kept for name, kept in found.items() if kept}, len(records) - len(members))


def _drawn(seed: int, record: Record) -> bytes:
    return hashlib.sha256(f"{seed} {record.document}".encode("utf-8", "surrogatepass")).digest()
