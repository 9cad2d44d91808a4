"""The base of every piece of configuration: frozen, sound values only, unknown keys refused with a suggestion."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Mapping
from itertools import chain
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError, ValidatorFunctionWrapHandler, field_validator

from catchline.config.spellings import place_of_key, sections_in
from catchline.errors import ConfigError

Components = Mapping[str, type[BaseModel]]
S = TypeVar("S", bound=BaseModel)
LARGEST = 2**32 - 1  # what no setting exceeds, whatever its own bounds
_repr = reprlib.Repr()
_repr.maxstring = _repr.maxother = 80


class ConfigBase(BaseModel):
    """A frozen group of settings; every default lives in exactly one subclass.

    Whatever the type of a field, its numbers are finite and of a size that a setting can have, its text is Unicode,
    and true and false are no numbers.
    """

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
            raise ValueError("this text holds a character that is not Unicode (half of a surrogate pair)") from None
    elif _is_number(value):
        if not -LARGEST <= value <= LARGEST:  # NaN and integers of any length too
            raise ValueError(f"numbers here lie between -{LARGEST:,} and {LARGEST:,}")
    elif isinstance(value, Mapping | list | tuple):
        for part in chain.from_iterable(value.items()) if isinstance(value, Mapping) else value:
            _refuse_unsound(part)


def _truth_for_number(given: Any, value: Any) -> bool:
    if isinstance(given, list | tuple) and isinstance(value, list | tuple):
        return any(map(_truth_for_number, given, value))
    return isinstance(given, bool) and _is_number(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def validate(
    cls: type[S], values: Mapping[str, Any], *, where: str, components: Callable[[], Components] | None = None
) -> S:
    """Build ``cls`` from ``values``; turn pydantic's report into one sentence a user can act on.

    ``components`` gives, when a key is unknown, the classes of the settings below keys that hold components.

    Raises:
        ConfigError: names the key (dotted, below ``where``), what is wrong and the key that may have been meant.
    """
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
