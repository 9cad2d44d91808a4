"""Models that come with the package: a name is enough, wherever a model can be named, and no network is used."""

from __future__ import annotations

from os import PathLike, fspath
from pathlib import Path

from catchline.errors import ModelError

ROOT = Path(__file__).parent.parent  # beside the code, a folder a model
DEFAULT = "oneline"  # which answers when no model is named
SHIPPED = (DEFAULT,)


def place_of(name: str | PathLike[str]) -> Path:
    """The folder of a model that is named: that of a shipped one, else the path itself, whether it exists or not."""
    if fspath(name) not in SHIPPED:
        return Path(name)
    folder = ROOT / fspath(name)
    if not (folder / "config.json").is_file():
        raise ModelError(f"The model {name} is missing in this installation: reinstall Catchline, or name another.")
    return folder
