"""Parquet files and data sets of the Hugging Face hub, through the optional extra ``hf``."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from laconic.data.entries import Entry, TableOptions
from laconic.data.lines import BadRecordError
from laconic.data.tables import mapping_entry
from laconic.errors import DataError

_EXTRA = "pip install 'laconic[hf]'"


def read_parquet(path: Path, options: TableOptions) -> Iterator[Entry | BadRecordError]:
    """A Parquet or Arrow file, a batch of rows at a time.

    Raises:
        DataError: the extra is not installed, or the file is damaged.
    """
    parquet = _optional("pyarrow.parquet", f"{path}: Parquet files")
    try:
        file = parquet.ParquetFile(path)
        columns = options.choose(file.schema_arrow.names, str(path))
        rows = (row for batch in file.iter_batches(batch_size=256) for row in batch.to_pylist())
        for number, row in enumerate(rows, start=1):
            yield mapping_entry(row, columns, f"{path}: row {number}", str(number))
    except DataError:
        raise
    except Exception as error:  # pyarrow's errors are ValueErrors, KeyErrors, NotImplementedErrors, ...
        raise DataError(f"{path} could not be read as Parquet ({error}).") from None


def read_hub(path: Path, options: TableOptions) -> Iterator[Entry | BadRecordError]:
    """``owner/name`` or ``owner/name/split`` of the hub, streamed; the split is ``train`` when not given."""
    owner_name, split = _hub_parts(path)
    datasets: Any = _optional("datasets", f"hub:{owner_name}: data sets of the hub")
    try:
        rows = datasets.load_dataset(owner_name, split=split, streaming=True)
        columns: Any = None
        for number, row in enumerate(rows, start=1):
            columns = columns or options.choose(list(row), f"hub:{owner_name}")
            yield mapping_entry(row, columns, f"hub:{owner_name}: {split} row {number}", str(number))
    except (OSError, ValueError, RuntimeError) as error:
        raise DataError(f"hub:{owner_name} ({split}) could not be read: {error}") from None


def _hub_parts(path: Path) -> tuple[str, str]:
    parts = path.as_posix().split("/")
    if len(parts) not in {2, 3}:
        raise DataError(f"hub:{path.as_posix()}: expected hub:owner/name or hub:owner/name/split.")
    return "/".join(parts[:2]), parts[2] if len(parts) == 3 else "train"


def _optional(module: str, what: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        raise DataError(f"{what} need the extra 'hf'; install it with: {_EXTRA}.") from None
