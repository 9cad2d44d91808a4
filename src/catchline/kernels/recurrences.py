"""Recurrences over all steps as one function, with their gradients written out: a GRU in both readings of the reset
gate, and CoCoNet's copying history.

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
from torch.nn import functional as F


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
        gates = F.linear(inputs, weight_ih, bias_ih)
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


# ---------------------------------------------------------------------------------------------------- copying history


def copying_history(
    weights: Tensor, split: Tensor | None, attended: Tensor, values: Tensor, matrix: Tensor
) -> tuple[Tensor, Tensor]:
    """(11)-(15) over T steps, P_co as it is: P_final (B, T, S), and g (B, T), which has no gradient. alpha (B, T, S); u
    (B, T, 1), or none where one of s and p is not used; what alpha adds to g's argument (B, T); w_g . V for P_co (B,
    S); s and p one below the other (B, n S, S)."""
    return _CopyingHistory.apply(weights, split, attended, values, matrix)


class _CopyingHistory(torch.autograd.Function):
    """Written out because a step is small: left to autograd its forty operations, and as many on the way back, take
    longer to ask for than to compute. Here they are six or seven, in place, in tensors with the steps in front; what
    the steps do not need from one another is one operation after them.

    With P the result, r = P_co, g its gate and d the gradient of P, which grows by what the step after sends:

        dx = g (1 - g) d . (alpha - r);   dr = (1 - g) d + dx v;   dP_t-1 = u (dr s^T) + (1 - u) (dr p^T)
    """

    @staticmethod
    def forward(
        ctx: Any, weights: Tensor, split: Tensor | None, attended: Tensor, values: Tensor, matrix: Tensor
    ) -> tuple[Tensor, Tensor]:
        batch, steps, size = weights.shape
        histories = weights.new_zeros(steps + 1, batch, 1, size)
        raw, gates = weights.new_empty(steps, batch, 1, size), weights.new_empty(steps, batch, 1, 1)
        parts = histories[:-1] if split is None else weights.new_empty(steps, batch, 2, size)
        shares = None if split is None else torch.stack([split, 1 - split], dim=2).transpose(0, 1)  # (T, B, 2, 1)
        reads = torch.stack([values, torch.ones_like(values)], dim=-1)  # w_g . V, and ones for the mass
        begins = F.pad(attended.unsqueeze(-1), (0, 1)).transpose(0, 1).unsqueeze(2)  # (T, B, 1, 2)
        alphas, flat = weights.transpose(0, 1).unsqueeze(2), parts.view(steps, batch, 1, -1)
        unbound = map(torch.unbind, (histories[:-1], histories[1:], alphas, begins, raw, gates, parts, flat))
        for t, (before, after, alpha, begin, moved, gate, part, row) in enumerate(zip(*unbound, strict=True)):
            if shares is not None:
                torch.mul(before, shares[t], out=part)
            torch.bmm(row, matrix, out=moved)
            argument, mass = torch.baddbmm(begin, moved, reads).split(1, dim=-1)
            torch.sigmoid(argument, out=gate).masked_fill_(mass <= 0, 1.0)
            torch.lerp(moved, alpha, gate, out=after)
        ctx.save_for_backward(weights, split, values, matrix, histories, raw, gates, parts)
        flat_gates = gates.view(steps, batch).t()
        ctx.mark_non_differentiable(flat_gates)
        return histories[1:].squeeze(2).transpose(0, 1), flat_gates

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, wanted: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        weights, split, values, matrix, histories, raw, gates, parts = ctx.saved_tensors
        batch, steps = weights.shape[:2]
        d = wanted.transpose(0, 1).unsqueeze(2).clone(memory_format=torch.contiguous_format)  # (T, B, 1, S)
        steep = (weights.transpose(0, 1).unsqueeze(2) - raw).mul_(gates * (1 - gates)).transpose(2, 3)
        d_argument, d_raw, d_parts = torch.empty_like(gates), torch.empty_like(raw), torch.empty_like(parts)
        line, backwards, shares = values.unsqueeze(1), matrix.mT, () if split is None else split.split(1, dim=1)
        tensors = (d, steep, 1 - gates, d_argument, d_raw, d_parts, d_parts.view(steps, batch, 1, -1))
        unbound = list(zip(*map(torch.unbind, tensors), strict=True))
        for t in reversed(range(steps)):
            now, slope, left, argument, moved, part, row = unbound[t]
            torch.bmm(now, slope, out=argument)
            torch.mul(now, left, out=moved).addcmul_(line, argument)
            torch.bmm(moved, backwards, out=row)
            if t:
                unbound[t - 1][0].add_(torch.lerp(part[:, 1:], part[:, :1], shares[t]) if shares else part)
        moved = d_raw.squeeze(2).transpose(0, 1)  # (B, T, S)
        d_values = torch.bmm(d_argument.flatten(1).t().unsqueeze(1), raw.squeeze(2).transpose(0, 1)).squeeze(1)
        d_split = None
        if split is not None:
            apart = (d_parts[:, :, 0] - d_parts[:, :, 1]).mul_(histories[:-1, :, 0])
            d_split = apart.sum(dim=-1, keepdim=True).transpose(0, 1)
        d_matrix = torch.bmm(parts.flatten(2).permute(1, 2, 0), moved) if ctx.needs_input_grad[4] else None
        d_weights = d.mul_(gates).squeeze(2).transpose(0, 1)
        return d_weights, d_split, d_argument.flatten(1).t(), d_values, d_matrix
