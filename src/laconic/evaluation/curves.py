"""The figures of a run's ``log.jsonl`` as curves, without torch."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from laconic.config.loading import load_run
from laconic.errors import DataError

Points = list[tuple[float, float]]
LOG = "log.jsonl"


@dataclass(frozen=True, slots=True)
class RunCurves:
    """A run's name, its published figures, and the entries of its log in order of updates."""

    name: str
    published: dict[str, Any]
    entries: tuple[dict[str, Any], ...]

    def metrics(self) -> list[str]:
        """The figures that can be drawn: every number of a training or validation entry."""
        ignored = {"update", "epoch", "tokens"}
        names = {
            name: None
            for entry in self.entries
            for name, value in entry.items()
            if isinstance(value, int | float) and not isinstance(value, bool) and name not in ignored
        }
        return list(names)

    def points(self, metric: str, x: str = "update") -> Points:
        """The (x, metric) pairs; ``x`` is ``update`` or ``epoch``."""
        return [(float(e[x]), float(e[metric])) for e in self.entries if metric in e and x in e]


def read_curves(run: str | Path) -> RunCurves:
    """Read the log of a run folder.

    Raises:
        DataError: the folder has no log, or a line of it is damaged (the last one may be cut short).
    """
    folder = Path(run)
    path = folder / LOG
    if not path.is_file():
        raise DataError(f"{folder} is not a run folder: it has no {LOG}.")
    entries = []
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    for number, line in enumerate(lines, 1):
        try:
            entries.append(json.loads(line))
        except ValueError:
            if number == len(lines):
                break
            raise DataError(f"{path}:{number} is not valid JSON; the log is damaged.") from None
    recipe = folder / "recipe.yaml"
    config = load_run(recipe) if recipe.is_file() else None
    return RunCurves(folder.name, dict(config.published) if config else {}, tuple(entries))


def running_mean(points: Sequence[tuple[float, float]], width: int) -> Points:
    """The mean of the last ``width`` values at each point."""
    smooth, total = [], 0.0
    for index, (x, y) in enumerate(points):
        total += y
        if index >= width:
            total -= points[index - width][1]
        smooth.append((x, total / min(index + 1, width)))
    return smooth
