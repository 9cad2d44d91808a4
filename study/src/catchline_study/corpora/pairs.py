"""What makers of corpora share: doubles and near doubles are left out, whole groups held out, splits written."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from email.message import Message
from importlib.metadata import PackageMetadata
from pathlib import Path
from statistics import median
from typing import Any

from catchline.files import part_of, sha256

_SHINGLE = 5
_WORDS = re.compile(r"[a-z0-9]+")


def words_of(text: str) -> list[str]:
    """Lower-cased runs of ASCII letters and digits: what is compared."""
    return _WORDS.findall(text.lower())


@dataclass(frozen=True, slots=True)
class CorpusPair:
    """A pair with its name and the group, such as a package, that goes to one split as a whole."""

    group: str
    name: str
    summary: str
    document: str


@dataclass(slots=True)
class CorpusStats:
    """What happened on the way: how much was ``read`` of what, why pairs were left out, what the splits hold; of
    packages in archives the version and licence, and that of those which were not read for it, by name."""

    read: Counter[str] = field(default_factory=Counter)
    left_out: Counter[str] = field(default_factory=Counter)
    splits: dict[str, Any] = field(default_factory=dict)
    licences: dict[str, str] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)

    @property
    def reasons(self) -> str:
        return ", ".join(f"{count:,} {reason}" for reason, count in self.left_out.most_common()) or "none"

    def as_dict(self) -> dict[str, Any]:
        licences = {"licences": self.licences, "not_permissive": self.refused}
        found = {**self.read, "left_out": dict(sorted(self.left_out.items())), "splits": self.splits}
        return found | (licences if any(licences.values()) else {})


class SeenPairs:
    """The pairs that were kept. A near duplicate is who has more than ``near`` of its document's 5-grams from them."""

    def __init__(self, near: float = 0.5) -> None:
        self._near = near
        self._exact: set[int] = set()
        self._shingles: set[int] = set()

    def refuse(self, pair: CorpusPair) -> str:
        """Why this pair is left out, or nothing: then it is remembered."""
        words = words_of(pair.document)
        keys = {_key(["s", *words_of(pair.summary)]), _key(["b", *words])}
        if keys & self._exact:
            return "duplicate"
        shingles = {_key(words[start : start + _SHINGLE]) for start in range(max(1, len(words) - _SHINGLE + 1))}
        if len(shingles & self._shingles) > self._near * len(shingles):
            return "near duplicate"
        self._exact |= keys
        self._shingles |= shingles
        return ""


def _key(words: Sequence[str]) -> int:
    return hash(tuple(words))  # compared within one process only


def hold_out(counts: Mapping[str, int], records: int, seed: int = 0) -> set[str]:
    """Groups that together have at most ``records`` records, in the order of a seeded hash of their names. No group
    takes more than a tenth of the room, unless the middle one does: they are of many groups where possible."""
    largest = max(records / 10, median(counts.values() or [0]))
    chosen: set[str] = set()
    for name in sorted(counts, key=lambda name: shuffled(f"{seed} {name}")):
        if counts[name] <= min(records, largest):
            chosen.add(name)
            records -= counts[name]
    return chosen


def shuffled(text: str) -> str:
    """A key to sort by: an order that looks random and is the same everywhere."""
    return sha256(text.encode())


def write_splits(out: Path, splits: Mapping[str, Sequence[CorpusPair]], group: str) -> None:
    """Write ``SPLIT.jsonl`` for each split with pairs into ``out``, and remove those of splits without; ``group`` is
    what the records call theirs."""
    for split, pairs in splits.items():
        path = out / f"{split}.jsonl"
        if not pairs:
            path.unlink(missing_ok=True)
            continue
        with part_of(path) as handle:
            for pair in pairs:
                row = {"id": pair.name, "document": pair.document, "summary": pair.summary, group: pair.group}
                handle.write(json.dumps(row, ensure_ascii=False).encode() + b"\n")


# ------------------------------------------------------------------------------------------ licences

# What may be used in anything, with a notice at most: no copyleft, however weak.
_PERMISSIVE = frozenset(
    """0BSD AFL-3.0 Apache-2.0 Artistic-2.0 BSD-2-Clause BSD-2-Clause-Patent BSD-3-Clause BSD-3-Clause-Clear
    BSD-3-Clause-LBNL BSD-3-Clause-Open-MPI BSD-4-Clause BSD-Source-Code BSL-1.0 CC0-1.0 CNRI-Python ECL-2.0 HPND
    HPND-sell-variant ISC MIT MIT-0 MIT-CMU MIT-Modern-Variant MIT-feh NCSA NIST-Software OFL-1.1 PostgreSQL PSF-2.0
    Python-2.0 Python-2.0.1 TCL Unicode-3.0 Unicode-DFS-2016 Unlicense UPL-1.0 W3C WTFPL X11 Zlib
    ZPL-2.1""".lower().split()
)
# The ends of trove classifiers, and names in the free field, that mean one of these.
_PERMISSIVE_WORDS = re.compile(
    r"""apache|\bbsd\b|\bbsd[ -]?[234]|\bmit\b|\bisc\b|historical\ permission|hpnd|\bpsf|python\ software\ foundation
    |zope\ public|zpl|zlib|unlicense|public\ domain|cc0|academic\ free|boost\ software|postgresql
    |university\ of\ illinois
    |permission\ is\ hereby\ granted,\ free\ of\ charge|redistribution\ and\ use\ in\ source\ and\ binary\ forms""",
    re.IGNORECASE | re.VERBOSE,
)
_OTHER_WORDS = re.compile(
    r"gpl|general public|mozilla|\bmpl\b|mpl-?\d|eclipse|\bepl\b|cddl|copyleft|eupl|cecill|proprietary|commercial"
    r"|all rights reserved\.?\Z|\bsspl\b|business source|elastic|noncommercial|non-commercial|by-nc|by-sa|nvidia",
    re.IGNORECASE,
)
_FREE_TEXT = 3000  # characters of the field "License" that are read: some hold a whole file of notices


def licence_of(metadata: PackageMetadata | Message) -> tuple[str, bool]:
    """What a Python package's metadata says of the licence in a few words, and whether all of it is permissive: an SPDX
    expression (PEP 639), trove classifiers, or words."""
    if expression := str(metadata["License-Expression"] or ""):
        return expression, is_permissive_expression(expression)
    classifiers = [str(value) for value in metadata.get_all("Classifier") or []]
    ends = [value.split(" :: ")[-1] for value in classifiers if value.startswith("License ::")]
    if names := [name for name in ends if name != "OSI Approved"]:
        return " / ".join(names), all(map(_permissive_words, names))
    text = str(metadata["License"] or "")[:_FREE_TEXT]
    lines = filter(None, map(str.strip, text.splitlines()))
    return next(lines, "nothing stated")[:80], _permissive_words(text)


def is_permissive_expression(expression: str) -> bool:
    """Whether an SPDX expression allows permissive use: every part joined by AND has a permissive alternative."""
    parts = re.split(r"\s+and\s+", re.sub(r"[()]", " ", expression.lower()))
    return all(
        any(re.split(r"\s+with\s+", name.strip())[0] in _PERMISSIVE for name in re.split(r"\s+or\s+", part))
        for part in parts
    )


def _permissive_words(text: str) -> bool:
    return bool(_PERMISSIVE_WORDS.search(text)) and not _OTHER_WORDS.search(text)
