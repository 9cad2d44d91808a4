"""Catchline: train, compare, explain and serve attention- and copy-based abstractive summarizers.

Importing this package imports no tensor library; the names below are loaded when first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_LAZY = {
    "Record": "catchline.types",
    "Summarizer": "catchline.summarizer",
    "Summary": "catchline.types",
    "check_support": "catchline.metrics.faithfulness",
    "errors": "catchline.errors",
    "evaluate": "catchline.evaluation.run",
    "read_records": "catchline.data.records",
    "rouge": "catchline.metrics.rouge",
    "train": "catchline.training.api",
}
__all__ = ["Record", "Summarizer", "Summary", "__version__", "check_support", "errors", "evaluate", "read_records"]
__all__ += ["rouge", "train"]

if TYPE_CHECKING:
    from catchline import errors
    from catchline.data.records import read_records
    from catchline.evaluation.run import evaluate
    from catchline.metrics.faithfulness import check_support
    from catchline.metrics.rouge import rouge
    from catchline.summarizer import Summarizer
    from catchline.training.api import train
    from catchline.types import Record, Summary


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'catchline' has no attribute '{name}'")
    module = importlib.import_module(_LAZY[name])
    value = globals()[name] = getattr(module, name, module)
    return value


def __dir__() -> list[str]:  # for those who complete names
    return __all__
