"""``catchline plot``: the curves of one or several runs in one picture, and their last values."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from catchline.cli.io import aligned, print_result, say
from catchline.cli.options import AsJson, check_picture
from catchline.config.loading import read_run
from catchline.errors import ConfigError, DataError, refuse_unknown, unknown_choice

LOSSES = ("loss", "nll")
AXES = ("update", "epoch", "tokens")
NOT_CURVES = {"kind", "update", "epoch", "phase", "best"}


def command(
    runs: Annotated[list[Path], Argument(metavar="RUN...", help="Run folders.")],
    out: Annotated[Path, Option(help="Write this picture: .png, .svg or .pdf.")] = Path("curves.png"),
    metric: Annotated[
        str | None, Option(help="Draw this value, such as nll or rouge1 (default: training and validation loss).")
    ] = None,
    x: Annotated[str, Option(help="Choose the horizontal axis: update, epoch or tokens.")] = "update",
    smooth: Annotated[int, Option(min=1, help="Average over this many log lines.")] = 1,
    log_scale: Annotated[bool, Option("--log", help="Use a logarithmic vertical axis.")] = False,
    as_json: AsJson = False,
) -> None:
    """Draw the training curves of runs and print their last and best values."""
    check_picture(out)
    refuse_unknown("horizontal axis", x, AXES)
    runs = _logged(runs)
    out.parent.mkdir(parents=True, exist_ok=True)
    drawn = [(run, metric) for run in runs] if metric else _losses(runs)
    places = [run.resolve().name for run in runs]
    names = {run: name if places.count(name) == 1 else str(run) for run, name in zip(runs, places, strict=True)}
    kinds = ["" if metric else f", {'validation' if name.startswith('val_') else 'training'}" for _, name in drawn]
    curves = [(names[run] + kind, *read_curve(run, name, x)) for (run, name), kind in zip(drawn, kinds, strict=True)]
    value = metric or "loss"
    recipes = {run: read_run(run / "recipe.yaml") for run in runs if (run / "recipe.yaml").is_file()}
    shows_loss = any(name in LOSSES or name.startswith("val_loss_") for _, name in drawn)
    unit = " or ".join(dict.fromkeys(recipe.loss_unit for recipe in recipes.values())) if shows_loss else ""
    rows = draw_curves(curves, out, value=value, window=smooth, log=log_scale, against=x, unit=unit)
    header, cells = ["run", "measure", x, "last", "best"], []
    for row, (_, name) in zip(rows, drawn, strict=True):
        row |= {"measure": name}
        cells.append([row["run"], name, f"{row[x]:g}", f"{row['final']:.4f}", f"{row['best']:.4f}"])
        row |= {key: None for key in ("final", "best") if not math.isfinite(row[key])}  # JSON has no NaN
    print_result(as_json, rows, f"{aligned(header, cells, left=2)}\n\n{out}")


def draw_curves(
    curves: list[tuple[str, Any, Any]], path: Path, *, value: str, window: int, log: bool, against: str, unit: str
) -> list[dict[str, Any]]:
    """Draw the curves (name, positions, values) and return one row a curve: name, place, final and best value."""
    import numpy as np
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7.0, 4.5 + 0.2 * len(curves)), layout="constrained")
    axes = figure.add_subplot(yscale="log" if log else "linear", xlabel=against, ylabel=f"{value} {unit}".strip())
    rows, colours = [], dict[str, str]()
    for name, positions, values in curves:
        colour = colours.setdefault(re.sub(", (training|validation)$", "", name), f"C{len(colours)}")  # one a run
        width = 1 if name.endswith("validation") else window
        smooth = np.convolve(np.pad(values, (width - 1, 0), mode="edge"), np.ones(width) / width, "valid")
        style = "--" if name.endswith("validation") else "-"
        axes.plot(positions, smooth, label=name, linestyle=style, color=colour)
        best = min if "loss" in value or value in {"nll", "coverage", "grad_norm", "val_ppl"} else max
        rows.append({"run": name, against: positions[-1], "final": float(smooth[-1]), "best": float(best(values))})
    axes.grid(alpha=0.3)
    figure.legend(loc="outside lower left")
    figure.savefig(path, dpi=150)
    return rows


def read_curve(run: Path, value: str, against: str = "update") -> tuple[list[float], list[float]]:
    """The positions and values of ``value`` in a run's log."""
    from catchline.training.log import LOG, read_log

    path, entries, tokens = run / LOG, read_log(run / LOG), 0
    positions, values = list[float](), list[float]()
    for number, entry in enumerate(entries, start=1):
        try:
            tokens += entry.get("tokens", 0)
            if value in entry:
                positions.append(tokens if against == "tokens" else 1 * entry[against])
                values.append(float(entry[value]))
        except (KeyError, TypeError, ValueError):
            raise DataError(f"{path}:{number} is not a line of a training log; the file is damaged.") from None
    if not values:
        known = sorted({key for entry in entries for key in entry} - NOT_CURVES)
        raise ConfigError(f"{path}: {unknown_choice('value', value, known)}")
    return positions, values


def _logged(runs: list[Path]) -> list[Path]:
    """Those that have logged something; what is left out is said.

    Raises:
        DataError: nothing is logged in any.
    """
    logged = [run for run in runs if (run / "log.jsonl").is_file() and (run / "log.jsonl").stat().st_size]
    if not logged:
        raise DataError(f"{runs[0]} has no log.jsonl with a line: give run folders made by `catchline train`.")
    if left := [str(run) for run in runs if run not in logged]:
        say(f"Left out, because nothing is logged there: {', '.join(left)}.")
    return logged


def _losses(runs: list[Path]) -> list[tuple[Path, str]]:
    """Of each run the training loss and, of one that validates, the loss that `catchline compare` shows: with the model
    reading its own words where every run has that. Of losses with several parts the likelihood."""
    from catchline.training.log import LOG, read_log

    logged = [{key for entry in read_log(run / LOG) for key in entry} for run in runs]
    free = all("val_loss_free" in keys for keys in logged if "val_loss_tf" in keys)
    validation = "val_loss_free" if free else "val_loss_tf"
    found = []
    for run, keys in zip(runs, logged, strict=True):
        found.append((run, "nll" if "nll" in keys else "loss"))
        shown = next((name for name in (f"{validation}_nll", validation) if name in keys), None)
        found += [(run, shown)] if shown else []
    return found
