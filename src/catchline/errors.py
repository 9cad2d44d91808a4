"""Errors a user can meet. Each message is one sentence or two: what is wrong, where, and what to do.

The command line prints the message without a traceback and exits with ``exit_code``.
Broken invariants of our own raise ``AssertionError``; they are bugs, not user errors.
"""

from __future__ import annotations

import difflib
import errno
import sys
from collections.abc import Collection, Iterable
from shlex import quote


class CatchlineError(Exception):
    """Base of every error that is the input's fault, not the program's."""

    exit_code = 1


class ConfigError(CatchlineError):
    """A recipe, an option or a name is wrong."""

    exit_code = 2


class DataError(CatchlineError):
    """A data file is missing, unreadable or holds a bad record."""

    exit_code = 3


class ModelError(CatchlineError):
    """A model folder is missing, damaged or of an unknown kind."""

    exit_code = 4


class CheckpointError(CatchlineError):
    """A checkpoint is missing, damaged or does not fit the run."""

    exit_code = 5


class TrainingError(CatchlineError):
    """Training cannot go on (for example a loss that is not finite)."""

    exit_code = 6


class DiskFullError(CatchlineError):
    """There is no room for a file."""

    exit_code = 7


class FolderInUseError(CatchlineError):
    """Another process works in the folder."""


def is_disk_full(error: BaseException) -> bool:
    """Is there no room on the disk? Native code says so in a plain message, so the text counts too."""
    seen: BaseException | None = error
    while seen is not None:
        full = isinstance(seen, OSError) and seen.errno in (errno.ENOSPC, errno.EDQUOT)
        if full or "No space left" in str(seen) or "Disk quota exceeded" in str(seen):
            return True
        seen = seen.__cause__ or seen.__context__
    return False


# What is not among the dependencies of the base package -> the extra that brings it.
EXTRAS = {
    **dict.fromkeys(("torch", "transformers", "accelerate", "huggingface_hub", "safetensors"), "train"),
    **dict.fromkeys(("scipy", "sacrebleu", "matplotlib", "datasets", "pyarrow", "rensa"), "train"),
    **dict.fromkeys(("fastapi", "uvicorn", "starlette", "prometheus_client"), "serve"),
    **dict.fromkeys(("onnx", "onnxscript"), "export"),
    "tensorboard": "track",
    "ray": "ray",
    "peft": "lora",
    **dict.fromkeys(("markitdown", "trafilatura", "lxml_html_clean", "pypdfium2"), "documents"),
}


def missing_package(error: BaseException) -> str | None:
    """The sentence for an import that failed because an extra is not installed; None for any other error."""
    package = (error.name or "").split(".")[0] if isinstance(error, ModuleNotFoundError) else ""
    return not_installed(package) if package in EXTRAS else None


def installing(extra: str) -> str:
    """The command that installs an extra for the Python that runs, from a checkout or an index."""
    return f"{quote(sys.executable)} -m pip install 'catchline[{extra}]'"


def not_installed(package: str) -> str:
    """The sentence for a package of an extra that is not there."""
    return f"This needs {package}, which is not installed: {installing(EXTRAS[package])}."


def did_you_mean(name: str, choices: Iterable[str]) -> str:
    """Return ``" Did you mean 'x'?"`` for the closest of ``choices`` or one that begins so, or an empty string."""
    known = list(choices)
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.6)
    close = close or [choice for choice in known if len(name) > 2 and choice.startswith(name)]
    return f" Did you mean '{close[0]}'?" if close else ""


def unknown_choice(kind: str, name: str, choices: Iterable[str]) -> str:
    """A message for a name that is not in a table: what was given, the nearest name, all names."""
    known, name = sorted(choices), name if len(name) <= 100 else f"{name[:97]}..."
    return f"Unknown {kind} '{name}'.{did_you_mean(name, known)} Known: {', '.join(known)}."


def refuse_unknown(kind: str, name: str, choices: Collection[str]) -> None:
    """Raises: ConfigError: ``name`` is none of the ``choices``, with the message of `unknown_choice`."""
    if name not in choices:
        raise ConfigError(unknown_choice(kind, name, choices))
