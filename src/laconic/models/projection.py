"""What Transformers of either house do with the decoder's states of a training pass."""

from __future__ import annotations

from dataclasses import replace

from laconic.layers.copying.base import CopyHead, CopySource, GoldTokens, HeadInput, SourceSide
from laconic.layers.masking import scatter_real
from laconic.types import AttentionOutput, Batch, Memory, ModelOutput


def project(
    head: CopyHead,
    inputs: HeadInput,
    attention: AttentionOutput | None,
    side: SourceSide | None,
    batch: Batch,
    memory: Memory,
) -> ModelOutput:
    """The vocabulary, once, on real tokens: M rows instead of B * T.

    Args:
        head: what turns states into words.
        inputs: of all steps, (B, T, ...).
        attention: how the words read the source, (B, T, ...); none where nobody asks.
        side: of the source, for heads with ``reads_taps``.
        batch: with targets.
        memory: what `encode` left.
    """
    assert batch.target_ids is not None, "a teacher-forced pass needs targets"
    assert batch.target_mask is not None, "a teacher-forced pass needs a target mask"
    rows, steps = batch.target_mask.nonzero(as_tuple=True)
    weights = None if batch.token_weights is None else batch.token_weights[rows, steps]
    gold = GoldTokens(batch.target_ids[rows, steps], rows, weights, batch.label_smoothing.get("nll", 0.0), steps)
    source, scores = CopySource(memory.extended_ids, memory.mask, memory.extended_vocab_size), None
    if side is not None:
        source.opened = head.open(side)
    elif attention is not None and attention.scores is not None:
        scores = attention.scores[rows, steps]
    inputs = replace(inputs, hidden=inputs.hidden[rows, steps], gate=inputs.gate[rows, steps])
    log_probs, details = head.gold_log_probs(inputs, scores, source, gold)
    output = ModelOutput(
        gold_log_probs=scatter_real(log_probs, batch.target_mask),
        attention=None if attention is None else attention.weights,
        details={name: scatter_real(values, batch.target_mask) for name, values in details.items()},
        memory=memory,
    )
    output.details |= head.of_document(source.opened)
    return output
