"""Opening networks of the BART family: a checkpoint of the hub or a folder, or an architecture without weights."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForSeq2SeqLM, PretrainedConfig, PreTrainedModel

from laconic.errors import ConfigError, LaconicError, ModelError
from laconic.models.bart_attention import ATTENTION
from laconic.models.family import FAMILY
from laconic.models.stored import at_most

NOT_ARCHITECTURE = ("transformers_version", "dtype", "architectures", "id2label", "label2id")
SINES, MOST_SINES, MOST_LAYERS = ("marian", "pegasus"), 8_000_000, 1000
MOST_TENSORS = 20_000  # parameters of one network; the largest of the family have some hundred


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
        try:
            options = AutoConfig.for_model(kind, **values)
            _refuse_impossible(options)
            network = AutoModelForSeq2SeqLM.from_config(options, attn_implementation=ATTENTION)
        except (LaconicError, RuntimeError, MemoryError):  # the latter two: too large for this machine
            raise
        except Exception as error:  # what transformers refuses has no common base
            reason = " ".join(str(error).split())[:200]
            raise ConfigError(f"model.architecture is none that transformers can build: {reason}") from error
    _refuse_foreign_ids(network)
    return network


def portable(options: Any) -> dict[str, Any]:
    """Everything that describes the network, and nothing of where it came from."""
    values = options.to_dict()
    return {key: value for key, value in values.items() if not key.startswith("_") and key not in NOT_ARCHITECTURE}


def _refuse_impossible(options: PretrainedConfig) -> None:
    """What transformers would notice in the middle of a summary only, or fill a table of sines for, number by number.

    Raises:
        ConfigError: a dropout that is no share, or positions without end.
    """
    for name, value in options.to_dict().items():
        share = isinstance(value, int | float) and 0 <= value <= 1
        if not share and "drop" in name and not name.startswith("classif"):
            raise ConfigError(f"{name} is {str(value)[:60]!r}, and a share between 0 and 1 was expected.")
    if options.model_type in SINES and options.max_position_embeddings * options.d_model > MOST_SINES:
        raise ConfigError(
            f"A '{options.model_type}' model of {options.max_position_embeddings} positions of width {options.d_model} "
            "is larger than any that there is; correct max_position_embeddings or d_model."
        )


def _refuse_foreign_ids(network: PreTrainedModel) -> None:
    options, size = network.config, network.config.vocab_size
    for name in ("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id", "forced_bos_token_id"):
        for settings in (options, getattr(network, "generation_config", None)):
            given = getattr(settings, name, None)
            for value in given if isinstance(given, list | tuple) else [given]:
                if value is not None and (type(value) is not int or not 0 <= value < size):
                    raise ConfigError(f"{name} is {value!r}, which is no id of a vocabulary of {size}.")


def _open(name_or_path: str) -> PreTrainedModel:
    try:
        options = AutoConfig.from_pretrained(name_or_path, trust_remote_code=False)
        if options.model_type not in FAMILY:
            raise ModelError(
                f"{name_or_path} holds a '{options.model_type}' model; laconic opens {', '.join(FAMILY)} checkpoints."
            )
        _refuse_impossible(options)
        with at_most(MOST_TENSORS, Path(name_or_path)):
            network, report = AutoModelForSeq2SeqLM.from_pretrained(
                name_or_path,
                dtype=torch.float32,
                output_loading_info=True,
                trust_remote_code=False,
                attn_implementation=ATTENTION,  # else config.json might name one, and that is code of the hub
            )
        if absent := sorted([*report["missing_keys"], *(key for key, *_ in report["mismatched_keys"])]):
            raise ModelError(
                f"The weights of {name_or_path} do not fit its config.json: {', '.join(absent[:3])}"
                f"{' and more' if len(absent) > 3 else ''} would be left untrained."
            )
        return network
    except LaconicError:
        raise
    except Exception as error:  # transformers, safetensors and the hub client raise their own kinds each
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ModelError(f"The checkpoint {name_or_path} could not be opened: {first}") from error


def first_id(value: Any) -> int:
    return int(value[0] if isinstance(value, (list, tuple)) else value)
