"""Where a key is that was misspelt, put into the wrong section, or called as other toolkits call it.

The table has the names of transformers (``TrainingArguments``, ``GenerationConfig``, the summarization example), of
JoeyNMT and of OpenNMT-py; of several places the first that the section at hand has is meant.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import Any, get_args, get_origin

from pydantic import BaseModel

_OTHER_NAMES: Mapping[str, str] = {
    # the search
    "search.beam_size": "num_beams beams beam_width beam generation_num_beams",
    "search.max_length": (
        "max_new_tokens max_output_length max_decode_length val_max_target_length generation_max_length"
    ),
    "search.min_length": "min_new_tokens min_output_length",
    "search.length_normalisation": "length_penalty length_normalization",
    "search.length_alpha": "length_penalty alpha beam_alpha",
    "search.no_repeat_ngram": "no_repeat_ngram_size block_ngram_repeat",
    "search.num_return": "num_return_sequences n_best",
    "search.diverse_groups": "num_beam_groups",
    "search.diversity_strength": "diversity_penalty",
    "search.replace_unk": "replace_unknown",
    "search.coverage_beta": "beta",
    # the texts
    "text.max_source_tokens": "max_source_length max_input_length max_sent_length src_seq_length src_seq_length_trunc",
    "text.max_target_tokens": "max_target_length tgt_seq_length tgt_seq_length_trunc",
    "text.tokenizer.vocab_size": "vocab_size vocabulary_size voc_limit src_vocab_size tgt_vocab_size",
    "text.tokenizer.max_vocabulary": "vocab_size vocabulary_size voc_limit src_vocab_size tgt_vocab_size",
    "text.tokenizer.min_frequency": "voc_min_freq words_min_frequency",
    "text.tokenizer.lowercase": "lower do_lower_case",
    "text.pretrained_embeddings": "pre_word_vecs_enc",
    "data.train": "train_file",
    "data.validation": "validation_file dev",
    "data.test": "test_file",
    "data.document_column": "text_column",
    "data.max_train_records": "max_train_samples",
    "data.max_validation_records": "max_eval_samples",
    # training
    "training.optimizer.learning_rate": "lr",
    "training.optimizer.type": "optim",
    "training.optimizer.betas": "adam_beta1 adam_beta2",
    "training.optimizer.epsilon": "adam_epsilon",
    "training.optimizer.initial_accumulator": "adagrad_accumulator_init",
    "training.schedule.type": "lr_scheduler_type scheduling decay_method",
    "training.schedule.warmup_updates": "warmup_steps learning_rate_warmup",
    "training.schedule.plateau_factor": "learning_rate_decay decrease_factor",
    "training.max_epochs": "epochs num_epochs num_train_epochs",
    "training.max_updates": "max_steps train_steps updates",
    "training.batch_size": "per_device_train_batch_size",
    "training.validation.batch_size": "per_device_eval_batch_size eval_batch_size valid_batch_size",
    "training.accumulation": "gradient_accumulation_steps accum_count batch_multiplier",
    "training.clip_norm": "max_grad_norm clip_grad_norm gradient_clip_val",
    "training.precision": "fp16 bf16 model_dtype",
    "training.seed": "random_seed",
    "training.trackers": "report_to",
    "training.log_every": "logging_steps logging_freq report_every",
    "training.validation.every_updates": "eval_steps valid_steps validation_freq",
    "training.validation.metric": "metric_for_best_model early_stopping_metric",
    "training.early_stopping.patience": "early_stopping_patience",
    "training.checkpoint.every_updates": "save_steps save_checkpoint_steps",
    "training.checkpoint.keep": "save_total_limit keep_checkpoint keep_best_ckpts",
    "training.initial_weights": "train_from load_model model_name_or_path",
    "training.average_last": "average_decay",
    # the model
    "model.encoder_layers": "enc_layers num_layers",
    "model.decoder_layers": "dec_layers",
    "model.layers": "enc_layers dec_layers num_layers",
    "model.encoder_hidden": "enc_rnn_size",
    "model.hidden_size": "rnn_size enc_rnn_size dec_rnn_size enc_hid_size d_model",
    "model.embedding_size": "word_vec_size embedding_dim embeddings_dim",
    "model.cell": "rnn_type",
    "model.bidirectional": "brnn",
    "model.feed_forward_size": "transformer_ff ff_size",
    "model.num_heads": "heads",
    "model.attention.type": "global_attention",
    "model.head.type": "copy_attn",
    "model.attention.coverage": "coverage_attn",
    "model.share_embeddings": "tied_embeddings",
    "model.tie_output": "tied_softmax share_decoder_embeddings",
    "objectives": "lambda_coverage label_smoothing label_smoothing_factor reinforce",
}
SPELLINGS: dict[str, tuple[str, ...]] = {}  # another toolkit's name -> the places that it may stand for
for _place, _names in _OTHER_NAMES.items():
    for _name in _names.split():
        SPELLINGS[_name] = (*SPELLINGS.get(_name, ()), _place)


def place_of_key(
    name: str, cls: type[BaseModel], path: list[str], components: Mapping[str, type[BaseModel]] | None = None
) -> str:
    """The dotted key of ``cls`` that ``name``, unknown in its section ``path``, was meant to be; empty if none is near.

    ``components`` are the settings' classes of keys such as ``model`` that hold a component. In order: another
    toolkit's name, the same name in another section, a name like it in this section, one like it in another.
    """
    keys = list(_keys(cls, "", components or {}))
    here, folded = ".".join(path), name.replace("-", "_").lower()
    for target in SPELLINGS.get(folded, ()):
        for cut in range(target.count(".") + 1):  # a part of a run is checked without what it is a part of
            if (key := target.split(".", cut)[-1]) in keys and (cut == 0 or components is None):
                return key
    same = [key for key in keys if _leaf(key) == folded]
    if same:
        return min(same, key=lambda key: (not key.startswith(here), key.count(".")))
    beside = {_leaf(key): key for key in keys if key.rpartition(".")[0] == here}
    anywhere = {_leaf(key): key for key in sorted(keys, key=lambda key: -key.count("."))}
    for names, least in ((beside, 0.6), (anywhere, 0.8)):
        if close := difflib.get_close_matches(folded, names, n=1, cutoff=least):
            return names[close[0]]
    return ""


def _leaf(key: str) -> str:
    return key.rpartition(".")[2]


def sections_in(annotation: Any) -> list[type[BaseModel]]:
    """The classes of settings that a field's annotation names."""
    parts = (annotation, *get_args(annotation))
    return [part for part in parts if isinstance(part, type) and issubclass(part, BaseModel)]


def _keys(cls: type[BaseModel], prefix: str, components: Mapping[str, type[BaseModel]]) -> Iterator[str]:
    for name, field in cls.model_fields.items():
        key = f"{prefix}{name}"
        yield key
        several = get_origin(field.annotation) in (tuple, list)  # of a list of sections none has keys of its own
        for part in filter(None, (*([] if several else sections_in(field.annotation)), components.get(key))):
            yield from _keys(part, f"{key}.", components)
