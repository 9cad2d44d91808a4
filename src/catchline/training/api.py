"""`catchline.train`: a row of a recipe on your pairs, in one call."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from catchline.config.base import merge
from catchline.config.loading import load_recipe, resolve_run
from catchline.config.names import MODELS, check_run, name_of
from catchline.data.records import Pairs, data_changes
from catchline.errors import ConfigError
from catchline.training.log import Callbacks
from catchline.training.loop import TrainResult
from catchline.training.prepare import open_initial, tokenizer_settings
from catchline.training.run import hold_out, on_parts
from catchline.training.run import train as train_run


def train(
    recipe: str | Path,
    data: Pairs | Mapping[str, Pairs],
    out: str | Path,
    *,
    row: str | None = None,
    size: str | None = None,
    start: str | None = None,
    settings: Mapping[str, Any] | None = None,
    all_pairs: bool = False,
    **how: Any,
) -> TrainResult:
    """Train a row of a recipe, as ``catchline train`` does.

    ::

        result = catchline.train("oneline", "my_pairs/", "runs/mine", settings={"training.max_minutes": 5})
        catchline.Summarizer.from_pretrained(result.model_folder)

    Args:
        recipe: a recipe's name (``oneline``, ``headline_writer``, ...) or a YAML file.
        data: a folder with ``train`` and ``validation`` files, or pairs in one file or in memory
            (`catchline.read_records`), perhaps by part: ``{"train": frame, "validation": other}``.
        out: the run folder: model, log and checkpoints.
        row, size: of the recipe; its defaults if not given.
        start: start from this model (a folder, a hub id, ``oneline``).
        settings: keys of the recipe that differ, dotted or nested: ``{"training.batch_size": 16}``.
        all_pairs: hold none out. Otherwise, of data without validation pairs, a tenth (200 at most) is held out for
            validation and, of 200 pairs or more, half of it for a test; ``out``/data has the parts.
        how: ``resume``, ``force``, ``progress``, ``on_log``, ``on_message`` of `catchline.training.run.train`, which
            says what is raised.
    """
    if not isinstance(settings, Mapping | None):
        raise ConfigError('settings is a mapping of keys to values, for example {"training.batch_size": 16}.')
    place = Path(data) if isinstance(data, str | Path) else None
    rows = None if place else data if isinstance(data, Mapping) else {"train": data}
    changes = merge(data_changes(place), start_changes(start, recipe, row, size), revive=True)
    run = resolve_run(load_recipe(recipe), row, size, merge(changes, settings or {}, revive=True))
    check_run(run)
    parts = rows is not None or not (run.data.validation or all_pairs)  # are, or will be, in the run's folder
    if parts and how.get("resume"):
        run = on_parts(run, Path(out))
    elif parts:
        say = how.get("on_message") or Callbacks.on_message
        force = how.get("force", False)
        run = hold_out(run, Path(out), force=force, say=say, note=say, rows=rows, all_pairs=all_pairs)
    return train_run(run, out, **how)


def start_changes(start: str | None, recipe: str | Path, row: str | None, size: str | None) -> dict[str, Any]:
    """A model to start from as changes of a recipe: its weights, and the tokenizer whose words they are weights of; of
    a checkpoint of transformers also its sizes. The row's head stays, which such a checkpoint lacks."""
    if start is None:
        return {}
    initial = open_initial(start)
    changes = {"training": {"initial_weights": start}, "text": tokenizer_settings(initial)}
    if initial.run is None and (architecture := getattr(initial.model.config, "architecture", None)):
        asked = resolve_run(load_recipe(recipe), row, size)
        head, kind = asked.model.get("head") or {"type": "vocabulary"}, name_of(MODELS, type(initial.model))
        if kind == "plain" and head["type"] != "vocabulary":
            raise ConfigError(
                f"{start} is a '{architecture['model_type']}' checkpoint, on which there is no copy head: "
                f"name a row without (--row transformer of the recipe coconet), not {asked.row}."
            )
        changes["model"] = {"type": kind, "architecture": architecture} | ({} if kind == "plain" else {"head": head})
        changes["text"] |= {"source_specials": True, "oov_copy": "unk"}
    return changes
