"""Damage that a file can take, drawn by hypothesis, and the watch over whoever reads it."""

from __future__ import annotations

import copy
import gzip
import json
import signal
import traceback
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import yaml
from hypothesis import strategies as st

SECONDS = 20
EVIL = "evil_module:Model"
VALUES: list[Any] = [
    *(None, True, False, [], {}, [[[]]], "", "x", "\ud800", "\x1b[2J", "nan", "a" * 10_000, EVIL),
    *(-1, 0, 1, 2, 7, 10**6, 10**9, -(10**9), 2**63, 10**30, 0.5, -0.5, 1e-300, 1e308, -1e308),
    *(float("nan"), float("inf"), float("-inf"), {"type": EVIL}, [{"type": EVIL}], {"type": "nonsense"}, {"type": 5}),
]
NONSENSE = (" nan", " inf", "-inf", " 1e+308", "-1e+308")  # how `damage_values` ends for numbers that mean nothing
BYTES = [
    b"",
    b"\0",
    b"\xff\xfe",
    b"\xef\xbb\xbf",
    b"\r",
    b"\n",
    b"\x80",
    b'"',
    b"{",
    b"[" * 3000,
    b"}",
    b"\\ud83d",
    b"\t,;|",
]


class HangError(Exception):
    """Something took longer than `SECONDS`."""


class Findings:
    """What went wrong, all of it: one finding does not hide the next."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    @contextmanager
    def of(self, what: list[str]) -> Iterator[None]:
        """Keep what the block raises, with what had been done before."""
        try:
            yield
        except (Exception, AssertionError) as error:
            self.texts.append(f"{what}: {''.join(traceback.format_exception(error)[-6:])[-2500:]}")

    def none(self) -> None:
        """Fail if there was any."""
        assert not self.texts, f"{len(self.texts)} findings:\n" + "\n----\n".join(self.texts[:30])


@contextmanager
def within_time() -> Iterator[None]:
    """The block ends within `SECONDS`, or `HangError`."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise HangError(f"more than {SECONDS} seconds")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def places(values: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every value in nested JSON, of long lists the first and the last."""
    if path:
        yield path
    if isinstance(values, dict):
        keys = list(values)
        for key in keys if len(keys) < 60 else [*keys[:5], *keys[-2:]]:
            yield from places(values[key], (*path, key))
    elif isinstance(values, list):
        for index in sorted({0, 1, len(values) - 1} & set(range(len(values)))):
            yield from places(values[index], (*path, index))


def changed(values: Any, path: tuple[Any, ...], value: Any, draw: Any) -> tuple[str, Any]:
    """A copy with one value replaced, taken out, or with an unknown neighbour; and what was done."""
    values = copy.deepcopy(values)
    inner = values
    for key in path[:-1]:
        inner = inner[key]
    how = draw(st.sampled_from(["replace"] * 6 + ["remove", "add"]))
    if how == "remove":
        del inner[path[-1]]
    elif how == "add" and isinstance(inner, dict):
        inner["unknown_key"] = value
    else:
        how = "replace"
        inner[path[-1]] = value
    return how, values


def damage_values(path: Path, draw: Any) -> str:
    """Change one value of a JSON or YAML file; says what was done."""
    is_json = path.suffix == ".json"
    text = path.read_text(encoding="utf-8")
    values = json.loads(text) if is_json else yaml.safe_load(text)
    place = draw(st.sampled_from(list(places(values))))
    value = draw(st.sampled_from(VALUES))
    how, values = changed(values, place, value, draw)
    dumped = json.dumps(values) if is_json else yaml.safe_dump(values)
    path.write_text(dumped, encoding="utf-8")
    return f"{path.name}: {how} {'.'.join(map(str, place))} {value!r:.60}"


def damage_bytes(path: Path, draw: Any) -> str:
    """Cut, flip, insert, repeat or empty; of a compressed file what it holds, half of the time."""
    raw = path.read_bytes()
    packed = path.suffix == ".gz" and draw(st.booleans())
    if packed:
        try:
            raw = gzip.decompress(raw)
        except (OSError, EOFError, zlib.error):  # damaged before
            packed = False
    at = draw(st.integers(0, max(0, len(raw) - 1)))
    how = draw(st.sampled_from(["cut", "flip", "insert", "repeat", "drop", "head"]))
    if how == "cut":
        raw = raw[:at]
    elif how == "flip":
        raw = raw[:at] + bytes([raw[at] ^ 1 << draw(st.integers(0, 7))]) + raw[at + 1 :] if raw else raw
    elif how == "insert":
        raw = raw[:at] + draw(st.one_of(st.sampled_from(BYTES), st.binary(max_size=20))) + raw[at:]
    elif how == "repeat":
        raw = raw[:at] + raw[at : at + 50] * draw(st.integers(2, 50)) + raw[at:]
    elif how == "drop":
        raw = raw[:at] + raw[at + draw(st.integers(1, 100)) :]
    else:
        raw = draw(st.sampled_from(BYTES)) + raw
    path.write_bytes(gzip.compress(raw) if packed else raw)
    return f"{path.name} {how} at {at}"
