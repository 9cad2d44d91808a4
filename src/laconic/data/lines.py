"""Opening text files of any origin: gzip, zstd, byte order marks, bytes that are not UTF-8, NUL bytes."""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

from laconic.data.zstd import damage_of, is_zstd, open_zstd
from laconic.errors import DataError

_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")
_BOM = b"\xef\xbb\xbf"
_HALF = re.compile("[\ud800-\udfff]")


class BadRecordError(DataError):
    """One record that cannot be used. ``str()`` is the sentence; ``reason`` the kind, for counting."""

    def __init__(self, origin: str, reason: str, advice: str = "") -> None:
        super().__init__(f"{origin}: {reason}{'; ' + advice if advice else ''}.")
        self.origin = origin
        self.reason = reason.split(":")[0].split(" (")[0]


def is_gzip(path: Path) -> bool:
    """By the name, as everywhere."""
    return path.suffix == ".gz"


def bare_name(path: Path) -> str:
    """The file's name without ``.gz`` or ``.zst``."""
    return path.name.removesuffix(".gz").removesuffix(".zst")


def open_bytes(path: Path) -> IO[bytes]:
    """Open for reading, through gzip when the name ends in ``.gz`` and through zstd when it ends in ``.zst``.

    Raises:
        DataError: the file does not exist or may not be read, or there is no zstd.
    """
    try:
        if is_zstd(path):
            return open_zstd(path)
        return gzip.open(path, "rb") if is_gzip(path) else path.open("rb")  # type: ignore[return-value]
    except FileNotFoundError:
        raise DataError(f"{path} does not exist.") from None
    except IsADirectoryError:
        raise DataError(f"{path} is a folder where a file was expected.") from None
    except PermissionError:
        raise DataError(f"{path} may not be read (permission denied).") from None


def raw_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """The lines of a file with their numbers from 1, byte order mark removed.

    Raises:
        DataError: the file is UTF-16, its compressed data is damaged, or the disk fails.
    """
    number = 0
    damage: tuple[type[Exception], ...] = (gzip.BadGzipFile, EOFError, zlib.error)
    if is_zstd(path):
        damage = damage_of(path)
    try:
        with open_bytes(path) as handle:
            for number, line in enumerate(handle, start=1):
                if number == 1:
                    if line.startswith(_UTF16_MARKS):
                        raise DataError(f"{path} is UTF-16; save it as UTF-8.")
                    line = line.removeprefix(_BOM)
                    if b"\r" in line and not line.endswith(b"\n"):  # the whole file, of a classic Mac
                        yield from enumerate(line.splitlines(keepends=True), start=1)
                        continue
                yield number, line
    except damage as error:
        kind = "zstd" if is_zstd(path) else "gzip"
        raise DataError(f"{path}: the {kind} data is damaged after line {number} ({error}).") from None
    except OSError as error:
        raise DataError(f"{path} could not be read after line {number} ({error.strerror or error}).") from None


def decode_line(path: Path, number: int, line: bytes) -> str:
    """Decode one line, without its line end.

    Raises:
        BadRecordError: a byte that is not UTF-8 (named, with its position), or a NUL byte.
    """
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise bad_byte(f"{path}:{number}", line[error.start], f" at position {error.start + 1} of the line") from None
    check_text(f"{path}:{number}", text)
    return text.rstrip("\r\n")


def bad_byte(origin: str, value: int, position: str = "") -> BadRecordError:
    """The problem of a byte that is not UTF-8."""
    return BadRecordError(
        origin,
        f"not UTF-8: byte 0x{value:02X}{position} (probably Latin-1 or Windows-1252)",
        "save the file as UTF-8, or skip such records with --skip-bad",
    )


def check_text(origin: str, text: str) -> None:
    """Refuse NUL characters, which come from binary or half-written files, and halves of characters, which JSON can
    spell (``\\ud83d`` alone) and no file of text can hold."""
    if "\0" in text:
        raise BadRecordError(origin, "a NUL byte in the text", "the file is damaged or not text")
    if not text.isascii() and (half := _HALF.search(text)):
        raise BadRecordError(
            origin,
            f"half a character (\\u{ord(half[0]):04x}) in the text",
            "a character outside the basic plane was cut in two; repair the text, or skip such records with --skip-bad",
        )


def text_lines(
    path: Path, lines: Iterable[tuple[int, bytes]] | None = None
) -> Iterator[tuple[int, str | BadRecordError]]:
    """Decoded lines, by default those of the file; one that cannot be decoded comes as the problem it is."""
    for number, line in raw_lines(path) if lines is None else lines:
        try:
            yield number, decode_line(path, number, line)
        except BadRecordError as problem:
            yield number, problem


def read_text(path: Path) -> str:
    """The whole text of a file. Raises BadRecordError (first bad byte with its line) or DataError."""
    return "\n".join(decode_line(path, number, line) for number, line in raw_lines(path))
