"""How an exported folder is known, at no cost: nothing that runs graphs is imported here."""

from __future__ import annotations

from pathlib import Path

MANIFEST = "export.json"


def is_exported(folder: Path) -> bool:
    """Has this folder graphs?"""
    return (folder / MANIFEST).is_file()
