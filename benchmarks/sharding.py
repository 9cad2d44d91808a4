"""What sharding a model over processes would save and cost: replicated against fully sharded (FSDP), two processes.

    torchrun --nproc-per-node 2 benchmarks/sharding.py [--size base|box] [--steps 3]

A step (forward, backward, Adam) of a BART of random weights on made-up ids of 128 source and 32 target tokens, two
documents a process, one thread each, gloo: once with the whole model in each process and gradients summed, once with
torch's ``fully_shard`` on every layer. ``base`` is BART-base (139 million parameters), ``box`` a network of the size of
the model that ships (6 million). Printed by the first process: seconds a step, and how far the steps raised its memory.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from transformers import BartConfig, BartForConditionalGeneration

SIZES = {"base": (768, 6, 3072, 50_265), "box": (256, 2, 512, 16_000)}


def resident() -> float:
    """Megabytes of this process now."""
    pages = Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * 4096 / 1e6


def make(size: str) -> BartForConditionalGeneration:
    torch.manual_seed(0)
    width, layers, inner, vocabulary = SIZES[size]
    config = BartConfig(
        vocab_size=vocabulary,
        d_model=width,
        encoder_layers=layers,
        decoder_layers=layers,
        encoder_ffn_dim=inner,
        decoder_ffn_dim=inner,
        encoder_attention_heads=8,
        decoder_attention_heads=8,
    )
    return BartForConditionalGeneration(config).train()


def measured(size: str, sharded: bool, steps: int) -> tuple[float, float, float]:
    """Seconds a step, the last loss, and megabytes above those before the model was there."""
    before = resident()
    model = make(size)
    if sharded:
        for layer in (*model.model.encoder.layers, *model.model.decoder.layers):
            fully_shard(layer)
        fully_shard(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, fused=not sharded)
    generator = torch.Generator().manual_seed(dist.get_rank())
    ids = torch.randint(4, SIZES[size][3], (2, 160), generator=generator)
    seconds, most, loss = [], 0.0, torch.zeros(())
    for _ in range(steps + 1):
        dist.barrier()
        started = time.perf_counter()
        loss = model(input_ids=ids[:, :128], labels=ids[:, 128:].contiguous()).loss
        loss.backward()
        most = max(most, resident() - before)
        if not sharded:
            flat = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
            dist.all_reduce(flat)
            flat /= dist.get_world_size()
            at = 0
            for p in model.parameters():
                if p.grad is not None:
                    p.grad.copy_(flat[at : at + p.numel()].view_as(p))
                    at += p.numel()
            del flat
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        seconds.append(time.perf_counter() - started)
        most = max(most, resident() - before)
    return min(seconds[1:]), float(loss.detach()), most


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", choices=SIZES, default="base")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--way", choices=("replicated", "sharded"), default="replicated")
    options = parser.parse_args()
    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    seconds, loss, most = measured(options.size, options.way == "sharded", options.steps)
    if dist.get_rank() == 0:
        print(f"{options.way}: {seconds:.2f} s a step, {most:,.0f} MB, loss {loss:.4f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
