"""A training step of the base Transformer against transformers' Marian on a network of the same sizes.

    python benchmarks/transformer_training.py [--threads 1 2] [--batch 32] [--source 64] [--target 20] [--short]

Ours is recipe ``contrastive``, row ``transformer``, size ``paper`` (6 + 6 layers, width 512, feed-forward 2048, one
embedding matrix for everything, vocabulary 32,000, dropout 0.3) as ``catchline train`` makes a step: forward, backward,
clipping, Adam. The peer has the same dropout and gets the same clipping and the same Adam; its loss is the likelihood
of the same words. Made-up words, all lengths full, on the CPU. They take turns in one process; printed are target
tokens a second and their ratio. ``--bf16`` runs both in bf16 autocast too, which pays where the CPU has units for it.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable

import torch
from accelerate import Accelerator
from torch import Tensor, nn

from catchline.config.loading import load_recipe, resolve_run
from catchline.config.names import MODELS, OBJECTIVES, build
from catchline.config.schema import RunConfig
from catchline.training.optim import build_optimizer
from catchline.training.step import UpdateStep
from catchline.types import TrainingBatch
from train_step import Timing, peer_step
from transformer_decoding import BASE, IDS, SMALL, make_peer

DROPOUT = 0.3


class PeerLoss(nn.Module):
    """The mean negative log-likelihood of the target words, as transformers computes it."""

    def __init__(self, network: nn.Module, precision: str, device: str = "cpu") -> None:
        super().__init__()
        self.network, self.precision, self.device = network.train(), precision, device

    def forward(self, batch: TrainingBatch) -> Tensor:
        with torch.autocast(self.device, torch.bfloat16, enabled=self.precision == "bf16"):
            found = self.network(
                input_ids=batch.source_ids,
                attention_mask=batch.source_mask.long(),
                decoder_input_ids=batch.target_input_ids,
                labels=batch.target_ids,
            )
        loss: Tensor = found.loss
        return loss


def marian_loss(sizes: dict[str, int], precision: str, device: str = "cpu") -> PeerLoss:
    """Marian with the dropout of ours."""
    network = make_peer(sizes)
    for part in network.modules():
        if getattr(part, "dropout", 0.0):  # of embeddings and sublayers; that of attention is 0 in both
            part.dropout = DROPOUT
    return PeerLoss(network, precision, device)


def made_batch(sizes: dict[str, int], batch: int, source: int, target: int) -> TrainingBatch:
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(4, sizes["vocabulary"], (batch, source + target), generator=generator)
    read, written = ids[:, :source].contiguous(), ids[:, source:].contiguous()
    inputs = torch.cat([torch.full((batch, 1), IDS["bos_id"]), written[:, :-1]], dim=1)
    return TrainingBatch(
        source_ids=read,
        source_extended_ids=read,
        source_mask=torch.ones_like(read, dtype=torch.bool),
        extended_vocab_size=sizes["vocabulary"],
        target_input_ids=inputs,
        target_ids=written,
        target_mask=torch.ones_like(written, dtype=torch.bool),
    )


def resolved(sizes: dict[str, int], precision: str) -> RunConfig:
    overrides = {
        "model": {
            "encoder_layers": sizes["layers"],
            "decoder_layers": sizes["layers"],
            "hidden_size": sizes["size"],
            "num_heads": sizes["heads"],
            "feed_forward_size": sizes["feed_forward"],
            "dropout": DROPOUT,
        },
        "objectives": [{"type": "nll"}],
        "training": {"precision": precision},
    }
    return resolve_run(load_recipe("contrastive"), "transformer", "paper", overrides)


def our_step(run: RunConfig, sizes: dict[str, int], batch: TrainingBatch) -> Callable[[], None]:
    torch.manual_seed(0)
    model = build("model", MODELS, run.model, vocab_size=sizes["vocabulary"], **IDS)
    objectives = [build("objective", OBJECTIVES, spec) for spec in run.objectives]
    update = UpdateStep(run.training, model, objectives, Accelerator(cpu=True))
    optimizer = build_optimizer(run.training.optimizer, model.parameters())

    def step() -> None:
        update([batch], 0, [], None)  # type: ignore[arg-type]
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--source", type=int, default=64)
    parser.add_argument("--target", type=int, default=20)
    parser.add_argument("--steps", type=int, default=5, help="timed steps of each, after one to warm up")
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--short", action="store_true", help="small networks, to see that it runs")
    options = parser.parse_args()
    sizes = SMALL if options.short else BASE
    batch = made_batch(sizes, options.batch, options.source, options.target)
    steps = {}
    for precision in ("fp32", "bf16") if options.bf16 else ("fp32",):
        run = resolved(sizes, precision)
        steps[f"ours {precision}"] = our_step(run, sizes, batch)
        steps[f"Marian {precision}"] = peer_step(run, marian_loss(sizes, precision), batch)
    for threads in options.threads:
        torch.set_num_threads(threads)
        timings = {name: Timing(step) for name, step in steps.items()}
        for turn in range((1 if options.short else options.steps) + 1):
            for timing in timings.values():
                timing.once(keep=turn > 0)
        tokens = options.batch * options.target
        print(f"{threads} thread{'s' * (threads > 1)}: target tokens a second (median), CPU seconds a step")
        speed = {name: tokens / statistics.median(timing.wall) for name, timing in timings.items()}
        for name, timing in timings.items():
            print(f"  {name:<12} {speed[name]:7.0f}  {statistics.median(timing.cpu):6.2f}")
        for ours, peer in zip(list(speed)[::2], list(speed)[1::2], strict=True):
            print(f"  {ours} / {peer}: {speed[ours] / speed[peer]:.2f}x", flush=True)


if __name__ == "__main__":
    main()
