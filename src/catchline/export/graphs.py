"""The two graphs of a model: the encoder with the decoder's first state, and one step of the decoder.

    encoder   source ids, extended ids, mask, outside words   ->   the decoder's first state
    step      last ids, the state                             ->   the step's scores, the next state

The graphs know a decoder state flat, each tensor under the name of its place (``recurrent.0``, ``source.first``);
`Layout` says which belong to rows and which to documents. Tensors of rows have the axes (B, K, ...) where they enter.
``outside`` is a vector of zeros, as long as the batch has words outside V.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

import onnx_ir as ir
import torch
from onnx_ir.passes.common import RemoveUnusedNodesPass
from torch import Tensor, nn
from torch.export import Dim

from catchline.errors import ModelError
from catchline.export.translations import OPSET, TRANSLATIONS
from catchline.runtime.model import Layout
from catchline.search.hypotheses import select
from catchline.types import Batch, Shared

# of the example: documents, beams, source tokens, words outside the vocabulary, steps made
SIZES = {"B": 4, "K": 5, "S": 37, "O": 13, "T": 6}
OUTPUTS = ("scores", "log_probs", "attention", "context", "state", "attention_scores")  # of `StepOutput`


class EncoderGraph(nn.Module):
    """The encoder and the tensors ``names`` of the decoder's first state."""

    def __init__(self, model: Any, names: Iterable[str]) -> None:
        super().__init__()
        self.model, self.names = model, set(names)

    def forward(self, source_ids: Tensor, extended_ids: Tensor, mask: Tensor, outside: Tensor) -> dict[str, Tensor]:
        model, states = self.model, {}
        memory = model.encode(Batch(source_ids, extended_ids, mask, model.vocab_size + outside.shape[0]))
        states["state"] = model.start(memory)
        if getattr(model.config, "see_decode_parity", False):  # training starts from another state than decoding
            states["taught"] = model._first_state(memory)
        found: dict[str, Tensor] = {}
        for kind, state in states.items():
            rows, shared = tensors_of(state, twice=True)
            found |= {f"{kind}.{name}": tensor for name, tensor in (rows | shared).items() if name in self.names}
        return found


class StepGraph(nn.Module):
    """One step from a state of the form of ``example``."""

    def __init__(self, model: Any, example: Any) -> None:
        super().__init__()
        self.model, self.example, self.same_scores = model, example, True
        self.rows, self.shared = tensors_of(example)

    def forward(self, last_ids: Tensor, outside: Tensor, state: dict[str, Tensor]) -> dict[str, Tensor]:
        model = self.model
        tensors = {name: tensor.flatten(0, 1) if name in self.rows else tensor for name, tensor in state.items()}
        places = {id(tensor): tensors[name] for name, tensor in (self.rows | self.shared).items()}
        given = mapped(self.example, lambda name, tensor, shared: places.get(id(tensor), tensor))
        if model.head.copies:
            given["source"].tree.extended_vocab_size = model.vocab_size + outside.shape[0]
        output, after = model.step(last_ids.flatten(0, 1), given)
        found = {name: value for name in OUTPUTS if (value := getattr(output, name)) is not None}
        self.same_scores = output.scores is output.log_probs
        if self.same_scores:
            del found["scores"]
        found |= {f"details.{name}": value for name, value in output.details.items()}
        return found | {f"next.{name}": t for name, t in tensors_of(after)[0].items() if tensors.get(name) is not t}


def graphs_of(model: Any) -> tuple[ir.Model, ir.Model, Layout]:
    """The encoder, the step, and the state between them. Raises ModelError: no graph can do what the model does."""
    if model.max_source_tokens is not None and model.max_source_tokens < SIZES["S"]:
        raise ModelError(f"it has {model.max_source_tokens} positions, and graphs are made from {SIZES['S']} tokens")
    most = {"S": model.max_source_tokens, "T": model.max_target_tokens and model.max_target_tokens - 1}
    dims = {name: Dim(name * 2, min=4, max=most.get(name)) for name in SIZES}  # SymPy has its own S
    beams, words = {0: dims["B"], 1: dims["K"]}, {0: dims["B"], 1: dims["S"]}
    with torch.no_grad():
        batch, state = _example(model)
        graph, outside = StepGraph(model, state), torch.zeros(SIZES["O"])
        given = {name: tensor.unflatten(0, (SIZES["B"], -1)) for name, tensor in graph.rows.items()} | graph.shared
        axes = {name: _axes(name, tensor, dims) for name, tensor in given.items()}
        axes |= {name: axes[name] | beams for name in graph.rows}
        last_ids = torch.full((SIZES["B"], SIZES["K"]), model.eos_id)
        step = _exported(
            graph,
            {"last_ids": last_ids, "outside": outside, "state": given},
            {"last_ids": beams, "outside": {0: dims["O"]}, "state": axes},
        )
        layout = _layout(step, graph)
        encoder = _exported(
            EncoderGraph(model, (*layout.rows, *layout.shared)),
            {"source_ids": batch.source_ids, "extended_ids": batch.source_extended_ids, "mask": batch.source_mask}
            | {"outside": outside},
            {"source_ids": words, "extended_ids": words, "mask": words, "outside": {0: dims["O"]}},
        )
    return encoder, step, layout


def _exported(graph: Any, given: dict[str, Any], axes: dict[str, Any]) -> ir.Model:
    """The graph as ONNX. Inputs and outputs have the names of ``given`` and of what it returns."""
    outputs = graph(**given)  # before torch traces it: the names, and the sizes of an example
    program = torch.export.export(
        graph.eval(),
        (),
        given,
        dynamic_shapes=axes,
        prefer_deferred_runtime_asserts_over_guards=True,  # else 14 min(1, K) = 14 would be a constraint on K
    )
    options: dict[str, Any] = {"opset_version": OPSET, "custom_translation_table": TRANSLATIONS, "verbose": False}
    made: Any = torch.onnx.export(program, (), **options)
    inner = made.model.graph
    names = [*(name for name in given if name != "state"), *(f"state.{name}" for name in given.get("state", ()))]
    for value, name in zip(inner.inputs, names, strict=True):
        value.name = name
    for place, (name, tensor) in enumerate(outputs.items()):
        value, shape = inner.outputs[place], _named(tensor.shape, graph.model.vocab_size)
        if (unflattened := _before_flattening(value)) is not None:  # onnxruntime would copy it
            inner.outputs[place] = value = unflattened
            shape = ["B", "K", *shape[1:]]
        value.name, value.shape = name, ir.Shape(shape)
    return made.model


def _before_flattening(value: ir.Value) -> ir.Value | None:
    """The value (B, K, ...) of which this one is the view (B K, ...); none if there is no such value."""
    node = value.producer()
    before = node.inputs[0] if node is not None and node.op_type == "Reshape" else None
    if before is None or before.shape is None or before.is_graph_input() or before.is_graph_output():
        return None
    dynamic = len(before.shape) > 1 and not any(isinstance(size, int) for size in before.shape[:2])
    return before if dynamic and list(before.shape)[2:] == list(value.shape)[1:] else None


def _named(sizes: Iterable[int], vocab_size: int) -> list[int | str]:
    """The axes of an example by their names: N is B K, and O words are outside V."""
    names = {SIZES[name]: name for name in ("B", "K", "S")}
    names |= {SIZES["B"] * SIZES["K"]: "N", vocab_size + SIZES["O"]: f"O+{vocab_size}"}
    return [names.get(size, size) for size in sizes]


def _layout(step: ir.Model, graph: StepGraph) -> Layout:
    """What the state consists of. What a step never reads leaves the state and the graph."""
    inner = step.graph
    for value in inner.inputs[2:]:  # of which a step reads no more than B and K: last_ids says these too
        ends = [node.attributes["end"].value if node.op_type == "Shape" else 3 for node, _ in value.uses()]
        if value.name.removeprefix("state.") in graph.rows and max(ends, default=3) < 3:
            ir.convenience.replace_all_uses_with(value, inner.inputs[0])
    unread = {value.name.removeprefix("state.") for value in inner.inputs if not value.uses()}
    for values in (inner.inputs, inner.outputs):
        for value in list(values):
            kind, _, name = value.name.partition(".")
            if kind in ("state", "next") and name in unread:
                values.remove(value)
    RemoveUnusedNodesPass()(step)
    names = [value.name for value in inner.outputs]
    return Layout(
        rows=tuple(name for name in graph.rows if name not in unread),
        shared=tuple(name for name in graph.shared if name not in unread),
        next=tuple(name.removeprefix("next.") for name in names if name.startswith("next.")),
        outputs=tuple(name for name in names if not name.startswith("next.")),
        same_scores=graph.same_scores,
    )


def _example(model: Any) -> tuple[Batch, Any]:
    """Made-up documents of different lengths, and the state after some steps."""
    documents, width, outside = SIZES["B"], SIZES["S"], SIZES["O"]
    draw = torch.Generator().manual_seed(0)
    extended = torch.randint(4, model.vocab_size + outside, (documents, width), generator=draw)
    lengths = torch.tensor([width // (1 + number) for number in range(documents)])
    mask = torch.arange(width) < lengths[:, None]
    extended = extended.masked_fill(~mask, model.pad_id)
    known = extended.masked_fill(extended >= model.vocab_size, model.unk_id)
    batch = Batch(known, extended, mask, model.vocab_size + outside)
    beams = torch.arange(documents).repeat_interleave(SIZES["K"])
    state = select(model.start(model.encode(batch)), beams)
    for _ in range(SIZES["T"]):
        state = model.step(torch.full((len(beams),), model.eos_id), state)[1]
    return batch, state


def _axes(name: str, tensor: Tensor, dims: Mapping[str, Any]) -> dict[int, Any]:
    """The axes of a tensor of the state that are not always as in the example."""
    source, length = dims["S"], SIZES["S"]
    times = {axis: size // length for axis, size in enumerate(tensor.shape) if size and not size % length}
    found = {axis: source if count == 1 else count * source for axis, count in times.items()}
    return {0: dims["B"], **found, **({tensor.dim() - 2: dims["T"]} if name.startswith("cache") else {})}


# ---------------------------------------------------------------------------------------------- states


def mapped(tree: Any, change: Callable[[str, Tensor, bool], Any], name: str = "", shared: bool = False) -> Any:
    """The nested structure with ``change(name, tensor, shared)`` for each tensor: ``name`` is that of its place,
    ``shared`` says whether it belongs to a document. Raises ModelError: a part orders its beams by itself."""

    def inner(part: Any, key: Any) -> Any:
        return mapped(part, change, f"{name}.{key}" if name else str(key), shared)

    if isinstance(tree, Shared):
        return Shared(mapped(tree.tree, change, name, True))
    if isinstance(tree, Tensor):
        return change(name, tree, shared)
    if hasattr(tree, "select_documents"):
        raise ModelError("its decoder has no ONNX form, so it runs with torch only")
    if isinstance(tree, dict):
        return {key: inner(part, key) for key, part in tree.items()}
    if isinstance(tree, (list, tuple)):
        return type(tree)(inner(part, key) for key, part in enumerate(tree))
    if is_dataclass(tree) and not isinstance(tree, type):
        return replace(tree, **{each.name: inner(getattr(tree, each.name), each.name) for each in fields(tree)})
    return tree


def tensors_of(state: Any, *, twice: bool = False) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The tensors of a decoder state by the names of their places: those of rows, and those of documents. A tensor that
    occurs in several places has the name of the first, or with ``twice`` those of all."""
    found: tuple[dict[str, Tensor], dict[str, Tensor]] = {}, {}
    seen: set[int] = set()

    def collect(name: str, tensor: Tensor, shared: bool) -> Tensor:
        if tensor.dim() and (twice or id(tensor) not in seen):
            seen.add(id(tensor))
            found[shared][name] = tensor
        return tensor

    mapped(state, collect)
    return found
