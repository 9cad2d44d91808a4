"""Models that come with the package: a name is enough, wherever a model can be named, and no network is used."""

from __future__ import annotations

from collections.abc import Callable
from os import PathLike, fspath
from pathlib import Path

from catchline.errors import ModelError

ROOT = Path(__file__).parent.parent  # beside the code, a folder a model
DEFAULT = "oneline"
SHIPPED = (DEFAULT,)
INSTEAD = "lexrank"


def place_of(name: str | PathLike[str]) -> Path:
    """The folder of a model that is named: that of a shipped one, else the path itself, whether it exists or not.

    Raises:
        ModelError: a shipped model that this installation lacks.
    """
    if fspath(name) not in SHIPPED:
        return Path(name)
    folder = ROOT / fspath(name)
    if not (folder / "config.json").is_file():
        raise ModelError(
            f"The model {name} is not in this installation: install Catchline again. Name a model "
            "folder, or an extractive method such as lexrank."
        )
    return folder


def default_model(tell: Callable[[str], object]) -> str:
    """What answers when no model is named: the bundled model; ``tell`` hears of it when there is none."""
    try:
        place_of(DEFAULT)
    except ModelError:
        tell(f"No model is named, and {DEFAULT} is not in this installation: {INSTEAD} picks sentences instead.")
        return INSTEAD
    return DEFAULT
