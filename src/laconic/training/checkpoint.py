"""Checkpoint folders: written beside, flushed, renamed; verified when read; no pickle anywhere.

A checkpoint holds, in this order,

1. the parameters and buffers (``model.safetensors``) and the model's switches;
2. the optimizer's tensors (``optimizer.safetensors``) and the structure they belong to;
3. the learning-rate schedule (a pure function of the update; the plateau's factor is in the training state);
4. the sampler's position: seed, epoch, micro-batches consumed;
5. the random number generators of Python, NumPy and torch, of every process, with probe draws;
6. the training state (`laconic.training.state.TrainState`);
7. the length of ``log.jsonl`` in bytes, to which a resumed run cuts it back;
8. the averaged weights, if any (``average.safetensors``).

Everything that is not a tensor is in ``state.json``; ``manifest.json`` has the format version and the size and
SHA-256 of each file. `laconic.training.snapshot` gathers and restores the content; this file knows folders.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import safetensors.torch
from safetensors import SafetensorError
from torch import Tensor

from laconic.errors import CheckpointError
from laconic.files import flush
from laconic.models.weights import save_tensors

FORMAT_VERSION = 1
MANIFEST = "manifest.json"
STATE = "state.json"
STAGE_FOLDER = "pretraining"  # the sub-folder in which a run's pre-training stage is a run of its own
_NAME = re.compile(r"checkpoint-(\d+)")
_DRAFT = ".draft-"


class DiskFullError(CheckpointError):
    """There was no room for a checkpoint. The exit code is that of a full disk everywhere."""

    exit_code = 7


@dataclass
class Snapshot:
    """The content of a checkpoint: groups of tensors by file, and what JSON can hold."""

    tensors: dict[str, dict[str, Tensor]] = field(default_factory=dict)  # "model", "optimizer", "average"
    values: dict[str, Any] = field(default_factory=dict)


def checkpoint_folders(run_folder: Path) -> list[Path]:
    """The checkpoints of a run, newest first."""
    found = [(int(match[1]), path) for path in run_folder.glob("checkpoint-*") if (match := _NAME.fullmatch(path.name))]
    return [path for _, path in sorted(found, reverse=True)]


# ---------------------------------------------------------------------------------------- writing


def write_checkpoint(run_folder: Path, update: int, snapshot: Snapshot) -> Path:
    """Write ``checkpoint-UPDATE`` and return its path.

    The unfinished folder is removed when anything goes wrong; what was there before stays.
    """
    final = run_folder / f"checkpoint-{update}"
    draft = run_folder / f"{_DRAFT}{final.name}-{os.getpid()}"
    try:
        _remove(draft)
        draft.mkdir()
        _write_files(draft, snapshot)
        _replace(draft, final)
    except BaseException:
        shutil.rmtree(draft, ignore_errors=True)
        raise
    return final


@contextmanager
def naming_a_full_disk(run_folder: Path) -> Iterator[None]:
    """Turn "no space left" anywhere inside into one sentence with the last good checkpoint.

    Raises:
        DiskFullError: instead of the system's error.
    """
    try:
        yield
    except (OSError, SafetensorError) as error:
        if not _is_disk_full(error):
            raise
        raise DiskFullError(
            f"The disk is full, so training into {run_folder} had to stop. {last_good(run_folder)} "
            f"Free some space, then: laconic resume {run_folder}"
        ) from error


def last_good(run_folder: Path) -> str:
    """A sentence that names the newest checkpoint, for messages."""
    folders = checkpoint_folders(run_folder) or checkpoint_folders(run_folder / STAGE_FOLDER)
    return f"The last good checkpoint is {folders[0]}." if folders else "No checkpoint had been written before."


def prune(run_folder: Path, keep: int, best_update: int | None) -> None:
    """Remove all checkpoints but the ``keep`` newest and the one of ``best_update``."""
    for folder in checkpoint_folders(run_folder)[keep:]:
        if folder.name != f"checkpoint-{best_update}":
            _remove(folder)


def remove_drafts(run_folder: Path) -> None:
    """Remove what a killed process left half written or half removed."""
    for path in run_folder.glob(f"{_DRAFT}*"):
        shutil.rmtree(path, ignore_errors=True)


def _write_files(folder: Path, snapshot: Snapshot) -> None:
    for name, tensors in snapshot.tensors.items():
        path = folder / f"{name}.safetensors"
        save_tensors(_separate(tensors), path)
        flush(path)
    _write_json(folder / STATE, snapshot.values)
    files = {p.name: {"bytes": p.stat().st_size, "sha256": _sha256(p)} for p in sorted(folder.iterdir())}
    _write_json(folder / MANIFEST, {"format_version": FORMAT_VERSION, "files": files})
    flush(folder)


def _separate(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Contiguous tensors that share no memory (safetensors refuses tied ones)."""
    seen: set[int] = set()
    result = {}
    for name, tensor in tensors.items():
        tensor = tensor.detach().contiguous()
        shared = tensor.untyped_storage().data_ptr() in seen
        seen.add(tensor.untyped_storage().data_ptr())
        result[name] = tensor.clone() if shared else tensor
    return result


def _write_json(path: Path, values: Mapping[str, Any]) -> None:
    with open(path, "w", encoding="utf-8") as file:
        json.dump(values, file, ensure_ascii=False)
        file.flush()
        os.fsync(file.fileno())


def _replace(draft: Path, final: Path) -> None:
    """Rename; a folder of the same name (an update trained again after a resume) makes way first."""
    if final.exists():
        _remove(final)
    os.rename(draft, final)
    flush(final.parent)


def _remove(folder: Path) -> None:
    """Remove a folder so that a crash in between leaves no half checkpoint under a checkpoint's name."""
    if folder.exists():
        hidden = folder.with_name(f"{_DRAFT}removed-{folder.name}-{os.getpid()}")
        shutil.rmtree(hidden, ignore_errors=True)
        os.rename(folder, hidden)
        shutil.rmtree(hidden, ignore_errors=True)


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _is_disk_full(error: BaseException) -> bool:
    if isinstance(error, OSError):
        return error.errno in {errno.ENOSPC, errno.EDQUOT}
    return isinstance(error, SafetensorError) and "No space left" in str(error)


# ---------------------------------------------------------------------------------------- reading


def read_newest(run_folder: Path, notify: Callable[[str], None]) -> tuple[Path, Snapshot] | None:
    """The newest checkpoint that verifies, or None if the run has not written any.

    A damaged one is named through ``notify`` and the one before it is tried.

    Raises:
        CheckpointError: there are checkpoints, and all are damaged.
    """
    folders = checkpoint_folders(run_folder)
    for folder in folders:
        try:
            return folder, read_checkpoint(folder)
        except CheckpointError as error:
            notify(f"{error} Trying the checkpoint before it." if folder != folders[-1] else str(error))
    if folders:
        raise CheckpointError(
            f"None of the {len(folders)} checkpoints in {run_folder} can be read; "
            "copy one back from a backup, or train again with --force."
        )
    return None


def newest_values(run_folder: Path) -> dict[str, Any] | None:
    """What the newest checkpoint whose ``state.json`` can be read says beside its tensors; it is not verified."""
    for folder in checkpoint_folders(run_folder):
        try:
            values = json.loads((folder / STATE).read_text(encoding="utf-8"))
            if {"identity", "train_state"} <= values.keys():
                return values
        except (OSError, ValueError, AttributeError):
            continue
    return None


def read_checkpoint(folder: Path) -> Snapshot:
    """Verify one checkpoint and read it into main memory.

    Raises:
        CheckpointError: a file is missing or not what the manifest says, or the format is another version's.
    """
    files = _verified(folder)
    snapshot = Snapshot(values=json.loads((folder / STATE).read_text(encoding="utf-8")))
    for name in files:
        if name.endswith(".safetensors"):
            snapshot.tensors[name.removesuffix(".safetensors")] = safetensors.torch.load_file(folder / name)
    return snapshot


def _verified(folder: Path) -> list[str]:
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        version = manifest["format_version"]
        files = {name: (entry["bytes"], entry["sha256"]) for name, entry in manifest["files"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise CheckpointError(f"The checkpoint {folder} is incomplete: its {MANIFEST} is missing or damaged.") from None
    if version != FORMAT_VERSION:
        raise CheckpointError(
            f"The checkpoint {folder} has format {version}, this version of Laconic reads format {FORMAT_VERSION}; "
            "resume it with the version that wrote it."
        )
    for name, (size, digest) in files.items():
        path = folder / name
        if not path.is_file() or path.stat().st_size != size or _sha256(path) != digest:
            raise CheckpointError(f"The checkpoint {folder} is damaged: {name} is not the file that was written.")
    if STATE not in files:
        raise CheckpointError(f"The checkpoint {folder} is incomplete: {STATE} is missing.")
    return list(files)
