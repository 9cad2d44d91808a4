"""Tensors in safetensors files: equal content makes equal bytes, and the file has the rights of its neighbours."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import safetensors.torch
from torch import Tensor, nn


def save_weights(model: nn.Module, path: Path) -> None:
    """The weights of ``model``; the header says which names of shared tensors were left out."""
    _save(path, lambda: safetensors.torch.save_model(model, str(path), metadata={"format": "pt"}))
    _sort_metadata(path)


def save_tensors(tensors: Mapping[str, Tensor], path: Path) -> None:
    """Tensors that share no memory, without metadata."""
    _save(path, lambda: safetensors.torch.save_file(dict(tensors), path))


def _save(path: Path, write: Callable[[], None]) -> None:
    """The library makes files that only their owner may read; the umask is the rule."""
    path.touch()
    mode = path.stat().st_mode
    write()
    path.chmod(mode)


def _sort_metadata(path: Path) -> None:
    """Put the metadata of the header in order, in place: the library writes it in another one each time."""
    with path.open("r+b") as file:
        size = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(size))
        header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
        text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode("utf-8").ljust(size)
        assert len(text) == size, "the same content has the same length"
        file.seek(8)
        file.write(text)
