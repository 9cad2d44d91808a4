"""``laconic resume``: go on with a run, bit for bit."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from laconic.cli.options import AsJson, TrustCode
from laconic.cli.train import run_training
from laconic.config.base import validate
from laconic.config.loading import load_run, merge, parse_overrides
from laconic.config.schema import RunConfig, TrainingConfig
from laconic.errors import CheckpointError, ConfigError


def command(
    run_folder: Annotated[Path, typer.Argument(metavar="RUN", help="The run folder (with recipe.yaml).")],
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Move the end, for example training.max_updates=20000."),
    ] = None,
    trust_code: TrustCode = False,
    accept_changes: Annotated[
        bool, typer.Option("--accept-changes", help="Go on although recipe.yaml or log.jsonl are not what they were.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Go on with an interrupted or killed run from its newest checkpoint.

    The result equals that of a run that was never interrupted. With --set training.max_updates (or max_epochs,
    max_minutes) a finished run is trained further. A run whose recipe or log was changed by hand is refused, unless
    --accept-changes is given: then it goes on, but not as it would have.
    """
    recipe = run_folder / "recipe.yaml"
    if not recipe.is_file():
        raise CheckpointError(
            f"{run_folder} is not a run folder: it has no recipe.yaml. Start one with `laconic train`."
        )
    run = changed(load_run(recipe), overrides or [])
    run_training(run, run_folder, resume=True, accept_changes=accept_changes, as_json=as_json)


def changed(run: RunConfig, overrides: list[str]) -> RunConfig:
    """The run with another end.

    Raises:
        ConfigError: an override of something that an exact continuation cannot change.
    """
    for pair in overrides:
        section, _, name = pair.partition("=")[0].strip().partition(".")
        if section != "training" or name not in TrainingConfig.CHANGEABLE:
            allowed = ", ".join(f"training.{name}" for name in TrainingConfig.CHANGEABLE)
            raise ConfigError(f"--set {pair}: a resumed run can only change {allowed}; for the rest, train a new run.")
    return validate(RunConfig, merge(run.model_dump(mode="json"), parse_overrides(overrides), revive=True), where="")
