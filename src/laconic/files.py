"""Files and folders that appear whole, and those that one process at a time works in.

What is written stands beside its place until it is complete: a file as ``.NAME.partial``, a folder as
``.NAME.XXXXXXXX.partial``. Whoever writes a folder holds an advisory lock on it, and the kernel frees the lock when the
process dies, however it dies. So the next one can tell the folder of a living process from what a dead one left, and
removes only that. Where the file system knows no locks nothing is removed and nobody is kept out.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import shutil
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from laconic.errors import ConfigError, FolderInUseError

try:
    import fcntl
except ImportError:  # a system without advisory locks
    fcntl = None  # type: ignore[assignment]

LOCK = ".lock"
_held: set[int] = set()  # descriptors with a lock


# ---------------------------------------------------------------------------------------------- locks


@contextmanager
def only_here(folder: Path) -> Iterator[None]:
    """Make ``folder`` if need be, and hold it until the block ends or the process dies. The lock is on
    ``folder/.lock``, which goes away again, and so does a folder that was made here and stayed empty.

    Raises:
        FolderInUseError: another process, or another block of this one, holds it.
    """
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
    with _held_by(path.with_name(f".{path.name}{LOCK}"), path):
        yield


@contextmanager
def _held_by(lock: Path, what: Path) -> Iterator[None]:
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


def _release(handle: int) -> None:
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
    """Open ``path`` for writing; it appears, or is replaced, when the block ends well, and is on the disk then.

    What is no file, such as ``/dev/stdout``, is written to as it is: nothing may take its place.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists() and not path.is_file():
        with path.open("wb") as file:
            yield file
        return
    draft = path.with_name(f".{path.name}.partial")
    try:
        with draft.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
    except BaseException:
        draft.unlink(missing_ok=True)
        raise


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
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


# -------------------------------------------------------------------------------------------- folders


@contextmanager
def replacing_folder(folder: Path) -> Iterator[Path]:
    """Give an empty folder beside ``folder``; when the block ends well, it takes the name ``folder``.

    At every moment either the old or the new content exists whole: as ``folder`` or, between two renames, the old one
    as ``folder.previous`` (`put_back` finds it). What killed processes left beside ``folder`` is removed.
    """
    folder = folder.expanduser().absolute()
    folder.parent.mkdir(parents=True, exist_ok=True)
    remove_leftovers(folder)
    draft, handle = _new_draft(folder)
    try:
        yield draft
        for path in (*draft.iterdir(), draft):
            flush(path)
        if folder.exists():
            shutil.rmtree(_previous(folder), ignore_errors=True)
            folder.rename(_previous(folder))
        draft.rename(folder)
        flush(folder.parent)
        shutil.rmtree(_previous(folder), ignore_errors=True)
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


def put_back(folder: Path, holding: str = "") -> None:
    """Where a process was killed between the two renames of `replacing_folder`, give ``folder`` its old content, which
    must hold the file ``holding`` where ``folder`` may be any name."""
    if not folder.name or folder.exists() or not (_previous(folder) / holding).exists():
        return
    for draft in _drafts(folder):  # one that lives is about to be renamed
        with suppress(OSError):
            handle = os.open(draft, os.O_RDONLY)
            _lock(handle, wait=True)
            os.close(handle)
    if not folder.exists():
        with suppress(FileNotFoundError):
            _previous(folder).rename(folder)


def remove_leftovers(folder: Path) -> None:
    """Remove what processes that were killed while they wrote ``folder`` left beside it."""
    put_back(folder)
    if folder.exists():
        shutil.rmtree(_previous(folder), ignore_errors=True)
    for draft in _drafts(folder):
        with suppress(OSError):
            handle = os.open(draft, os.O_RDONLY)
            if _lock(handle):
                shutil.rmtree(draft, ignore_errors=True)
            os.close(handle)


def _new_draft(folder: Path) -> tuple[Path, int]:
    while True:
        draft = folder.with_name(f".{folder.name}.{secrets.token_hex(4)}.partial")
        draft.mkdir()
        handle = os.open(draft, os.O_RDONLY)
        _lock(handle, wait=True)
        _held.add(handle)
        if _is_at(handle, draft):
            return draft, handle
        _release(handle)  # taken for a leftover before it was locked


def _drafts(folder: Path) -> list[Path]:
    name = re.compile(rf"\.{re.escape(folder.name)}\.[0-9a-z_]{{8}}\.partial")
    return [path for path in folder.parent.iterdir() if name.fullmatch(path.name)]


def _previous(folder: Path) -> Path:
    return folder.with_name(folder.name + ".previous")
