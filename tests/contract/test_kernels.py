"""Each kernel equals the plain equation it stands for, values and gradients, in float64; and one switch chooses."""

from __future__ import annotations

import inspect
import pkgutil
from collections.abc import Callable
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

from catchline import kernels
from catchline.errors import ConfigError
from catchline.kernels import attention, dispatch, graph, packed, recurrences, vocabulary
from catchline.layers.recurrent import PaperRecurrence, Recurrence
from catchline.papers import coarse_to_fine, coconet, distraction, pointer_generator
from samples import rand

B, Q, S, D, A, H, V, X = 3, 2, 7, 4, 5, 2, 9, 11
MASK = torch.tensor([[True] * 7, [True] * 4 + [False] * 3, [False] * 7])
IDS = torch.tensor([[1, 2, 2, 9, 10, 1, 3], [4, 9, 4, 5, 0, 0, 0], [0] * 7])


def torchs_gru(inputs: Tensor, *weights: Tensor) -> Tensor:
    layer = torch.nn.GRU(inputs.shape[-1], weights[1].shape[1]).double()
    names = ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
    return torch.func.functional_call(layer, dict(zip(names, weights, strict=True)), (inputs,))[0]


def with_first(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """A step's distribution without gradients, of logits that may be overwritten."""
    places = torch.arange(S).expand(B, S)
    table = torch.full((B, X), S).scatter_reduce_(1, IDS, places, reduce="amin")
    first = table.gather(1, IDS).unsqueeze(1).expand(B, Q, S)

    def run(logits: Tensor, *rest: Tensor) -> Tensor:
        with torch.no_grad():
            return function(logits.clone(), *rest, IDS.unsqueeze(1).expand(B, Q, S), X, first)

    return run


def over_real_tokens(layer: Any) -> tuple[Callable[..., Tensor], Callable[..., Tensor]]:
    """Outputs and final states of a recurrent layer, as a graph has it and as it is: documents of 7, 4 and 1 tokens."""
    layer = layer.double()
    paper = isinstance(layer, PaperRecurrence)
    weights = [p for cell in layer.cells for p in cell.four_weights()] if paper else list(layer.layer._flat_weights)
    mask = torch.arange(S) < torch.tensor([[7], [4], [1]])

    @torch.no_grad()
    def graph_s(inputs: Tensor) -> Tensor:
        outputs, last = graph.recurrence(inputs, mask, weights, "paper_gru" if paper else layer.cell)
        return torch.cat([outputs.flatten(), *map(torch.flatten, last)])

    @torch.no_grad()
    def own(inputs: Tensor) -> Tensor:
        outputs, last = layer.over_real_tokens(inputs, mask)
        return torch.cat([outputs.flatten(), *map(torch.flatten, last)])

    return graph_s, own


Pair = tuple[Callable[..., Tensor], Callable[..., Tensor], tuple[Tensor, ...]]


def step_by_step(weights: Tensor, *rest: Tensor) -> Tensor:
    """CoCoNet's recurrence, one step after the other; the rest as `recurrences.copying_history` has it."""
    *split, attended, values, matrix = rest
    history, found = torch.zeros_like(weights[:, :1]), []
    for t, alpha in enumerate(weights.split(1, dim=1)):
        parts = coconet.split_history(history, split[0][:, t : t + 1]).flatten(2) if split else history
        moved = coconet.transferred(parts, matrix)
        gate = torch.sigmoid(attended[:, t : t + 1] + coconet.context_gate(moved, values))
        history = coconet.mixed(alpha, moved, torch.where(moved.sum(dim=-1) > 0, gate, 1.0))
        found.append(history)
    return torch.cat(found, dim=1)


def in_one(weights: Tensor, *rest: Tensor) -> Tensor:
    *split, attended, values, matrix = rest
    return recurrences.copying_history(weights, split[0] if split else None, attended, values, matrix)[0]


def recurrence(gated: bool) -> Pair:
    """The second document may go nowhere."""
    matrix = torch.softmax(rand(B, (2 if gated else 1) * S, S, seed=4), dim=-1)
    matrix[1] = 0.0
    split = (torch.sigmoid(rand(B, Q, 1, seed=1)),) if gated else ()
    given = (torch.softmax(rand(B, Q, S), dim=-1), *split, rand(B, Q, seed=2), rand(B, S, seed=3), matrix)
    return in_one, step_by_step, given


SCORED = (rand(B, S, A), rand(B, Q, A, seed=1), rand(A, seed=2), rand(B, Q, S, seed=3).abs(), rand(A, seed=4))
GOLD = torch.tensor([0, 8, 3, 3, 5])
LAYER = (rand(5, D), rand(V, D, seed=1), rand(V, seed=2))
GRU = (rand(S, B, D), rand(3 * A, D, seed=1), rand(3 * A, A, seed=2), rand(3 * A, seed=3))
FILTERS = (rand(12, D), rand(5, D, 3, seed=1))
# name: (kernel, plain, inputs with gradients, the rest)
PAIRS: dict[str, Pair] = {
    "vocabulary.gold_log_probs": (
        lambda *x: vocabulary.gold_log_probs(*x, GOLD),
        lambda *x: pointer_generator.gold_log_probs(*x, GOLD),
        LAYER,
    ),
    "recurrences.paper_gru": (recurrences.paper_gru, distraction.gru, GRU),
    "recurrences.gru_sequence": (recurrences.gru_sequence, torchs_gru, (*GRU, rand(3 * A, seed=4))),
    "attention.mean_attention": (
        lambda q, k: attention.mean_attention(q, k, MASK),
        lambda q, k: coconet.mean_attention(q, k, MASK),
        (rand(B, Q, H, D), rand(B, S, H, D, seed=1)),
    ),
    "recurrences.copying_history": recurrence(True),
    "with s alone": recurrence(False),
    "attention.max_over_windows": (
        lambda *x: attention.max_over_windows(IDS, MASK, *x),
        lambda *x: coarse_to_fine.max_over_windows(IDS, MASK, *x),
        FILTERS,
    ),
    "graph.recurrence": (*over_real_tokens(Recurrence("lstm", D, A, bidirectional=True)), (rand(B, S, D),)),
    "of one direction": (*over_real_tokens(Recurrence("gru", D, A)), (rand(B, S, D),)),
    "of torch's GRU": (*over_real_tokens(Recurrence("gru", D, A, bidirectional=True)), (rand(B, S, D),)),
    "of the paper's GRU": (*over_real_tokens(PaperRecurrence(D, A, bidirectional=True)), (rand(B, S, D),)),
}
for without, given in (("", SCORED), (", nothing before", SCORED[:3])):
    PAIRS |= {
        f"attention.{name}{without}": (getattr(attention, name), paper.attention_scores, given)
        for name, paper in (("attention_scores", pointer_generator), ("distracted_scores", distraction))
    }
    for name, kernel, paper in (
        ("of graphs", graph.attention_scores, pointer_generator),
        ("attention.distracted", attention.distracted(graph.attention_scores), distraction),
    ):
        PAIRS[name + without] = (torch.no_grad()(kernel), torch.no_grad()(paper.attention_scores), given)
for file, kernel in (("graph", graph), ("vocabulary", vocabulary)):
    PAIRS[f"{file}.final_distribution"] = (
        with_first(kernel.final_distribution),
        with_first(lambda *x: pointer_generator.final_distribution(*x[:-1])),
        (rand(B, Q, V), rand(B, Q, seed=1), torch.softmax(rand(B, Q, S, seed=2), dim=-1)),
    )
# Held equal in float32, the only type that is packed, and without gradients, which packed weights do not have:
# tests/unit/kernels/test_vocabulary_and_packing.py, tests/unit/layers/test_blocks.py.
ELSEWHERE = {"packed.linear", "packed.packed_output", "packed.can_pack"}
PARTS = {"vocabulary.at_least_float32", "vocabulary.first_positions", "graph.first_positions"}
CHOOSES = "dispatch"


@pytest.mark.parametrize("name", PAIRS)
def test_values_and_gradients(name: str) -> None:
    """Also of what two steps share."""
    kernel, plain, tensors = PAIRS[name]
    found: list[tuple[Tensor, list[Tensor]]] = []
    for function in (kernel, plain):
        leaves = [tensor.clone().requires_grad_() for tensor in tensors]
        value = function(*leaves)
        sums = [value, function(*leaves).sin() + function(*leaves)]
        sums = [(each * rand(*each.shape, seed=9)).sum() for each in sums if each.requires_grad]
        found.append((value.detach(), [grad for total in sums for grad in torch.autograd.grad(total, leaves)]))
    torch.testing.assert_close(*(value for value, _ in found), atol=1e-12, rtol=1e-10)
    for ours, expected in zip(*(grads for _, grads in found), strict=True):
        torch.testing.assert_close(ours, expected, atol=1e-12, rtol=1e-10)


@pytest.mark.parametrize("block", [1, 2 * S * A], ids=["one pair a block", "two pairs"])
@pytest.mark.parametrize("name", [name for name in PAIRS if name.startswith("attention.")])
def test_small_blocks_change_nothing(name: str, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "_BLOCK_ON_CPU", block)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    test_values_and_gradients(name)


def test_the_table_holds_every_kernel() -> None:
    public = {
        f"{module.name}.{name}"
        for module in pkgutil.iter_modules(kernels.__path__)
        if module.name != CHOOSES
        for name, value in inspect.getmembers(import_module(f"catchline.kernels.{module.name}"), inspect.isfunction)
        if value.__module__ == f"catchline.kernels.{module.name}" and not name.startswith("_")
    }
    assert public == {name.partition(",")[0] for name in PAIRS if "." in name} | ELSEWHERE | PARTS
    assert packed.can_pack(rand(2, 2)) is False
    assert torch.equal(graph.first_positions(IDS, X), vocabulary.first_positions(IDS, X))


def dispatched(switch: str, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """`catchline.kernels.dispatch` as a process with this switch has it, beside this process's own."""
    monkeypatch.setenv("CATCHLINE_KERNELS", switch)
    spec = spec_from_file_location("dispatched", dispatch.__file__)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("switch", ["on", "off"])
def test_one_switch_chooses(switch: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = dispatched(switch, monkeypatch)
    chosen = [value for name, value in vars(found).items() if callable(value) and not name.startswith("_")]
    kernels = [
        value
        for value in chosen
        if getattr(value, "__module__", "").startswith("catchline.kernels.") and value.__name__ != "first_positions"
    ]
    assert bool(kernels) == (switch == "on")
    module = "catchline.papers.pointer_generator" if switch == "off" else "catchline.kernels.attention"
    assert found.attention_scores.__module__ == module


def test_a_switch_that_does_not_exist_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="Unknown value of CATCHLINE_KERNELS 'OFF'"):
        dispatched("OFF", monkeypatch)
