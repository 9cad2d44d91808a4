"""What a GPU is to show, in about ten minutes: that it computes what the CPU does, how often the host waits for it, how
fast it is beside transformers, and how near to what the device can do.

    python benchmarks/gpu.py [--parts ceiling checks waits training decoding] [--minutes 10] [--short] [--device cpu]

* ceiling: arithmetic a second of a large product in fp32 (without TF32) and in bf16, bytes a second of a copy.
* checks: one tiny model of every row of every recipe, the same weights and batch on both devices in fp32: the largest
  difference of the losses and, in units of each tensor's largest entry, of the gradients; are the searches equal?
* waits: how often one update of each makes the host wait (torch.cuda.set_sync_debug_mode); one at its end has to be.
  A row that fails in either is named, and the others go on.
* training: the base Transformer beside Marian, BART-base with CoCoNet's copying beside BART-base without, in turns in
  one process; target tokens a second, share of the ceiling (arithmetic counted by torch), memory at its peak.
* decoding: the base Transformer, beam 5, beside ``generate``.

Each part is printed when it is done; what no longer begins within ``--minutes`` is said to be left out. Where there is
no GPU it runs on the CPU, with ``--short`` in a minute, to see that it runs.
"""

from __future__ import annotations

import argparse
import statistics
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode
from transformers import BartConfig, BartForConditionalGeneration

from catchline.config.loading import load_recipe, recipe_names, resolve_run
from catchline.config.names import MODELS, OBJECTIVES, build
from catchline.config.schema import RunConfig, SearchConfig
from catchline.decoding import decode
from catchline.training.optim import build_optimizer
from catchline.training.step import UpdateStep
from catchline.types import TrainingBatch
from train_step import peer_step
from transformer_decoding import BASE, IDS, SMALL, decode_ours, decode_peer, make_ours, make_peer
from transformer_training import PeerLoss, made_batch, marian_loss, resolved

PARTS = ("ceiling", "checks", "waits", "training", "decoding")
WORDS = 60  # of the tiny models
Step = Callable[[], Any]


def wait_for(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def accelerator_on(device: str) -> Accelerator:
    """Accelerators of a process share one state, which has one device; those made before are done with."""
    AcceleratorState._reset_state(reset_partial_state=True)
    return Accelerator(cpu=device == "cpu")


def seconds(work: Step, device: str) -> float:
    wait_for(device)
    began = time.perf_counter()
    work()
    wait_for(device)
    return time.perf_counter() - began


# ---------------------------------------------------------------------------------------------------- ceiling


def ceiling(device: str, short: bool) -> dict[str, float]:
    """Arithmetic a second by precision, of one product of two square matrices; the best of five."""
    size = 512 if short else 8192
    found = {}
    for name, dtype in (("fp32", torch.float32), ("bf16", torch.bfloat16)):
        a, b = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
        spent = min(seconds(lambda a=a, b=b: a @ b, device) for _ in range(6))
        found[name] = 2 * size**3 / spent
        print(f"  {name}: {found[name] / 1e12:.2f} TFLOP/s")
    words = torch.empty(2**20 if short else 2**28, device=device)
    spent = min(seconds(lambda: words.clone(), device) for _ in range(6))
    print(f"  copy: {2 * 4 * words.numel() / spent / 1e9:.0f} GB/s")
    return found


# ----------------------------------------------------------------------------------------------------- checks


def tiny_runs() -> Iterator[tuple[str, RunConfig]]:
    """Every row of every recipe that is trained here and has a size ``tiny``."""
    for name in recipe_names():
        recipe = load_recipe(name)
        if "tiny" not in recipe.sizes:
            continue
        for row in recipe.rows:
            run = resolve_run(recipe, row, "tiny", {})
            run.model.update({key: 0.0 for key in run.model if "dropout" in key})  # the devices draw differently
            if run.model["type"] != "bart":  # needs a checkpoint
                yield f"{name} {row}", run


def tiny_batch() -> TrainingBatch:
    generator = torch.Generator().manual_seed(3)
    source = torch.randint(4, WORDS + 3, (4, 20), generator=generator)  # three words of its own
    mask = torch.arange(20) < torch.tensor([20, 17, 9, 12]).unsqueeze(1)
    target = torch.where(torch.rand(4, 7, generator=generator) < 0.5, source[:, :7], torch.randint(4, WORDS, (4, 7)))
    written = torch.arange(7) < torch.tensor([7, 4, 6, 5]).unsqueeze(1)
    source, target = source.masked_fill(~mask, 0), target.masked_fill(~written, 0)
    inputs = torch.cat([torch.full((4, 1), IDS["bos_id"]), target[:, :-1]], dim=1)
    known = source.masked_fill(source >= WORDS, IDS["unk_id"])
    inputs = inputs.masked_fill(inputs >= WORDS, IDS["unk_id"])
    own = [["a", "b", "c"]] * 4
    return TrainingBatch(
        known, source, mask, WORDS + 3, own, target_input_ids=inputs, target_ids=target, target_mask=written
    )


def tiny_step(run: RunConfig, device: str) -> tuple[Any, UpdateStep]:
    torch.manual_seed(1)
    model = build("model", MODELS, run.model, vocab_size=WORDS, **IDS)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.uniform_(-0.3, 0.3)
    model.to(device).train()
    objectives = [build("objective", OBJECTIVES, spec) for spec in run.objectives]
    return model, UpdateStep(run.training, model, objectives, accelerator_on(device))


def gradients_and_search(run: RunConfig, device: str) -> tuple[float, dict[str, Tensor], list[Any]]:
    model, update = tiny_step(run, device)
    figures = update([tiny_batch()], 0, [], None)  # type: ignore[arg-type]
    gradients = {n: p.grad.cpu() for n, p in model.named_parameters() if p.grad is not None}
    config = SearchConfig(beam_size=3, max_length=8)
    found = decode(model.eval(), tiny_batch().to(device), config, **IDS)
    return figures.loss, gradients, [[hypothesis.ids for hypothesis in each] for each in found]


def checks(device: str, short: bool) -> None:
    losses, gradients, unequal, count = 0.0, (0.0, ""), [], 0
    for name, run in list(tiny_runs())[:: 12 if short else 1]:
        try:
            (loss, mine, found), (other, theirs, expected) = (gradients_and_search(run, d) for d in (device, "cpu"))
        except Exception as error:  # whatever it is: the other models are checked all the same
            failed(name, error)
            continue
        losses = max(losses, abs(loss - other))
        for key, tensor in theirs.items():
            difference = float((mine[key] - tensor).abs().max() / tensor.abs().max().clamp_min(1e-6))
            gradients = max(gradients, (difference, f"{name}, {key}"))
        if found != expected:
            unequal.append(name)
        count += 1
    most, where = gradients
    print(f"  {count} models: losses differ by at most {losses:.1e}, gradients by {most:.1e} of their largest entry")
    print(f"  the largest: {where}")
    print(f"  searches: {count - len(unequal)} equal" + (f", others: {', '.join(unequal)}" if unequal else ""))


def waits(device: str, short: bool) -> None:
    if device != "cuda":
        print("  only a GPU is waited for")
        return
    for name, run in list(tiny_runs())[:: 12 if short else 1]:
        _, update = tiny_step(run, device)
        batch = tiny_batch().pin_memory()
        try:
            update([batch], 0, [], None)  # type: ignore[arg-type]
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                torch.cuda.set_sync_debug_mode("warn")
                update([batch], 1, [], None)  # type: ignore[arg-type]
        except Exception as error:  # as above
            failed(name, error)
            continue
        finally:
            torch.cuda.set_sync_debug_mode("default")
        where = [f"{each.filename.rpartition('catchline/')[2]}:{each.lineno}" for each in caught]
        print(f"  {name}: {len(where)} ({', '.join(where)})")


def failed(name: str, error: Exception) -> None:
    """Say what failed and where."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    print(f"  {name} FAILS at {place.filename.rpartition('catchline/')[2]}:{place.lineno}: {error!r}", flush=True)


# --------------------------------------------------------------------------------------------------- training


def bart_architecture(sizes: dict[str, int]) -> dict[str, int]:
    sides = {"layers": sizes["layers"], "attention_heads": sizes["heads"], "ffn_dim": sizes["feed_forward"]}
    return {f"{side}_{key}": n for side in ("encoder", "decoder") for key, n in sides.items()} | {
        "d_model": sizes["size"]
    }


def our_step(run: RunConfig, model: nn.Module, batch: TrainingBatch, device: str) -> Step:
    model.to(device).train()
    objectives = [build("objective", OBJECTIVES, spec) for spec in run.objectives]
    update = UpdateStep(run.training, model, objectives, accelerator_on(device))  # type: ignore[arg-type]
    optimizer = build_optimizer(run.training.optimizer, model.parameters())
    batch = batch.pin_memory() if device == "cuda" else batch

    def step() -> None:
        update([batch], 0, [], None)  # type: ignore[arg-type]
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def pairs_of_steps(precision: str, device: str, short: bool) -> Iterator[tuple[str, int, dict[str, Step]]]:
    """What runs, how many target tokens a step has, and the two steps."""
    sizes = SMALL if short else BASE
    documents, source, target = (4, 16, 8) if short else (128, 64, 32)
    run = resolved(sizes, precision)
    batch = made_batch(sizes, documents, source, target)
    model = build("model", MODELS, run.model, vocab_size=sizes["vocabulary"], **IDS)
    steps = {
        "ours": our_step(run, model, batch, device),
        "Marian": peer_step(run, marian_loss(sizes, precision, device).to(device), batch.to(device)),
    }
    yield f"base Transformer, {documents} x {source} -> {target}", documents * target, steps
    sizes = SMALL if short else BASE | {"size": 768, "heads": 12, "feed_forward": 3072, "vocabulary": 50_265}
    documents, source, target = (2, 32, 8) if short else (16, 512, 64)
    architecture = bart_architecture(sizes)
    config: Any = {"vocab_size": sizes["vocabulary"], "pad_token_id": IDS["pad_id"]} | architecture
    peer = PeerLoss(BartForConditionalGeneration(BartConfig(**config)), precision, device)
    spec = {"type": "bart", "architecture": architecture, "head": {"type": "correlational"}}
    batch = made_batch(sizes, documents, source, target)
    model = build("model", MODELS, spec, vocab_size=sizes["vocabulary"], **IDS)
    steps = {
        "CoCoNet": our_step(run, model, batch, device),
        "BART": peer_step(run, peer.to(device), batch.to(device)),
    }
    yield f"BART-base, {documents} x {source} -> {target}", documents * target, steps


def training(device: str, short: bool, limits: dict[str, float]) -> None:
    for precision in ("fp32", "bf16"):
        for title, tokens, steps in pairs_of_steps(precision, device, short):
            print(f"  {title}, {precision}")
            arithmetic, memory = {}, {}
            for name, step in steps.items():
                with FlopCounterMode(display=False) as counter:
                    step()
                arithmetic[name] = counter.get_total_flops()
                if device == "cuda":
                    torch.cuda.reset_peak_memory_stats()
                    step()
                    memory[name] = torch.cuda.max_memory_allocated() / 2**20
            spent: dict[str, list[float]] = {name: [] for name in steps}
            for _ in range(2 if short else 20):
                for name, step in steps.items():
                    spent[name].append(seconds(step, device))
            speed = {name: tokens / statistics.median(times) for name, times in spent.items()}
            for name, rate in speed.items():
                share = f", {arithmetic[name] * rate / tokens / limits[precision]:.0%} of the ceiling" if limits else ""
                peak = f", {memory[name]:.0f} MiB" if memory else ""
                print(f"    {name:8} {rate:9.0f} target tokens a second{share}{peak}")
            ours, theirs = speed.values()
            print(f"    {' / '.join(speed)}: {ours / theirs:.2f}x", flush=True)


def decoding(device: str, short: bool) -> None:
    sizes = SMALL if short else BASE
    ours, peer = make_ours(sizes).to(device), make_peer(sizes).to(device)
    generator = torch.Generator().manual_seed(1)
    for documents in (2,) if short else (8, 128):
        sources = torch.randint(4, sizes["vocabulary"], (documents, 64), generator=generator).to(device)
        ways: dict[str, Step] = {
            "ours": lambda sources=sources: decode_ours(ours, sources, 16),
            "generate": lambda sources=sources: decode_peer(peer, sources, 16),
        }
        best = dict.fromkeys(ways, float("inf"))
        for turn in range(3):
            for name, way in ways.items():
                spent = seconds(way, device)
                best[name] = min(best[name], spent) if turn else best[name]
        told = ", ".join(f"{name} {1000 * spent:.0f} ms" for name, spent in best.items())
        print(f"  {documents} documents: {told}; generate / ours {best['generate'] / best['ours']:.2f}x", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--short", action="store_true", help="small networks, to see that it runs")
    options = parser.parse_args()
    device, short = options.device, options.short
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    began, limits = time.perf_counter(), {}
    print(f"{torch.cuda.get_device_name() if device == 'cuda' else 'CPU'}, torch {torch.__version__}")
    for part in options.parts:
        if time.perf_counter() - began > 60 * options.minutes:
            print(f"{part}: left out, {options.minutes:g} minutes are over")
            continue
        print(part, flush=True)
        try:
            if part == "ceiling":
                limits = ceiling(device, short)
            elif part == "training":
                training(device, short, limits)
            else:
                {"checks": checks, "waits": waits, "decoding": decoding}[part](device, short)
        except Exception as error:  # the other parts are measured all the same
            failed(part, error)
    print(f"{time.perf_counter() - began:.0f} s")


if __name__ == "__main__":
    main()
