"""What a finished selection says about itself: ``manifest.json``."""

from __future__ import annotations

from collections import Counter
from typing import Any

from laconic.data.spans.reading import Shard
from laconic.data.spans.settings import SpanSettings

MANIFEST = "manifest.json"
_FORMAT = "laconic spans 1"
_SUMS = ("documents", "characters", "tokens", "chunks", "short_tails", "blank_chunks", "candidates")


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
            **{name: sum(scan[name] for scan in good) for name in _SUMS},
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
