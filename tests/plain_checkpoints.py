"""Tiny random checkpoints of transformers' sequence-to-sequence models, saved locally with a tokenizer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import tokenizers
import torch
from tokenizers import models, pre_tokenizers, processors
from transformers import AutoConfig, AutoModelForSeq2SeqLM, PreTrainedTokenizerFast

TEXT = "a an the of in on to storm ferry island boat harbour monday closed stays mail shop bread . , summarize :"
WORDS = TEXT.split(" ")
SPECIAL = ("<pad>", "<s>", "</s>", "<unk>")
PAD, BOS, EOS, UNK = range(4)
SIZE = len(SPECIAL) + len(WORDS)
T5 = {"d_kv": 4, "d_ff": 24, "num_layers": 2, "num_heads": 4, "decoder_start_token_id": PAD, "dropout_rate": 0.0}
BART: dict[str, Any] = {
    **{f"{side}_{name}": 2 for side in ("encoder", "decoder") for name in ("layers", "attention_heads")},
    **{"encoder_ffn_dim": 24, "decoder_ffn_dim": 24, "decoder_start_token_id": EOS, "init_std": 0.6, "dropout": 0.0},
}
CHECKPOINTS: dict[str, dict[str, Any]] = {
    "t5": T5 | {"task_specific_params": {"summarization": {"prefix": "summarize: ", "num_beams": 3, "max_length": 12}}},
    "mt5": T5 | {"tie_word_embeddings": False},
    "longt5": T5 | {"encoder_attention_type": "transient-global", "local_radius": 3, "global_block_size": 2},
    "led": BART | {"attention_window": 4, "max_encoder_position_embeddings": 64, "max_decoder_position_embeddings": 32},
    "pegasus_x": BART | {"block_size": 4, "num_global_tokens": 2, "max_position_embeddings": 64},
    "bigbird_pegasus": BART | {"max_position_embeddings": 64, "block_size": 4, "attention_type": "original_full"},
    "prophetnet": {
        **{"hidden_size": 16, "num_encoder_layers": 2, "num_decoder_layers": 2, "num_encoder_attention_heads": 2},
        **{"num_decoder_attention_heads": 2, "encoder_ffn_dim": 24, "decoder_ffn_dim": 24, "init_std": 0.6},
        **{"max_position_embeddings": 64, "decoder_start_token_id": BOS, "dropout": 0.0, "ngram": 2},
    },
    "bart": BART | {"max_position_embeddings": 64},
    "mbart": BART | {"max_position_embeddings": 64, "decoder_start_token_id": SIZE - 1},  # a language
    **{kind: BART | {"max_position_embeddings": 64, "decoder_start_token_id": PAD} for kind in ("marian", "pegasus")},
    "blenderbot": BART | {"max_position_embeddings": 64},
}


def save_checkpoint(folder: Path, kind: str, **changes: Any) -> Path:
    """A folder that ``AutoModelForSeq2SeqLM`` and ``AutoTokenizer`` open."""
    torch.manual_seed(5)
    ids = {"vocab_size": SIZE, "pad_token_id": PAD, "bos_token_id": BOS, "eos_token_id": EOS}
    width = {} if kind == "prophetnet" else {"d_model": 16}
    network = AutoModelForSeq2SeqLM.from_config(
        AutoConfig.for_model(kind, **ids, **width, **CHECKPOINTS[kind], **changes)
    )
    for name, parameter in network.named_parameters():
        if "norm" not in name and parameter.ndim > 1:
            torch.nn.init.normal_(parameter, std=0.6)
    if hasattr(network, "final_logits_bias"):
        network.final_logits_bias[0, EOS] = 3.0
    network.generation_config.update(**ids, decoder_start_token_id=network.config.decoder_start_token_id)
    network.generation_config.forced_eos_token_id = None
    network.save_pretrained(folder)
    backend = tokenizers.Tokenizer(
        models.WordLevel({token: at for at, token in enumerate((*SPECIAL, *WORDS))}, "<unk>")
    )
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.post_processor = processors.TemplateProcessing("$A </s>", special_tokens=[("</s>", EOS)])
    special = dict(zip(("pad_token", "bos_token", "eos_token", "unk_token"), SPECIAL, strict=True))
    PreTrainedTokenizerFast(tokenizer_object=backend, model_max_length=40, **special).save_pretrained(folder)
    return folder
