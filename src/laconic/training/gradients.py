"""What the processes of a run tell each other: counts before the backward pass, gradients and figures after it.

Gradients are summed, not averaged, in one all-reduce of one flat buffer. The loss is divided by counts that are
already global, so there is nothing left to divide and no factor to forget; parameters that a phase froze or a
switch left unused need no special mode; and every process steps with the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from accelerate import Accelerator
from torch import Tensor, nn


def sum_over_processes(values: Tensor, accelerator: Accelerator) -> Tensor:
    """The sum of ``values`` over all processes, on every process."""
    if accelerator.num_processes == 1:
        return values
    return accelerator.reduce(values, reduction="sum")


def sum_gradients(parameters: Sequence[nn.Parameter], figures: Tensor, accelerator: Accelerator) -> Tensor:
    """Replace every gradient by its sum over the processes; return ``figures`` (F,) summed likewise.

    A parameter without a gradient anywhere keeps none, so that the optimizer leaves it alone.
    """
    if accelerator.num_processes == 1:
        return figures
    trained = [p for p in parameters if p.requires_grad]
    present = torch.tensor([float(p.grad is not None) for p in trained], device=figures.device)
    flat = [torch.zeros_like(p).flatten() if p.grad is None else p.grad.flatten() for p in trained]
    total = accelerator.reduce(torch.cat([figures, present, *flat]), reduction="sum")
    sizes = [figures.numel(), present.numel(), *(p.numel() for p in trained)]
    figures, present, *sums = total.split(sizes)
    for parameter, gradient, users in zip(trained, sums, present.tolist(), strict=True):
        parameter.grad = gradient.view_as(parameter) if users else None
    return figures


def share_parameters(model: nn.Module, accelerator: Accelerator) -> None:
    """Give every process the parameters and buffers of the first one."""
    if accelerator.num_processes == 1:
        return
    with torch.no_grad():
        for tensor in model.state_dict().values():
            torch.distributed.broadcast(tensor, src=0)
