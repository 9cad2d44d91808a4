"""What the opponent costs: a training step and a decoding step of a Transformer with it and without it.

Both models have base size (6 + 6 layers, width 512, 8 heads, feed-forward 2048, vocabulary 32,000, one embedding
matrix) and equal base weights; one has the opponent branch on head 4 of layer 2. They take turns in one process.

* Training: 32 pairs of 36 source and 12 target tokens, forward, backward and a fused Adam step, dropout 0.3, label
  smoothing 0.1 on both terms. With the branch there is a second output layer, 64 wide, and what leads to it.
* Decoding: beam search, 5 beams, 32 sources of 36 tokens, 12 words, early ends forbidden. With the branch each step
  projects to the vocabulary twice and normalises twice; ``pc`` is the same model with ``decode_score: pc``, which
  skips the branch.
* Memory: what the two output layers add to the peak of a process (of a device with ``--device cuda``), forward and
  backward, 4,096 target tokens: ours, in chunks, against logits that are kept.

    python benchmarks/contrastive_overhead.py [--threads 1 2] [--repeats 5] [--short] [--device cuda --bf16]
"""

from __future__ import annotations

import argparse
import json
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from catchline.layers.copying.pointer import VocabularyProjection
from paired import (
    BASE,
    SMALL,
    adam_step,
    best_of,
    exactly,
    in_own_process,
    made_batch,
    megabytes,
    place,
    report,
    search,
    transformer,
)

TOKENS = 4096
PAIRS, SOURCE, TARGET, BEAMS = 32, 36, 12, 5
OBJECTIVES: dict[str, list[dict[str, Any]]] = {
    "plain": [{"type": "nll", "label_smoothing": 0.1}],
    "contrastive": [{"type": kind, "label_smoothing": 0.1} for kind in ("nll", "opponent")],
}
OUTPUTS = {"one output, ours": (True, 1), "two outputs, ours": (True, 2), "two outputs, logits kept": (False, 2)}


def outputs_memory(sizes: dict[str, int], device: str, *, ours: bool, outputs: int) -> float:
    """MiB that ``outputs`` output layers add to the peak, beside their parameters and these parameters' gradients."""
    torch.manual_seed(0)
    widths = (sizes["size"], sizes["size"] // sizes["heads"])[:outputs]
    layers = [VocabularyProjection(width, sizes["vocabulary"], bias=False).to(device) for width in widths]
    inputs = [torch.randn(TOKENS, width, device=device, requires_grad=True) for width in widths]
    gold = torch.randint(sizes["vocabulary"], (TOKENS,), device=device)
    for layer in layers:
        layer.weight.grad = torch.zeros_like(layer.weight)

    def value(layer: VocabularyProjection, features: Tensor) -> Tensor:
        if ours:
            return layer.smoothed(layer.gold_log_probs(features, gold), features, gold, 0.1).sum()
        return -F.cross_entropy(layer(features), gold, reduction="sum", label_smoothing=0.1)

    before = megabytes(device=device)
    loss = torch.stack([value(layer, features) for layer, features in zip(layers, inputs, strict=True)]).sum()
    loss.backward()
    return megabytes(device=device) - before


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--bf16", action="store_true", help="train under autocast")
    parser.add_argument("--short", action="store_true", help="small networks, to see that it runs")
    parser.add_argument("--memory-of", choices=list(OUTPUTS), help=argparse.SUPPRESS)
    options = parser.parse_args()
    sizes, device = SMALL if options.short else BASE, options.device
    if options.memory_of:
        ours, outputs = OUTPUTS[options.memory_of]
        print(json.dumps(outputs_memory(sizes, device, ours=ours, outputs=outputs)))
        return
    opponent = {"type": "max", "layer": 1, "head": 1} if options.short else {"type": "max", "layer": 2, "head": 4}
    models = {"plain": transformer(sizes).to(device), "contrastive": transformer(sizes, opponent=opponent).to(device)}
    batch = made_batch(sizes["vocabulary"], PAIRS, SOURCE, TARGET, device=device)
    counts = {name: sum(p.numel() for p in model.parameters()) for name, model in models.items()}
    print(f"parameters: {counts['plain']:,} without, {counts['contrastive']:,} with the opponent")
    how = {"device": device, "bf16": options.bf16}
    training = {name: adam_step(model, batch, OBJECTIVES[name], **how) for name, model in models.items()}
    searches = {name: search(model, batch, exactly(TARGET, BEAMS)) for name, model in models.items()}
    alone = exactly(TARGET, BEAMS, model={"decode_score": "pc"})
    searches["contrastive, pc"] = search(models["contrastive"], batch, alone)
    for threads in options.threads if device == "cpu" else options.threads[:1]:
        where = place(threads, device)
        report(f"training step, {where}", best_of(training, options.repeats, device), "plain")
        report(f"decoding {PAIRS} documents, {where}", best_of(searches, options.repeats, device), "plain")
    print(f"peak memory of the output layers, {TOKENS:,} tokens")
    for name in OUTPUTS:
        found = in_own_process(__file__, "--memory-of", name, "--device", device, *["--short"] * options.short)
        print(f"  {name:28} {found:8.0f} MiB", flush=True)


if __name__ == "__main__":
    main()
