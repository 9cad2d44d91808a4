"""The two graphs of a model: what it makes of a document, and one step of its decoder.

    encoder   source ids, extended ids, mask, outside words   ->   the decoder's first state
    step      last ids, the state                             ->   what the step is worth, the next state

A decoder state is a nested structure of tensors. The graphs know it flat, each tensor under the name of its place
(``recurrent.0``, ``source.first``); `Layout` says which belong to the document, and which stay as they are.
``outside`` is a vector of zeros, as long as the batch has words outside the vocabulary: it says how large X is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from catchline.errors import ModelError
from catchline.export.builder import Builder, WeightNames
from catchline.export.lowering import lower
from catchline.export.tracing import Recorder, Recording, Ref, laid_together
from catchline.runtime.model import Layout
from catchline.runtime.onnx_file import Graph
from catchline.search.arrays import select
from catchline.types import Batch, Shared

from catchline.export import products, shapes  # noqa: F401  # isort: skip  # they enter their lowerings

# documents, beams, source tokens, words outside the vocabulary, steps made: all different, and so are their products
RUNS: tuple[dict[str, int], ...] = (
    {"B": 3, "K": 5, "S": 23, "O": 12, "T": 2},
    {"B": 5, "K": 2, "S": 31, "O": 7, "T": 4},
    {"B": 2, "K": 7, "S": 27, "O": 19, "T": 3},
    {"B": 4, "K": 3, "S": 21, "O": 9, "T": 6},
)
OUTPUTS = ("scores", "log_probs", "attention", "context", "state", "attention_scores")  # of `StepOutput`


@dataclass(slots=True)
class _Part:
    """One graph in one run: the record, and in it the tensors that go in and out."""

    record: Recording
    inputs: dict[str, Ref]
    outputs: dict[str, Ref]


def graphs_of(model: Any, weights: WeightNames) -> tuple[Graph, Graph, Layout]:
    """The encoder, the step, and the state between them.

    Raises:
        ModelError: the model does something that no graph can.
    """
    most, least = model.max_source_tokens, max(sizes["S"] for sizes in RUNS)
    if most is not None and most < least:
        raise ModelError(f"it has {most} positions, and graphs are made from texts of {least} tokens")
    with torch.inference_mode():
        runs = [_run(model, sizes, number) for number, sizes in enumerate(RUNS)]
    encoders, steps, layouts = zip(*runs, strict=True)
    encoder, step = (
        Builder(name, laid_together([part.record for part in parts], RUNS), weights)
        for name, parts in (("encoder", encoders), ("step", steps))
    )
    _write(step, steps[0].inputs, steps[0].outputs)
    layout = _read(step, layouts[0])
    kept = {f"{kind}.{name}" for name in (*layout.rows, *layout.shared) for kind in ("state", "taught")}
    _write(encoder, encoders[0].inputs, {name: ref for name, ref in encoders[0].outputs.items() if name in kept})
    return encoder.finish(), step.finish(), layout


def _read(step: Builder, layout: Layout) -> Layout:
    """The state without what is in it and never read, which the graph loses too."""
    read = {name for node in step.graph.nodes for name in node.inputs if node.operator != "Identity"}
    unread = {name for name in (*layout.rows, *layout.shared) if f"state.{name}" not in read}
    gone = {f"{kind}.{name}" for name in unread for kind in ("state", "next")}
    step.graph.inputs = [port for port in step.graph.inputs if port.name not in gone]
    step.graph.outputs = [port for port in step.graph.outputs if port.name not in gone]
    kept = {kind: tuple(n for n in getattr(layout, kind) if n not in unread) for kind in ("rows", "shared", "next")}
    return layout.model_copy(update=kept)


def _write(builder: Builder, inputs: dict[str, Ref], outputs: dict[str, Ref]) -> None:
    for name, ref in inputs.items():
        builder.take(ref, name)
    for operation in builder.trace.operations:
        lower(builder, operation)
    for name, ref in outputs.items():
        builder.give(ref, name)


def _run(model: Any, sizes: dict[str, int], number: int) -> tuple[_Part, _Part, Layout]:
    batch, outside = _documents(model, sizes, number)
    given = {"source_ids": batch.source_ids, "extended_ids": batch.source_extended_ids, "mask": batch.source_mask}
    with Recorder() as recorder:
        inputs = recorder.refs(given | {"outside": outside})
        memory = model.encode(batch)
        rows, shared = divided(model.start(memory), twice=True)
        outputs = recorder.refs(rows | shared, "state.")
        if getattr(model.config, "see_decode_parity", False):  # what is taught starts without it
            outputs |= recorder.refs(divided(model._first_state(memory), twice=True)[0], "taught.")
    encoder = _Part(recorder.record, inputs, outputs)
    beams = torch.arange(sizes["B"]).repeat_interleave(sizes["K"])
    state = select(model.start(memory), beams)
    last_ids = torch.randint(4, model.vocab_size, (sizes["B"] * sizes["K"],))
    for _ in range(sizes["T"]):
        state = model.step(last_ids, state)[1]
    rows, shared = divided(state)
    with Recorder() as recorder:
        inputs = recorder.refs({"last_ids": last_ids, "outside": outside}) | recorder.refs(rows | shared, "state.")
        output, after = model.step(last_ids, state)
        found = {name: value for name in OUTPUTS if (value := getattr(output, name)) is not None}
        same = output.scores is output.log_probs
        if same:
            del found["scores"]
        found |= {f"details.{name}": value for name, value in output.details.items()}
        changed = {name: tensor for name, tensor in divided(after)[0].items() if rows.get(name) is not tensor}
        outputs = recorder.refs(found) | recorder.refs(changed, "next.")
    layout = Layout(rows=tuple(rows), shared=tuple(shared), next=tuple(changed), outputs=tuple(found), same_scores=same)
    return encoder, _Part(recorder.record, inputs, outputs), layout


def _documents(model: Any, sizes: dict[str, int], seed: int) -> tuple[Batch, Tensor]:
    """Made-up documents of different lengths."""
    draw = torch.Generator().manual_seed(seed)
    documents, width, outside = sizes["B"], sizes["S"], sizes["O"]
    extended = torch.randint(4, model.vocab_size + outside, (documents, width), generator=draw)
    lengths = torch.tensor([width, *(max(1, width // (2 + place)) for place in range(documents - 1))])
    mask = torch.arange(width)[None] < lengths[:, None]
    extended = extended.masked_fill(~mask, model.pad_id)
    known = extended.masked_fill(extended >= model.vocab_size, model.unk_id)
    return Batch(known, extended, mask, model.vocab_size + outside), torch.zeros(outside)


# ------------------------------------------------------------------------------------------- states


def divided(state: Any, *, twice: bool = False) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The tensors of a decoder state by the names of their places: those of rows, and those of documents.

    A tensor that stands in several places has the name of the first, or with ``twice`` those of all.
    """
    found: dict[bool, dict[str, Tensor]] = {False: {}, True: {}}  # by whether they belong to the documents
    seen: set[int] = set()
    for name, tensor, shared in _tensors(state):
        if tensor.dim() and (twice or id(tensor) not in seen):
            seen.add(id(tensor))
            found[shared][name] = tensor
    return found[False], found[True]


def _tensors(tree: Any, name: str = "", shared: bool = False) -> Iterator[tuple[str, Tensor, bool]]:
    """The tensors of a nested structure, each with the name of its place, and whether it belongs to a document."""
    if isinstance(tree, Shared):
        yield from _tensors(tree.tree, name, True)
    elif isinstance(tree, Tensor):
        yield name, tree, shared
    elif hasattr(tree, "select_documents"):
        raise ModelError(f"its state holds a {type(tree).__name__}, which orders its beams by itself")
    else:
        for key, value in _parts(tree):
            yield from _tensors(value, f"{name}.{key}" if name else str(key), shared)


def _parts(tree: Any) -> Iterable[tuple[Any, Any]]:
    if isinstance(tree, dict):
        return tree.items()
    if isinstance(tree, (list, tuple)):
        return enumerate(tree)
    return [(each, getattr(tree, each)) for each in getattr(tree, "__dataclass_fields__", ())]
