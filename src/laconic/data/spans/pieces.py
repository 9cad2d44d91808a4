"""One piece of a selection, done in any process: score a shard, read what was chosen of it, shuffle one output file.

A piece reads the plan and writes files, and gives nothing back but an error. The worker keeps the tokenizer open.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from laconic.data.spans.emit import emit_shard, merge
from laconic.data.spans.files import read_json, write_json
from laconic.data.spans.reading import Shard
from laconic.data.spans.scan import read_candidates, scan_shard
from laconic.data.spans.settings import SpanSettings
from laconic.data.spans.units import Units, open_units
from laconic.errors import DISK_FULL, DataError, DiskFullError, LaconicError


@dataclass(frozen=True)
class Plan:
    """What an unfinished selection is of; ``plan.json``."""

    settings: SpanSettings
    inputs: list[str]
    tokenizer: str
    shards: list[Shard]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "settings": self.settings.as_dict(),
            "inputs": self.inputs,
            "tokenizer": self.tokenizer,
            "shards": [asdict(shard) for shard in self.shards],
        }

    @classmethod
    def read(cls, path: Path) -> Plan:
        """What was written of `as_dict`."""
        values = read_json(path)
        settings = SpanSettings.from_dict(values["settings"])
        return cls(settings, values["inputs"], values["tokenizer"], [Shard(**shard) for shard in values["shards"]])


@lru_cache(maxsize=1)
def _opened(plan_path: str, written: int) -> tuple[Plan, Units]:
    plan = Plan.read(Path(plan_path))
    tokenizer = Path(plan_path).with_name("tokenizer.json")
    return plan, open_units(tokenizer if tokenizer.is_file() else None, plan.settings.lowercase)


def _open(work: Path) -> tuple[Plan, Units]:
    path = work / "plan.json"
    return _opened(str(path), path.stat().st_mtime_ns)


def place_of(work: Path, step: str, number: int) -> Path:
    return work / step / f"{number:05d}"


def perform(step: Callable[[Path, int], None], work: Path, number: int) -> LaconicError | None:
    """An error comes back as a plain value that every process can read."""
    try:
        step(work, number)
    except DataError as error:
        return DataError(str(error))
    except LaconicError as error:
        return error
    except OSError as error:
        sentence = f"{error.filename or work}: {error.strerror or error}. What was complete is kept."
        return DiskFullError(sentence) if error.errno in DISK_FULL else LaconicError(sentence)
    return None


def scan_piece(work: Path, number: int) -> None:
    plan, units = _open(work)
    place = place_of(work, "scan", number)
    try:
        scan_shard(plan.settings, units, plan.shards[number], place)
    except DataError as error:
        _give_up(plan, place, error)


def emit_piece(work: Path, number: int) -> None:
    plan, units = _open(work)
    rows = np.load(place_of(work, "chosen", number).with_suffix(".npy"))
    chosen = read_candidates(place_of(work, "scan", number).with_suffix(".bin"))[rows]
    try:
        emit_shard(plan.settings, units, plan.shards[number], chosen, place_of(work, "emit", number))
    except DataError as error:
        _give_up(plan, place_of(work, "scan", number), error)
        (work / "choice.json").unlink(missing_ok=True)


def _give_up(plan: Plan, place: Path, error: DataError) -> None:
    """A shard that cannot be read is left out altogether, if that is allowed."""
    if not plan.settings.skip_bad:
        raise error
    write_json(place.with_suffix(".json"), {"problem": str(error)})


def merge_piece(work: Path, number: int) -> None:
    choice = read_json(work / "choice.json")
    file = choice["files"][number]
    sources = [place_of(work, "emit", shard) for shard in choice["shards"]]
    written = merge(sources, file["low"], file["high"], work.parent / file["name"])
    if written != file["records"]:
        raise AssertionError(f"{file['name']}: {written} records instead of {file['records']}")
