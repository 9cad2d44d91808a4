"""What people and accidents write where a value is asked for, and a limit of time on whatever reads it."""

from __future__ import annotations

import math
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import FrameType
from typing import Any

from hypothesis import strategies as st

from laconic.config import names
from laconic.errors import LaconicError

SECONDS = 20
LONGEST_SENTENCE = 4000

NUMBERS = ["0", "1", "2", "3", "7", "-1", "-3", "0.5", "-0.5", "3.5", "1e-3", "1e30", "-1e30", "1e400", ".inf", "-.inf"]
NUMBERS += [
    ".nan",
    "nan",
    "inf",
    "-0",
    "00",
    "0x7",
    "0b1",
    "1_0",
    "1:30",
    "4294967296",
    "99999999999999999999",
    "1" * 5000,
]
WORDS = [
    "x",
    "word",
    "nll",
    "adam",
    "additive",
    "pointer",
    "none",
    "None",
    "rougeL",
    "tensorboard",
    "*",
    "a.b",
    "words",
]
PLACES = [
    "/dev/null",
    "/",
    ".",
    "../..",
    "~",
    "absent/file.jsonl",
    "hub:",
    "hub:x",
    "a" * 5000,
    "*.jsonl",
    "x:y",
    "os:system",
]
YAML = [
    "",
    "~",
    "null",
    "true",
    "false",
    "on",
    "[]",
    "{}",
    "[1, 2]",
    "[x]",
    "[[1]]",
    "{a: 1}",
    "{1: a}",
    "{type: word}",
]
YAML += [
    "{type: nonsense}",
    "{type: 5}",
    "{type: os:system}",
    "{type: [x]}",
    "[{type: nll}]",
    "[{type: nll, weight: -1}]",
]
YAML += [
    "[{name: a, until: 1}]",
    "[{name: a, freeze: ['*']}]",
    "[",
    "{",
    "'",
    "&a [*a]",
    "*a",
    "!!int x",
    "!!binary x",
    "[" * 3000,
]
TEXT = [
    "é",
    "日本",
    '"\\ud800"',
    "\udcff",
    "'1'",
    "2020-01-01",
    "2020-99-99",
    "%s",
    "{0}",
    "a\nb",
    "\t",
    "\x1b[31m",
    "\u202e",
    "-",
    "--",
]

texts = st.one_of(
    st.sampled_from([*NUMBERS, *WORDS, *PLACES, *YAML, *TEXT]),
    st.integers(-(2**70), 2**70).map(str),
    st.floats(allow_nan=True, allow_infinity=True).map(repr),
    st.text(max_size=20),
)

# the same as values that a YAML file can hold
values: st.SearchStrategy[Any] = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.sampled_from([0, 1, 2, 3, -1, 2**32, 10**30, 0.5, -0.5, 1e30, math.inf, -math.inf, math.nan]),
        st.sampled_from([*WORDS, *PLACES, *TEXT]),
        st.text(max_size=8),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(["type", "a", "size"]), inner)
    ),
    max_leaves=5,
)


class TooSlow(BaseException):
    """Not an `Exception`: nothing may take it for a failure that it can report."""


@contextmanager
def in_time(seconds: int = SECONDS) -> Iterator[None]:
    """Nothing here may hang."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise TooSlow(f"not done after {seconds} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def assert_a_sentence(error: LaconicError) -> None:
    """What a user can read: not empty, not pages."""
    said = str(error)
    assert 10 < len(said) < LONGEST_SENTENCE, said[:500]


def assert_sound(value: Any) -> None:
    """Numbers that a setting can have, text that a file can hold, all the way down."""
    if isinstance(value, Mapping):
        for key, part in value.items():
            assert isinstance(key, str)
            assert_sound(part)
    elif isinstance(value, list | tuple):
        for part in value:
            assert_sound(part)
    elif isinstance(value, str):
        value.encode("utf-8")
    elif isinstance(value, int | float):
        assert math.isfinite(value)
        assert abs(value) < 2**32


def import_everything() -> None:
    """What a name in a recipe imports: on a busy machine that alone can take longer than `in_time` allows."""
    tables = {name: value for name, value in vars(names).items() if name.isupper() and isinstance(value, dict)}
    for kind, table in tables.items():
        for name in table:
            names.resolve(kind, table, name)
