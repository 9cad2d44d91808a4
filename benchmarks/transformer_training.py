"""A training step of the base Transformer against transformers' Marian on a network of the same sizes.

    python benchmarks/transformer_training.py [--threads 1 2] [--batch 32] [--source 64] [--target 20] [--short]

Ours is recipe ``contrastive``, row ``transformer``, size ``paper`` (6 + 6 layers, width 512, feed-forward 2048, one
embedding matrix for everything, vocabulary 32,000, dropout 0.3) as ``catchline train`` makes a step: forward, backward,
clipping, Adam. The peer has the same dropout and gets the same clipping and the same Adam; its loss is the likelihood
of the same words. Made-up words, all lengths full, on the CPU. They take turns in one process; printed are the times of
a step and their ratio. ``--bf16`` runs both in bf16 autocast too, which pays where the CPU has units for it.
"""

from __future__ import annotations

import argparse

import torch
from torch import Tensor, nn

from catchline.config.loading import load_recipe, resolve_run
from catchline.config.schema import RunConfig
from catchline.types import TrainingBatch
from paired import BASE, SMALL, best_of, made_batch, our_step, peer_step, place, report, transformer
from transformer_decoding import make_peer

DROPOUT = 0.3


class PeerLoss(nn.Module):
    """The mean negative log-likelihood of the target words, as transformers' Marian computes it, with our dropout."""

    def __init__(self, sizes: dict[str, int], precision: str) -> None:
        super().__init__()
        self.network, self.precision = make_peer(sizes).train(), precision
        for part in self.network.modules():
            if getattr(part, "dropout", 0.0):  # of embeddings and sublayers; that of attention is 0 in both
                part.dropout = DROPOUT

    def forward(self, batch: TrainingBatch) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16, enabled=self.precision == "bf16"):
            found = self.network(
                input_ids=batch.source_ids,
                attention_mask=batch.source_mask.long(),
                decoder_input_ids=batch.target_input_ids,
                labels=batch.target_ids,
            )
        loss: Tensor = found.loss
        return loss


def resolved(precision: str) -> RunConfig:
    overrides = {"objectives": [{"type": "nll"}], "training": {"precision": precision}}
    return resolve_run(load_recipe("contrastive"), "transformer", "paper", overrides)


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
    batch = made_batch(sizes["vocabulary"], options.batch, options.source, options.target)
    steps = {}
    for precision in ("fp32", "bf16") if options.bf16 else ("fp32",):
        run = resolved(precision)
        steps[f"ours {precision}"] = our_step(run, transformer(sizes, dropout=DROPOUT), batch)
        steps[f"Marian {precision}"] = peer_step(run, PeerLoss(sizes, precision), batch)
    for threads in options.threads:
        title = f"{place(threads)}: a step of {options.batch * options.target} target tokens"
        report(title, best_of(steps, 1 if options.short else options.steps), "ours fp32")


if __name__ == "__main__":
    main()
