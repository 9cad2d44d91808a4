"""``laconic plot``: the curves of one or several runs in one picture, and their last values beside the published."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from laconic.cli.options import AsJson
from laconic.cli.output import aligned, print_json
from laconic.config.loading import read_run
from laconic.errors import ConfigError, unknown_choice
from laconic.text.control import safe_print as print

FORMATS = (".png", ".svg", ".pdf")
TRAINING, VALIDATION = "loss", "val_loss_tf"
AXES = ("update", "epoch", "tokens")


def command(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run folders.")],
    out: Annotated[Path, typer.Option(help="The picture: .png, .svg or .pdf.")] = Path("curves.png"),
    metric: Annotated[
        str | None, typer.Option(help="What to draw, such as nll or rouge1; by default training and validation loss.")
    ] = None,
    x: Annotated[str, typer.Option(help="Horizontal axis: update, epoch or tokens.")] = "update",
    smooth: Annotated[int, typer.Option(min=1, help="Running mean over this many log lines.")] = 1,
    log_scale: Annotated[bool, typer.Option("--log", help="Logarithmic vertical axis.")] = False,
    as_json: AsJson = False,
) -> None:
    """Draw the training curves of runs and print their last and best values."""
    if out.suffix not in FORMATS:
        raise ConfigError(unknown_choice("picture format", out.suffix or out.name, FORMATS))
    if x not in AXES:
        raise ConfigError(unknown_choice("horizontal axis", x, AXES))
    from laconic.explain.pictures import draw_curves
    from laconic.training.logging import read_curve

    out.parent.mkdir(parents=True, exist_ok=True)
    drawn = [(run, name) for run in runs for name in ([metric] if metric else _losses(run))]
    curves = [(_curve_name(run, name, metric), *read_curve(run, name, x)) for run, name in drawn]
    value = metric or TRAINING
    rows = draw_curves(curves, out, value=value, window=smooth, log=log_scale, against=x)
    for row, (run, _) in zip(rows, drawn, strict=True):
        row["published"] = _published(run)
    if as_json:
        print_json(rows)
        return
    cells = [
        [str(row["run"]), f"{row[x]:g}", f"{row['final']:.4f}", f"{row['best']:.4f}", _in_words(row["published"])]
        for row in rows
    ]
    print(aligned(["run", x, f"last {value}", "best", "published"], cells))
    print(f"\n{out}")


def _losses(run: Path) -> list[str]:
    """The training loss, and the validation loss of a run that validates."""
    from laconic.training.logging import LOG, read_log

    log = run / LOG
    entries = read_log(log) if log.is_file() else []
    return [TRAINING, *([VALIDATION] if any(VALIDATION in entry for entry in entries) else [])]


def _curve_name(run: Path, name: str, metric: str | None) -> str:
    return run.name if metric else f"{run.name}, {'validation' if name == VALIDATION else 'training'}"


def _published(run: Path) -> dict[str, Any]:
    recipe = run / "recipe.yaml"
    return dict(read_run(recipe).published) if recipe.is_file() else {}


def _in_words(published: dict[str, Any]) -> str:
    """``subset: train_loss 5.617, val_loss 6.66`` for the loss figures of a published row."""
    parts = []
    for table, figures in published.items():
        if isinstance(figures, dict):
            losses = [f"{name} {value:g}" for name, value in figures.items() if "loss" in name]
            if losses:
                parts.append(f"{table}: {', '.join(losses)}")
    return "; ".join(parts)
