"""What was meant by an option that a command does not have."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from laconic.config.schema import RunConfig, SearchConfig
from laconic.config.spellings import place_of_key

# what --set changes in the commands that have it
SET_CHANGES: dict[str, type[BaseModel]] = {
    **dict.fromkeys(("train", "compare", "recipes show"), RunConfig),
    **dict.fromkeys(("summarize", "evaluate", "explain", "tune"), SearchConfig),
}


def meant_option(name: str, options: set[str], given: str) -> str:
    """The option of the command ``name`` that ``given`` stands for, of its ``options`` or a key of --set; or empty."""
    section = SET_CHANGES.get(name)
    key = place_of_key(given.lstrip("-"), section, []) if section is not None else ""
    own = f"--{key.rpartition('.')[2].replace('_', '-')}"
    return own if key and own in options else f"--set {key}=VALUE" if key else ""


def options_of(command: Any) -> set[str]:
    """The names of a command's options."""
    return {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
