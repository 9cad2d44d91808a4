"""The GRU with the reset gate before U: cells, sequences, padding, gradients."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from catchline.kernels.gru_sequence import gru_sequence
from catchline.layers.recurrent import GruCell, PaperGruCell, PaperRecurrence, Recurrence
from samples import rand, randomise

B, T, E, H = 3, 6, 4, 5
LENGTHS = (6, 3, 1)
MASK = torch.arange(T) < torch.tensor(LENGTHS)[:, None]
EXACT = {"atol": 1e-13, "rtol": 0}


def by_hand(cell: PaperGruCell, x: Tensor, h: Tensor) -> Tensor:
    """Equations (2) to (5) with u = 1 - z for one row."""
    w_r, w_z, w = cell.weight_ih.split(H)
    u_r, u_z, u = cell.weight_hh.split(H)
    b_r, b_z, b = torch.zeros(3, H).double() if cell.bias_ih is None else cell.bias_ih.split(H)
    r = torch.sigmoid(w_r @ x + u_r @ h + b_r)
    update = torch.sigmoid(-(w_z @ x + u_z @ h + b_z))
    return (1 - update) * h + update * torch.tanh(w @ x + u @ (r * h) + b)


def cell_of(cls: type[GruCell] = PaperGruCell, *, bias: bool = True, seed: int = 0) -> GruCell:
    cell = cls(E, H, bias=bias).double()
    randomise(cell, seed=seed, scale=1.0)
    return cell


def test_the_input_may_come_in_two_parts() -> None:
    cell, inputs = cell_of(), rand(B, E)
    first = cell.project(inputs[:, :3], slice(0, 3))
    rest = nn.functional.linear(inputs[:, 3:], cell.weight_ih[:, 3:])
    torch.testing.assert_close(first + rest, cell.project(inputs), **EXACT)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("bidirectional", [True, False])
def test_a_sequence_is_its_steps(bidirectional: bool, bias: bool) -> None:
    """Each document alone, without padding, one step at a time; the backward direction from its last real token."""
    layer = PaperRecurrence(E, H, bidirectional=bidirectional, bias=bias).double()
    randomise(layer, scale=1.0)
    inputs = torch.where(MASK[..., None], rand(B, T, E), 100 * rand(B, T, E, seed=3))
    outputs, (final,) = layer.over_real_tokens(inputs, MASK)
    assert outputs[~MASK].eq(0).all()
    assert final.shape == (1 + bidirectional, B, H)
    for b, length in enumerate(LENGTHS):
        for number, cell in enumerate(layer.cells):
            h = torch.zeros(H).double()
            order = range(length) if number == 0 else reversed(range(length))
            for t in order:
                h = by_hand(cell, inputs[b, t], h)
                torch.testing.assert_close(outputs[b, t, number * H : (number + 1) * H], h, **EXACT)
            torch.testing.assert_close(final[number, b], h, **EXACT)


@pytest.mark.parametrize("padded", [True, False])
@pytest.mark.parametrize("bidirectional", [True, False])
def test_torchs_gru_without_bias(bidirectional: bool, padded: bool) -> None:
    layer = Recurrence("gru", E, H, bidirectional=bidirectional, bias=False).double()
    theirs = nn.GRU(E, H, batch_first=True, bidirectional=bidirectional, bias=False).double()
    assert {n.removeprefix("layer.") for n, _ in layer.named_parameters()} == {n for n, _ in theirs.named_parameters()}
    theirs.load_state_dict({n: p for n, p in layer.layer.state_dict().items() if "bias" not in n})
    mask, inputs = MASK if padded else torch.ones_like(MASK), rand(B, T, E)
    outputs, _ = layer.over_real_tokens(inputs, mask)
    for b, length in enumerate(mask.sum(1).tolist()):
        torch.testing.assert_close(outputs[b, :length], theirs(inputs[b : b + 1, :length])[0][0], **EXACT)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("paper", [True, False])
def test_the_written_gradient_of_a_sequence(paper: bool, bias: bool) -> None:
    """Against numbers, against steps with autograd, without gradients, and twice through one graph."""
    inputs, weight_ih, weight_hh = rand(T, B, E), rand(3 * H, E, seed=1), rand(3 * H, H, seed=2)
    bias_ih = rand(3 * H, seed=3) if bias else None
    bias_hh = rand(3 * H, seed=4) if bias and not paper else None
    leaves = [part for part in (inputs, weight_ih, weight_hh, bias_ih, bias_hh) if part is not None]

    def function(*parts: Tensor) -> Tensor:
        given = iter(parts)
        return gru_sequence(*(None if part is None else next(given) for part in everything), paper=paper)

    everything = (inputs, weight_ih, weight_hh, bias_ih, bias_hh)
    with torch.no_grad():
        plain = function(*leaves)
    for leaf in leaves:
        leaf.requires_grad_()
    assert torch.autograd.gradcheck(function, leaves, fast_mode=True)
    states = function(*leaves)
    assert torch.equal(plain, states)
    cell = (PaperGruCell if paper else GruCell)(E, H, bias=bias).double()
    with torch.no_grad():
        for name, part in (("weight_ih", weight_ih), ("weight_hh", weight_hh), ("bias_ih", bias_ih)):
            if part is not None:
                getattr(cell, name).copy_(part)
        if bias_hh is not None:
            cell.bias_hh.copy_(bias_hh)
    state, stepped = torch.zeros(B, H).double(), []
    for one in inputs:
        state = cell.step(cell.project(one), state)
        stepped.append(state)
    torch.testing.assert_close(states, torch.stack(stepped), **EXACT)
    loss = (states * rand(T, B, H, seed=5)).sum()
    first = torch.autograd.grad(loss, leaves, retain_graph=True)
    second = torch.autograd.grad(loss, leaves)
    assert all(torch.equal(a, b) for a, b in zip(first, second, strict=True))
