"""What a search for decoding settings tries: grids and random ranges over keys of ``search``.

    parse_grid("beam_size=4,5,8")
    parse_range("search.distraction.context=0.05:10:log:both-signs")

Every combination of the grids is tried with each random draw; the first trial is what the model does now. The first n
draws are the same whatever number is asked for, so a longer search continues a shorter one.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from laconic.config.schema import SearchConfig
from laconic.config.section import Section
from laconic.config.yaml_text import parse_yaml
from laconic.errors import ConfigError, did_you_mean, unknown_choice

FLAGS = ("log", "both-signs")
DIGITS = 4  # significant digits of a draw, so that what is printed is what was tried
Settings = dict[str, Any]  # dotted key below ``search`` -> value


@dataclass(frozen=True, slots=True)
class Grid:
    """Values to try of one key."""

    key: str
    values: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Range:
    """Numbers between ``low`` and ``high``: uniform, or with ``log`` uniform in the logarithm; either sign if asked."""

    key: str
    low: float
    high: float
    log: bool = False
    both_signs: bool = False
    integer: bool = False

    def draw(self, source: random.Random) -> float | int:
        """One number. Every range takes two from ``source``, whatever its kind."""
        place, sign = source.random(), -1 if source.random() < 0.5 and self.both_signs else 1
        if self.integer:
            low, high = int(self.low), int(self.high)
            return sign * min(high, low + int(place * (high - low + 1)))
        if self.log:
            value = math.exp(math.log(self.low) + place * (math.log(self.high) - math.log(self.low)))
        else:
            value = self.low + place * (self.high - self.low)
        return sign * float(f"{value:.{DIGITS}g}")


def parse_grid(text: str) -> Grid:
    """``key=a,b,c``.

    Raises:
        ConfigError: no such key of ``search``, or no value.
    """
    key, values = _split(text, "--grid", "beam_size=4,5,8")
    listed = [parse_yaml(part, f"--grid '{text[:100]}': a value") for part in values.split(",")]
    if any(value is None or isinstance(value, list | dict) for value in listed):
        raise ConfigError(f"--grid '{text}': give single values between commas, for example beam_size=4,5,8.")
    return Grid(key, tuple(dict.fromkeys(listed)))


def parse_range(text: str) -> Range:
    """``key=low:high[:log][:both-signs]``.

    Raises:
        ConfigError: no such key of ``search``, ends that are not numbers or the wrong way round, an unknown flag.
    """
    example = "distraction.context=0.05:10:log:both-signs"
    key, rest = _split(text, "--random", example)
    parts = rest.split(":")
    try:
        low, high = (float(part) for part in parts[:2])
    except ValueError:
        raise ConfigError(f"--random '{text}': give two numbers low:high, for example {example}.") from None
    unknown = [flag for flag in parts[2:] if flag not in FLAGS]
    if unknown:
        raise ConfigError(f"--random '{text}': {unknown_choice('flag', unknown[0], FLAGS)}")
    if not (math.isfinite(low) and math.isfinite(high)) or low > high:
        raise ConfigError(f"--random '{text}': the low end {parts[0]} must not be above the high end {parts[1]}.")
    log, both_signs = "log" in parts[2:], "both-signs" in parts[2:]
    if log and low <= 0:
        raise ConfigError(f"--random '{text}': with log the low end must be above 0 (both-signs draws the sign).")
    if both_signs and low < 0:
        raise ConfigError(f"--random '{text}': with both-signs the low end is a size and must be at least 0.")
    kind = _kind(key)
    if kind not in (None, int, float):
        raise ConfigError(f"--random '{text}': search.{key} is not a number; list its values with --grid.")
    if kind is int and (log or low != int(low) or high != int(high)):
        raise ConfigError(f"--random '{text}': search.{key} is a whole number; give whole ends, without log.")
    return Range(key, low, high, log, both_signs, kind is int)


def plan(grids: Sequence[Grid], ranges: Sequence[Range], trials: int, seed: int) -> list[Settings]:
    """The settings to try, without repetition: nothing first, then each combination of the grids with each draw.

    Raises:
        ConfigError: nothing to search, or a key that is named twice.
    """
    if not grids and not ranges:
        raise ConfigError("Say what to search: --grid beam_size=4,5,8 or --random distraction.context=0.05:10:log.")
    keys = [*(grid.key for grid in grids), *(part.key for part in ranges)]
    if twice := [key for key in keys if keys.count(key) > 1]:
        raise ConfigError(f"search.{twice[0]} is searched twice; name it once.")
    source = random.Random(seed)
    found: list[Settings] = [{}]
    for _ in range(trials if ranges else 1):
        drawn = {part.key: part.draw(source) for part in ranges}
        for values in product(*(grid.values for grid in grids)):
            settings = dict(zip((grid.key for grid in grids), values, strict=True)) | drawn
            if settings not in found:
                found.append(settings)
    return found


def described(grids: Iterable[Grid], ranges: Iterable[Range]) -> dict[str, Any]:
    """What is searched, for the record."""
    return {
        "grid": {grid.key: list(grid.values) for grid in grids},
        "random": {
            part.key: {name: getattr(part, name) for name in ("low", "high", "log", "both_signs", "integer")}
            for part in ranges
        },
    }


def _split(text: str, option: str, example: str) -> tuple[str, str]:
    key, equals, rest = text.partition("=")
    key = key.strip().removeprefix("search.")
    if not equals or not key or not rest.strip():
        raise ConfigError(f"{option} '{text}' is not of the form key=..., for example {example}.")
    _kind(key)
    return key, rest.strip()


def _kind(key: str) -> type | None:
    """The type of ``search.key`` where the schema knows it: int, float, or object for anything else.

    Raises:
        ConfigError: no such key, or one that holds other keys.
    """
    cls: type[Section] = SearchConfig
    path = key.split(".")
    for place, part in enumerate(path):
        if part not in cls.model_fields:
            where = ".".join(["search", *path[: place + 1]])
            raise ConfigError(f"Unknown key '{where}'.{did_you_mean(part, cls.model_fields)}")
        annotation: Any = cls.model_fields[part].annotation
        rest = path[place + 1 :]
        nested = [c for c in (annotation, *getattr(annotation, "__args__", ())) if _is_section(c)]
        if part == "model" and len(rest) == 1:
            return None  # a switch of the model, which knows what it takes
        if nested and rest:
            cls = nested[0]
        elif rest:
            raise ConfigError(f"Unknown key 'search.{key}': search.{'.'.join(path[: place + 1])} is a single value.")
        elif nested or part in ("model", "scorers"):
            raise ConfigError(f"search.{key} holds several values; search one of its keys, such as distraction.state.")
        else:
            return annotation if annotation in (int, float) else object
    raise AssertionError(key)


def _is_section(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, Section)
