"""The second pass: the text of what was chosen, then shuffled into the files that trainings read.

Each shard writes its records one behind the other, with an index by their place in the final order; then each output
file picks its own out of all of them. ``manifest.json`` tells what was selected.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from catchline.errors import DataError
from catchline.files import part_of
from catchline_study.spans.candidates import COUNTED
from catchline_study.spans.corpus import Shard, documents
from catchline_study.spans.settings import SpanSettings
from catchline_study.spans.tokens import SpanTokenizer


def write_chosen(
    settings: SpanSettings, tokenizer: SpanTokenizer, shard: Shard, chosen: NDArray[np.void], place: Path
) -> None:
    """Write the chosen candidates of a shard to ``place.jsonl`` and their index to ``place.index``, that one last.

    Raises:
        DataError: the shard is gone, has changed or cannot be read.
    """
    shard.check()
    lengths = []
    with part_of(place.with_suffix(".jsonl")) as file:
        for line in _lines(settings, tokenizer, shard, chosen):
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


def _lines(settings: SpanSettings, tokenizer: SpanTokenizer, shard: Shard, chosen: NDArray[np.void]) -> Iterator[str]:
    """A JSON line for each of the chosen, of which there is one at least, in the order of the shard."""
    on_skip = (lambda problem: None) if settings.skip_bad else None  # they were counted in the first pass
    numbers, firsts = np.unique(chosen["document"], return_index=True)
    ends = [*firsts[1:], len(chosen)]
    wanted = {int(number): range(first, end) for number, first, end in zip(numbers, firsts, ends, strict=True)}
    for number, text in documents(Path(shard.path), text=settings.text, column=settings.column, on_skip=on_skip):
        rows = wanted.get(number)
        if rows is not None:
            ids = tokenizer.ids(text) if settings.ids else None
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


def write_shuffled(sources: Sequence[Path], low: int, high: int, target: Path) -> int:
    """Write the records with an order from ``low`` to ``high`` (both included) out of all shards; how many they are.

    ``sources`` are the places of `write_chosen`. Records of equal order stand in the order of the shards.
    """
    found: list[tuple[int, int, int, bytes]] = []
    for number, source in enumerate(sources):
        order, offsets, lengths = np.memmap(source.with_suffix(".index"), dtype="<u8", mode="r").reshape(3, -1)
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


# ---------------------------------------------------------------------------------- the manifest

MANIFEST = "manifest.json"
_FORMAT = "catchline spans 1"


def describe(
    settings: SpanSettings, tokenizer: str, shards: list[Shard], scans: list[dict[str, Any]], choice: dict[str, Any]
) -> dict[str, Any]:
    """Counts, threshold, settings and rules. Nothing in it depends on when, where or by how many it was made."""
    good = [scan for scan in scans if "problem" not in scan]
    skipped: Counter[str] = Counter()
    for scan in good:
        skipped.update(scan["skipped"])
    records = sum(file["records"] for file in choice["files"])
    unreadable = [
        {"name": shard.name, "problem": scan["problem"]}
        for shard, scan in zip(shards, scans, strict=True)
        if "problem" in scan
    ]
    return {
        "format": _FORMAT,
        "records": records,
        "wanted": settings.k,
        "files": [{"name": file["name"], "records": file["records"]} for file in choice["files"]],
        "warnings": _warnings(settings, records, unreadable, skipped),
        "threshold": choice["threshold"],
        "corpus": {
            "shards": len(good),
            **{name: sum(scan[name] for scan in good) for name in COUNTED},
            "skipped_records": dict(sorted(skipped.items())),
            "unreadable_shards": unreadable,
        },
        "reports": choice["reports"],
        "rules": _rules(settings),
        "settings": settings.as_dict(),
        "tokenizer": {"name": settings.tokenizer, "sha256": tokenizer},
        "shards": [
            {
                "name": shard.name,
                "bytes": shard.size,
                "chunks": scan.get("chunks"),
                "candidates": scan.get("candidates"),
            }
            for shard, scan in zip(shards, scans, strict=True)
        ],
    }


def _rules(settings: SpanSettings) -> dict[str, str]:
    one, two, longest = settings.weights
    candidates = "the best window of each chunk, the earliest of equals"
    if settings.over is not None:
        candidates = f"every window with a score above {settings.over}"
    if settings.random:
        candidates = "one window of each chunk, drawn by a hash"
    return {
        "score": f"{one} x R-1 + {two} x R-2 + {longest} x R-L, F1 of the input span against the output span; compared "
        "as exact fractions",
        "candidates": candidates,
        "ties": "candidates of equal score, and all of a random selection, by BLAKE2b of seed, file name below the "
        "input folder, document number and token offset",
        "order": "records are shuffled by another part of the same hash; the first of them are held out",
        "tails": f"chunks of fewer than {settings.shape.window} tokens are dropped",
    }


def _warnings(
    settings: SpanSettings, records: int, unreadable: list[dict[str, str]], skipped: Counter[str]
) -> list[str]:
    found = []
    if records < settings.k:
        found.append(f"There are only {records:,} spans to choose from; {settings.k:,} were asked for.")
    if unreadable:
        found.append(
            f"{len(unreadable):,} file{'s were' if len(unreadable) > 1 else ' was'} left out; the first: "
            f"{unreadable[0]['problem']}"
        )
    if skipped:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in sorted(skipped.items()))
        found.append(f"{skipped.total():,} record{'s' if skipped.total() > 1 else ''} skipped: {reasons}.")
    return found
