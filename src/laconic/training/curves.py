"""Training curves of several runs in one picture (the Headline Writer's Fig. 5), and their final values."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from laconic.errors import ConfigError, DataError, unknown_choice
from laconic.training.logging import LOG, read_log

_NOT_CURVES = {"kind", "update", "epoch", "phase", "best"}


def plot_curves(
    runs: Sequence[str | Path],
    out_png: str | Path,
    *,
    value: str = "loss",
    window: int = 1,
    log: bool = False,
    against: str = "update",
) -> list[dict[str, Any]]:
    """Draw ``value`` of each run folder's log and return one row a run: name, updates, final and best value.

    Args:
        value: a key of the log, such as ``loss``, ``nll``, ``grad_norm``, ``val_loss_tf`` or ``rouge1``.
        window: how many points the running mean covers (1: none); the raw line stays visible behind it.
        log: draw the values on a logarithmic axis.
        against: ``update``, ``epoch`` or ``tokens`` (target tokens read).

    Raises:
        DataError: a run has no log. ConfigError: it has no such value.
    """
    if not runs:
        raise ConfigError("There is nothing to plot; name at least one run folder.")
    figure = Figure(figsize=(7.0, 4.5), layout="constrained")
    axes = figure.add_subplot()
    rows = []
    for number, folder in enumerate(map(Path, runs)):
        places, values = read_curve(folder, value, against)
        smooth = running_mean(values, window)
        colour = f"C{number % 10}"
        if window > 1:
            axes.plot(places, values, color=colour, alpha=0.25, linewidth=0.8)
        axes.plot(places, smooth, color=colour, label=folder.name, linewidth=1.5)
        best = min if "loss" in value or value in {"nll", "coverage", "grad_norm"} else max
        rows.append({"run": folder.name, against: places[-1], "final": float(smooth[-1]), "best": float(best(values))})
    axes.set_xlabel({"update": "updates", "epoch": "epochs", "tokens": "target tokens"}[against])
    axes.set_ylabel(value.replace("_", " "))
    if log:
        axes.set_yscale("log")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(out_png, dpi=150)
    return rows


def read_curve(run: Path, value: str, against: str = "update") -> tuple[list[float], np.ndarray]:
    """Where and what: the points of ``value`` in a run's log."""
    path = run / LOG
    if not path.is_file():
        raise DataError(f"{run} has no {LOG}; give a run folder made by `laconic train`.")
    entries = read_log(path)
    tokens = 0
    places, values = [], []
    for number, entry in enumerate(entries, start=1):
        try:
            tokens += entry.get("tokens", 0)
            if value in entry:
                places.append(tokens if against == "tokens" else 1 * entry[against])
                values.append(float(entry[value]))
        except (KeyError, TypeError, ValueError):
            raise DataError(f"{path}:{number} is no line of a training log; the file is damaged.") from None
    if not values:
        known = sorted({key for entry in entries for key in entry} - _NOT_CURVES)
        raise ConfigError(f"{path}: {unknown_choice('value', value, known)}")
    return places, np.array(values, dtype=float)


def running_mean(values: np.ndarray, window: int) -> np.ndarray:
    """The mean of each value and up to ``window - 1`` before it."""
    sums = np.concatenate([[0.0], np.cumsum(values)])
    ends = np.arange(1, len(values) + 1)
    starts = np.maximum(ends - max(window, 1), 0)
    return (sums[ends] - sums[starts]) / (ends - starts)
