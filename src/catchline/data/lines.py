"""Text files of any origin as lines: gzip, zstd, byte order marks, bytes that are not UTF-8, NUL bytes."""

from __future__ import annotations

import gzip
import importlib
import re
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

from catchline.errors import DataError
from catchline.text.markup import READ_AS_BYTES, as_prose, read_bytes, suffix_of

MOST_BYTES = 100_000_000  # of a document
LONGEST_LINE = 1 << 26  # bytes; a longer one is no record
_CHUNK, _ZSTD_CHUNK = 1 << 18, 1 << 10  # bytes read at a time; a kilobyte of zstd can hold 32 MB
_BOM = b"\xef\xbb\xbf"
_NO_TEXT = re.compile("[\0\ud800-\udfff]")
_UNREADABLE = {  # suffixes and first bytes of what people have and is no table of text
    "a spreadsheet: save it as CSV (UTF-8)": (".xlsx", ".xlsm", ".xls", ".ods", ".numbers"),
    "an office file or an archive: save it as CSV or text, or unpack it": (
        *(".doc", ".docx", ".odt", ".rtf", ".pdf", ".epub", ".zip", ".tar", ".tgz", ".7z", ".rar", ".bz2", ".xz"),
        *(b"PK\x03\x04", b"\xd0\xcf\x11\xe0", b"%PDF", b"BZh91AY&", b"\xfd7zXZ"),
    ),
    "a Python pickle, which can run code: write its records as JSON lines": (".pkl", ".pickle"),
    "UTF-16 or UTF-32: save it as UTF-8": (b"\xff\xfe", b"\xfe\xff", b"\0\0\xfe\xff"),
    "compressed: unpack it; pairs may stay packed as .gz or .zst": (b"\x1f\x8b", b"(\xb5/\xfd"),
}


class BadRecordError(DataError):
    """One record that cannot be used. ``str()`` is the sentence; ``reason`` the kind, for counting."""

    def __init__(self, origin: str, reason: str, advice: str = "") -> None:
        super().__init__(f"{origin}: {reason}{'; ' + advice if advice else ''}.")
        self.origin = origin
        self.reason = reason.split(":")[0].split(" (")[0]

    def __reduce__(self) -> tuple[Any, ...]:
        return Exception.__new__, (type(self), *self.args), self.__dict__


def bare_name(path: Path) -> str:
    """The file's name without ``.gz`` or ``.zst``."""
    return path.name.removesuffix(".gz").removesuffix(".zst")


def unreadable(name: str, beginning: bytes = b"") -> str:
    """``NAME is a spreadsheet: save it ...``, or nothing for what may be text or a table."""
    suffix = Path(name).suffix.lower()
    for kind, marks in _UNREADABLE.items():
        if suffix in marks or any(beginning.startswith(mark) for mark in marks if isinstance(mark, bytes)):
            return f"{name} is {kind}."
    return ""


def document_text(raw: bytes, name: str) -> tuple[str, str]:
    """Format and prose of a file, by its name or else by what is in it. Raises DataError: it is too large, damaged or
    no text, or has none; ModuleNotFoundError: the format needs the extra ``documents``."""
    if len(raw) > MOST_BYTES:
        raise DataError(f"{name} has {len(raw):,} bytes; at most {MOST_BYTES:,} are read: save its text as .txt.")
    suffix = Path(name).suffix.lower()
    if suffix not in READ_AS_BYTES:
        suffix = suffix_of(raw) or suffix
    if suffix in READ_AS_BYTES:
        return read_bytes(raw, suffix, name)
    if other := unreadable(name, raw[:8]):
        raise DataError(other)
    kind, prose = as_prose(decoded(raw, name), suffix)
    if kind == "page" and not prose:
        raise DataError(f"{name} is a web page without text, perhaps filled by a script: save the page as text.")
    return kind, prose


def decoded(raw: bytes, place: str) -> str:
    """The text of a file called ``place``. Raises DataError: it is none in UTF-8."""
    text = raw.decode("utf-8-sig", "surrogateescape")
    if match := _NO_TEXT.search(text):
        if other := unreadable(place, raw[:8]):
            raise DataError(other)
        line = text.count("\n", 0, match.start()) + 1
        check_text(f"{place}, line {line}", match[0])
    return text


def _chunks(path: Path) -> Iterator[bytes]:
    """The content of a file, unpacked if its name ends in ``.gz`` or ``.zst``."""
    with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
        if path.suffix == ".zst":
            yield from _zstd(file)  # type: ignore[arg-type]
        while chunk := file.read(_CHUNK):
            yield chunk


def _zstd(file: IO[bytes]) -> Iterator[bytes]:
    """The content of a zstd file; EOFError where it ends within a frame, which zstandard's own reader passes over."""
    try:
        start = importlib.import_module("compression.zstd").ZstdDecompressor
    except ImportError:  # before Python 3.14
        start = importlib.import_module("zstandard").ZstdDecompressor().decompressobj
    frame = None
    while data := file.read(_ZSTD_CHUNK):
        while data:
            frame = frame or start()
            yield frame.decompress(data)
            data, frame = (frame.unused_data, None) if frame.eof else (b"", frame)
    if frame is not None:
        raise EOFError("the file ends within a frame")


def raw_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """The lines of a file with their numbers from 1, byte order marks before them removed. Raises DataError: there is
    no such file, it is not text, its compressed data is damaged, a line is longer than `LONGEST_LINE`, or the disk
    fails."""
    number, size, pieces = 0, 0, list[bytes]()  # lines so far, and what is read of the next one
    try:
        for chunk in _chunks(path):
            if not number and not pieces and (other := unreadable(str(path), chunk)):
                raise DataError(other)
            *lines, rest = chunk.split(b"\n")
            if lines:
                lines[0], pieces, size = b"".join((*pieces, lines[0])), [], 0
            for line in lines:
                number += 1
                yield number, line.removeprefix(_BOM)  # there is one within, where files were put together
            pieces.append(rest)
            size += len(rest)
            if size > LONGEST_LINE:
                most = f"more than {LONGEST_LINE >> 20} MB"
                raise DataError(f"{path}:{number + 1}: a line of {most}; write one record per line.")
        if size:
            yield number + 1, b"".join(pieces).removeprefix(_BOM)
    except FileNotFoundError:
        raise DataError(f"{path} does not exist.") from None
    except Exception as error:
        damage = isinstance(error, gzip.BadGzipFile | EOFError | zlib.error) or type(error).__name__ == "ZstdError"
        if damage:
            raise DataError(f"{path}: the compressed data is damaged after line {number} ({error}).") from None
        if isinstance(error, OSError):
            what = error.strerror or error
            raise DataError(f"{path} cannot be read after line {number} ({what}).") from None
        raise


def text_lines(lines: Iterable[tuple[int, bytes]]) -> Iterator[tuple[int, str]]:
    """Decoded lines without their ends. Bytes that are not UTF-8 become lone surrogates, which `check_text` refuses
    where they are part of a record."""
    for number, line in lines:
        yield number, line.decode("utf-8-sig", "surrogateescape").rstrip("\r\n")


def check_text(origin: str, text: str) -> None:
    """Refuse bytes that are not UTF-8, NUL characters, and halves of characters, which JSON can spell (``\\ud83d``).
    Raises BadRecordError: there is one."""
    if not (match := _NO_TEXT.search(text)):
        return
    if match[0] == "\0":
        raise BadRecordError(origin, "a NUL byte in the text", "the file is damaged or not text")
    code = ord(match[0])
    if 0xDC80 <= code <= 0xDCFF:
        raise BadRecordError(origin, f"not UTF-8: byte 0x{code - 0xDC00:02X}", "save the file as UTF-8")
    raise BadRecordError(origin, f"half a character (\\u{code:04x}) in the text", "repair the text")
