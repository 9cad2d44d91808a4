"""What people and accidents write where a value is asked for and do to files, drawn by hypothesis; and the watch over
whoever reads it."""

from __future__ import annotations

import copy
import gzip
import json
import math
import shutil
import signal
import tempfile
import traceback
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import yaml
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from catchline.errors import CatchlineError
from catchline.types import Summary

SECONDS = 20
# of `hypothesis.settings`: drawn values say enough as they are, unshrunk
UNSHRUNK: dict[str, Any] = {"phases": [Phase.explicit, Phase.generate]}
MANY = UNSHRUNK | {"database": None, "suppress_health_check": list(HealthCheck)}  # where each takes long
LONGEST_SENTENCE = 4000
UNREAD = ("README.md", ".lock")  # files of a folder that nothing reads

EVIL = "evil_module:Model"
VALUES: list[Any] = [
    *(None, True, False, [], {}, [[[]]], "", "x", "\ud800", "\x1b[2J", "nan", "a" * 10_000, EVIL),
    *(-1, 0, 1, 2, 7, 10**6, 10**9, -(10**9), 2**63, 10**30, 0.5, -0.5, 1e-300, 1e308, -1e308),
    *(float("nan"), float("inf"), float("-inf"), {"type": EVIL}, [{"type": EVIL}], {"type": "nonsense"}, {"type": 5}),
]
NONSENSE = (" nan", " inf", "-inf", " 1e+308", "-1e+308")  # how `damage_values` ends for numbers that mean nothing
BYTES = [
    *(b"", b"\0", b"\xff\xfe", b"\xef\xbb\xbf", b"\r", b"\n", b"\x80", b'"', b"{", b"[" * 3000, b"}"),
    *(b"\\ud83d", b"\t,;|"),
]


# ----------------------------------------------------------------------------------------------- the watch


class TooSlow(BaseException):
    """Not an `Exception`: nothing may take it for a failure that it can report."""


@contextmanager
def in_time(seconds: int = SECONDS) -> Iterator[None]:
    """Nothing here may hang: not for so many seconds of the processor, nor for ten times as many of a busy machine."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise TooSlow(f"not done after {seconds} s")

    before = [signal.signal(number, stop) for number in (signal.SIGPROF, signal.SIGALRM)]
    signal.setitimer(signal.ITIMER_PROF, seconds)
    signal.alarm(10 * seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.alarm(0)
        for number, handler in zip((signal.SIGPROF, signal.SIGALRM), before, strict=True):
            signal.signal(number, handler)


def assert_a_sentence(error: CatchlineError, lines: int = 100) -> None:
    """What a user can read: not empty, not pages."""
    said = str(error)
    assert 10 < len(said) < LONGEST_SENTENCE, said[:500]
    assert said.count("\n") < lines, said[:500]
    assert "Traceback" not in said


class Findings:
    """What went wrong, all of it: one finding does not hide the next."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    @contextmanager
    def of(self, what: list[str]) -> Iterator[None]:
        """Keep what the block raises, with what had been done before."""
        try:
            yield
        except (Exception, TooSlow) as error:
            self.texts.append(f"{what}: {''.join(traceback.format_exception(error)[-6:])[-2500:]}")

    def none(self) -> None:
        """Fail if there was any."""
        assert not self.texts, f"{len(self.texts)} findings:\n" + "\n----\n".join(self.texts[:30])


def open_damaged(
    folder: Path,
    examples: int,
    explain: Callable[[Path], Summary],
    *,
    values: int,
    bytes_: int,
    after: Callable[[Path, Any], str] = lambda folder, draw: "",
    lines: int = 100,
) -> list[str]:
    """Damage ``examples`` copies of a sound folder: each gives a summary of finite numbers or one sentence of ``lines``
    at most, in time. Returns what had been done to those that were opened, which are some and not all."""
    opened, findings = list[str](), Findings()
    assert math.isfinite(explain(folder).log_prob)

    @given(data=st.data())
    @settings(max_examples=examples, **MANY)
    def check(data: Any) -> None:
        with copy_of(folder) as copy, findings.of(done := []):
            done.append(what := damage_one(copy, data.draw, values, bytes_) + after(copy, data.draw))
            with in_time():
                try:
                    summary = explain(copy)
                except CatchlineError as error:
                    assert_a_sentence(error, lines)
                    return
            assert isinstance(summary.text, str)
            assert math.isfinite(summary.log_prob)
            opened.append(what)

    check()
    findings.none()
    assert 0 < len(opened) < examples
    print(f"{folder.name}: {len(opened)} opened", *sorted(opened), sep="\n  ")
    return opened


# ------------------------------------------------------------------------------------------ damage to files


@contextmanager
def copy_of(folder: Path) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as home:
        yield Path(shutil.copytree(folder, Path(home) / "folder"))


def damage_one(folder: Path, draw: Any, values: int, bytes_: int) -> str:
    """Do something to one file of ``folder``, as often as told to its values and to its bytes; says what."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name not in UNREAD)
    path = draw(st.sampled_from(files))
    how = draw(st.sampled_from(["value"] * values + ["bytes"] * bytes_ + ["remove", "folder"]))
    if how == "value" and path.suffix in (".json", ".yaml"):
        return damage_values(path, draw)
    if how == "remove":
        path.unlink()
    elif how == "folder":
        path.unlink()
        path.mkdir()
    else:
        return damage_bytes(path, draw)
    return f"{path.name} {how}"


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
    if not (found := list(places(values))):
        return damage_bytes(path, draw)
    place = draw(st.sampled_from(found))
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
