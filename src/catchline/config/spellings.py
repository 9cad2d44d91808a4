"""Which key a misspelt one was meant to be, in its section or another."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import Any, get_args, get_origin

from pydantic import BaseModel


def place_of_key(
    name: str, cls: type[BaseModel], path: list[str], components: Mapping[str, type[BaseModel]] | None = None
) -> str:
    """The dotted key of ``cls`` that ``name``, unknown in its section ``path``, was meant to be; empty if none is near.

    ``components`` are the settings' classes of keys such as ``model`` that hold a component. In order: the same name in
    another section, a similar name in this section, one in another.
    """
    keys = list(_keys(cls, "", components or {}))
    here, folded = ".".join(path), name.replace("-", "_").lower()
    same = [key for key in keys if _leaf(key) == folded]
    if same:
        return min(same, key=lambda key: (not key.startswith(here), key.count(".")))
    beside = {_leaf(key): key for key in keys if key.rpartition(".")[0] == here}
    anywhere = {_leaf(key): key for key in sorted(keys, key=lambda key: -key.count("."))}
    for names, least in ((beside, 0.6), (anywhere, 0.8)):
        if close := difflib.get_close_matches(folded, names, n=1, cutoff=least):
            return names[close[0]]
    return ""


def _leaf(key: str) -> str:
    return key.rpartition(".")[2]


def sections_in(annotation: Any) -> list[type[BaseModel]]:
    """The classes of settings that a field's annotation names."""
    parts = (annotation, *get_args(annotation))
    return [part for part in parts if isinstance(part, type) and issubclass(part, BaseModel)]


def _keys(cls: type[BaseModel], prefix: str, components: Mapping[str, type[BaseModel]]) -> Iterator[str]:
    for name, field in cls.model_fields.items():
        key = f"{prefix}{name}"
        yield key
        several = get_origin(field.annotation) in (tuple, list)  # no section of a list has its own keys
        for part in filter(None, (*([] if several else sections_in(field.annotation)), components.get(key))):
            yield from _keys(part, f"{key}.", components)
