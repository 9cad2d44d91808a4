"""Folders are data: the code that a model or run folder names runs only when the user has said so.

A component may be a class from outside the tables (``type: my_package.module:MyAttention``). In the user's own recipe,
option or Python argument that is a request. In a folder, which may come from anybody, it is a name like any other
text: `refuse_code` is what every reader of a folder's settings calls, before anything is built from them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from laconic.errors import ConfigError

_trusted: ContextVar[frozenset[str] | None] = ContextVar("trusted", default=frozenset())  # None: whatever it is


@contextmanager
def trusting(names: bool | Iterable[str]) -> Iterator[None]:
    """Within the block folders may name these classes (``True``: any), beside those that they might before."""
    before = _trusted.get()
    now = None if names is True or before is None else before | frozenset(names or ())
    token = _trusted.set(now)
    try:
        yield
    finally:
        _trusted.reset(token)


def outside_names(settings: Any) -> set[str]:
    """The classes from outside the tables that nested settings name; keys may be dotted (``model.type``)."""
    if isinstance(settings, Mapping):
        found = set().union(*map(outside_names, settings.values()))
        return found | {
            value
            for key, value in settings.items()
            if str(key).rpartition(".")[2] == "type" and isinstance(value, str) and ":" in value
        }
    if isinstance(settings, list | tuple):
        return set().union(*map(outside_names, settings))
    return set()


def refuse_code(settings: Any, where: object) -> None:
    """Check settings that were read from a folder.

    Raises:
        ConfigError: they name a class that is not ours, and nobody said that this folder may.
    """
    trusted = _trusted.get()
    if trusted is None:
        return
    if unknown := sorted(outside_names(settings) - trusted):
        raise ConfigError(
            f"{where} names Python code that is not laconic's ('{unknown[0][:100]}'); opening the folder would run it. "
            "If you trust whoever made the folder, say so: --trust-code, or trust_code=True in Python."
        )
