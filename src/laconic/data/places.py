"""Where the splits of a data set lie: what a folder or a file means to training and to scoring."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from laconic.data.readers import find_splits, is_one_data_set
from laconic.errors import ConfigError, DataError


def split_of(data: str | Path, split: str) -> str:
    """The file of ``split`` where ``data`` is a folder with one file a split; else ``data`` itself.

    Raises:
        DataError: the folder has splits, but not this one.
    """
    folder = Path(data)
    if not folder.is_dir() or is_one_data_set(folder):
        return str(data)
    splits = find_splits(folder)
    if split not in splits:
        raise DataError(f"{data} has no '{split}' split, only {', '.join(splits)}; choose one with --split.")
    return str(splits[split])


def data_changes(data: Path | None) -> dict[str, Any]:
    """A data set as changes of a recipe: the splits of a folder, or one file or folder of parts to train on.

    Raises:
        ConfigError: the folder has no file to train on.
    """
    if data is None:
        return {}
    if not data.is_dir() or is_one_data_set(data):
        return {"data": {"train": str(data), "validation": None, "test": None}}
    found = find_splits(data)
    if "train" not in found:
        raise ConfigError(f"{data} has no training file (only {', '.join(found)}); name it train.jsonl, for example.")
    return {"data": {split: str(found[split]) if split in found else None for split in ("train", "validation", "test")}}
