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
AXES = ("update", "epoch", "tokens")


def command(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run folders.")],
    out: Annotated[Path, typer.Option(help="The picture: .png, .svg or .pdf.")] = Path("curves.png"),
    metric: Annotated[str, typer.Option(help="What to draw, for example loss, nll, val_loss_tf.")] = "loss",
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
    curves = [(run.name, *read_curve(run, metric, x)) for run in runs]
    rows = draw_curves(curves, out, value=metric, window=smooth, log=log_scale, against=x)
    for row, run in zip(rows, runs, strict=True):
        row["published"] = _published(run)
    if as_json:
        print_json(rows)
        return
    cells = [
        [str(row["run"]), f"{row[x]:g}", f"{row['final']:.4f}", f"{row['best']:.4f}", _in_words(row["published"])]
        for row in rows
    ]
    print(aligned(["run", x, f"last {metric}", "best", "published"], cells))
    print(f"\n{out}")


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
