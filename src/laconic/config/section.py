"""The base of every piece of configuration: frozen, and unknown keys refused with a suggestion."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from laconic.errors import ConfigError, did_you_mean

S = TypeVar("S", bound="Section")


class Section(BaseModel):
    """A frozen group of settings, numbers finite; every default lives in exactly one subclass."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, validate_default=True, protected_namespaces=(), allow_inf_nan=False
    )


def validate(cls: type[S], values: Mapping[str, Any], *, where: str) -> S:
    """Build ``cls`` from ``values``; turn pydantic's report into one sentence a user can act on.

    Raises:
        ConfigError: names the key (dotted, below ``where``), what is wrong and the nearest known key.
    """
    try:
        return cls.model_validate(dict(values))
    except ValidationError as error:
        raise ConfigError(" ".join(_sentence(cls, problem, where) for problem in error.errors()[:3])) from None


def _sentence(cls: type[BaseModel], problem: Any, where: str) -> str:
    path = [str(part) for part in problem["loc"]]
    dotted = ".".join([part for part in [where, *path] if part])
    if problem["type"] == "extra_forbidden":
        known = _fields_at(cls, path[:-1])
        return f"Unknown key '{dotted}'.{did_you_mean(path[-1], known)} Known here: {', '.join(sorted(known))}."
    message = problem["msg"].removeprefix("Value error, ")
    given = "" if problem["type"] in {"missing", "value_error"} else f" (given: {_short(problem['input'])})"
    return f"'{dotted}': {message[:1].lower()}{message[1:]}{given}."


def _short(value: Any) -> str:
    shown = repr(value)
    return shown if len(shown) <= 100 else f"{shown[:97]}..."


def _fields_at(cls: type[BaseModel], path: list[str]) -> list[str]:
    current: Any = cls
    for part in path:
        field = getattr(current, "model_fields", {}).get(part)
        candidates = [field.annotation, *getattr(field.annotation, "__args__", ())] if field else []
        nested = [c for c in candidates if isinstance(c, type) and issubclass(c, BaseModel)]
        if nested:
            current = nested[0]
    return list(getattr(current, "model_fields", {}))
