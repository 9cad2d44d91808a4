"""Where a key is that was misspelt, put into the wrong section, or called as other toolkits call it.

The table has the names of transformers (``TrainingArguments``, ``GenerationConfig``, the summarization example), of
JoeyNMT and of OpenNMT-py; of several places the first that the section at hand has is meant.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel

SPELLINGS: Mapping[str, tuple[str, ...]] = {
    # the search
    "num_beams": ("search.beam_size",),
    "beams": ("search.beam_size",),
    "beam_width": ("search.beam_size",),
    "beam": ("search.beam_size",),
    "max_new_tokens": ("search.max_length",),
    "max_output_length": ("search.max_length",),
    "max_decode_length": ("search.max_length",),
    "val_max_target_length": ("search.max_length",),
    "generation_max_length": ("search.max_length",),
    "generation_num_beams": ("search.beam_size",),
    "min_new_tokens": ("search.min_length",),
    "min_output_length": ("search.min_length",),
    "length_penalty": ("search.length_normalisation", "search.length_alpha"),
    "length_normalization": ("search.length_normalisation",),
    "alpha": ("search.length_alpha",),
    "beam_alpha": ("search.length_alpha",),
    "no_repeat_ngram_size": ("search.no_repeat_ngram",),
    "block_ngram_repeat": ("search.no_repeat_ngram",),
    "num_return_sequences": ("search.num_return",),
    "n_best": ("search.num_return",),
    "num_beam_groups": ("search.diverse_groups",),
    "diversity_penalty": ("search.diversity_strength",),
    "replace_unknown": ("search.replace_unk",),
    "beta": ("search.coverage_beta",),
    # the texts
    "max_source_length": ("text.max_source_tokens",),
    "max_input_length": ("text.max_source_tokens",),
    "max_sent_length": ("text.max_source_tokens",),
    "src_seq_length": ("text.max_source_tokens",),
    "src_seq_length_trunc": ("text.max_source_tokens",),
    "max_target_length": ("text.max_target_tokens",),
    "tgt_seq_length": ("text.max_target_tokens",),
    "tgt_seq_length_trunc": ("text.max_target_tokens",),
    "vocab_size": ("text.tokenizer.vocab_size", "text.tokenizer.max_vocabulary"),
    "vocabulary_size": ("text.tokenizer.max_vocabulary", "text.tokenizer.vocab_size"),
    "voc_limit": ("text.tokenizer.max_vocabulary", "text.tokenizer.vocab_size"),
    "src_vocab_size": ("text.tokenizer.max_vocabulary", "text.tokenizer.vocab_size"),
    "tgt_vocab_size": ("text.tokenizer.max_vocabulary", "text.tokenizer.vocab_size"),
    "voc_min_freq": ("text.tokenizer.min_frequency",),
    "words_min_frequency": ("text.tokenizer.min_frequency",),
    "lower": ("text.tokenizer.lowercase",),
    "do_lower_case": ("text.tokenizer.lowercase",),
    "pre_word_vecs_enc": ("text.pretrained_embeddings",),
    "train_file": ("data.train",),
    "validation_file": ("data.validation",),
    "dev": ("data.validation",),
    "test_file": ("data.test",),
    "text_column": ("data.document_column",),
    "max_train_samples": ("data.max_train_records",),
    "max_eval_samples": ("data.max_validation_records",),
    # training
    "lr": ("training.optimizer.learning_rate",),
    "optim": ("training.optimizer.type",),
    "adam_beta1": ("training.optimizer.betas",),
    "adam_beta2": ("training.optimizer.betas",),
    "adam_epsilon": ("training.optimizer.epsilon",),
    "adagrad_accumulator_init": ("training.optimizer.initial_accumulator",),
    "lr_scheduler_type": ("training.schedule.type",),
    "scheduling": ("training.schedule.type",),
    "decay_method": ("training.schedule.type",),
    "warmup_steps": ("training.schedule.warmup_updates",),
    "learning_rate_warmup": ("training.schedule.warmup_updates",),
    "learning_rate_decay": ("training.schedule.plateau_factor",),
    "decrease_factor": ("training.schedule.plateau_factor",),
    "epochs": ("training.max_epochs",),
    "num_epochs": ("training.max_epochs",),
    "num_train_epochs": ("training.max_epochs",),
    "max_steps": ("training.max_updates",),
    "train_steps": ("training.max_updates",),
    "updates": ("training.max_updates",),
    "per_device_train_batch_size": ("training.batch_size",),
    "per_device_eval_batch_size": ("training.validation.batch_size",),
    "eval_batch_size": ("training.validation.batch_size",),
    "valid_batch_size": ("training.validation.batch_size",),
    "gradient_accumulation_steps": ("training.accumulation",),
    "accum_count": ("training.accumulation",),
    "batch_multiplier": ("training.accumulation",),
    "max_grad_norm": ("training.clip_norm",),
    "clip_grad_norm": ("training.clip_norm",),
    "gradient_clip_val": ("training.clip_norm",),
    "fp16": ("training.precision",),
    "bf16": ("training.precision",),
    "model_dtype": ("training.precision",),
    "random_seed": ("training.seed",),
    "report_to": ("training.trackers",),
    "num_workers": ("training.workers",),
    "dataloader_num_workers": ("training.workers",),
    "logging_steps": ("training.log_every",),
    "logging_freq": ("training.log_every",),
    "report_every": ("training.log_every",),
    "eval_steps": ("training.validation.every_updates",),
    "valid_steps": ("training.validation.every_updates",),
    "validation_freq": ("training.validation.every_updates",),
    "metric_for_best_model": ("training.validation.metric",),
    "early_stopping_metric": ("training.validation.metric",),
    "early_stopping_patience": ("training.early_stopping.patience",),
    "save_steps": ("training.checkpoint.every_updates",),
    "save_checkpoint_steps": ("training.checkpoint.every_updates",),
    "save_total_limit": ("training.checkpoint.keep",),
    "keep_checkpoint": ("training.checkpoint.keep",),
    "keep_best_ckpts": ("training.checkpoint.keep",),
    "train_from": ("training.initial_weights",),
    "load_model": ("training.initial_weights",),
    "model_name_or_path": ("training.initial_weights",),
    "average_decay": ("training.average_last",),
    # the model
    "enc_layers": ("model.encoder_layers", "model.layers"),
    "dec_layers": ("model.decoder_layers", "model.layers"),
    "num_layers": ("model.encoder_layers", "model.layers"),
    "rnn_size": ("model.hidden_size",),
    "enc_rnn_size": ("model.encoder_hidden", "model.hidden_size"),
    "dec_rnn_size": ("model.hidden_size",),
    "enc_hid_size": ("model.hidden_size",),
    "d_model": ("model.hidden_size",),
    "word_vec_size": ("model.embedding_size",),
    "embedding_dim": ("model.embedding_size",),
    "embeddings_dim": ("model.embedding_size",),
    "rnn_type": ("model.cell",),
    "brnn": ("model.bidirectional",),
    "transformer_ff": ("model.feed_forward_size",),
    "ff_size": ("model.feed_forward_size",),
    "heads": ("model.num_heads",),
    "global_attention": ("model.attention.type",),
    "copy_attn": ("model.head.type",),
    "coverage_attn": ("model.attention.coverage",),
    "tied_embeddings": ("model.share_embeddings",),
    "tied_softmax": ("model.tie_output",),
    "share_decoder_embeddings": ("model.tie_output",),
    "lambda_coverage": ("objectives",),
    "label_smoothing": ("objectives",),
    "label_smoothing_factor": ("objectives",),
    "reinforce": ("objectives",),
}


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


def _keys(cls: type[BaseModel], prefix: str, components: Mapping[str, type[BaseModel]]) -> Iterator[str]:
    for name, field in cls.model_fields.items():
        key = f"{prefix}{name}"
        yield key
        parts = [field.annotation, *getattr(field.annotation, "__args__", ())] if _holds_one(field.annotation) else []
        for part in (*parts, components.get(key)):
            if isinstance(part, type) and issubclass(part, BaseModel):
                yield from _keys(part, f"{key}.", components)


def _holds_one(annotation: Any) -> bool:
    """Of a list of sections none has keys of its own."""
    return getattr(annotation, "__origin__", None) not in (tuple, list)
