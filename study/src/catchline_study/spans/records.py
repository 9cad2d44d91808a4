"""The records of what was chosen, each behind its place in the final order, and the manifest."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
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

MANIFEST = "manifest.json"
DIGITS = 20  # of an order, which is below 2^64


def write_chosen(
    settings: SpanSettings, tokenizer: SpanTokenizer, shard: Shard, chosen: NDArray[np.void], path: Path
) -> None:
    """Write the chosen candidates of a shard as lines: the order in `DIGITS` digits, then the record.

    Raises:
        DataError: the shard is gone, has changed or cannot be read.
    """
    shard.check()
    with part_of(path) as file:
        count = 0
        for count, (order, line) in enumerate(_lines(settings, tokenizer, shard, chosen), 1):  # noqa: B007
            file.write(f"{order:0{DIGITS}d}{line}\n".encode())
        if count < len(chosen):
            raise DataError(f"{shard.path} no longer holds what it held; run the command again with --overwrite.")
        shard.check()


def _lines(
    settings: SpanSettings, tokenizer: SpanTokenizer, shard: Shard, chosen: NDArray[np.void]
) -> Iterator[tuple[int, str]]:
    """Order and JSON of each of the chosen, of which there is one at least, in the order of the shard."""
    on_skip = (lambda problem: None) if settings.skip_bad else None  # they were counted in the first pass
    numbers, firsts = np.unique(chosen["document"], return_index=True)
    ends = [*firsts[1:], len(chosen)]
    wanted = {int(number): range(first, end) for number, first, end in zip(numbers, firsts, ends, strict=True)}
    for number, text in documents(Path(shard.path), text=settings.text, column=settings.column, on_skip=on_skip):
        rows = wanted.get(number)
        if rows is not None:
            ids = tokenizer.ids(text) if settings.ids else None
            for row in rows:
                yield int(chosen[row]["order"]), _line(settings, shard, chosen[row], text, ids)
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
    return json.dumps(fields, ensure_ascii=False)


def describe(
    settings: SpanSettings,
    tokenizer: str,
    shards: Sequence[Shard],
    scans: Sequence[Mapping[str, Any]],
    files: Sequence[Mapping[str, Any]],
    found: Mapping[str, Any],
) -> dict[str, Any]:
    """The manifest: counts, threshold, settings and rules. Nothing in it depends on when, where or by how many it was
    made. ``found`` has the threshold and the ``reports``."""
    good = [scan for scan in scans if "problem" not in scan]
    skipped: Counter[str] = Counter()
    for scan in good:
        skipped.update(scan["skipped"])
    both = list(zip(shards, scans, strict=True))
    unreadable = [{"name": shard.name, "problem": scan["problem"]} for shard, scan in both if "problem" in scan]
    records = sum(file["records"] for file in files)
    warnings = []
    if records < settings.k:
        warnings.append(f"There are only {records:,} spans to choose from; {settings.k:,} were asked for.")
    if unreadable:
        warnings.append(f"Files left out: {len(unreadable):,}; the first: {unreadable[0]['problem']}")
    if skipped:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in sorted(skipped.items()))
        warnings.append(f"{skipped.total():,} record{'s' if skipped.total() > 1 else ''} skipped: {reasons}.")
    return {
        "format": "catchline spans 2",
        "records": records,
        "wanted": settings.k,
        "files": [{"name": file["name"], "records": file["records"]} for file in files],
        "warnings": warnings,
        "threshold": {name: value for name, value in found.items() if name != "reports"},
        "corpus": {
            "shards": len(good),
            **{name: sum(scan[name] for scan in good) for name in COUNTED},
            "skipped_records": dict(sorted(skipped.items())),
            "unreadable_shards": unreadable,
        },
        "reports": found["reports"],
        "rules": _rules(settings),
        "settings": settings.as_dict(),
        "tokenizer": {"name": settings.tokenizer, "sha256": tokenizer},
        "shards": [
            {"name": shard.name, "bytes": shard.size, **{key: scan.get(key) for key in ("chunks", "candidates")}}
            for shard, scan in both
        ],
    }


def _rules(settings: SpanSettings) -> dict[str, str]:
    candidates = "the best window of each chunk, the earliest of equals"
    if settings.over is not None:
        candidates = f"every window with a score above {settings.over}"
    if settings.random:
        candidates = "one window of each chunk, drawn by a hash"
    return {
        "score": "{} x R-1 + {} x R-2 + {} x R-L, F1 of the input span against the output span; compared as exact "
        "fractions".format(*settings.weights),
        "candidates": candidates,
        "ties": "by BLAKE2b of seed, file name below the input folder, document number and token offset",
        "order": "records are shuffled by another part of the same hash; the first of them are held out",
        "tails": f"chunks of fewer than {settings.shape.window} tokens are dropped",
    }
