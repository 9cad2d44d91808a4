"""Any sequence-to-sequence checkpoint of transformers (T5, LED, PEGASUS-X, ProphetNet, ...), without a copy head and
without attention to show. Its folder stays one of transformers: weights and ``config.json`` have their names there.

Search sees a step like that of any model. Keys, values and states of a document lie in the state for each of its
beams, which costs memory; a step re-orders its own past alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import EncoderDecoderCache
from transformers.modeling_outputs import BaseModelOutput
from transformers.models.bart.modeling_bart import shift_tokens_right

from catchline.errors import ConfigError
from catchline.kernels.vocabulary import at_least_float32
from catchline.models.base import SummarizationModel
from catchline.models.checkpoints import NetworkConfig, build_network, filled_cache, first_id, first_ids, portable
from catchline.types import PLAIN_PASS, Batch, Memory, ModelOutput, StepOutput, TrainingBatch, UpdateContext

READS = ("max_encoder_position_embeddings", "max_position_embeddings")  # of learned positions
WRITES = ("max_decoder_position_embeddings", "max_position_embeddings")


@dataclass(frozen=True, slots=True)
class OfDocuments:
    """What N rows read, equal for the beams of a document: re-ordered where documents change alone."""

    states: Tensor  # (N, S, D)
    mask: Tensor  # (N, S) bool
    layers: list[tuple[Tensor, Tensor]]  # keys and values of the cross attention, once a step has made them

    def select(self, index: Tensor) -> OfDocuments:
        return self if len(index) == len(self.mask) else self._rows(index)

    def select_documents(self, documents: Tensor, beams: int) -> OfDocuments:
        return self._rows((documents[:, None] * beams + torch.arange(beams, device=documents.device)).reshape(-1))

    def _rows(self, index: Tensor) -> OfDocuments:
        layers = [(keys.index_select(0, index), values.index_select(0, index)) for keys, values in self.layers]
        return OfDocuments(self.states.index_select(0, index), self.mask.index_select(0, index), layers)


class PlainSummarizer(SummarizationModel):
    """A network of transformers as a `SummarizationModel`. Its vocabulary is the checkpoint's."""

    Config = NetworkConfig
    config: NetworkConfig
    encoder_switches = frozenset()

    def __init__(self, config: NetworkConfig, *, unk_id: int | None = None, **ids: int) -> None:
        network = build_network(config, {}, plain=True)
        options = network.config
        start, self.forced_bos_id = first_ids(network)
        pad_id = int(options.pad_token_id or 0)
        super().__init__(
            config.model_copy(update={"pretrained": None, "architecture": portable(options)}),
            vocab_size=int(options.vocab_size),
            pad_id=pad_id,
            unk_id=pad_id if unk_id is None else unk_id,
            bos_id=start,
            eos_id=first_id(options.eos_token_id),
        )
        self.network, self.head = network, SimpleNamespace(copies=False)  # type: ignore[assignment]
        self.max_source_tokens = next((getattr(options, name) for name in READS if hasattr(options, name)), None)
        self.max_target_tokens = next((getattr(options, name) for name in WRITES if hasattr(options, name)), None)
        if config.gradient_checkpointing:
            network.gradient_checkpointing_enable({"use_reentrant": False})

    def encode(self, batch: Batch) -> Memory:
        self._check_length("source", batch.source_ids.shape[1], "text.max_source_tokens")
        given = self._given(batch.source_mask)
        states = self.network.get_encoder()(input_ids=batch.source_ids, **given).last_hidden_state
        return self._memory(batch, states)

    def _given(self, mask: Tensor) -> dict[str, Tensor]:
        """The mask, and for LED that the first token attends to all and is attended to by all, as it was trained."""
        found = {"attention_mask": mask.long()}
        if self.network.config.model_type == "led":
            found["global_attention_mask"] = torch.zeros_like(mask, dtype=torch.long)
            found["global_attention_mask"][:, 0] = 1
        return found

    def start(self, memory: Memory) -> dict[str, Any]:
        return {"past": [], "document": OfDocuments(memory.states, memory.mask, [])}

    def step(self, last_ids: Tensor, state: dict[str, Any]) -> tuple[StepOutput, dict[str, Any]]:
        document, first = state["document"], not state["past"]
        steps = 0 if first else state["past"][0][0].shape[2]
        self._check_length("summary", steps + 1, "search.max_length")
        last_ids = torch.full_like(last_ids, self.decoder_start_id) if first else last_ids
        past = EncoderDecoderCache(*map(filled_cache, (state["past"], document.layers)))
        output = self.network(
            encoder_outputs=BaseModelOutput(document.states),
            attention_mask=document.mask.long(),
            decoder_input_ids=last_ids[:, None],
            past_key_values=past,
            use_cache=True,
        )
        scores = self._log_probs(output.logits[:, -1])
        parts: Any = past.self_attention_cache, past.cross_attention_cache
        own, cross = ([(layer.keys, layer.values) for layer in part.layers] for part in parts)
        following = {"past": own, "document": replace(document, layers=cross)}
        found = StepOutput(scores, scores)
        if first and self.forced_bos_id is not None:
            found.scores = torch.full_like(scores, -torch.inf)
            found.scores[:, self.forced_bos_id] = 0.0
        return found, following

    def _log_probs(self, logits: Tensor) -> Tensor:
        return torch.log_softmax(logits.to(at_least_float32(logits.dtype)), dim=-1)

    def forward(self, batch: TrainingBatch, context: UpdateContext = PLAIN_PASS) -> ModelOutput:
        """Teacher-forced pass: gold log-probabilities (B, T)."""
        if context.forced_mask is not None and not bool(context.forced_mask.all()):
            raise ConfigError(
                "A plain checkpoint reads the gold words in training: set training.teacher_forcing.ratio to 1."
            )
        self._check_length("source", batch.source_ids.shape[1], "text.max_source_tokens")
        self._check_length("summary", batch.target_ids.shape[1], "text.max_target_tokens")
        gold, words = self._gold(batch, context), self._known(batch.target_ids)
        inputs = shift_tokens_right(words, self.pad_id, self.decoder_start_id)
        given = self._given(batch.source_mask)
        logits = self.network(input_ids=batch.source_ids, decoder_input_ids=inputs, use_cache=False, **given).logits
        log_probs = self._log_probs(gold.at(logits))
        found = log_probs.gather(1, gold.at(words)[:, None]).squeeze(1)
        details, share = {}, context.label_smoothing
        if share:
            details["smoothed_log_probs"] = gold.back((1 - share) * found + share * log_probs.mean(-1))
        return ModelOutput(gold.back(found), token_mask=gold.mask, details=details)

    def save_checkpoint(self, folder: Path, weights: Mapping[str, Tensor]) -> None:
        """Write the files that ``AutoModelForSeq2SeqLM`` opens."""
        state = {name.removeprefix("network."): tensor for name, tensor in weights.items()}
        self.network.save_pretrained(folder, state_dict=state, max_shard_size="1000GB")
