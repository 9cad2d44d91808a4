"""Recurrent layers: real tokens against padding, biases, bridges, precision."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import Tensor, nn

from catchline.layers import recurrent
from catchline.layers.recurrent import GruCell, PaperGruCell, PaperRecurrence, Recurrence
from catchline.models.seq2seq import Bridge
from samples import rand, randomise

B, T, E, H = 3, 5, 4, 6


def layer_of(cell: str, **options: bool) -> Recurrence:
    torch.manual_seed(0)
    return Recurrence(cell, E, H, **options).double()


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("cell", ["lstm", "gru"])
def test_padding_does_not_exist(cell: str, bidirectional: bool) -> None:
    """The backward direction starts at the last real token; outputs at padding are zero; the gradients of all inputs
    and weights are those of the rows without their padding, added up."""
    layer = layer_of(cell, bidirectional=bidirectional)
    lengths, total = [T, 3, 1], torch.zeros((), dtype=torch.float64)
    mask = torch.arange(T) < torch.tensor(lengths)[:, None]
    inputs = torch.where(mask[..., None], rand(B, T, E), 100 * rand(B, T, E, seed=5))  # junk in the padding
    leaves = [inputs.requires_grad_(), *layer.parameters()]
    outputs, final = layer.over_real_tokens(inputs, mask)
    weights = rand(*outputs.shape, seed=7)
    assert len(final) == (2 if cell == "lstm" else 1)
    for b, length in enumerate(lengths):
        alone, last = layer.layer(inputs[b : b + 1, :length])
        last = last if cell == "lstm" else (last,)
        torch.testing.assert_close(outputs[b, :length], alone[0], atol=1e-14, rtol=0)
        assert outputs[b, length:].abs().sum() == 0
        for part, wanted in zip(final, last, strict=True):
            torch.testing.assert_close(part[:, b], wanted[:, 0], atol=1e-14, rtol=0)
        total = total + (alone * weights[b, :length]).sum() + sum(part.square().sum() for part in last)
    loss = (outputs * weights).sum() + sum(part.square().sum() for part in final)
    actual = torch.autograd.grad(loss, leaves)
    torch.testing.assert_close(actual, torch.autograd.grad(total, leaves), atol=1e-12, rtol=0)
    assert actual[0][~mask].abs().sum() == 0


@pytest.mark.parametrize("bidirectional", [False, True])
def test_one_bias(bidirectional: bool) -> None:
    """No second bias vector among the parameters: gone from copies, files and other precisions alike."""
    one, two = (layer_of("lstm", bidirectional=bidirectional, two_biases=two) for two in (False, True))
    directions = 1 + bidirectional
    count = [sum(p.numel() for p in layer.parameters()) for layer in (one, two)]
    assert count[1] - count[0] == directions * 4 * H
    mask = torch.arange(T) < torch.tensor([T, 3, 1])[:, None]
    expected, _ = one.over_real_tokens(rand(B, T, E), mask)
    again = layer_of("lstm", bidirectional=bidirectional, two_biases=False).float()
    again.load_state_dict(one.float().state_dict())
    one.double()
    for layer in (copy.deepcopy(one), again.double()):
        torch.testing.assert_close(layer.over_real_tokens(rand(B, T, E), mask)[0], expected, atol=1e-6, rtol=0)
    with torch.no_grad():
        for parameter in one.parameters():
            parameter.add_(1.0)  # the layer must read its parameters, not a copy of them
    assert (one.over_real_tokens(rand(B, T, E), mask)[0] - expected).abs().max() > 0.01


def test_forget_bias_is_added_to_the_forget_gate_only() -> None:
    for options in ({}, {"bidirectional": True}, {"two_biases": False}):
        layer, plain = layer_of("lstm", **options), layer_of("lstm", **options)
        layer.add_forget_bias(1.0)
        for (name, changed), (_, before) in zip(layer.named_parameters(), plain.named_parameters(), strict=True):
            difference = changed.detach() - before.detach()
            expected = torch.zeros_like(difference)
            if "bias_ih" in name:
                expected[H : 2 * H] = 1.0
            torch.testing.assert_close(difference, expected, atol=1e-15, rtol=0)
    gru, before = layer_of("gru"), layer_of("gru")
    gru.add_forget_bias(1.0)
    assert all(torch.equal(a, b) for a, b in zip(gru.parameters(), before.parameters(), strict=True))


@pytest.mark.parametrize(
    ("cell_parts", "activations"), [(2, ("tanh", "none")), (2, ("relu", "relu")), (1, ("none", "tanh"))]
)
def test_bridge(cell_parts: int, activations: tuple[str, str]) -> None:
    functions = {"tanh": torch.tanh, "relu": torch.relu, "none": lambda x: x}
    bridge = Bridge(cell_parts, 2, E, H, activations).double()
    final = tuple(rand(2, B, E, seed=s) for s in range(cell_parts))
    for k, result in enumerate(bridge(final)):
        for b in range(B):
            both = torch.cat([final[k][0, b], final[k][1, b]])  # [forward; backward]
            expected = functions[activations[k]](bridge.layers[k].weight @ both + bridge.layers[k].bias)
            torch.testing.assert_close(result[b], expected, atol=1e-14, rtol=0)


def test_a_cpu_without_bf16_reads_in_float32_under_autocast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recurrent, "runs_in_bf16", lambda device: False)
    layer, inputs = Recurrence("lstm", 8, 8), torch.randn(3, 5, 8)
    with torch.autocast("cpu", torch.bfloat16):
        states, _ = layer.over_real_tokens(inputs, torch.ones(3, 5, dtype=torch.bool))
    assert states.dtype == torch.float32


B_P, T_P, E_P, H_P = 3, 6, 4, 5
LENGTHS = (6, 3, 1)
MASK = torch.arange(T_P) < torch.tensor(LENGTHS)[:, None]
EXACT = {"atol": 1e-13, "rtol": 0}


def by_hand(cell: PaperGruCell, x: Tensor, h: Tensor) -> Tensor:
    """Equations (2) to (5) with u = 1 - z for one row."""
    w_r, w_z, w = cell.weight_ih.split(H_P)
    u_r, u_z, u = cell.weight_hh.split(H_P)
    b_r, b_z, b = torch.zeros(3, H_P).double() if cell.bias_ih is None else cell.bias_ih.split(H_P)
    r = torch.sigmoid(w_r @ x + u_r @ h + b_r)
    update = torch.sigmoid(-(w_z @ x + u_z @ h + b_z))
    return (1 - update) * h + update * torch.tanh(w @ x + u @ (r * h) + b)


def cell_of(cls: type[GruCell] = PaperGruCell, *, bias: bool = True, seed: int = 0) -> GruCell:
    cell = cls(E_P, H_P, bias=bias).double()
    randomise(cell, seed=seed, scale=1.0)
    return cell


def test_the_input_may_come_in_two_parts() -> None:
    cell, inputs = cell_of(), rand(B_P, E_P)
    first = cell.project(inputs[:, :3], slice(0, 3))
    rest = nn.functional.linear(inputs[:, 3:], cell.weight_ih[:, 3:])
    torch.testing.assert_close(first + rest, cell.project(inputs), **EXACT)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("bidirectional", [True, False])
def test_a_sequence_is_its_steps(bidirectional: bool, bias: bool) -> None:
    """Each document alone, without padding, one step at a time; the backward direction from its last real token."""
    layer = PaperRecurrence(E_P, H_P, bidirectional=bidirectional, bias=bias).double()
    randomise(layer, scale=1.0)
    inputs = torch.where(MASK[..., None], rand(B_P, T_P, E_P), 100 * rand(B_P, T_P, E_P, seed=3))
    outputs, (final,) = layer.over_real_tokens(inputs, MASK)
    assert outputs[~MASK].eq(0).all()
    assert final.shape == (1 + bidirectional, B_P, H_P)
    for b, length in enumerate(LENGTHS):
        for number, cell in enumerate(layer.cells):
            h = torch.zeros(H_P).double()
            order = range(length) if number == 0 else reversed(range(length))
            for t in order:
                h = by_hand(cell, inputs[b, t], h)
                torch.testing.assert_close(outputs[b, t, number * H_P : (number + 1) * H_P], h, **EXACT)
            torch.testing.assert_close(final[number, b], h, **EXACT)
