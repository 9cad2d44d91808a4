"""Small random batches and models that tests of several folders share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from catchline.config.names import MODELS, OBJECTIVES, build
from catchline.models.seq2seq import Seq2Seq
from catchline.types import PLAIN_PASS, ModelOutput, TrainingBatch, UpdateContext

PAD, UNK, BOS, EOS = 0, 1, 2, 3
IDS = {"pad_id": PAD, "unk_id": UNK, "bos_id": BOS, "eos_id": EOS}
VOCAB = 20


def rand(*shape: int, seed: int = 0) -> Tensor:
    """Normal numbers in 64 bits, the same for the same seed."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def random_batch(
    source_lengths: Sequence[int] = (7, 4, 1),
    target_lengths: Sequence[int] = (5, 3, 2),
    *,
    vocab_size: int = VOCAB,
    seed: int = 0,
    with_oov: bool = True,
    extra_source: int = 0,
    extra_target: int = 0,
    padding: str = "pad",
) -> TrainingBatch:
    """A batch with every case that matters.

    Each source repeats words, holds words outside V (numbered by first appearance) and, where long enough, EOS.
    Targets copy source words (also those outside V), hold ordinary words and UNK, and end in EOS.
    ``extra_*`` adds columns of nothing but padding. ``padding="gold"`` fills the source's padding with the
    example's own gold ids: no result may see it.
    """
    g = torch.Generator().manual_seed(seed)

    def draw(choices: list[int]) -> int:
        return choices[int(torch.randint(len(choices), (), generator=g))]

    sources, targets, oov_words = [], [], []
    for length, steps in zip(source_lengths, target_lengths, strict=True):
        strings = [-1, -2, -3] if with_oov else []  # stand for three strings that V lacks
        pool = [draw(list(range(4, vocab_size))) for _ in range(3)] + strings
        words = [draw(pool) for _ in range(length)]
        if with_oov:
            words[0] = -1
        if length > 2:
            words[2] = words[0]
        if length > 4:
            words[-1] = EOS
        known = list(dict.fromkeys(w for w in words if w < 0))
        source = [vocab_size + known.index(w) if w < 0 else w for w in words]
        target = [draw([draw(source), draw(list(range(4, vocab_size))), UNK]) for _ in range(steps - 1)] + [EOS]
        if steps > 1:
            target[0] = source[0]
        sources.append(source)
        targets.append(target)
        oov_words.append([f"oov{-w}" for w in known])
    extended, source_mask = _padded(sources, extra_source)
    gold, target_mask = _padded(targets, extra_target)
    inputs = torch.cat([torch.full((len(gold), 1), BOS), gold[:, :-1]], dim=1)
    inputs = inputs.masked_fill(inputs >= vocab_size, UNK).masked_fill(~target_mask, PAD)
    if padding == "gold":
        for b in range(len(extended)):
            holes = (~source_mask[b]).nonzero().flatten()
            extended[b, holes] = torch.tensor([targets[b][i % len(targets[b])] for i in range(len(holes))]).long()
    return TrainingBatch(
        source_ids=extended.masked_fill(extended >= vocab_size, UNK),
        source_extended_ids=extended,
        source_mask=source_mask,
        extended_vocab_size=vocab_size + max(len(words) for words in oov_words),
        oov_words=oov_words,
        target_input_ids=inputs,
        target_ids=gold,
        target_mask=target_mask,
    )


def _padded(rows: list[list[int]], extra: int) -> tuple[Tensor, Tensor]:
    width = max(len(row) for row in rows) + extra
    ids = torch.tensor([row + [PAD] * (width - len(row)) for row in rows])
    mask = torch.tensor([[True] * len(row) + [False] * (width - len(row)) for row in rows])
    return ids, mask


def one_example(batch: TrainingBatch, index: int) -> TrainingBatch:
    """Example ``index`` alone, without its padding and with its own extended vocabulary."""
    base = batch.extended_vocab_size - max(len(words) for words in batch.oov_words)
    row = slice(index, index + 1)
    source, target = (mask[row, : int(mask[index].sum())] for mask in (batch.source_mask, batch.target_mask))
    return TrainingBatch(
        source_ids=batch.source_ids[row, : source.shape[1]],
        source_extended_ids=batch.source_extended_ids[row, : source.shape[1]],
        source_mask=source,
        extended_vocab_size=base + len(batch.oov_words[index]),
        oov_words=[batch.oov_words[index]],
        target_input_ids=batch.target_input_ids[row, : target.shape[1]],
        target_ids=batch.target_ids[row, : target.shape[1]],
        target_mask=target,
    )


def few_words() -> TrainingBatch:
    """Lengths 7, 4, 3, 2 and 1: with one position there is nowhere to go, and nothing else to look at."""
    return random_batch((7, 4, 3, 2, 1), (4, 3, 3, 2, 2), seed=5)


TINY = {"embedding_size": 5, "encoder_hidden": 4, "hidden_size": 4}
TRANSFORMER: dict[str, Any] = {
    "type": "transformer",
    "encoder_layers": 2,
    "decoder_layers": 2,
    "hidden_size": 12,
    "num_heads": 3,
    "feed_forward_size": 10,
    "dropout": 0.0,
}
BART: dict[str, Any] = {
    "model_type": "bart",
    **{"d_model": 12, "encoder_ffn_dim": 16, "decoder_ffn_dim": 16, "max_position_embeddings": 64, "dropout": 0.0},
    **{f"{side}_{name}": n for side in ("encoder", "decoder") for name, n in (("layers", 2), ("attention_heads", 3))},
    **{"bos_token_id": BOS, "pad_token_id": PAD, "eos_token_id": EOS, "decoder_start_token_id": BOS},
    "forced_eos_token_id": None,
}
COVERAGE = {"attention": {"type": "additive", "size": 6, "coverage": True}}
ATTENTION = {"attention": {"type": "additive", "size": 6}}
PLAIN: dict[str, Any] = {"attention": None, "head": {"type": "vocabulary"}}
SEE = {
    **COVERAGE,
    "state_for_attention": "ch",
    "input_feeding": "linear",
    "two_biases": False,
    "output_layers": 2,
    "bridge_activation": ("relu", "relu"),
}


def tiny_seq2seq(*, vocab_size: int = VOCAB, seed: int = 0, scale: float = 0.6, **options: Any) -> Seq2Seq:
    """A float64 model of a few units, every parameter drawn from U(-scale, scale) (also those that start at zero)."""
    spec = {"type": "seq2seq", **TINY, **options}
    return randomise(build("model", MODELS, spec, vocab_size=vocab_size, **IDS).double(), seed=seed, scale=scale)


def randomise(model: Any, *, seed: int = 0, scale: float = 0.6) -> Any:
    """The model, every parameter drawn from U(-scale, scale)."""
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.rand(parameter.shape, generator=g, dtype=torch.float64)
            parameter.copy_((2 * noise - 1) * scale)
    return model


def gradients(model: torch.nn.Module) -> dict[str, Tensor]:
    """The gradients of all parameters by name; zero where there is none."""
    return {
        name: torch.zeros_like(p) if p.grad is None else p.grad.detach().clone() for name, p in model.named_parameters()
    }


def trained_loss(
    model: Any,
    batch: TrainingBatch,
    specs: list[dict[str, Any]],
    context: UpdateContext = PLAIN_PASS,
    hint: bool = True,
) -> Tensor:
    """The loss of objectives as the training loop makes it; ``hint``: the pass is told what each token weighs."""
    objectives = [build("objective", OBJECTIVES, spec) for spec in specs]
    for objective in objectives if hint else ():
        context = objective.wants(batch, context)
    output = model(batch, context=context)
    terms = [objective(output, batch, context) for objective in objectives]
    return sum(term.weight * term.sum / term.count for term in terms)


def total(output: ModelOutput) -> Tensor:
    """A loss that reaches everything: unequal weights of the words, and the coverage losses."""
    values = output.gold_log_probs
    weights = torch.linspace(0.5, 1.5, values.numel(), dtype=values.dtype).view_as(values)
    loss = -(weights * values).sum()
    return loss if output.coverage_losses is None else loss + 0.3 * output.coverage_losses.sum()


def backward(
    model: Seq2Seq, batch: TrainingBatch, context: UpdateContext = PLAIN_PASS
) -> tuple[ModelOutput, dict[str, Tensor]]:
    model.zero_grad()
    output = model(batch, context=context)
    total(output).backward()
    return output, gradients(model)


def assert_same(actual: dict[str, Tensor], expected: dict[str, Tensor], tolerance: float) -> None:
    """All tensors equal within ``tolerance`` (absolute, and relative to the largest entry); names the worst."""
    assert actual.keys() == expected.keys()
    worst = {
        name: float((actual[name] - expected[name]).abs().max() / max(1.0, float(expected[name].abs().max())))
        for name in expected
        if expected[name].numel()
    }
    bad = {name: error for name, error in worst.items() if not error <= tolerance}
    assert not bad, f"differ by more than {tolerance}: {bad}"
