"""The GRU with the reset gate before U: cells, sequences, padding, gradients."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from catchline.layers.recurrent import GruCell, PaperGruCell, PaperRecurrence
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
