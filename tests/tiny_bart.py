"""Tiny models of the BART family with a copy head, and transformers' own model with the same weights."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForSeq2SeqLM, PreTrainedModel

from catchline.models.checkpoints import BartSummarizer
from catchline.models.stored import FAMILY
from catchline.types import Batch, TrainingBatch
from samples import BART

BOS, PAD, EOS, UNK, VOCABULARY = 0, 1, 2, 3, 31
SHARPER = 3.0  # on the queries of the layer that copies
GATES = {"generation": -2.0, "attention_gate": -2.0, "semantic_gate": -3.0, "spread": -4.0}


def architecture(kind: str = "bart", **changes: Any) -> dict[str, Any]:
    sizes = {"d_model": 16, "encoder_ffn_dim": 24, "decoder_ffn_dim": 20, "max_position_embeddings": 40}
    heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 4, "vocab_size": VOCABULARY}
    ids = {"bos_token_id": BOS, "pad_token_id": PAD, "eos_token_id": EOS, "decoder_start_token_id": EOS}
    kinds = {"model_type": kind, "scale_embedding": kind != "bart", "init_std": 0.8 if kind == "bart" else 0.4}
    return BART | sizes | heads | ids | kinds | changes


def copying_bart(
    head: dict[str, Any] | str = "correlational",
    kind: str = "bart",
    *,
    options: dict[str, Any] | None = None,
    **changes: Any,
) -> BartSummarizer:
    """A float64 model in which the copy history matters: little generation, little attention, a narrow Gaussian."""
    torch.manual_seed(FAMILY.index(kind))
    spec = {"type": head} if isinstance(head, str) else head
    config = BartSummarizer.Config(architecture=architecture(kind, **changes), head=spec, **(options or {}))
    model = BartSummarizer(config, unk_id=UNK).double()
    model.network.final_logits_bias[0, EOS] = 1.0  # so that some hypotheses end
    with torch.no_grad():
        for name, bias in GATES.items():
            gate = getattr(model.head, name, None)
            if gate is not None:
                gate.weight.normal_(std=0.05)
                gate.bias.fill_(bias)
        cross = model.network.get_decoder().layers[-1].encoder_attn
        cross.q_proj.weight *= SHARPER
        cross.q_proj.bias.normal_()
    return model.eval()


def reference_of(model: BartSummarizer) -> PreTrainedModel:
    """transformers' own model with the same weights and its own eager attention."""
    network = AutoModelForSeq2SeqLM.from_config(copy.deepcopy(model.network.config), attn_implementation="eager")
    network.to(next(model.parameters()).dtype).load_state_dict(model.network.state_dict())
    return network.eval()


def source_batch(lengths: tuple[int, ...] = (9, 6, 3), *, targets: bool = True, left: bool = False) -> Batch:
    """Sources that repeat words, with their padding on the right or the left; targets that copy some of them."""
    generator = torch.Generator().manual_seed(5)
    width = max(lengths)
    source = torch.randint(4, VOCABULARY, (len(lengths), width), generator=generator)
    source[:, 2] = source[:, 0]
    mask = torch.arange(width) < torch.tensor(lengths)[:, None]
    words = source
    if left:
        mask = mask.flip(1)
    source = source.masked_fill(~mask, PAD)
    batch = Batch(source_ids=source, source_extended_ids=source, source_mask=mask, extended_vocab_size=VOCABULARY)
    if not targets:
        return batch
    sizes = torch.tensor([5, 4, 2])[: len(lengths), None]
    gold = torch.randint(4, VOCABULARY, (len(lengths), 5), generator=generator)
    gold[:, :2] = words[:, 1:3]
    real = torch.arange(5) < sizes
    gold = gold.scatter(1, sizes - 1, EOS).masked_fill(~real, PAD)
    return TrainingBatch(
        source, source, mask, VOCABULARY, target_input_ids=shifted(gold), target_ids=gold, target_mask=real
    )


def shifted(ids: Tensor) -> Tensor:
    """What the decoder reads when it is to predict ``ids``."""
    return torch.cat([torch.full_like(ids[:, :1], EOS), ids[:, :-1]], 1)


def theirs(network: PreTrainedModel, batch: Batch) -> Any:
    """A teacher-forced pass of transformers, with all attention weights."""
    with torch.no_grad():
        return network(
            input_ids=batch.source_ids,
            attention_mask=batch.source_mask.long(),
            decoder_input_ids=shifted(batch.target_ids),
            output_attentions=True,
        )
