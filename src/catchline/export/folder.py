"""Write an exported folder: the graphs beside a model folder's own files, which have the numbers of the weights.

A graph names the file and the place of each weight, so that both graphs and torch read the same numbers. In eight bits
a matrix (O, I) is stored as int8 with one scale a row, and products with it are those of bytes: the other factor is
rounded while the graph runs, row by row, so that no result depends on its companions.
"""

from __future__ import annotations

import json
import pickle
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx_ir as ir
import torch
from onnx_ir.passes import common
from onnx_ir.tape import Tape
from safetensors import safe_open
from torch import Tensor

from catchline import __version__
from catchline.config.names import trusting
from catchline.errors import ConfigError, ModelError
from catchline.export.apart import RAISED
from catchline.export.graphs import graphs_of
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
MICROSOFT = "com.microsoft"  # the operators that onnxruntime adds
_LEAST_SCALE = 1e-12  # of a row of zeros
_LARGEST = 64 * 255 * 127  # what `_steps` multiplies comes to


class Weights:
    """The tensors of a model that a safetensors file stores, by where their numbers are in memory."""

    def __init__(self, tensors: Mapping[str, Tensor], path: Path) -> None:
        with path.open("rb") as file:
            size = int.from_bytes(file.read(8), "little")
            header = json.loads(file.read(size))
        self._file = path.name
        self._starts = {name: 8 + size + entry["data_offsets"][0] for name, entry in header.items() if name[:2] != "__"}
        self._tensors: dict[int, list[tuple[str, Tensor]]] = {}
        for name, tensor in tensors.items():
            if name in self._starts or name + NUMBERS in self._starts:
                self._tensors.setdefault(tensor.untyped_storage().data_ptr(), []).append((name, tensor))

    def place(self, value: ir.Value | None) -> tuple[str, int] | None:
        """The stored tensor that an initializer is, or of which it is some rows, and the first of these."""
        tensor = getattr(None if value is None else value.const_value, "raw", None)
        if not isinstance(tensor, Tensor) or not tensor.numel():
            return None
        for name, whole in self._tensors.get(tensor.untyped_storage().data_ptr(), ()):
            if tensor.stride() == whole.stride() and tensor.shape[1:] == whole.shape[1:]:
                ahead = tensor.storage_offset() - whole.storage_offset()
                return name, ahead // whole.stride(0) if whole.dim() else 0
        return None

    def in_eight_bits(self, value: ir.Value | None) -> bool:
        """Is this an initializer that is stored in eight bits?"""
        place = self.place(value)
        return place is not None and place[0] + NUMBERS in self._starts

    def outside(self, value: ir.Value, part: str = "") -> ir.Value:
        """The initializer as the file has it; of one in eight bits the `NUMBERS` or `SCALES`."""
        name, row = self.place(value) or ("", 0)
        shape, graph = list(value.shape)[: 1 if part == SCALES else None], value.graph
        called = ".".join(map(str, (f"{name}{part}", row, *shape[:1])))  # a matrix is not its first rows
        if called not in graph.initializers:
            kind = ir.DataType.INT8 if part == NUMBERS else ir.DataType.FLOAT
            width = int(kind.itemsize * np.prod(shape[1:]))
            length, start = width * (shape[0] if shape else 1), self._starts[name + part] + row * width
            tensor = ir.ExternalTensor(self._file, start, length, kind, shape=ir.Shape(shape), name=called)
            made = ir.Value(name=called, shape=tensor.shape, type=ir.TensorType(kind), const_value=tensor)
            graph.register_initializer(made)
        return graph.initializers[called]

    def parts(self, value: ir.Value) -> tuple[ir.Value, ir.Value]:
        """The numbers and the scales of a matrix in eight bits."""
        return self.outside(value, NUMBERS), self.outside(value, SCALES)


def share(model: ir.Model, weights: Weights) -> None:
    """Let the graph name the stored tensors where it holds its own numbers. Products with matrices in eight bits are
    made in eight bits; a matrix that is used in another way becomes float32 when the graph is opened."""
    graph = model.graph
    for node in list(graph):
        if node.op_type == "Slice" and weights.place(node.inputs[0]):
            _make_rows(node)
    for node in list(graph):
        tape = Tape()
        if node.op_type == "Gemm" and weights.in_eight_bits(node.inputs[1]):
            made = _product(tape, weights, *node.inputs)
        elif node.op_type == "Gather" and weights.in_eight_bits(node.inputs[0]):
            made = _looked_up(tape, weights, *node.inputs)
        else:
            continue
        ir.convenience.replace_nodes_and_values(graph, node, [node], tape.nodes, node.outputs, [made])
    for value in [value for value in graph.initializers.values() if weights.place(value)]:
        tape = Tape()
        if weights.in_eight_bits(value):
            made = tape.op("DequantizeLinear", weights.parts(value), {"axis": 0})
        else:
            made = weights.outside(value)
        graph.insert_before(graph[0], tape.nodes)
        ir.convenience.replace_all_uses_with(value, made)
    model.opset_imports[MICROSOFT] = 1
    unused = common.RemoveUnusedNodesPass
    for tidy in (unused, common.CommonSubexpressionEliminationPass, unused, common.ClearMetadataAndDocStringPass):
        tidy()(model)


def _make_rows(node: ir.Node) -> None:
    """Some rows of a stored tensor become an initializer and are no longer the result of a node."""
    value, *bounds = node.inputs
    if all(each.const_value is not None for each in bounds):
        start, end, axis, step = (int(each.const_value.numpy().item()) for each in bounds)
        if (axis, step) == (0, 1):
            rows = value.const_value.raw[start:end]
            made = ir.Value(name=f"{value.name}.{start}", const_value=ir.tensor_adapters.TorchTensor(rows))
            made.shape, made.dtype = ir.Shape(rows.shape), value.dtype
            node.graph.initializers.setdefault(made.name, made)
            ir.convenience.replace_all_uses_with(node.outputs[0], node.graph.initializers[made.name])


def _constant(tape: Tape, value: Any, kind: type) -> ir.Value:
    return tape.op("Constant", [], {"value": ir.tensor(np.array(value, kind))})


def _product(tape: Tape, weights: Weights, rows: ir.Value, weight: ir.Value, bias: ir.Value | None = None) -> ir.Value:
    """``rows W^T + bias`` of bytes: (n, I), (O, I), (O,) -> (n, O)."""
    numbers, scales = weights.parts(weight)
    share, middle = _steps(tape)
    largest = tape.op("ReduceMax", [tape.op("Abs", [rows]), _constant(tape, [1], np.int64)], {"keepdims": 1})
    of_rows = tape.op("Max", [tape.op("Mul", [largest, share]), _constant(tape, _LEAST_SCALE, np.float32)])
    each = tape.op("Squeeze", [of_rows, _constant(tape, [1], np.int64)])
    middles = tape.op("Expand", [middle, tape.op("Shape", [each])])
    rounded = tape.op("QuantizeLinear", [rows, each, middles], {"axis": 0})
    columns = tape.op("Transpose", [numbers], {"perm": [1, 0]})
    given = [rounded, columns, _constant(tape, 1, np.float32), scales, middle]
    product = tape.op("Mul", [tape.op("MatMulIntegerToFloat", given, domain=MICROSOFT), of_rows])
    return product if bias is None else tape.op("Add", [product, bias])


def _steps(tape: Tape) -> tuple[ir.Value, ir.Value]:
    """The factor that makes a row's largest magnitude its scale, and the byte of zero. A number has 127 steps to each
    side of zero where the CPU's products of bytes are right. x86 without VNNI adds two of them in sixteen bits, which
    overflow at 255 x 127 x 2 and not at 180 x 90 x 2. onnxruntime finds it out once."""
    first, second = np.full((4, 64), 255), np.full((64, 16), 127)
    product = tape.op("MatMulInteger", [_constant(tape, first, np.uint8), _constant(tape, second, np.int8)])
    least = tape.op("ReduceMin", [product], {"keepdims": 0})
    right = tape.op("Equal", [least, _constant(tape, _LARGEST, np.int32)])
    shares = [_constant(tape, share, np.float32) for share in (1 / 127, 1 / 90)]
    middles = [_constant(tape, middle, np.uint8) for middle in (128, 90)]
    return tape.op("Where", [right, *shares]), tape.op("Where", [right, *middles])


def _looked_up(tape: Tape, weights: Weights, weight: ir.Value, ids: ir.Value) -> ir.Value:
    """Rows of a matrix in eight bits: (V, D), (...) -> (..., D)."""
    numbers, scales = (tape.op("Gather", [part, ids], {"axis": 0}) for part in weights.parts(weight))
    whole = tape.op("Cast", [numbers], {"to": ir.DataType.FLOAT})
    return tape.op("Mul", [whole, tape.op("Unsqueeze", [scales, _constant(tape, [-1], np.int64)])])


def export_folder(source: str | Path, target: Path, *, int8: bool = False) -> None:
    """Write ``target`` with the graphs of the model folder ``source``; what is there is replaced. With ``int8`` its
    weights have eight bits. Raises ConfigError: this process does not use the equations of
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
