"""What copy heads cost a Transformer: a training step, a decoding step and memory, against the vocabulary head.

One model a head, all with 6 + 6 layers, width 256, 8 heads, feed-forward 1024 and a vocabulary of 32,000, on 1,024
source and 128 target tokens: a sixteenth of BART-large's weights in each layer, its lengths in full. The heads are
``vocabulary`` (no copying), ``attentional``, ``guided`` (with its objective) and ``correlational``. They take turns in
one process.

* Training: forward, backward and a fused Adam step, dropout 0.1, label smoothing 0.1, two documents.
* Decoding: beam search, 4 beams, two documents. A step is the difference between searches of 40 and of 8 words, ends
  forbidden, divided by 32; ``before`` is what remains of the shorter one: encoding, s and p.
* Memory: what two training steps add to the highest resident size of a process (of a device with ``--device cuda``)
  in which the model, its gradients and Adam's two sums exist already. Each head in its own process.

    python benchmarks/copying_overhead.py [--backbone bart] [--threads 1 2] [--repeats 5] [--short]
        [--parts training decoding memory] [--device cuda --bf16]
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from typing import Any

import torch

from catchline.config.names import MODELS, build
from catchline.types import TrainingBatch
from paired import IDS, adam_step, best_of, exactly, in_own_process, made_batch, megabytes, place, report, search

HEADS: dict[str, dict[str, Any]] = {
    "vocabulary": {"type": "vocabulary"},
    "attentional": {"type": "attentional"},
    "guided": {"type": "guided"},
    "coconet": {"type": "correlational"},
}
BEAMS, SMOOTHING = 4, 0.1


@dataclass(frozen=True, slots=True)
class Sizes:
    """Of the network, the texts and the searches."""

    layers: int = 6
    width: int = 256
    heads: int = 8
    feed_forward: int = 1024
    vocabulary: int = 32_000
    documents: int = 2
    source: int = 1024
    target: int = 128
    short: int = 8
    long: int = 40


SMALL = Sizes(2, 32, 4, 64, 1_000, documents=2, source=96, target=24, short=4, long=12)


def make_model(name: str, backbone: str, sizes: Sizes, device: str) -> Any:
    torch.manual_seed(0)
    if backbone == "transformer":
        spec: dict[str, Any] = {
            "type": "transformer",
            "encoder_layers": sizes.layers,
            "decoder_layers": sizes.layers,
            "hidden_size": sizes.width,
            "num_heads": sizes.heads,
            "feed_forward_size": sizes.feed_forward,
            "dropout": 0.1,
        }
    else:
        sides = {"layers": sizes.layers, "attention_heads": sizes.heads, "ffn_dim": sizes.feed_forward}
        architecture = {f"{side}_{key}": value for side in ("encoder", "decoder") for key, value in sides.items()}
        spec = {"type": "bart", "architecture": architecture | {"d_model": sizes.width, "dropout": 0.1}}
    return build("model", MODELS, spec | {"head": HEADS[name]}, vocab_size=sizes.vocabulary, **IDS).to(device)


def make_batch(sizes: Sizes, device: str) -> TrainingBatch:
    return made_batch(sizes.vocabulary, sizes.documents, sizes.source, sizes.target, device=device)


def objectives_of(name: str) -> list[dict[str, Any]]:
    return [{"type": "nll", "label_smoothing": SMOOTHING}, *[{"type": "guidance"}] * (name == "guided")]


def report_decoding(best: dict[str, tuple[float, float]], sizes: Sizes, where: str) -> None:
    """A step, and what comes before the first."""
    steps, before = {}, {}
    for name in HEADS:
        short, long = best[f"{name}/{sizes.short}"], best[f"{name}/{sizes.long}"]
        step = tuple((b - a) / (sizes.long - sizes.short) for a, b in zip(short, long, strict=True))
        steps[name] = (step[0], step[1])
        before[name] = (short[0] - sizes.short * step[0], short[1] - sizes.short * step[1])
    report(f"decoding step, {BEAMS} beams of {sizes.documents} documents, {where}", steps, "vocabulary")
    report(f"before the first step, {where}", before, "vocabulary")


def added_memory(name: str, backbone: str, sizes: Sizes, device: str, bf16: bool) -> float:
    """MiB that two training steps add to the peak, beside parameters, gradients and Adam's sums."""
    model, batch = make_model(name, backbone, sizes, device), make_batch(sizes, device)
    held = [torch.ones_like(p) for p in model.parameters() for _ in range(2)]  # as large as Adam's sums
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    before = megabytes(device=device)
    del held
    step = adam_step(model, batch, objectives_of(name), device=device, bf16=bf16)
    step()
    step()
    return megabytes(device=device) - before


def report_memory(options: argparse.Namespace) -> None:
    base = 0.0
    print("memory that training steps add")
    for name in HEADS:
        arguments = ["--memory-of", name, "--backbone", options.backbone, "--device", options.device]
        arguments += ["--short"] * options.short + ["--bf16"] * options.bf16
        added = in_own_process(__file__, *arguments)
        base = base or added
        ratio = f"  x {added / base:5.3f}" if base else ""
        print(f"  {name:16} {added:9.0f} MiB{ratio}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backbone", choices=["transformer", "bart"], default="transformer")
    parser.add_argument("--parts", nargs="+", choices=["training", "decoding", "memory"])
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--bf16", action="store_true", help="train under autocast")
    parser.add_argument("--short", action="store_true", help="small networks and texts, to see that it runs")
    parser.add_argument("--memory-of", choices=list(HEADS), help=argparse.SUPPRESS)
    options = parser.parse_args()
    sizes, device = SMALL if options.short else Sizes(), options.device
    if options.memory_of:
        torch.set_num_threads(1)
        print(json.dumps(added_memory(options.memory_of, options.backbone, sizes, device, options.bf16)))
        return
    parts = options.parts or ["training", "decoding", "memory"]
    print(f"{options.backbone}, {sizes.documents} documents of {sizes.source} tokens, summaries of {sizes.target}")
    models = {name: make_model(name, options.backbone, sizes, device) for name in HEADS}
    batch = make_batch(sizes, device)
    for threads in options.threads if device == "cpu" else options.threads[:1]:
        where = place(threads, device)
        if "decoding" in parts:
            lengths = (sizes.short, sizes.long)
            searches = {f"{h}/{n}": search(models[h], batch, exactly(n, BEAMS)) for h in HEADS for n in lengths}
            report_decoding(best_of(searches, options.repeats, device), sizes, where)
        if "training" in parts:
            ways = {"device": device, "bf16": options.bf16}
            steps = {n: adam_step(model, batch, objectives_of(n), **ways) for n, model in models.items()}
            report(f"training step, {where}", best_of(steps, options.repeats, device), "vocabulary")
    if "memory" in parts:
        report_memory(options)


if __name__ == "__main__":
    main()
