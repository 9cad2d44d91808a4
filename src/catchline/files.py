"""Files and folders that appear whole, and those that one process at a time works in.

What is written stands beside its place, as ``.NAME.XXXXXXXX.partial``, until it is complete. Whoever writes holds an
advisory lock on it, and the kernel frees the lock when the process dies, however it dies. So the next one can tell the
draft of a living process from what a dead one left, and removes only that. Where the file system knows no locks, or
the system (Windows), nothing is removed and nobody is kept out.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import shutil
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from glob import escape
from pathlib import Path
from typing import Any, BinaryIO

from catchline.errors import ConfigError, FolderInUseError

try:
    import fcntl
except ImportError:  # Windows, which has no such locks and neither renames nor removes what is open
    fcntl = None  # type: ignore[assignment]

LOCK = ".lock"
_held: set[int] = set()  # descriptors with a lock


# ---------------------------------------------------------------------------------------------- locks


@contextmanager
def only_here(folder: Path) -> Iterator[None]:
    """Make ``folder`` if need be, and hold it until the block ends or the process dies. The lock is on
    ``folder/.lock``, which goes away again, and so does a folder that was made here and stayed empty.

    Raises:
        ConfigError: it is a file.
        FolderInUseError: another process, or another block of this one, holds it.
    """
    if folder.is_file():
        raise ConfigError(f"{folder} is a file; name a folder.")
    made = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with _held_by(folder / LOCK, folder):
            yield
    finally:
        if made:
            with suppress(OSError):  # something is in it
                folder.rmdir()


@contextmanager
def only_writer(path: Path) -> Iterator[None]:
    """Hold the file ``path``, there or not yet, until the block ends or the process dies; its folder is made. The lock
    is on ``.NAME.lock`` beside it, which goes away again.

    Raises:
        FolderInUseError: another process, or another block of this one, holds it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with _held_by(path.with_name(_hidden(path) + LOCK), path):
        yield


@contextmanager
def _held_by(lock: Path, what: Path) -> Iterator[None]:
    if fcntl is None:
        yield
        return
    handle = _hold_file(lock, what)
    try:
        yield
    finally:
        lock.unlink(missing_ok=True)
        _release(handle)


def _hold_file(path: Path, what: Path) -> int:
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        if _lock(handle) is False:
            holder = os.read(handle, 200).decode(errors="replace") or "another process"
            os.close(handle)
            kind = "folder" if what.is_dir() else "file"
            raise FolderInUseError(f"{what} is in use by {holder}; wait until that is done, or choose another {kind}.")
        _held.add(handle)
        if _is_at(handle, path):
            os.ftruncate(handle, 0)
            os.write(handle, f"process {os.getpid()} on {socket.gethostname()}".encode())
            return handle
        _release(handle)  # the one that held it has just removed the file


def _lock(handle: int, *, wait: bool = False) -> bool | None:
    """True: locked. False: somebody else has it. None: there are no locks here."""
    if fcntl is None:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True


def _is_at(handle: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), path.stat())
    except FileNotFoundError:
        return False


def _release(handle: int | None) -> None:
    if handle is not None:
        _held.discard(handle)
        os.close(handle)


def _forget() -> None:
    """A forked child (a data-loading worker) holds nothing: it may outlive the process that does."""
    while _held:
        with suppress(OSError):
            os.close(_held.pop())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


# ---------------------------------------------------------------------------------------------- files


@contextmanager
def part_of(path: Path) -> Iterator[BinaryIO]:
    """Open ``path``, or the file it is a link to, for writing; it appears, or is replaced and keeps its mode, when the
    block ends well, and is on the disk then.

    What is no file, or an open one as ``/dev/stdout`` may be, is added to as it is: nothing may take its place.
    """
    if keeps_its_place(path):
        with path.open("ab") as file:
            yield file
        return
    path = Path(os.path.realpath(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    _remove_drafts(path)
    draft, handle = _new_draft(path, Path.touch)
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
        _release(handle)


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
    """Force a file or a folder's list of files to the disk."""
    try:
        handle = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)  # Windows writes out no file that is read
    except PermissionError:
        if not path.is_dir():
            raise
        return  # nor does it open a folder
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


# -------------------------------------------------------------------------------------------- folders


@contextmanager
def replacing_folder(folder: Path) -> Iterator[Path]:
    """Give an empty folder beside ``folder``; when the block ends well, it takes the name ``folder``.

    At every moment either the old or the new content exists whole: as ``folder`` or, between two renames, the old one
    as ``.NAME.XXXXXXXX.previous`` (`put_back` finds it). What killed processes left beside ``folder`` is removed.
    """
    folder = Path(os.path.realpath(folder.expanduser()))  # what a link leads to is replaced, not the link
    folder.parent.mkdir(parents=True, exist_ok=True)
    remove_leftovers(folder)
    draft, handle = _new_draft(folder, Path.mkdir)
    previous = draft.with_suffix(".previous")
    try:
        yield draft
        for path in (*draft.iterdir(), draft):
            flush(path)
        if folder.exists():
            folder.rename(previous)
        draft.rename(folder)
        flush(folder.parent)
        shutil.rmtree(previous, ignore_errors=True)
    finally:
        shutil.rmtree(draft, ignore_errors=True)
        _release(handle)


def refuse_other(folder: Path, holding: str, what: str) -> None:
    """Before a folder is replaced that a person named.

    Raises:
        ConfigError: it holds something, but not the file ``holding`` that ``what`` has: what is in it would be lost.
    """
    folder = folder.expanduser()
    if folder.is_file() or (folder.is_dir() and any(folder.iterdir()) and not (folder / holding).is_file()):
        raise ConfigError(f"{folder} is there and is no {what}: name another folder.")


def put_back(folder: Path) -> None:
    """Where a process was killed between the two renames of `replacing_folder`, give ``folder`` its old content."""
    folder = Path(os.path.realpath(folder)) if folder.is_symlink() else folder
    if folder.exists() or not folder.parent.is_dir():
        return
    for previous in _beside(folder, "previous"):
        for draft in _beside(folder, "partial"):  # one that lives is about to be renamed
            with suppress(OSError):
                handle = os.open(draft, os.O_RDONLY)
                _lock(handle, wait=True)
                os.close(handle)
        if not folder.exists():
            with suppress(FileNotFoundError):
                previous.rename(folder)


def remove_leftovers(folder: Path) -> None:
    """Remove what processes that were killed while they wrote ``folder`` left beside it."""
    folder = Path(os.path.realpath(folder))
    put_back(folder)
    for previous in _beside(folder, "previous") if folder.exists() else ():
        shutil.rmtree(previous, ignore_errors=True)
    _remove_drafts(folder)


# --------------------------------------------------------------------------------------------- drafts


def _new_draft(path: Path, make: Callable[..., None]) -> tuple[Path, int | None]:
    while True:
        draft = path.with_name(f"{_hidden(path)}.{secrets.token_hex(4)}.partial")
        make(draft, exist_ok=False)
        if fcntl is None:
            return draft, None
        with suppress(FileNotFoundError):  # taken for a leftover before it was locked
            handle = os.open(draft, os.O_RDONLY)
            _lock(handle, wait=True)
            _held.add(handle)
            if _is_at(handle, draft):
                return draft, handle
            _release(handle)


def _remove_drafts(path: Path) -> None:
    for draft in _beside(path, "partial"):
        with suppress(OSError):
            handle = os.open(draft, os.O_RDONLY)
            if _lock(handle):
                shutil.rmtree(draft, ignore_errors=True)
                with suppress(OSError):  # a file's
                    draft.unlink()
            os.close(handle)


def _beside(path: Path, ending: str) -> list[Path]:
    return list(path.parent.glob(f"{escape(_hidden(path))}.{'[0-9a-f]' * 8}.{ending}"))


def _hidden(path: Path) -> str:
    """``.NAME``; of a NAME that leaves no room for the endings in 255 bytes, its beginning and its digest."""
    name = path.name.encode(errors="surrogatepass")
    if len(name) <= 236:
        return f".{path.name}"
    return f".{name[:227].decode(errors='ignore')}~{sha256(name)[:8]}"
