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
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from catchline.config.names import MODELS, build
from catchline.config.schema import SearchConfig
from catchline.layers.vocabulary import VocabularyProjection
from catchline.search.torch_bridge import decode
from catchline.types import Batch, TrainingBatch
from paired import best_of, peak_mib, training_step

IDS = {"pad_id": 0, "unk_id": 1, "bos_id": 2, "eos_id": 3}
BASE = {"layers": 6, "size": 512, "heads": 8, "feed_forward": 2048, "vocabulary": 32_000, "tokens": 4096}
SMALL = {"layers": 2, "size": 64, "heads": 4, "feed_forward": 128, "vocabulary": 2_000, "tokens": 512}
PAIRS, SOURCE, TARGET, BEAMS = 32, 36, 12, 5
OBJECTIVES: dict[str, list[dict[str, Any]]] = {
    "plain": [{"type": "nll", "label_smoothing": 0.1}],
    "contrastive": [{"type": kind, "label_smoothing": 0.1} for kind in ("nll", "opponent")],
}
OUTPUTS = {"one output, ours": (True, 1), "two outputs, ours": (True, 2), "two outputs, logits kept": (False, 2)}


def make_model(sizes: dict[str, int], *, opponent: bool, device: str) -> Any:
    torch.manual_seed(0)
    layer, head = (2, 4) if sizes is BASE else (1, 1)
    spec = {
        "type": "transformer",
        "encoder_layers": sizes["layers"],
        "decoder_layers": sizes["layers"],
        "hidden_size": sizes["size"],
        "num_heads": sizes["heads"],
        "feed_forward_size": sizes["feed_forward"],
        "opponent": {"type": "max", "layer": layer, "head": head} if opponent else None,
    }
    return build("model", MODELS, spec, vocab_size=sizes["vocabulary"], **IDS).to(device)


def make_batch(sizes: dict[str, int], device: str) -> TrainingBatch:
    generator = torch.Generator().manual_seed(1)
    source = torch.randint(4, sizes["vocabulary"], (PAIRS, SOURCE), generator=generator)
    target = torch.randint(4, sizes["vocabulary"], (PAIRS, TARGET), generator=generator)
    return TrainingBatch(
        source,
        source,
        torch.ones_like(source, dtype=torch.bool),
        sizes["vocabulary"],
        target_input_ids=target.roll(1, dims=1),
        target_ids=target,
        target_mask=torch.ones_like(target, dtype=torch.bool),
    ).to(device)


def decoding(model: Any, batch: Batch, switches: dict[str, Any]) -> Callable[[], None]:
    config = SearchConfig(
        beam_size=BEAMS, min_length=TARGET, min_length_share=None, max_length=TARGET, forbid_unk=False, model=switches
    )

    def search() -> None:
        found = decode(model.eval(), batch, config, **IDS)
        assert all(len(best[0].ids) == TARGET for best in found)

    return search


def report(title: str, best: dict[str, tuple[float, float]], against: str) -> None:
    print(title)
    for name, (clock, processor) in best.items():
        ratios = [100 * (value / base - 1) for value, base in zip((clock, processor), best[against], strict=True)]
        print(
            f"  {name:24} {1000 * clock:9.1f} ms  {ratios[0]:+6.1f} %   processor {1000 * processor:9.1f} ms"
            f"  {ratios[1]:+6.1f} %",
            flush=True,
        )


def outputs_memory(sizes: dict[str, int], device: str, *, ours: bool, outputs: int) -> float:
    """MiB that ``outputs`` output layers add to the peak, beside their parameters and these parameters' gradients."""
    torch.manual_seed(0)
    widths = (sizes["size"], sizes["size"] // sizes["heads"])[:outputs]
    layers = [VocabularyProjection(width, sizes["vocabulary"], bias=False).to(device) for width in widths]
    inputs = [torch.randn(sizes["tokens"], width, device=device, requires_grad=True) for width in widths]
    gold = torch.randint(sizes["vocabulary"], (sizes["tokens"],), device=device)
    for layer in layers:
        layer.weight.grad = torch.zeros_like(layer.weight)

    def value(layer: VocabularyProjection, features: Tensor) -> Tensor:
        if ours:
            return layer.smoothed(layer.gold_log_probs(features, gold), features, gold, 0.1).sum()
        return -F.cross_entropy(layer(features), gold, reduction="sum", label_smoothing=0.1)

    before = peak_mib(device)
    loss = torch.stack([value(layer, features) for layer, features in zip(layers, inputs, strict=True)]).sum()
    loss.backward()
    return peak_mib(device) - before


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
        print(outputs_memory(sizes, device, ours=ours, outputs=outputs))
        return
    models = {
        name: make_model(sizes, opponent=name == "contrastive", device=device) for name in ("plain", "contrastive")
    }
    batch = make_batch(sizes, device)
    counts = {name: sum(p.numel() for p in model.parameters()) for name, model in models.items()}
    print(f"parameters: {counts['plain']:,} without, {counts['contrastive']:,} with the opponent")
    training = {
        name: training_step(model, batch, OBJECTIVES[name], device=device, bf16=options.bf16)
        for name, model in models.items()
    }
    searches = {
        "plain": decoding(models["plain"], batch, {}),
        "contrastive": decoding(models["contrastive"], batch, {}),
        "contrastive, pc": decoding(models["contrastive"], batch, {"decode_score": "pc"}),
    }
    for threads in options.threads if device == "cpu" else options.threads[:1]:
        torch.set_num_threads(threads)
        where = f"{threads} thread{'s' * (threads > 1)}" if device == "cpu" else torch.cuda.get_device_name()
        report(f"training step, {where}", best_of(training, options.repeats, device), "plain")
        report(f"decoding {PAIRS} documents, {where}", best_of(searches, options.repeats, device), "plain")
    print(f"peak memory of the output layers, {sizes['tokens']:,} tokens")
    for name in OUTPUTS:
        command = [sys.executable, __file__, "--memory-of", name, "--device", device, *["--short"] * options.short]
        found = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        print(f"  {name:28} {float(found):8.0f} MiB", flush=True)


if __name__ == "__main__":
    main()
