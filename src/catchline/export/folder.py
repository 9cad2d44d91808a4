"""Write an exported folder: the graphs beside a model folder's own files."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from itertools import takewhile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from safetensors import safe_open

from catchline import __version__
from catchline.config.names import trusting
from catchline.errors import CatchlineError, CheckpointError, ConfigError, DataError, ModelError, is_disk_full
from catchline.export.builder import WeightNames
from catchline.export.graphs import graphs_of
from catchline.files import refuse_other, replacing_folder, write_json
from catchline.kernels.dispatch import IN_GRAPHS
from catchline.models.card import README, model_card, write_card
from catchline.models.folder import FILES, LoadedModel, find_folder, load_model_folder
from catchline.models.stored import digests, save_tensors
from catchline.runtime.folder import ENCODER, STEP, write_manifest
from catchline.runtime.manifest import MANIFEST
from catchline.runtime.model import Layout
from catchline.runtime.onnx_file import Graph, model_bytes
from catchline.text.base import read_json

# what people write, and what `catchline calibrate` finds out later
MAY_CHANGE = (README, "card.json", "calibration.json")
SYSTEM = 100  # with the number of a system's error: the exit code of the process that exports


def export_apart(source: str | Path, target: Path, *, int8: bool = False, trust_code: bool = False) -> None:
    """`export_folder` in a process of its own, whose equations are those of graphs; with ``trust_code`` it runs classes
    that ``source`` names.

    Raises:
        ConfigError: ``target`` holds something else than an exported model, which would be lost.
        ModelError: the model cannot be exported.
        OSError: a file cannot be written.
    """
    refuse_other(target, MANIFEST, "exported model")
    environment = os.environ | {"CATCHLINE_KERNELS": "graph", "PYTHONSAFEPATH": "1", "PYTHONIOENCODING": "utf-8"}
    options = [*["--int8"] * int8, *["--trust-code"] * trust_code]
    command = [sys.executable, "-m", "catchline.export.folder", *options, str(source), str(target)]
    done = subprocess.run(command, env=environment, capture_output=True, encoding="utf-8", check=False)
    if done.returncode:
        reason = done.stderr.strip().splitlines() or [f"the process ended with {done.returncode}"]
        if done.returncode > SYSTEM:
            raise OSError(done.returncode - SYSTEM, os.strerror(done.returncode - SYSTEM), reason[-1])
        kinds = {kind.exit_code: kind for kind in (ConfigError, DataError, ModelError, CheckpointError)}
        raise kinds[done.returncode](reason[-1]) if done.returncode in kinds else ModelError("\n".join(reason[-20:]))


def export_folder(source: str | Path, target: Path, *, int8: bool = False) -> None:
    """Write ``target`` with the graphs of the model folder ``source``; what is there is replaced. With ``int8`` its
    weights have eight bits (`catchline.runtime.eight_bits`).

    Raises:
        ConfigError: this process does not use the equations of graphs (`catchline.kernels.dispatch`).
        ModelError: there is no such model, or it does something that no graph can.
    """
    if not IN_GRAPHS:
        raise ConfigError(
            "Models are exported in a process with CATCHLINE_KERNELS=graph; `catchline export` starts one."
        )
    loaded = load_model_folder(source)
    with replacing_folder(target) as folder:
        _copy_or_write(find_folder(source), loaded, folder)
        encoder, step, layout = _made(loaded, folder, str(source), int8)
        for name, graph in ((ENCODER, encoder), (STEP, step)):
            (folder / name).write_bytes(model_bytes(graph, "catchline", __version__))
        card = folder / README
        if card.is_file() and card.read_text(encoding="utf-8") == model_card(find_folder(source)):  # not by hand
            write_card(folder)
        read = [path.name for path in folder.iterdir() if path.is_file() and path.name not in MAY_CHANGE]
        about = {"quantized": int8, **_about(loaded, layout)}
        write_manifest(folder, about, [name for name in read if not name.startswith(".")])


def _copy_or_write(source: Path, loaded: LoadedModel, folder: Path) -> None:
    """The files of a model folder of ours as they are; another's checkpoint in our format."""
    if "catchline" not in read_json(source / "config.json"):
        loaded._save_pretrained(folder)
        return
    for name in FILES:
        if (source / name).is_file():
            shutil.copyfile(source / name, folder / name)


def _made(loaded: LoadedModel, folder: Path, name: str, int8: bool) -> tuple[Graph, Graph, Layout]:
    """The graphs; of eight bits their weights take the place of the folder's."""
    model, path = loaded.model, folder / "model.safetensors"
    model.switch(loaded.search.model)
    tensors = dict(model.named_parameters(remove_duplicate=False)) | dict(model.named_buffers(remove_duplicate=False))
    with safe_open(path, "pt") as file:
        weights = WeightNames(tensors, file.keys(), int8)
    try:
        encoder, step, layout = graphs_of(model, weights)
    except ModelError as error:
        kind = type(model).__name__
        raise ModelError(f"{name} cannot be exported: {str(error).rstrip('.')} (a {kind}).") from error
    if int8:
        used, made = {port.name for graph in (encoder, step) for port in graph.weights}, weights.eight_bits()
        with safe_open(path, "pt") as file:
            kept = {name: file.get_tensor(name).clone() for name in sorted(used.intersection(file.keys()))}
        rest = sorted(used.difference(kept))
        save_tensors(kept | {name: made[name] if name in made else tensors[name].clone() for name in rest}, path)
        config = read_json(folder / "config.json")
        if config["catchline"]["sha256"] != (sums := digests(folder)):  # the weights may have been of eight bits before
            config["catchline"]["sha256"] = sums
            write_json(folder / "config.json", config)
    return encoder, step, layout


def _about(loaded: LoadedModel, layout: Layout) -> dict[str, Any]:
    model: Any = loaded.model
    uncounted, outside = _counted(model)
    cached = any(name.startswith("cache") for name in layout.rows)
    return {
        "catchline": __version__,
        "family": loaded.run.model["type"] if loaded.run else type(model).__name__.lower(),
        "copies": bool(model.head.copies),
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "vocab_size": model.vocab_size,
        "start_id": loaded.start_id,
        "max_source_tokens": model.max_source_tokens,
        "max_target_tokens": model.max_target_tokens,
        "uncounted": uncounted,
        "outside_counts": outside,
        "switches": model.switches(),
        "layout": {
            **layout.model_dump(),
            "first_id": model.first_input_id if cached else None,
            "forced_id": getattr(model, "forced_bos_id", None),
        },
    }


def _counted(model: Any) -> tuple[list[int], bool]:
    """The ids that a summary's likelihood leaves out, and whether words outside the vocabulary count."""
    ids = torch.tensor([[model.unk_id, model.vocab_size]])
    target = SimpleNamespace(target_ids=ids, target_mask=torch.ones_like(ids, dtype=torch.bool))
    unknown, outside = model._counted(target)[0].tolist()
    return [] if unknown else [model.unk_id], outside


if __name__ == "__main__":  # [--int8] [--trust-code] SOURCE TARGET [SOURCE TARGET ...]: what `export_apart` starts
    options = set(takewhile({"--int8", "--trust-code"}.__contains__, sys.argv[1:]))
    places = sys.argv[1 + len(options) :]
    try:
        with trusting("--trust-code" in options):
            for source, target in zip(places[::2], places[1::2], strict=True):
                export_folder(source, Path(target), int8="--int8" in options)
    except CatchlineError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)
    except Exception as error:
        number = errno.ENOSPC if is_disk_full(error) else getattr(error, "errno", None)
        if number is None:
            raise
        print(getattr(error, "filename", None) or target, file=sys.stderr)
        sys.exit(SYSTEM + number)
