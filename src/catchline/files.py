"""Files and folders that appear whole, and those that one process at a time works in.

A file or folder is written as ``.NAME.partial`` beside its place, under the lock ``.NAME.lock``. The lock is free when
its process ends, however it ends, so a draft that nobody locks is what a killed process left, and the next writer
removes it.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from catchline.errors import ConfigError, FolderInUseError

LOCK = ".lock"


# ---------------------------------------------------------------------------------------------- locks


@contextmanager
def only_here(folder: Path) -> Iterator[None]:
    """Make ``folder`` if need be, and hold it until the block ends or the process dies. The lock is on
    ``folder/.lock``, which goes away again, and so does a folder that was made here and stayed empty. Raises
    ConfigError: it is a file; FolderInUseError: another process, or another block of this one, holds it."""
    if folder.is_file():
        raise ConfigError(f"{folder} is a file; name a folder.")
    made = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with _locked(folder / LOCK, folder):
            yield
    finally:
        if made:
            with suppress(OSError):  # something is in it
                folder.rmdir()


@contextmanager
def only_writer(path: Path) -> Iterator[None]:
    """Likewise hold the file ``path``, there or not yet; its folder is made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with _locked(_beside(path, LOCK), path):
        yield


@contextmanager
def _locked(path: Path, refused: Path | None = None) -> Iterator[None]:
    """Hold the lock file ``path``, which goes away again. While another has it: wait, or refuse to use ``refused``."""
    from filelock import FileLock, Timeout  # who only reads waits for no import

    lock = FileLock(path, blocking=refused is None)
    try:
        lock.acquire()
    except Timeout:
        holder = path.read_text(errors="replace")[:200] if path.is_file() else ""
        kind = "folder" if refused and refused.is_dir() else "file"
        told = f"{refused} is in use by {holder or 'another process'}; wait until that is done"
        raise FolderInUseError(f"{told}, or choose another {kind}.") from None
    try:
        path.write_text(f"process {os.getpid()} on {socket.gethostname()}")
        yield
    finally:
        with suppress(OSError):  # Windows removes no open file
            path.unlink()
        lock.release()


def _beside(path: Path, ending: str) -> Path:
    """``.NAME`` with the ending; of a NAME that leaves no room for it in 255 bytes, its beginning and its digest."""
    name = path.name.encode(errors="surrogatepass")
    short = path.name if len(name) <= 236 else f"{name[:227].decode(errors='ignore')}~{sha256(name)[:8]}"
    return path.with_name(f".{short}{ending}")


# ---------------------------------------------------------------------------------------------- files


@contextmanager
def part_of(path: Path) -> Iterator[BinaryIO]:
    """Open ``path``, or the file it is a link to, for writing; it appears, or is replaced and keeps its mode, when the
    block ends well, and is on the disk then. What is no file, or an open one as ``/dev/stdout`` may be, is added to as
    it is: nothing may take its place."""
    if keeps_its_place(path):
        with path.open("ab") as file:
            yield file
        return
    path = Path(os.path.realpath(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = _beside(path, ".partial")
    with _locked(_beside(path, LOCK)):
        try:
            with draft.open("wb") as file:
                with suppress(OSError):  # there is no old file, or there are no modes here
                    shutil.copymode(path, draft)
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.replace(draft, path)
        finally:
            draft.unlink(missing_ok=True)


def keeps_its_place(path: Path) -> bool:
    """Is ``path`` there and no file, or does it lead to one over a descriptor that somebody has open?"""
    while path.is_file():
        folder = os.path.realpath(path.parent)
        open_one = bool(re.fullmatch(r"/dev(/fd)?|/proc/.+/fd", folder))
        if open_one or not path.is_symlink():
            return open_one
        path = Path(folder, os.readlink(path))
    return path.exists()


def write_text(path: Path, text: str) -> None:
    """Write a whole file of UTF-8 text (see `part_of`)."""
    with part_of(path) as file:
        file.write(text.encode())


def write_json(path: Path, values: Mapping[str, Any], indent: int | None = None) -> None:
    """Write a whole file of JSON (see `part_of`)."""
    write_text(path, json.dumps(values, ensure_ascii=False, indent=indent) + "\n")


def sha256(data: bytes) -> str:
    """The SHA-256 digest of ``data``."""
    return hashlib.sha256(data).hexdigest()


def digest_of(path: Path) -> str:
    """The SHA-256 digest of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def flush(path: Path) -> None:
    """Force a file, or a folder's list of files, to the disk."""
    with suppress(PermissionError):  # Windows opens no folder
        handle = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)  # it writes out no file that is read
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


# -------------------------------------------------------------------------------------------- folders


@contextmanager
def replacing_folder(folder: Path) -> Iterator[Path]:
    """Give an empty folder beside ``folder``; when the block ends well, it takes the name ``folder``. At every moment
    either the old or the new content exists whole: as ``folder`` or, between two renames, the old one as
    ``.NAME.previous`` (`put_back` finds it)."""
    folder = Path(os.path.realpath(folder.expanduser()))  # what a link leads to is replaced, not the link
    folder.parent.mkdir(parents=True, exist_ok=True)
    draft, previous = _beside(folder, ".partial"), _beside(folder, ".previous")
    with _locked(_beside(folder, LOCK)):
        _clean(folder)
        draft.mkdir()
        try:
            yield draft
            for path in (*draft.iterdir(), draft):
                flush(path)
            if folder.exists():
                folder.rename(previous)
            draft.rename(folder)
            flush(folder.parent)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
            if folder.exists():
                shutil.rmtree(previous, ignore_errors=True)


def refuse_other(folder: Path, holding: str, what: str) -> None:
    """Raises: ConfigError: ``folder``, about to be replaced, holds something else than ``what``, which has the file
    ``holding``."""
    folder = folder.expanduser()
    if folder.is_file() or (folder.is_dir() and any(folder.iterdir()) and not (folder / holding).is_file()):
        raise ConfigError(f"{folder} is not empty and has no {what}: name another folder.")


def put_back(folder: Path) -> None:
    """Where a process was killed between the two renames of `replacing_folder`, give ``folder`` its old content."""
    folder = Path(os.path.realpath(folder)) if folder.is_symlink() else folder
    if not folder.exists() and _beside(folder, ".previous").exists():
        remove_leftovers(folder)


def remove_leftovers(folder: Path) -> None:
    """Remove what processes that were killed while they wrote ``folder`` left beside it."""
    folder = Path(os.path.realpath(folder))
    if any(_beside(folder, ending).exists() for ending in (".partial", ".previous", LOCK)):
        with _locked(_beside(folder, LOCK)):
            _clean(folder)


def _clean(folder: Path) -> None:
    previous = _beside(folder, ".previous")
    if previous.exists() and not folder.exists():
        previous.rename(folder)
    for left in (previous, _beside(folder, ".partial")):
        shutil.rmtree(left, ignore_errors=True)
