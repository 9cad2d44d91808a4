"""Laconic: train, compare, explain and serve attention- and copy-based abstractive summarizers.

Importing this package imports no tensor library; the names below are loaded when first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_LAZY = {
    "Summarizer": "laconic.summarizer",
    "evaluate": "laconic.evaluation.api",
    "read_records": "laconic.data.readers",
    "rouge": "laconic.metrics.rouge",
    "train": "laconic.training.api",
}
__all__ = ["Summarizer", "__version__", "evaluate", "read_records", "rouge", "train"]

if TYPE_CHECKING:
    from laconic.data.readers import read_records
    from laconic.evaluation.api import evaluate
    from laconic.metrics.rouge import rouge
    from laconic.summarizer import Summarizer
    from laconic.training.api import train


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'laconic' has no attribute '{name}'")
    value = getattr(importlib.import_module(_LAZY[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:  # for those who complete names
    return sorted({*globals(), *__all__})
