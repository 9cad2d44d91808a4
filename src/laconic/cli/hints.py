"""What was meant by an option that a command does not have."""

from __future__ import annotations

from pathlib import Path
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


def meant_place(command: str, option: str) -> str:
    """A sentence for an option that stands for what the ``command`` has as an argument, or finds out; or empty."""
    name = option.lstrip("-")
    if name == "recipe":
        return "The recipe stands first: laconic train headline_writer ..."
    if name == "model":
        return f"The model stands first: laconic {command} MODEL ..."
    if name == "device" and command in ("train", "resume", "compare"):
        return "A training takes the accelerator that is there; CUDA_VISIBLE_DEVICES chooses among several."
    return ""


def meant_extra(extra: str, options: set[str]) -> str:
    """A sentence for an argument too many: a file of data, or a setting's value; or empty."""
    if "--data" in options and Path(extra.split()[0]).exists():
        return f"Data is named with --data: --data {extra.split()[0]}"
    if "--set" in options and "--data" in options:
        return "A value of --set stands behind its key without a blank: --set key=value"
    return ""


def options_of(command: Any) -> set[str]:
    """The names of a command's options."""
    return {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
