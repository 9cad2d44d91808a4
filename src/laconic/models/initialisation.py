"""How parameters start: torch's defaults, See et al.'s (headline specification c.42), the distraction paper's."""

from __future__ import annotations

import torch
from torch import nn

from laconic.layers.recurrent import Bridge, Recurrence
from laconic.layers.vocabulary import VocabularyProjection

_KEPT = {"history_vector", "content_vector", "content_history_vector"}


def initialise(model: nn.Module, scheme: str) -> None:
    """``torch`` keeps what the layers chose. ``see``: LSTM kernels U(-0.02, 0.02) with zero bias; embedding,
    output layer and bridge truncated normal with standard deviation 1e-4, weights and biases; attention,
    merge, p_gen and first output layer Glorot uniform with zero bias (TensorFlow's: v counts as A by A, w_c as
    1 by A; a w_c that starts at zero stays there). ``gaussian`` is the distraction paper's release: see
    `gaussian_start`. A model without storage is left alone."""
    if scheme == "torch" or next(model.parameters()).is_meta:
        return
    if scheme == "gaussian":
        gaussian_start(model)
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


def gaussian_start(model: nn.Module, scale: float = 0.01) -> None:
    """Recurrent matrices orthogonal gate by gate, biases zero, everything else ``scale`` times N(0, 1).

    Orthogonal for each (H, H) block: an orthogonal (3H, H) matrix would have blocks that are not. Vectors of the
    distraction mechanisms keep the start that ``m1_init`` gave them.
    """
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            leaf = name.rpartition(".")[2]
            if leaf.startswith("weight_hh"):
                for gate in parameter.split(parameter.shape[1]):
                    nn.init.orthogonal_(gate)
            elif leaf.startswith("bias"):
                nn.init.zeros_(parameter)
            elif leaf not in _KEPT:
                nn.init.normal_(parameter, std=scale)
        for module in model.modules():
            if isinstance(module, nn.Embedding) and module.padding_idx is not None:
                module.weight[module.padding_idx] = 0
