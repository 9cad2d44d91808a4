"""``laconic plot``: the curves of one or several runs in one picture, and their last values beside the published."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from laconic.cli.tables import aligned
from laconic.errors import ConfigError, unknown_choice
from laconic.evaluation.curves import RunCurves, read_curves, running_mean

FORMATS = (".png", ".svg", ".pdf")


def command(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Run folders.")],
    out: Annotated[Path, typer.Option(help="The picture: .png, .svg or .pdf.")] = Path("curves.png"),
    metric: Annotated[str, typer.Option(help="What to draw, for example loss, nll, val_loss_tf.")] = "loss",
    x: Annotated[str, typer.Option(help="Horizontal axis: update or epoch.")] = "update",
    smooth: Annotated[int, typer.Option(min=1, help="Running mean over this many log lines.")] = 1,
    log_scale: Annotated[bool, typer.Option("--log", help="Logarithmic vertical axis.")] = False,
) -> None:
    """Draw the training curves of runs and print their last values."""
    if out.suffix not in FORMATS:
        raise ConfigError(unknown_choice("picture format", out.suffix or out.name, FORMATS))
    if x not in {"update", "epoch"}:
        raise ConfigError(unknown_choice("horizontal axis", x, ["update", "epoch"]))
    curves = [read_curves(run) for run in runs]
    for curve in curves:
        if metric not in curve.metrics():
            raise ConfigError(f"{curve.name}: {unknown_choice('figure of the log', metric, curve.metrics())}")
    _draw(curves, metric, x, smooth, log_scale, out)
    rows = []
    for curve in curves:
        points = running_mean(curve.points(metric, x), smooth)
        rows.append([curve.name, f"{points[-1][0]:g}", f"{points[-1][1]:.4f}", f"{min(y for _, y in points):.4f}"])
        rows[-1].append(_published(curve.published))
    print(aligned(["run", x, f"last {metric}", f"lowest {metric}", "published"], rows))
    print(f"\n{out}")


def _draw(curves: list[RunCurves], metric: str, x: str, smooth: int, log_scale: bool, out: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 4.5), layout="constrained")
    for curve in curves:
        points = running_mean(curve.points(metric, x), smooth)
        axes.plot([p[0] for p in points], [p[1] for p in points], label=curve.name, linewidth=1.5)
    axes.set_xlabel(x)
    axes.set_ylabel(metric)
    axes.set_yscale("log" if log_scale else "linear")
    axes.grid(alpha=0.3)
    axes.legend()
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, dpi=150)
    pyplot.close(figure)


def _published(published: dict[str, Any]) -> str:
    """``subset: train_loss 5.617, val_loss 6.66`` for the loss figures of a published row."""
    parts = []
    for table, figures in published.items():
        if isinstance(figures, dict):
            losses = [f"{name} {value:g}" for name, value in figures.items() if "loss" in name]
            if losses:
                parts.append(f"{table}: {', '.join(losses)}")
    return "; ".join(parts)
