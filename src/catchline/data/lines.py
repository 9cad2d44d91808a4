"""Opening text files of any origin: gzip, zstd, byte order marks, bytes that are not UTF-8, NUL bytes."""

from __future__ import annotations

import gzip
import importlib
import io
import re
import shlex
import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import IO, Any

from catchline.errors import DataError

SKIP_BAD = ("skip_bad", True)
_SUFFIXES = {
    "jsonl": ".jsonl .ndjson",
    "json": ".json",
    "csv": ".csv .tsv .tab",
    "story": ".story",
    "sqlite": ".db .sqlite .sqlite3",
    "parquet": ".parquet",
}
FORMAT_OF = {suffix: kind for kind, suffixes in _SUFFIXES.items() for suffix in suffixes.split()}  # of files of records
_BOM = b"\xef\xbb\xbf"
_HALF = re.compile("[\ud800-\udfff]")
# Said where UTF-8 stands before a byte that is none: another encoding would spoil what is good.
DAMAGED = "it is damaged, or the file was cut within a character; repair the text, or get the file again"
_ZSTD_BYTES = 1 << 14  # read at a time


class BadRecordError(DataError):
    """One record that cannot be used. ``str()`` is the sentence; ``reason`` the kind, for counting.

    ``option``: what would have helped, a name of `ReadOptions` with its value; how that is said depends on who reads
    (`lead_on`).
    """

    option: tuple[str, bool | str] | None = None

    def __init__(self, origin: str, reason: str, advice: str = "") -> None:
        super().__init__(f"{origin}: {reason}{'; ' + advice if advice else ''}.")
        self.origin = origin
        self.reason = reason.split(":")[0].split(" (")[0]

    def __reduce__(self) -> tuple[Any, ...]:
        return Exception.__new__, (type(self), *self.args), self.__dict__

    def lead_on(self, spelling: str) -> None:
        """Say in a sentence behind the message what the option would do, as the reader has to spell it."""
        does = "leaves such records out" if self.option == SKIP_BAD else "reads it"
        self.args = (f"{self} {spelling} {does}.",)


def bare_name(path: Path) -> str:
    """The file's name without ``.gz`` or ``.zst``."""
    return path.name.removesuffix(".gz").removesuffix(".zst")


def open_bytes(path: Path) -> IO[bytes]:
    """Open for reading, through gzip when the name ends in ``.gz`` and through zstd when it ends in ``.zst``.

    Raises:
        DataError: the file does not exist or may not be read, or there is no zstd.
    """
    try:
        if path.suffix == ".zst":
            library = _zstd()
            if library is None:
                raise DataError(
                    f"{path} is compressed with zstd, for which this Python needs a package: pip install "
                    "'catchline[zstd]', or compress the file with gzip."
                )
            if library.__name__ == "zstandard":
                return io.BufferedReader(_Frames(path.open("rb"), library), _ZSTD_BYTES)
            return library.open(path, "rb")
        return gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb")  # type: ignore[return-value]
    except FileNotFoundError:
        raise DataError(f"{path} does not exist.") from None
    except OSError as error:
        raise DataError(f"{path} cannot be opened ({error.strerror or error}).") from None


def raw_lines(path: Path) -> Iterator[tuple[int, bytes]]:
    """The lines of a file with their numbers from 1, byte order marks before them removed.

    Raises:
        DataError: the file is UTF-16 or UTF-32, its compressed data is damaged, or the disk fails.
    """
    number = 0
    damage: tuple[type[Exception], ...] = (gzip.BadGzipFile, EOFError, zlib.error)
    if path.suffix == ".zst" and (library := _zstd()):
        damage = (EOFError, library.ZstdError)
    try:
        with open_bytes(path) as handle:
            for number, line in enumerate(handle, start=1):
                if number == 1:
                    if other := what_it_is(str(path), line):
                        raise DataError(other)
                    if b"\r" in line and not line.endswith(b"\n"):  # the whole file, of a classic Mac
                        yield from enumerate(line.removeprefix(_BOM).splitlines(keepends=True), start=1)
                        continue
                yield number, line.removeprefix(_BOM)  # there is one within, where files were put together
    except damage as error:
        kind = "zstd" if path.suffix == ".zst" else "gzip"
        raise DataError(f"{path}: the {kind} data is damaged after line {number} ({error}).") from None
    except OSError as error:
        raise DataError(f"{path} could not be read after line {number} ({error.strerror or error}).") from None


def decode_line(path: Path, number: int, line: bytes) -> str:
    """Decode one line, without its line end.

    Raises:
        BadRecordError: a byte that is not UTF-8 (named, with its position), or a NUL byte.
    """
    try:
        text = line.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        place = f" at position {error.start + 1} of the line"
        raise bad_byte(f"{path}:{number}", line[error.start], place, path) from None
    check_text(f"{path}:{number}", text)
    return text.rstrip("\r\n")


def bad_byte(origin: str, value: int, position: str = "", path: Path | None = None) -> BadRecordError:
    """The problem of a byte that is not UTF-8; ``path`` is the file of text that holds it."""
    if path is not None and path.is_file() and _begins_as_utf8(path, path.stat().st_mtime_ns):
        return BadRecordError(origin, f"not UTF-8: byte 0x{value:02X}{position}", DAMAGED)
    return BadRecordError(
        origin,
        f"not UTF-8: byte 0x{value:02X}{position} (probably Latin-1 or Windows-1252)",
        f"save the file as UTF-8{with_iconv(path, bytes([value])) if path is not None else ''}",
    )


@lru_cache(maxsize=8)
def _begins_as_utf8(path: Path, changed: int) -> bool:
    """Is the first character beyond ASCII of UTF-8? Then the file, last ``changed`` at this time, has no code page."""
    text = next((line for _, line in raw_lines(path) if not line.isascii()), b"").decode(errors="surrogateescape")
    return not _HALF.match(next((character for character in text if not character.isascii()), "\ud800"))


def with_iconv(path: Path, raw: bytes) -> str:
    """``: iconv -f windows-1252 ...``, where this could be the encoding of ``raw`` and the file is there as it is."""
    try:
        raw.decode("windows-1252")
    except UnicodeDecodeError:
        return ""
    if path.suffix in (".gz", ".zst") or not path.is_file():
        return ""
    new = path.with_name(f"{path.stem}-utf8{path.suffix}")
    return f": iconv -f windows-1252 -t utf-8 {shlex.quote(str(path))} > {shlex.quote(str(new))}"


def check_text(origin: str, text: str) -> None:
    """Refuse NUL characters, which come from binary or half-written files, and halves of characters, which JSON can
    spell (``\\ud83d`` alone) and no file of text can hold."""
    if "\0" in text:
        raise BadRecordError(origin, "a NUL byte in the text", "the file is damaged or not text")
    if not text.isascii() and (half := _HALF.search(text)):
        raise BadRecordError(
            origin,
            f"half a character (\\u{ord(half[0]):04x}) in the text",
            "a character outside the basic plane was cut in two; repair the text",
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


# ----------------------------------------------------------------------------------------------------------------- zstd


def _zstd() -> Any:
    """Python's own module or the package; None where there is neither."""
    for name in ("compression.zstd", "zstandard"):
        with suppress(ImportError):
            return importlib.import_module(name)
    return None


class _Frames(io.RawIOBase):
    """One frame after the other; unlike the package's own reader it tells a file that was cut short."""

    def __init__(self, file: IO[bytes], library: Any) -> None:
        self._file, self._start = file, library.ZstdDecompressor
        self._frame: Any = None
        self._left = self._ready = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill a part of the buffer; 0 at the end."""
        while not self._ready:
            data = self._left or self._file.read(_ZSTD_BYTES)
            self._left = b""
            if not data:
                if self._frame is not None:
                    raise EOFError("the file ends within a frame")
                return 0
            self._frame = self._frame or self._start().decompressobj()
            self._ready = self._frame.decompress(data)
            if self._frame.eof:
                self._left, self._frame = self._frame.unused_data, None
        size = min(len(buffer), len(self._ready))
        buffer[:size] = self._ready[:size]
        self._ready = self._ready[size:]
        return size

    def close(self) -> None:
        self._file.close()
        super().close()


# ------------------------------------------------------------- what people have and is neither text nor a table of it


_OFFICE, _PLAIN = "save it as CSV (UTF-8) in the program that made it", "save it as plain text (UTF-8)"
_BY_SUFFIX = {
    **dict.fromkeys((".xlsx", ".xlsm", ".xls"), ("an Excel workbook", _OFFICE)),
    **dict.fromkeys((".ods", ".numbers"), ("a spreadsheet", _OFFICE)),
    **dict.fromkeys((".docx", ".doc"), ("a Word document", _PLAIN)),
    ".odt": ("a text document of an office program", _PLAIN),
    ".rtf": ("a text document with formatting", _PLAIN),
    ".pdf": ("a PDF", "save its text, for example with pdftotext"),
    ".epub": ("a book", "save its text"),
    **dict.fromkeys((".zip", ".tar", ".7z", ".rar"), ("an archive", "unpack it and name a file of it")),
    **dict.fromkeys((".bz2", ".xz", "packed"), ("compressed", "unpack it; pairs may stay packed as .gz or .zst")),
    **dict.fromkeys((".pkl", ".pickle"), ("a Python pickle, which can run code", "write its records as JSON lines")),
    **dict.fromkeys((".jpg", ".jpeg", ".png", ".gif", ".webp", ".tiff"), ("a picture", "name a file of text")),
    "utf16": ("UTF-16", "save it as UTF-8"),
    "utf32": ("UTF-32", "save it as UTF-8"),
    "office": ("an archive or an office file, whatever its name says", "save it as CSV or text (UTF-8)"),
    **dict.fromkeys((".mp3", ".wav", ".mp4", ".mov"), ("a recording", "name a file with its transcript")),
}
_BY_BEGINNING = {
    **dict.fromkeys((b"\xff\xfe\0\0", b"\0\0\xfe\xff"), "utf32"),
    **dict.fromkeys((b"\xff\xfe", b"\xfe\xff"), "utf16"),
    **dict.fromkeys((b"PK\x03\x04", b"\xd0\xcf\x11\xe0"), "office"),
    b"%PDF": ".pdf",
    b"\xff\xd8\xff": ".jpg",
    b"\x89PNG": ".png",
    **dict.fromkeys((b"\x1f\x8b", b"BZh91AY&", b"\xfd7zXZ", b"(\xb5/\xfd"), "packed"),  # whatever the name says
}


def what_it_is(name: str, beginning: bytes = b"") -> str:
    """``NAME is an Excel workbook: save it ...``, or nothing for what may be text or a table."""
    suffix = Path(name).suffix.lower()
    if suffix not in _BY_SUFFIX:
        suffix = next((kind for mark, kind in _BY_BEGINNING.items() if beginning.startswith(mark)), "")
    kind, remedy = _BY_SUFFIX.get(suffix, ("", ""))
    return f"{name} is {kind}: {remedy}." if kind else ""
