"""Where the splits of a data set lie: what a folder or a file means to training and to scoring."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from catchline.data.readers import find_splits, is_one_data_set
from catchline.errors import ConfigError, DataError


def splits_in(data: str | Path) -> dict[str, str]:
    """The file of each split where ``data`` is a folder with one file a split; else nothing: it is one data set.

    Raises:
        DataError: a folder without any such file, or with two for one split.
    """
    folder = Path(data)
    if not folder.is_dir() or is_one_data_set(folder):
        return {}
    return {split: str(path) for split, path in find_splits(folder).items()}


def split_of(data: str | Path, split: str) -> str:
    """The file of ``split`` where ``data`` is a folder with one file a split; else ``data`` itself.

    Raises:
        DataError: the folder has splits, but not this one.
    """
    found = splits_in(data) or {split: str(data)}
    if split not in found:
        raise DataError(f"{data} has no '{split}' split, only {', '.join(found)}; choose one with split (--split).")
    return found[split]


def data_changes(data: Path | None) -> dict[str, Any]:
    """A data set as changes of a recipe: the splits of a folder, or one file or folder of parts to train on.

    Raises:
        ConfigError: the folder has no file to train on.
    """
    if data is None:
        return {}
    found = splits_in(data) or {"train": str(data)}
    if "train" not in found:
        raise ConfigError(f"{data} has no training file (only {', '.join(found)}); name it train.jsonl, for example.")
    return {"data": {split: found.get(split) for split in ("train", "validation", "test")}}
