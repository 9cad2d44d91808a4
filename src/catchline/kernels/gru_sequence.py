"""A GRU over a whole sequence with its gradient written out, in both readings of the reset gate.

On a CPU torch runs ``nn.GRU`` as some ten operations a step, each of which autograd records, and makes the recurrent
weights' gradient anew at every step, (3H, H) numbers, to add it to the sum so far. Here a step of the forward pass is a
product and five passes over (B, 4H), nothing is recorded, and the gradients of the weights are one product each at the
end. Kept for the backward pass: r, z, n and h of every step (and U_n h in torch's reading), in one buffer that was the
input's products.

With P = W x + b (blocks r, z, n) and G = U h + c:

    r = sigmoid(P_r + G_r)      z = sigmoid(P_z + G_z)      h' = (1 - z) n + z h
    n = tanh(P_n + r * G_n)                torch: the reset gate after U
    n = tanh(P_n + U_n (r * h))            the paper (Cho et al. 2014): before it; c is zero

Backward, with g = dL/dh' and what P, G, h get of it:

    dP_n = g (1 - z) (1 - n^2)      dP_z = g (h - n) z (1 - z)
    torch:  dP_r = dP_n G_n r (1 - r),   dG = [dP_r, dP_z, dP_n r],   dh = g z + dG U
    paper:  q = dP_n U_n,  dP_r = q h r (1 - r),   dh = g z + [dP_r, dP_z] U_rz + q r
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import linear


def paper_gru(inputs: Tensor, weight_ih: Tensor, weight_hh: Tensor, bias: Tensor | None = None) -> Tensor:
    """`catchline.papers.distraction.gru`, (S, B, I) -> (S, B, H)."""
    return gru_sequence(inputs, weight_ih, weight_hh, bias, None, paper=True)


def gru_sequence(
    inputs: Tensor,
    weight_ih: Tensor,
    weight_hh: Tensor,
    bias_ih: Tensor | None,
    bias_hh: Tensor | None,
    *,
    paper: bool = False,
) -> Tensor:
    """All states of a GRU that starts at zero: (S, B, I) -> (S, B, H), time in front. Weights (3H, I), (3H, H) and
    biases (3H,) are in the order r, z, n; ``paper`` takes no ``bias_hh``."""
    return _GruSequence.apply(inputs, weight_ih, weight_hh, bias_ih, bias_hh, paper)


class _GruSequence(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        inputs: Tensor,
        weight_ih: Tensor,
        weight_hh: Tensor,
        bias_ih: Tensor | None,
        bias_hh: Tensor | None,
        paper: bool,
    ) -> Tensor:
        # states (S, B, H), gates (S, B, 3H) in the order r, z, n, and G_n (S, B, H) in torch's reading
        size, both = weight_hh.shape[1], 2 * weight_hh.shape[1]
        gates = linear(inputs, weight_ih, bias_ih)
        states = gates.new_empty(*gates.shape[:2], size)
        held = None if paper else torch.empty_like(states)
        state = gates.new_zeros(gates.shape[1], size)
        turned = weight_hh.t()
        for t, gate in enumerate(gates):
            r, n = gate[:, :size], gate[:, both:]
            if held is None:
                gate[:, :both].addmm_(state, turned[:, :both]).sigmoid_()
                n.addmm_(r * state, turned[:, both:]).tanh_()
            else:
                products = state @ turned if bias_hh is None else torch.addmm(bias_hh, state, turned)
                gate[:, :both].add_(products[:, :both]).sigmoid_()
                held[t] = products[:, both:]
                n.addcmul_(r, held[t]).tanh_()
            state = torch.lerp(n, state, gate[:, size:both], out=states[t])
        ctx.save_for_backward(inputs, weight_ih, weight_hh, bias_ih, bias_hh, states, gates, held)
        return states

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        inputs, weight_ih, weight_hh, bias_ih, bias_hh, states, gates, held = ctx.saved_tensors
        size = weight_hh.shape[1]
        d_products = _backward_in_time(gradient, weight_hh, states, gates, held)
        flat = d_products.flatten(0, 1)
        # what the state's products G get: the same but for n's share, which passed the reset gate
        past = torch.cat([torch.zeros_like(states[:1]), states[:-1]])
        reset = gates[..., :size]
        d_weight_hh = torch.empty_like(weight_hh)
        torch.mm(flat[:, : 2 * size].t(), past.flatten(0, 1), out=d_weight_hh[: 2 * size])
        d_bias_hh = None
        if held is None:
            candidate = past.mul_(reset).flatten(0, 1)
            torch.mm(flat[:, 2 * size :].t(), candidate, out=d_weight_hh[2 * size :])
        else:
            passed = (d_products[..., 2 * size :] * reset).flatten(0, 1)
            torch.mm(passed.t(), past.flatten(0, 1), out=d_weight_hh[2 * size :])
            if bias_hh is not None and ctx.needs_input_grad[4]:
                d_bias_hh = torch.cat([flat[:, : 2 * size].sum(dim=0), passed.sum(dim=0)])
        d_inputs = (flat @ weight_ih).view_as(inputs) if ctx.needs_input_grad[0] else None
        d_weight_ih = flat.t() @ inputs.flatten(0, 1)
        d_bias_ih = flat.sum(dim=0) if bias_ih is not None and ctx.needs_input_grad[3] else None
        return d_inputs, d_weight_ih, d_weight_hh, d_bias_ih, d_bias_hh, None


def _backward_in_time(
    gradient: Tensor, weight_hh: Tensor, states: Tensor, gates: Tensor, held: Tensor | None
) -> Tensor:
    """dL/dP, (S, B, 3H), by the formulas at the head of the file."""
    size, both = weight_hh.shape[1], 2 * weight_hh.shape[1]
    d_products = torch.empty_like(gates)
    carried = torch.zeros_like(states[0])
    zero = torch.zeros_like(states[0])
    for t in range(len(gates) - 1, -1, -1):
        g = carried.add_(gradient[t])
        state = states[t - 1] if t else zero
        (r, z, n), d_p = gates[t].split(size, dim=-1), d_products[t]
        kept = g * z
        g = g.sub_(kept)  # g (1 - z)
        d_r, d_z, d_n = d_p.split(size, dim=-1)
        torch.mul(g, torch.sub(state, n).mul_(z), out=d_z)  # = g (h - n) z (1 - z)
        torch.addcmul(g, g * n, n, value=-1, out=d_n)
        slope = torch.addcmul(r, r, r, value=-1)
        if held is None:
            through = d_n @ weight_hh[both:]
            torch.mul(through, slope.mul_(state), out=d_r)
            carried = kept.addcmul_(through, r).addmm_(d_p[:, :both], weight_hh[:both])
        else:
            torch.mul(d_n, slope.mul_(held[t]), out=d_r)
            carried = kept.addmm_(d_p[:, :both], weight_hh[:both]).addmm_(d_n * r, weight_hh[both:])
    return d_products
