"""LoRA (Hu et al. 2022) on checkpoints of transformers, by peft: small matrices beside the frozen linear layers. A head
of ours is trained in full. Where a model is saved, the matrices are added to the weights."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from torch import Tensor, nn

from catchline.config.schema import LoraSettings
from catchline.errors import ConfigError


def add_lora(model: nn.Module, config: LoraSettings) -> str:
    """Put the matrices into the network; a note for the person who trains. Raises ConfigError where there is none."""
    network: Any = getattr(model, "network", None)
    if network is None:
        raise ConfigError(
            "training.lora is for checkpoints of transformers: name one with --from, or leave training.lora out."
        )
    peft = import_module("peft")
    options = peft.LoraConfig(
        r=config.rank, lora_alpha=config.alpha, lora_dropout=config.dropout, target_modules="all-linear"
    )
    peft.inject_adapter_in_model(options, network)
    whole, trained = (sum(p.numel() for p in model.parameters() if p.requires_grad or all) for all in (True, False))
    return f"LoRA of rank {config.rank}: {trained:,} of {whole:,} parameters are trained"


def merged_state(model: nn.Module) -> dict[str, Tensor]:
    """The state of ``model`` with its matrices added to the weights, under the names it has without them."""
    state = model.state_dict()
    found = {name.replace(".base_layer", ""): value for name, value in state.items() if ".lora_" not in name}
    layers: dict[str, Any] = dict(model.named_modules())
    for name, layer in layers.items():
        if hasattr(layer, "get_delta_weight"):
            weight = found[f"{name}.weight"]
            found[f"{name}.weight"] = weight + layer.get_delta_weight("default").detach().to(weight.dtype)
    return found
