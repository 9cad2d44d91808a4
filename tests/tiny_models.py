"""Models of every family for tests that summarize: untrained, with large weights, so that choices are not all alike."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from catchline.config.names import MODELS, TOKENIZERS, build
from catchline.config.schema import RunConfig, SearchConfig, TextConfig, TrainingConfig
from catchline.models.folder import save_model_folder
from samples import BART, EOS, IDS, SEE, TRANSFORMER

DOCUMENTS = [
    "the quick fox jumps over the lazy dog . it was late .",
    "a small cat sat on the mat .",
    "Zebratown sees the quick bird and the old dog in Zebratown .",
    "it was late",
    "the old cat and the old dog sat on the mat and it was late , very late , said Ellinghaus .",
]
SMALL = TRANSFORMER | {"feed_forward_size": 16, "max_positions": 64}
SHARP_BART = BART | {"init_std": 0.8, "decoder_start_token_id": EOS}
SHARP = {"type": "bart", "architecture": SHARP_BART}
WRITER = {"type": "seq2seq", "embedding_size": 8, "encoder_hidden": 7, "hidden_size": 6}
DISTRACTION = {"type": "distraction", "embedding_size": 8, "hidden_size": 6, "init": "torch"}
DISTRACTION |= {"attention": {"type": "distraction", "size": 5}}

CASES: dict[str, dict[str, Any]] = {
    # headline writer
    "writer-lstm": WRITER | {"bidirectional": False, "attention": None, "head": {"type": "vocabulary"}},
    "writer-attention": WRITER | {"cell": "gru", "attention": {"type": "additive"}, "head": {"type": "vocabulary"}},
    "writer-pointer": WRITER | {"cell": "gru", "bidirectional": False},
    "writer-see": WRITER | SEE | {"see_decode_parity": True, "unk_loss": "ignore"},
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
    "bart": SHARP,
    "bart-forced": SHARP | {"forced_bos_id": 5, "head": {"type": "pointer"}},
    # with more rows than tokens
    "bart-correlational": SHARP | {"architecture": SHARP_BART | {"vocab_size": 99}, "head": {"type": "correlational"}},
    "marian": SHARP | {"architecture": SHARP_BART | {"model_type": "marian"}, "head": {"type": "attentional"}},
    "pegasus-opponent": SHARP
    | {"architecture": SHARP_BART | {"model_type": "pegasus"}, "opponent": {"type": "max", "layer": 1, "head": 0}},
}


def save_tiny_model(
    path: Path,
    texts: Sequence[str] = DOCUMENTS,
    *,
    kind: str = "word",
    max_source_tokens: int = 40,
    search: dict[str, Any] | None = None,
    **config: Any,
) -> Path:
    """Save one whose vocabulary is that of ``texts`` without Zebratown and Ellinghaus; ``kind`` is of its tokenizer,
    ``config`` of `Seq2Seq`."""
    spec = {"type": "seq2seq", "embedding_size": 8, "encoder_hidden": 8, "hidden_size": 8, **config}
    search = search or {"beam_size": 2, "max_length": 7, "min_length": 3}
    return _saved(path, "tiny", spec, 3, texts, (0.9, 0.9), search, max_source_tokens, kind)


def save_case(path: Path, name: str, spread: float = 0.7) -> Path:
    """Save the model ``name`` of `CASES`; ``spread`` is that of the weights."""
    search = {"beam_size": 3, "max_length": 8, "min_length": 2}
    return _saved(path, name, CASES[name], sorted(CASES).index(name), DOCUMENTS, (0.3, spread), search, 40)


def _saved(
    path: Path,
    name: str,
    spec: dict[str, Any],
    seed: int,
    texts: Sequence[str],
    spreads: tuple[float, float],
    search: dict[str, Any],
    max_source_tokens: int,
    kind: str = "word",
) -> Path:
    torch.manual_seed(seed)
    tokenizer = build("tokenizer", TOKENIZERS, {"type": kind, **({"min_frequency": 1} if kind == "word" else {})})
    tokenizer.train([text.replace("Zebratown", "").replace("Ellinghaus", "") for text in texts])
    model = build("model", MODELS, spec, vocab_size=tokenizer.vocab_size, **IDS).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=spreads[parameter.dim() > 1])
    run = RunConfig(
        name=name,
        model=spec,
        training=TrainingConfig(max_updates=1),
        text=TextConfig(max_source_tokens=max_source_tokens, max_target_tokens=10),
        search=SearchConfig(**search),
    )
    return save_model_folder(path, model=model, tokenizer=tokenizer, run=run)
