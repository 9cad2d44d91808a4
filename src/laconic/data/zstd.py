"""Files compressed with zstd, through Python's own module (from 3.14 on) or the package ``zstandard``."""

from __future__ import annotations

import importlib
import io
from pathlib import Path
from typing import IO, Any

from laconic.errors import DataError

_PIECE = 1 << 14


def is_zstd(path: Path) -> bool:
    """By the name, as everywhere."""
    return path.suffix == ".zst"


def open_zstd(path: Path) -> IO[bytes]:
    """Open for reading.

    Raises:
        DataError: this Python has neither module.
        OSError: the file cannot be opened.
    """
    for name in ("compression.zstd", "zstandard"):
        try:
            library = importlib.import_module(name)
        except ImportError:
            continue
        if name == "zstandard":
            return io.BufferedReader(_Frames(path.open("rb"), library), _PIECE)
        return library.open(path, "rb")
    raise DataError(
        f"{path} is compressed with zstd, for which this Python needs a package: pip install 'laconic[zstd]', or "
        "compress the file with gzip."
    )


def damage_of(path: Path) -> tuple[type[Exception], ...]:
    """What reading raises when the data is damaged; for files that `open_zstd` opens."""
    for name in ("compression.zstd", "zstandard"):
        try:
            return EOFError, importlib.import_module(name).ZstdError
        except ImportError:
            continue
    return (EOFError,)


class _Frames(io.RawIOBase):
    """One frame after the other; unlike the package's own reader it tells a file that was cut short."""

    def __init__(self, file: IO[bytes], library: Any) -> None:
        self._file, self._start = file, library.ZstdDecompressor
        self._frame: Any = None
        self._left = self._ready = b""

    def readable(self) -> bool:
        """Yes."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill a part of the buffer; 0 at the end."""
        while not self._ready:
            data = self._left or self._file.read(_PIECE)
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
        """Close the file too."""
        self._file.close()
        super().close()
