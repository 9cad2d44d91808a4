"""How parameters start: torch's defaults, or See et al.'s (specification c.42)."""

from __future__ import annotations

import torch
from torch import nn

from laconic.layers.recurrent import Bridge, Recurrence
from laconic.layers.vocabulary import VocabularyProjection


def initialise(model: nn.Module, scheme: str) -> None:
    """``torch`` keeps what the layers chose. ``see``: LSTM kernels U(-0.02, 0.02) with zero bias; embedding,
    output layer and bridge truncated normal with standard deviation 1e-4, weights and biases; attention,
    merge, p_gen and first output layer Glorot uniform with zero bias (TensorFlow's: v counts as A by A, w_c as
    1 by A; a w_c that starts at zero stays there)."""
    if scheme == "torch":
        return
    with torch.no_grad():
        for module in model.modules():
            if isinstance(module, nn.Linear):
                nn.init.xavier_uniform_(module.weight)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
        for name, parameter in model.named_parameters():
            if name.endswith("score_vector"):
                _glorot(parameter, len(parameter))
            elif name.endswith("coverage_vector") and bool(parameter.any()):
                _glorot(parameter, 1)
        for module in model.modules():
            if isinstance(module, Recurrence):
                for name, parameter in module.named_parameters():
                    nn.init.zeros_(parameter) if "bias" in name else nn.init.uniform_(parameter, -0.02, 0.02)
            elif isinstance(module, nn.Embedding):
                _tiny(module.weight)
                if module.padding_idx is not None:
                    module.weight[module.padding_idx] = 0
            elif isinstance(module, VocabularyProjection):
                _tiny(module.weight)
                _tiny(module.bias)
            elif isinstance(module, Bridge):
                for parameter in module.parameters():
                    _tiny(parameter)


def _glorot(vector: torch.Tensor, fan_in: int) -> None:
    limit = (6 / (fan_in + len(vector))) ** 0.5
    nn.init.uniform_(vector, -limit, limit)


def _tiny(parameter: torch.Tensor) -> None:
    nn.init.trunc_normal_(parameter, std=1e-4, a=-2e-4, b=2e-4)
