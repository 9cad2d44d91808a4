"""Beam decoding of a Transformer against transformers' ``generate`` on a network of the same sizes.

Both are of base size (6 + 6 layers, width 512, 8 heads, feed-forward 2048, vocabulary 32,000, one embedding matrix
for everything) with random weights, on the CPU in float32. Both read the same sources (64 tokens) and write a
fixed number of tokens (16) with 5 beams, 32 documents at a time. The peer is transformers' Marian, whose layers are
those of the same architecture; its attention is the fused one.

They take turns, and the ratio of the best times is printed: by the clock, and of the seconds of all threads
together, which is the one to trust at one thread on a machine with other work.

    python benchmarks/transformer_decoding.py [--threads 1 2] [--source 64] [--steps 16] [--repeats 3] [--short]
"""

from __future__ import annotations

import argparse
from typing import Any

import torch
from torch import Tensor
from transformers import GenerationConfig, MarianConfig, MarianMTModel

from paired import BASE, IDS, SMALL, Step, best_of, exactly, made_batch, place, report, search, transformer

BEAMS = 5


def make_peer(sizes: dict[str, int]) -> Any:
    torch.manual_seed(0)
    sides = {"layers": sizes["layers"], "attention_heads": sizes["heads"], "ffn_dim": sizes["feed_forward"]}
    config = MarianConfig(
        **{f"{side}_{name}": value for side in ("encoder", "decoder") for name, value in sides.items()},
        vocab_size=sizes["vocabulary"],
        d_model=sizes["size"],
        activation_function="relu",
        scale_embedding=True,
        share_encoder_decoder_embeddings=True,
        max_position_embeddings=512,
        pad_token_id=IDS["pad_id"],
        bos_token_id=IDS["bos_id"],
        eos_token_id=IDS["eos_id"],
        decoder_start_token_id=IDS["eos_id"],
        forced_eos_token_id=None,
        attn_implementation="sdpa",
    )
    return MarianMTModel(config).eval()


def generate(network: Any, sources: Tensor, beams: int, words: int, start: int = IDS["eos_id"]) -> Step:
    """``generate`` with one token more than ``words``, as ours makes the step that would be END."""
    lengths = {"min_new_tokens": words + 1, "max_new_tokens": words + 1}
    special = {"pad_token_id": IDS["pad_id"], "eos_token_id": IDS["eos_id"], "decoder_start_token_id": start}
    config = GenerationConfig(num_beams=beams, do_sample=False, **lengths, **special)
    mask = torch.ones_like(sources)

    @torch.inference_mode()
    def run() -> None:
        found = network.generate(input_ids=sources, attention_mask=mask, generation_config=config)
        assert found.shape[1] == words + 2

    return run


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--source", type=int, default=64)
    parser.add_argument("--steps", type=int, default=16)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--short", action="store_true", help="small networks, to see that it runs")
    options = parser.parse_args()
    sizes = SMALL if options.short else BASE
    batch = made_batch(sizes["vocabulary"], options.batch, options.source, 1)
    ways = {
        "ours": search(transformer(sizes), batch, exactly(options.steps, BEAMS)),
        "generate": generate(make_peer(sizes), batch.source_ids, BEAMS, options.steps),
    }
    for threads in options.threads:
        of = f"{options.batch} documents of {options.source} tokens, {options.steps} words, {BEAMS} beams"
        title = f"{place(threads)}: {of}"
        report(title, best_of(ways, options.repeats), "ours")


if __name__ == "__main__":
    main()
