"""Opening networks of the BART family: a checkpoint of the hub or a folder, or an architecture without weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForSeq2SeqLM, PreTrainedModel

from laconic.errors import ConfigError, ModelError
from laconic.models.bart_attention import ATTENTION
from laconic.models.family import FAMILY

NOT_ARCHITECTURE = ("transformers_version", "dtype", "architectures", "id2label", "label2id")


def build_network(
    pretrained: str | None, architecture: Mapping[str, Any] | None, ids: Mapping[str, int]
) -> PreTrainedModel:
    """The network of ``pretrained`` (a hub id or folder) or, with random weights, of ``architecture``.

    ``ids`` of the tokenizer fill what the architecture leaves open.

    Raises:
        ConfigError: neither or both, or no such model type.
        ModelError: the checkpoint cannot be opened or is not of the BART family.
    """
    if (pretrained is None) == (architecture is None):
        raise ConfigError("A model of type 'bart' needs either 'pretrained' or 'architecture' (and not both).")
    if pretrained is not None:
        network = _open(pretrained)
    else:
        values = {**ids, **(architecture or {})}
        kind = values.pop("model_type", "bart")
        if kind not in FAMILY:
            raise ConfigError(f"model.architecture.model_type '{kind}' is not one of {', '.join(FAMILY)}.")
        network = AutoModelForSeq2SeqLM.from_config(AutoConfig.for_model(kind, **values))
    network.set_attn_implementation(ATTENTION)
    return network


def portable(options: Any) -> dict[str, Any]:
    """Everything that describes the network, and nothing of where it came from."""
    values = options.to_dict()
    return {key: value for key, value in values.items() if not key.startswith("_") and key not in NOT_ARCHITECTURE}


def _open(name_or_path: str) -> PreTrainedModel:
    try:
        options = AutoConfig.from_pretrained(name_or_path)
        if options.model_type not in FAMILY:
            raise ModelError(
                f"{name_or_path} holds a '{options.model_type}' model; laconic opens {', '.join(FAMILY)} checkpoints."
            )
        return AutoModelForSeq2SeqLM.from_pretrained(name_or_path, dtype=torch.float32)
    except ModelError:
        raise
    except Exception as error:  # transformers, safetensors and the hub client raise their own kinds each
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ModelError(f"The checkpoint {name_or_path} could not be opened: {first}") from error


def first_id(value: Any) -> int:
    return int(value[0] if isinstance(value, (list, tuple)) else value)
