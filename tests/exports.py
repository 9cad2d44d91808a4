"""Models of every family for tests of exported folders: untrained, with large weights, so that choices differ."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from catchline.config.names import MODELS, build
from catchline.config.schema import RunConfig, SearchConfig, TextConfig, TrainingConfig
from catchline.models.folder import save_model_folder
from catchline.text.tokenizer import WordTokenizer
from samples import BART, EOS, IDS, TRANSFORMER
from tiny_models import DOCUMENTS

SIZES = {"embedding_size": 8, "encoder_hidden": 7, "hidden_size": 6}
SMALL = TRANSFORMER | {"feed_forward_size": 16, "max_positions": 64}
SHARP_BART = BART | {"init_std": 0.8, "decoder_start_token_id": EOS}
WRITER = {"type": "seq2seq", **SIZES}
DISTRACTION = {
    "type": "distraction",
    "embedding_size": 8,
    "hidden_size": 6,
    "init": "torch",
    "attention": {"type": "distraction", "size": 5},
}

CASES: dict[str, dict[str, Any]] = {
    # headline writer
    "writer-lstm": WRITER | {"bidirectional": False, "attention": None, "head": {"type": "vocabulary"}},
    "writer-attention": WRITER | {"cell": "gru", "attention": {"type": "additive"}, "head": {"type": "vocabulary"}},
    "writer-pointer": WRITER | {"cell": "gru", "bidirectional": False},
    "writer-see": WRITER
    | {
        "attention": {"type": "additive", "coverage": True, "coverage_init": "default"},
        "state_for_attention": "ch",
        "input_feeding": "linear",
        "output_layers": 2,
        "see_decode_parity": True,
        "two_biases": False,
        "unk_loss": "ignore",
    },
    "writer-bert": WRITER | {"bert": {"layers": 2, "num_heads": 2, "feed_forward_size": 12, "max_positions": 64}},
    # distraction
    "distraction": DISTRACTION,
    "distraction-paper": DISTRACTION | {"gru": "paper", "bias": False},
    "distraction-one-level": DISTRACTION
    | {"decoder": "one-level", "bidirectional": False, "attention": {"type": "additive", "size": 5}},
    # contrastive
    "transformer": SMALL,
    "transformer-pointer": SMALL | {"head": {"type": "pointer"}},
    "transformer-apart": SMALL | {"share_embeddings": False},
    **{
        f"contrastive-{kind}": SMALL | {"opponent": {"type": kind, "layer": 1, "head": 2}}
        for kind in ("max", "topk", "dynamic", "one_minus", "inverse")
    },
    "contrastive-average": SMALL | {"opponent": {"type": "max", "layer": 0, "head": "average"}},
    # CoCoNet on a Transformer
    "attentional": SMALL | {"head": {"type": "attentional"}},
    "guided": SMALL | {"head": {"type": "guided"}},
    "correlational": SMALL | {"head": {"type": "correlational"}},
    "correlational-semantic": SMALL | {"head": {"type": "correlational", "use_positional": False}},
    "correlational-positional": SMALL
    | {"head": {"type": "correlational", "use_semantic": False, "clip_mode": "cutoff", "clip_distance": 3}},
    "wide": SMALL | {"hidden_size": 144, "feed_forward_size": 160, "head": {"type": "pointer"}},  # eight bits pay
    # on BART
    "bart": {"type": "bart", "architecture": SHARP_BART},
    "bart-forced": {"type": "bart", "architecture": SHARP_BART, "forced_bos_id": 5, "head": {"type": "pointer"}},
    "bart-correlational": {  # with more rows than tokens
        "type": "bart",
        "architecture": SHARP_BART | {"vocab_size": 99},
        "head": {"type": "correlational"},
    },
    "marian": {"type": "bart", "architecture": SHARP_BART | {"model_type": "marian"}, "head": {"type": "attentional"}},
    "pegasus-opponent": {
        "type": "bart",
        "architecture": SHARP_BART | {"model_type": "pegasus"},
        "opponent": {"type": "max", "layer": 1, "head": 0},
    },
}


def save_case(path: Path, name: str, search: dict[str, Any] | None = None, spread: float = 0.7) -> Path:
    """Save the model ``name`` of `CASES`; its vocabulary lacks Zebratown and Ellinghaus. ``spread`` is that of the
    weights."""
    torch.manual_seed(sorted(CASES).index(name))
    tokenizer = WordTokenizer(WordTokenizer.Config(min_frequency=1))
    tokenizer.train([text.replace("Zebratown", "").replace("Ellinghaus", "") for text in DOCUMENTS])
    model = build("model", MODELS, CASES[name], vocab_size=tokenizer.vocab_size, **IDS).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=spread if parameter.dim() > 1 else 0.3)
    run = RunConfig(
        name=name,
        model=CASES[name],
        training=TrainingConfig(max_updates=1),
        text=TextConfig(max_source_tokens=40, max_target_tokens=10),
        search=SearchConfig(**(search or {"beam_size": 3, "max_length": 8, "min_length": 2})),
    )
    return save_model_folder(path, model=model, tokenizer=tokenizer, run=run)
