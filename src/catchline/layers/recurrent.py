"""Recurrent layers: one-layer LSTM and GRU over sequences or step by step.

Cells follow torch's convention (gates i, f, g, o; r, z, n; the GRU's reset gate after the product U h). The GRU
of Cho et al. 2014, which the distraction paper prints, has the reset gate before it, U (r * h): another function,
which no fused kernel computes. `PaperGruCell` and `PaperRecurrence` are that one. Sequences of either run through
`catchline.kernels.recurrences` where that is faster than torch's own: always for the paper's, on a CPU for torch's.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from catchline.kernels.dispatch import gru, recurrence, torch_gru
from catchline.papers import distraction

RecurrentState = tuple[Tensor, ...]  # (h, c) of an LSTM or (h,) of a GRU, each (N, H)

_LAYERS: dict[str, Callable[..., nn.RNNBase]] = {"gru": nn.GRU, "lstm": nn.LSTM}
_STEPS: dict[str, Callable[..., Tensor | tuple[Tensor, Tensor]]] = {"gru": torch.gru_cell, "lstm": torch.lstm_cell}
_SEQUENCES: dict[str, Callable[..., tuple[Tensor, ...]]] = {"gru": torch.gru, "lstm": torch.lstm}
# On a GPU torch says so of weights that `_padded` has put together; they are of a call.
warnings.filterwarnings("ignore", message="RNN module weights are not part of single contiguous chunk")
_CLOSED = 1e4  # its sigmoid is exactly 1, that of its negative exactly 0, in every precision
_CLOSING = {"gru": (0.0, _CLOSED, 0.0), "lstm": (-_CLOSED, _CLOSED, 0.0, 0.0)}  # what closes z; i and f
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"none": lambda x: x, "relu": torch.relu, "tanh": torch.tanh}


class Recurrence(nn.Module):
    """A recurrent layer that runs over a whole sequence in one call, or one step, with the same weights. ``two_biases``
    false keeps one bias vector a direction (torch has two whose sum is what counts; See et al. have one); only the LSTM
    allows it, since in torch's GRU the two play different roles. ``bias`` false keeps none. ``forget_bias`` is added to
    the LSTM's forget gate at initialisation."""

    def __init__(
        self,
        cell: str,
        input_size: int,
        hidden_size: int,
        *,
        bidirectional: bool = False,
        two_biases: bool = True,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.cell, self.hidden_size = cell, hidden_size
        self.layer = _LAYERS[cell](input_size, hidden_size, batch_first=True, bidirectional=bidirectional)
        dropped = "bias" if not bias else "bias_hh" if not two_biases and cell == "lstm" else None
        if dropped is not None:
            drop_biases(self.layer, dropped)

    def add_forget_bias(self, value: float) -> None:
        """Add ``value`` to the forget gate's bias of every direction (LSTM)."""
        if self.cell == "lstm" and value:
            with torch.no_grad():
                for name, bias in self.layer.named_parameters():
                    if name.startswith("bias_ih"):
                        bias[self.hidden_size : 2 * self.hidden_size] += value

    def forward(self, inputs: Tensor, state: RecurrentState | None = None) -> tuple[Tensor, RecurrentState]:
        """(B, T, I) -> outputs (B, T, H) and the last state; every position counts as real."""
        hidden = None if state is None else tuple(part.unsqueeze(0) for part in state)
        outputs, last = self.layer(inputs, hidden if hidden is None or len(hidden) > 1 else hidden[0])
        return outputs, tuple(part[-1] for part in (last if isinstance(last, tuple) else (last,)))

    def over_real_tokens(self, inputs: Tensor, mask: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        """(B, S, I) under a (B, S) mask -> outputs (B, S, D), zero at padding, and final states (dirs, B, H). The
        backward direction starts at the last real token; its final state is that of the first token."""
        if recurrence is not None:
            return recurrence(inputs, mask, list(self.layer._flat_weights), self.cell)
        if self.cell == "gru" and torch_gru is not None and inputs.device.type == "cpu" and torch.is_grad_enabled():
            flat: list[Any] = list(self.layer._flat_weights)
            weights = [flat[i : i + 4] for i in range(0, len(flat), 4)]
            with torch.autocast("cpu", enabled=False):
                return gru_over_real_tokens(torch_gru, inputs, mask, weights)
        with torch.autocast(inputs.device.type, enabled=runs_in_bf16(inputs.device)):
            return self._padded(inputs, mask)

    def _padded(self, inputs: Tensor, mask: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        # torch's packed sequences cost S^2 in the backward pass on a CPU. Instead an extra input, one at padding,
        # closes the gates there exactly: an LSTM keeps c (i = 0, f = 1), a GRU keeps h (z = 1). So the forward
        # direction ends with its last real c, and the backward one begins with zeros at the last real token. Zeros
        # fill up to a multiple of eight: inputs of an odd width take oneDNN's recurrence in bf16 twice as long.
        padding = (~mask).unsqueeze(-1).to(inputs.dtype).expand(-1, -1, 8 - inputs.shape[-1] % 8)
        weights: list[Any] = list(self.layer._flat_weights)
        column = torch.cat([weights[0].new_full((self.hidden_size, 1), value) for value in _CLOSING[self.cell]])
        for index in range(0, len(weights), 4):
            weights[index] = torch.cat([weights[index], nn.functional.pad(column, (0, padding.shape[-1] - 1))], dim=1)
        directions = 2 if self.layer.bidirectional else 1
        zero = inputs.new_zeros(directions, inputs.shape[0], self.hidden_size)
        state = (zero, zero) if self.cell == "lstm" else zero
        options = (True, 1, 0.0, self.training, self.layer.bidirectional, True)
        outputs, *last = _SEQUENCES[self.cell](torch.cat([inputs, padding], dim=-1), state, weights, *options)
        outputs = outputs * mask.unsqueeze(-1)
        ends = (mask.sum(dim=1) - 1).clamp_min(0)
        first = outputs[torch.arange(ends.shape[0], device=ends.device), ends, : self.hidden_size]
        # the forward h moves on through padding: o does not close
        return outputs, (torch.cat([first.unsqueeze(0), last[0][1:]]), *last[1:])

    def step(self, inputs: Tensor, state: RecurrentState) -> RecurrentState:
        """One step: (N, I) and a state of (N, H) tensors -> the next state."""
        result = _STEPS[self.cell](inputs, state if len(state) > 1 else state[0], *self.layer._flat_weights[:4])
        return tuple(result) if isinstance(result, tuple) else (result,)


def runs_in_bf16(device: torch.device) -> bool:
    """Is autocast on, and can ``device`` run a recurrent layer in bf16? oneDNN's needs AVX-512, and fails without."""
    if not torch.is_autocast_enabled(device.type) or device.type != "cpu":
        return torch.is_autocast_enabled(device.type)
    return torch.backends.mkldnn.is_available() and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def drop_biases(layer: nn.RNNBase, prefix: str) -> None:
    """Make the biases whose names begin with ``prefix`` (``bias``, ``bias_hh``) zero and no parameters any more."""
    for name in [n for n, _ in layer.named_parameters() if n.startswith(prefix)]:
        zeros = torch.zeros_like(getattr(layer, name))
        delattr(layer, name)
        layer.register_buffer(name, zeros)
    layer._init_flat_weights()


class GruCell(nn.Module):
    """One step of a GRU whose input products may be made for all steps at once; torch's reading of the reset gate.
    Weights as in ``torch.nn.GRUCell``: (3H, I) and (3H, H), blocks in the order r, z, n."""

    def __init__(self, input_size: int, hidden_size: int, *, bias: bool = True) -> None:
        super().__init__()
        self.hidden_size = hidden_size
        limit = hidden_size**-0.5

        def uniform(*shape: int) -> nn.Parameter:
            return nn.Parameter(torch.empty(shape).uniform_(-limit, limit))

        self.weight_ih, self.weight_hh = uniform(3 * hidden_size, input_size), uniform(3 * hidden_size, hidden_size)
        self.bias_ih = uniform(3 * hidden_size) if bias else None
        self.bias_hh = uniform(3 * hidden_size) if bias and self._has_state_bias else None

    _has_state_bias = True

    def four_weights(self) -> list[Tensor]:
        """``W, U, b_W, b_U``, zeros in the place of biases that are not there."""
        zeros = self.weight_ih.new_zeros(3 * self.hidden_size)
        return [self.weight_ih, self.weight_hh, *(zeros if b is None else b for b in (self.bias_ih, self.bias_hh))]

    def project(self, inputs: Tensor, columns: slice = slice(None)) -> Tensor:
        """``W x + b``, (..., I) -> (..., 3H). ``columns`` are the inputs that ``inputs`` holds, if not all: the rest
        of the product is made elsewhere."""
        return nn.functional.linear(inputs, self.weight_ih[:, columns], self.bias_ih)

    def step(self, products: Tensor, state: Tensor) -> Tensor:
        """``n = tanh(x_n + r h_n)``, ``h' = (1 - z) n + z h`` of x = W x + b (N, 3H) and h (N, H) -> (N, H)."""
        size, of_state = self.hidden_size, nn.functional.linear(state, self.weight_hh, self.bias_hh)
        r, z = torch.sigmoid(products[:, : 2 * size] + of_state[:, : 2 * size]).chunk(2, dim=-1)
        n = torch.tanh(torch.addcmul(products[:, 2 * size :], r, of_state[:, 2 * size :]))
        return torch.lerp(n, state, z)


class PaperGruCell(GruCell):
    """The GRU of Cho et al. 2014 and of the distraction paper (equations 2 to 5): reset before U. There is one bias a
    gate at most, that of the input: a second one would add to it."""

    _has_state_bias = False

    def step(self, products: Tensor, state: Tensor) -> Tensor:
        size, linear = self.hidden_size, nn.functional.linear
        gates, candidate = self.weight_hh.split([2 * size, size])
        r, z = distraction.gru_gates(products[:, : 2 * size], linear(state, gates))
        candidates = distraction.gru_candidate(products[:, 2 * size :], linear(r * state, candidate))
        return distraction.gru_state(candidates, z, state)


class PaperRecurrence(nn.Module):
    """`PaperGruCell` over whole sequences, in one direction or two: what `Recurrence` is for torch's cells."""

    def __init__(self, input_size: int, hidden_size: int, *, bidirectional: bool = False, bias: bool = True) -> None:
        super().__init__()
        self.cells: Any = nn.ModuleList(
            PaperGruCell(input_size, hidden_size, bias=bias) for _ in range(1 + bool(bidirectional))
        )

    def over_real_tokens(self, inputs: Tensor, mask: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        """(B, S, I) under a (B, S) mask -> outputs (B, S, D), zero at padding, and final states (dirs, B, H)."""
        if recurrence is not None:
            return recurrence(inputs, mask, [part for cell in self.cells for part in cell.four_weights()], "paper_gru")
        weights = [(cell.weight_ih, cell.weight_hh, cell.bias_ih) for cell in self.cells]
        return gru_over_real_tokens(gru, inputs, mask, weights)


def gru_over_real_tokens(
    run: Callable[..., Tensor], inputs: Tensor, mask: Tensor, weights: Sequence[Sequence[Any]]
) -> tuple[Tensor, tuple[Tensor]]:
    """(B, S, I) under a (B, S) mask -> outputs (B, S, D), zero at padding, and final states (dirs, B, H). ``run`` takes
    inputs with time in front and one direction's ``weights``; there are one or two of these. The second reads the real
    tokens in reverse order and then the padding, so that it starts at the last real token; its outputs are put back in
    their places."""
    lengths, padded = mask.sum(dim=-1), mask.device.type != "cpu" or not bool(mask.all())
    turned = _turned_positions(lengths, mask.shape[1]).t().unsqueeze(-1)  # (S, B, 1)
    last = (lengths - 1).clamp_min(0).view(1, -1, 1)
    in_time = inputs.transpose(0, 1).contiguous()
    outputs, finals = [], []
    for number, parameters in enumerate(weights):
        read = in_time if number == 0 else in_time.gather(0, turned.expand_as(in_time))
        states = run(read, *parameters)
        finals.append(states.gather(0, last.expand(-1, -1, states.shape[-1])).squeeze(0))
        outputs.append(states if number == 0 else states.gather(0, turned.expand_as(states)))
    joined = outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=-1)
    if padded:
        joined = joined * mask.t().unsqueeze(-1)
    return joined.transpose(0, 1).contiguous(), (torch.stack(finals),)


def _turned_positions(lengths: Tensor, width: int) -> Tensor:
    """(B,) lengths -> (B, S): the positions of the real tokens in reverse order, then those of padding as they are. It
    is its own inverse."""
    positions = torch.arange(width, device=lengths.device).expand(lengths.shape[0], -1)
    return torch.where(positions < lengths.unsqueeze(-1), lengths.unsqueeze(-1) - 1 - positions, positions)
