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
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from transformers import GenerationConfig, MarianConfig, MarianMTModel

from catchline.config.names import MODELS, build
from catchline.config.schema import SearchConfig
from catchline.search.torch_bridge import decode
from catchline.types import Batch

BEAMS = 5
IDS = {"pad_id": 0, "unk_id": 1, "bos_id": 2, "eos_id": 3}
BASE = {"layers": 6, "size": 512, "heads": 8, "feed_forward": 2048, "vocabulary": 32_000}
SMALL = {"layers": 2, "size": 128, "heads": 4, "feed_forward": 256, "vocabulary": 4_000}


def make_ours(sizes: dict[str, int]) -> Any:
    torch.manual_seed(0)
    spec = {
        "type": "transformer",
        "encoder_layers": sizes["layers"],
        "decoder_layers": sizes["layers"],
        "hidden_size": sizes["size"],
        "num_heads": sizes["heads"],
        "feed_forward_size": sizes["feed_forward"],
    }
    return build("model", MODELS, spec, vocab_size=sizes["vocabulary"], **IDS).eval()


def make_peer(sizes: dict[str, int]) -> Any:
    torch.manual_seed(0)
    config = MarianConfig(
        vocab_size=sizes["vocabulary"],
        d_model=sizes["size"],
        encoder_layers=sizes["layers"],
        decoder_layers=sizes["layers"],
        encoder_attention_heads=sizes["heads"],
        decoder_attention_heads=sizes["heads"],
        encoder_ffn_dim=sizes["feed_forward"],
        decoder_ffn_dim=sizes["feed_forward"],
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


def decode_ours(model: Any, sources: Tensor, steps: int) -> int:
    """Every document is searched for exactly ``steps`` tokens; returns how many words came out."""
    batch = Batch(sources, sources, torch.ones_like(sources, dtype=torch.bool), model.vocab_size)
    config = SearchConfig(beam_size=BEAMS, min_length=steps, min_length_share=None, max_length=steps, forbid_unk=False)
    return sum(len(hypotheses[0].ids) for hypotheses in decode(model, batch, config, **IDS))


@torch.inference_mode()
def decode_peer(model: Any, sources: Tensor, steps: int) -> int:
    """The same with ``generate``: one token more than ``steps``, as ours makes the step that would be END."""
    config = GenerationConfig(
        num_beams=BEAMS,
        do_sample=False,
        min_new_tokens=steps + 1,
        max_new_tokens=steps + 1,
        pad_token_id=IDS["pad_id"],
        eos_token_id=IDS["eos_id"],
        decoder_start_token_id=IDS["eos_id"],
    )
    mask = torch.ones_like(sources)
    found = model.generate(input_ids=sources, attention_mask=mask, generation_config=config)
    return int((found.shape[1] - 2) * found.shape[0])


def seconds(work: Callable[[], int], expected: int) -> tuple[float, float]:
    """By the clock, and of all threads."""
    started, spent = time.perf_counter(), time.process_time()
    words = work()
    elapsed, spent = time.perf_counter() - started, time.process_time() - spent
    assert words == expected, f"{words} words instead of {expected}"
    return elapsed, spent


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
    ours, peer = make_ours(sizes), make_peer(sizes)
    generator = torch.Generator().manual_seed(1)
    sources = torch.randint(4, sizes["vocabulary"], (options.batch, options.source), generator=generator)
    words = options.batch * options.steps
    ways = {
        "ours": lambda: decode_ours(ours, sources, options.steps),
        "generate": lambda: decode_peer(peer, sources, options.steps),
    }
    parameters = {name: sum(p.numel() for p in model.parameters()) for name, model in (("ours", ours), ("peer", peer))}
    print(f"parameters: ours {parameters['ours']:,}, peer {parameters['peer']:,}")
    for threads in options.threads:
        torch.set_num_threads(threads)
        best = dict.fromkeys(ways, (float("inf"), float("inf")))
        for turn in range(options.repeats + 1):
            for name, way in ways.items():
                measured = seconds(way, words)
                if turn:  # the first turn warms up
                    best[name] = min(best[name][0], measured[0]), min(best[name][1], measured[1])
        print(
            f"{threads} thread{'s' * (threads > 1)}: {options.batch} documents of {options.source} tokens, "
            f"{options.steps} words, {BEAMS} beams"
        )
        for name, (elapsed, spent) in best.items():
            print(f"  {name:9} {elapsed:7.3f} s  CPU {spent:7.3f} s  {options.batch / elapsed:8.2f} documents a second")
        ratios = [theirs / own for theirs, own in zip(best["generate"], best["ours"], strict=True)]
        print(f"  generate / ours  {ratios[0]:5.2f}x  CPU {ratios[1]:5.2f}x", flush=True)


if __name__ == "__main__":
    main()
