"""The base of every piece of configuration: frozen, sound values only, unknown keys refused with a suggestion."""

from __future__ import annotations

import copy
import difflib
import reprlib
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import Any, TypeVar, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError, ValidatorFunctionWrapHandler, field_validator

from catchline.errors import ConfigError

Components = Mapping[str, type[BaseModel]]
S = TypeVar("S", bound=BaseModel)
LARGEST = 2**32 - 1  # what no setting exceeds, whatever its own bounds
LONGEST_NUMBER = 40  # digits of one that is read
_repr = reprlib.Repr()
_repr.maxstring = _repr.maxother = 80


class ConfigBase(BaseModel):
    """A frozen group of settings; every default lives in exactly one subclass. Whatever the type of a field, its
    numbers are finite and of a size that a setting can have, its text is Unicode, and true and false are no numbers."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        validate_default=True,
        protected_namespaces=(),
        allow_inf_nan=False,
        defer_build=True,  # most commands use few of the classes
    )

    @field_validator("*", mode="wrap")
    @classmethod
    def _sound(cls, given: Any, handler: ValidatorFunctionWrapHandler) -> Any:
        value = handler(given)
        if _truth_for_number(given, value):
            raise ValueError("give a number, not true or false")
        _refuse_unsound(value)
        return value


def _refuse_unsound(value: Any) -> None:
    if isinstance(value, str):
        try:
            value.encode("utf-8")
        except UnicodeEncodeError:
            raise ValueError("this text has a character that is not Unicode (half of a surrogate pair)") from None
    elif isinstance(value, int | float):
        if not -LARGEST <= value <= LARGEST:  # NaN and integers of any length too
            raise ValueError(f"numbers must be between -{LARGEST:,} and {LARGEST:,}")
    elif isinstance(value, Mapping | list | tuple):
        for part in chain.from_iterable(value.items()) if isinstance(value, Mapping) else value:
            _refuse_unsound(part)


def _truth_for_number(given: Any, value: Any) -> bool:
    if isinstance(given, list | tuple) and isinstance(value, list | tuple):
        return any(map(_truth_for_number, given, value))
    return isinstance(given, bool) and type(value) in (int, float)


def validate(
    cls: type[S], values: Mapping[str, Any], *, where: str, components: Callable[[], Components] | None = None
) -> S:
    """Build ``cls`` from ``values``; ConfigError names the key (dotted, below ``where``), what is wrong and the key
    that may have been meant; ``components`` gives the classes of the settings below keys that hold components."""
    try:
        return cls.model_validate(dict(values))
    except ValidationError as error:
        problems = error.errors()[:3]
        unknown = any(problem["type"] == "extra_forbidden" for problem in problems)
        found = components() if components is not None and unknown else None
        raise ConfigError(" ".join(_sentence(cls, problem, where, found) for problem in problems)) from None


def _sentence(cls: type[BaseModel], problem: Any, where: str, components: Components | None) -> str:
    path = [str(part) for part in problem["loc"]]
    dotted = ".".join([part for part in [where, *path] if part])
    if problem["type"] == "extra_forbidden":
        meant = place_of_key(path[-1], cls, path[:-1], components)
        shown = f"{where}.{meant}" if where == "model" else meant  # the other parts are not settings by these names
        hint = f" Did you mean '{shown}'?" if meant else ""
        return f"Unknown key '{dotted}'.{hint} Known here: {', '.join(sorted(_fields_at(cls, path[:-1])))}."
    if problem["type"] == "model_type":
        known = _fields_at(cls, path)
        return f"'{dotted}' is a section with its own keys, such as {dotted}.{known[0]}: {', '.join(known)}."
    message = problem["msg"].removeprefix("Value error, ")
    given = "" if problem["type"] in {"missing", "value_error"} else f" (given: {_repr.repr(problem['input'])})"
    place = f"'{dotted}': " if dotted else ""
    return f"{place}{message[:1].lower()}{message[1:]}{given}."


def _fields_at(cls: type[BaseModel], path: list[str]) -> list[str]:
    current: Any = cls
    for part in path:
        field = getattr(current, "model_fields", {}).get(part)
        if field and (nested := sections_in(field.annotation)):
            current = nested[0]
    return list(getattr(current, "model_fields", {}))


def merge(base: Mapping[str, Any], changes: Mapping[str, Any], *, revive: bool = False) -> dict[str, Any]:
    """Return ``base`` changed by ``changes``, deeply; keys may be dotted. A component whose ``type`` changes is
    replaced whole. A component that ``base`` set to null stays null unless the change names a ``type`` (so that a
    size's numbers do not bring back what a row took away), or ``revive`` is set."""
    result = copy.deepcopy(dict(base))
    for dotted, value in changes.items():
        key, _, rest = dotted.partition(".")
        if rest:
            value = {rest: value}
        old = result.get(key)
        if not isinstance(value, Mapping):
            result[key] = copy.deepcopy(value)
        elif old is not None or key not in result or "type" in value or revive:
            kept = old if isinstance(old, Mapping) and value.get("type", old.get("type")) == old.get("type") else {}
            result[key] = merge(kept, value, revive=revive)
    return result


# ------------------------------------------------------------------------------- which key was meant


def place_of_key(
    name: str, cls: type[BaseModel], path: list[str], components: Mapping[str, type[BaseModel]] | None = None
) -> str:
    """The dotted key of ``cls`` that ``name``, unknown in its section ``path``, was meant to be; empty if none is near.
    In order: the same name in another section, a similar name in this section, one in another."""
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
