"""Does an exported model say what the model says? Both decode the same records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from laconic.summarizer import Summarizer
from laconic.systems.exported import ExportedSystem
from laconic.systems.neural import NeuralSystem
from laconic.types import Record, Summary

NEAR = 1e-4  # scores that differ by less are those of a tie, or equal


@dataclass(slots=True)
class Agreement:
    """What came out: ``different`` has the summaries that are not equal, torch's first."""

    records: int = 0
    equal: int = 0
    worst_score: float = 0.0  # of equal summaries
    worst_share: float = 0.0  # of copying, of their words
    different: list[tuple[Summary, Summary]] = field(default_factory=list)

    @property
    def ties(self) -> int:
        """How many differ only because two summaries have the same score."""
        return sum(abs(ours.score - theirs.score) < NEAR for ours, theirs in self.different)


def compare(
    source: str | Path,
    exported: Path,
    records: Sequence[Record],
    *,
    batch_size: int = 16,
    progress: Callable[[int], object] | None = None,
) -> Agreement:
    """Decode ``records`` with the model ``source`` and with the folder ``exported``."""
    torch_model = Summarizer(NeuralSystem.from_pretrained(source, "cpu"))
    graphs = Summarizer(ExportedSystem.from_pretrained(exported))
    found = Agreement(len(records))
    for start in range(0, len(records), batch_size):
        chosen = records[start : start + batch_size]
        options = {"explain": True, "always_write": True, "batch_size": batch_size}
        pairs = zip(torch_model.summarize(chosen, **options), graphs.summarize(chosen, **options), strict=True)
        for ours, theirs in pairs:
            if ours.text != theirs.text:
                found.different.append((ours, theirs))
                continue
            found.equal += 1
            found.worst_score = max(found.worst_score, abs(ours.score - theirs.score))
            words = zip(ours.words, theirs.words, strict=True)
            shares = (abs(one.copy_share - other.copy_share) for one, other in words)
            found.worst_share = max(found.worst_share, *shares, 0.0)
        if progress:
            progress(len(chosen))
    return found
