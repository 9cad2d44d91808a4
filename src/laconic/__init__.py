"""Laconic: train, compare, explain and serve attention- and copy-based abstractive summarizers.

Importing this package imports no tensor library; the names below are loaded when first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_LAZY = {
    "Record": "laconic.types",
    "Summarizer": "laconic.summarizer",
    "Summary": "laconic.types",
    "errors": "laconic.errors",
    "evaluate": "laconic.evaluation.api",
    "read_records": "laconic.data.readers",
    "rouge": "laconic.metrics.rouge",
    "train": "laconic.training.api",
}
__all__ = ["Record", "Summarizer", "Summary", "__version__", "errors", "evaluate", "read_records", "rouge", "train"]

if TYPE_CHECKING:
    from laconic import errors
    from laconic.data.readers import read_records
    from laconic.evaluation.api import evaluate
    from laconic.metrics.rouge import rouge
    from laconic.summarizer import Summarizer
    from laconic.training.api import train
    from laconic.types import Record, Summary


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'laconic' has no attribute '{name}'")
    module = importlib.import_module(_LAZY[name])
    value = globals()[name] = getattr(module, name, module)
    return value


def __dir__() -> list[str]:  # for those who complete names
    return __all__
