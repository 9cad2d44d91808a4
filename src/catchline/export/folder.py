"""Write an exported folder: the graphs beside a model folder's own files."""

from __future__ import annotations

import pickle
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import onnx_ir as ir
import torch
from safetensors import safe_open
from torch import Tensor

from catchline import __version__
from catchline.config.names import trusting
from catchline.errors import ConfigError, ModelError
from catchline.export.apart import RAISED
from catchline.export.graphs import graphs_of
from catchline.export.weights import Weights, share
from catchline.files import replacing_folder, write_json
from catchline.kernels.dispatch import IN_GRAPHS
from catchline.models.card import README, model_card, write_card
from catchline.models.folder import FILES, LoadedModel, find_folder, load_model_folder
from catchline.models.stored import NUMBERS, SCALES, digests, quantized, save_tensors
from catchline.runtime.folder import ENCODER, STEP, write_manifest
from catchline.runtime.model import Layout
from catchline.text.base import read_json

# what people write, and what `catchline calibrate` finds out later
MAY_CHANGE = (README, "card.json", "calibration.json")
SMALLEST = 4096  # numbers; of a smaller matrix a product in eight bits takes longer than one in 32


def export_folder(source: str | Path, target: Path, *, int8: bool = False) -> None:
    """Write ``target`` with the graphs of the model folder ``source``; what is there is replaced. With ``int8`` its
    weights have eight bits (`catchline.export.weights`). Raises ConfigError: this process does not use the equations of
    graphs (`catchline.kernels.dispatch`); ModelError: there is no such model, or it does something that no graph can.
    """
    if not IN_GRAPHS:
        raise ConfigError("Models are exported with CATCHLINE_KERNELS=graph: `catchline export` sets it.")
    loaded = load_model_folder(source)
    with replacing_folder(target) as folder:
        own = find_folder(source)
        if "catchline" not in read_json(own / "config.json"):  # another's checkpoint, in our format
            loaded._save_pretrained(folder)
        else:
            for file in filter(Path.is_file, (own / name for name in FILES)):
                shutil.copyfile(file, folder / file.name)
        layout = _write_graphs(loaded, folder, str(source), int8)
        card = folder / README
        if card.is_file() and card.read_text(encoding="utf-8") == model_card(own):  # not by hand
            write_card(folder)
        read = [path.name for path in folder.iterdir() if path.is_file() and path.name not in MAY_CHANGE]
        about = {"quantized": int8, **_about(loaded, layout)}
        write_manifest(folder, about, [name for name in read if not name.startswith(".")])


def _write_graphs(loaded: LoadedModel, folder: Path, name: str, int8: bool) -> Layout:
    """The graphs; the weights are rewritten where they are not in the bits that the graphs read."""
    model, path = loaded.model, folder / "model.safetensors"
    model.switch(loaded.search.model)
    tensors = dict(model.named_parameters(remove_duplicate=False)) | dict(model.named_buffers(remove_duplicate=False))
    with safe_open(path, "pt") as file:
        kinds = {each.removesuffix(NUMBERS): file.get_slice(each).get_dtype() for each in file.keys()}  # noqa: SIM118
    names = [each for each in kinds if each in tensors]
    if int8 or {kinds[each] for each in names} - {"F32"}:
        _rewrite({each: tensors[each].detach().float() for each in names}, path, int8)
    try:
        encoder, step, layout = graphs_of(model)
    except Exception as error:  # torch's exporter has many kinds, and wraps the first reason
        first: BaseException = error
        while first.__cause__ is not None:
            first = first.__cause__
        reason = next(iter(str(first).strip().splitlines()), repr(first)).rstrip(".")
        raise ModelError(f"{name} cannot be exported: {reason} (a {type(model).__name__}).") from error
    weights = Weights(tensors, path)
    for file_name, graph in ((ENCODER, encoder), (STEP, step)):
        share(graph, weights)
        graph.producer_name, graph.producer_version = "catchline", __version__
        ir.save(graph, folder / file_name)
    return layout


def _rewrite(tensors: dict[str, Tensor], path: Path, int8: bool) -> None:
    """The weights in 32 bits or, of large matrices with ``int8``, in eight."""
    content: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        if int8 and tensor.dim() == 2 and tensor.numel() >= SMALLEST:
            content[name + NUMBERS], content[name + SCALES] = quantized(tensor)
        else:
            content[name] = tensor.clone()
    save_tensors(content, path)
    config = read_json(path.parent / "config.json")
    config["catchline"]["sha256"] = digests(path.parent)
    write_json(path.parent / "config.json", config, indent=2)


def _about(loaded: LoadedModel, layout: Layout) -> dict[str, Any]:
    model: Any = loaded.model
    ids = torch.tensor([[model.unk_id, model.vocab_size]])  # what a summary's likelihood may leave out
    target = SimpleNamespace(target_ids=ids, target_mask=torch.ones_like(ids, dtype=torch.bool))
    unknown, outside = model._counted(target)[0].tolist()
    cached = any(name.startswith("cache") for name in layout.rows)
    return {
        "catchline": __version__,
        "family": loaded.run.model["type"] if loaded.run else type(model).__name__.lower(),
        "copies": bool(model.head.copies),
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "vocab_size": model.vocab_size,
        "start_id": loaded.model.decoder_start_id,
        "max_source_tokens": model.max_source_tokens,
        "max_target_tokens": model.max_target_tokens,
        "uncounted": [] if unknown else [model.unk_id],
        "outside_counts": outside,
        "switches": model.switches(),
        "layout": {
            **layout.model_dump(),
            "first_id": model.first_input_id if cached else None,
            "forced_id": getattr(model, "forced_bos_id", None),
        },
    }


# [--int8] [--trust-code] SOURCE TARGET [SOURCE TARGET ...]: what `catchline.export.apart.export_apart` starts
if __name__ == "__main__":
    options = [each for each in sys.argv[1:] if each in ("--int8", "--trust-code")]
    places = sys.argv[1 + len(options) :]
    try:
        with trusting("--trust-code" in options):
            for source, target in zip(places[::2], places[1::2], strict=True):
                export_folder(source, Path(target), int8="--int8" in options)
    except Exception as error:
        sys.stdout.buffer.write(RAISED + pickle.dumps(error))
        sys.exit(1)
