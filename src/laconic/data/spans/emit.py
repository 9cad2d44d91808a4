"""The second pass: the text of what was chosen, then shuffled into the files that trainings read.

Each shard writes its records one behind the other, with an index by their place in the final order; then each output
file picks its own out of all of them. Both are done piece by piece in any order, and no piece sees the whole.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from laconic.data.spans.files import part_of
from laconic.data.spans.reading import Shard, documents
from laconic.data.spans.settings import SpanSettings
from laconic.data.spans.units import Units
from laconic.errors import DataError


def emit_shard(settings: SpanSettings, units: Units, shard: Shard, chosen: NDArray[np.void], place: Path) -> None:
    """Write the chosen candidates of a shard to ``place.jsonl`` and their index to ``place.index``, that one last.

    Raises:
        DataError: the shard is gone, has changed or cannot be read.
    """
    shard.check()
    lengths = []
    with part_of(place.with_suffix(".jsonl")) as file:
        for line in _lines(settings, units, shard, chosen):
            content = line.encode()
            file.write(content)
            lengths.append(len(content))
    if len(lengths) < len(chosen):
        raise DataError(f"{shard.path} no longer holds what it held; run the command again with --overwrite.")
    shard.check()
    with part_of(place.with_suffix(".index")) as file:
        order = np.argsort(chosen["order"], kind="stable")
        sizes = np.array(lengths, dtype="<u8")
        for column in (chosen["order"].astype("<u8"), np.cumsum(sizes, dtype="<u8") - sizes, sizes):
            file.write(column[order].tobytes())


def _lines(settings: SpanSettings, units: Units, shard: Shard, chosen: NDArray[np.void]) -> Iterator[str]:
    """A JSON line for each of the chosen, which stand in the order of the shard."""
    if not len(chosen):
        return
    on_skip = (lambda problem: None) if settings.skip_bad else None  # they were counted in the first pass
    numbers, firsts = np.unique(chosen["document"], return_index=True)
    ends = [*firsts[1:], len(chosen)]
    wanted = {int(number): range(first, end) for number, first, end in zip(numbers, firsts, ends, strict=True)}
    for number, text in documents(Path(shard.path), text=settings.text, column=settings.column, on_skip=on_skip):
        rows = wanted.get(number)
        if rows is not None:
            ids = units.ids(text) if settings.ids else None
            for row in rows:
                yield _line(settings, shard, chosen[row], text, ids)
            if number == numbers[-1]:
                return


def _line(settings: SpanSettings, shard: Shard, row: Any, text: str, ids: list[int] | None) -> str:
    start, shape = int(row["start"]), settings.shape
    m1, m2, ml = (int(row[name]) for name in ("m1", "m2", "ml"))
    first, middle, second, end = row["characters"].tolist()
    fields: dict[str, Any] = {
        "document": text[first:middle],
        "summary": text[second:end],
        "id": f"{shard.name}:{row['document']}:{start}",
        "score": float(settings.key.score(m1, m2, ml)),
        "unigrams": m1,
        "bigrams": m2,
        "longest_subsequence": ml,
    }
    if ids is not None:
        cut, last = start + shape.input, start + shape.window
        fields |= {"document_ids": ids[start:cut], "summary_ids": ids[cut:last]}
    return json.dumps(fields, ensure_ascii=False) + "\n"


def merge(sources: Sequence[Path], low: int, high: int, target: Path) -> int:
    """Write the records with an order from ``low`` to ``high`` (both included) out of all shards; how many they are.

    ``sources`` are the places of `emit_shard`. Records of equal order stand in the order of the shards.
    """
    found: list[tuple[int, int, int, bytes]] = []
    for number, source in enumerate(sources):
        path = source.with_suffix(".index")
        count = path.stat().st_size // 24
        if not count:
            continue
        order, offsets, lengths = np.memmap(path, dtype="<u8", mode="r", shape=(3, count))
        first = int(np.searchsorted(order, np.uint64(low)))
        end = int(np.searchsorted(order, np.uint64(high), side="right"))
        with source.with_suffix(".jsonl").open("rb") as file:
            for place in first + np.argsort(offsets[first:end]):
                offset = int(offsets[place])
                file.seek(offset)
                found.append((int(order[place]), number, offset, file.read(int(lengths[place]))))
    found.sort()
    with part_of(target) as out:
        out.writelines(line for *_, line in found)
    return len(found)
