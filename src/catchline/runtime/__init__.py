"""Exported models without a training framework: onnxruntime, NumPy and tokenizers alone.

How an exported folder is known is said here, where nothing that runs graphs is imported.
"""

from __future__ import annotations

from pathlib import Path

MANIFEST = "export.json"


def is_exported(folder: Path) -> bool:
    """Has this folder graphs?"""
    return (folder / MANIFEST).is_file()
