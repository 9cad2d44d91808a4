"""What conditional computation is worth: coarse-to-fine attention on documents of 400 to 400,000 words.

    python benchmarks/chunked_reading.py                  # the claims: 400 to 400,000 words, paper-size model
    python benchmarks/chunked_reading.py --short          # a quick look

Claims, each measured here on random documents with random weights (one thread unless --threads says otherwise). The
words of documents have log-uniform ranks, about as in texts: the embeddings of frequent ones stay in the cache.

* decoding (beam 5, fixed length) with C2F BOW at 400k words costs at most 1.25 times what it costs at 4k words (for
  four documents at once more, since they choose twice as many chunks among this many), and at least 50 times less than
  STANDARD at 40k words;
* the word encoder's training memory at 400k words is within 20% of that at 4k words;
* ``encode: auto`` is never more than 15% slower than the better of ``full`` and ``lazy``;
* rows encoded = distinct (document, chunk) pairs chosen.

The decoder's embeddings are enlarged, so that steps and beams differ and choose different chunks; how many are read is
printed. Timings alternate between the things compared; the best of the rounds is printed, in the processor's seconds.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import Any

import torch

from catchline.config.names import MODELS, OBJECTIVES, build
from catchline.layers.chunks import ChunkStates
from catchline.types import TrainingBatch, UpdateContext
from paired import IDS, Step, best_of, exactly, made_batch, place, search

HARD: dict[str, Any] = {"attention": {"type": "coarse_to_fine"}}
BOW: dict[str, Any] = {**HARD, "coarse": {"type": "bag_of_words"}, "freeze_words": True}
CONV: dict[str, Any] = {**HARD, "coarse": {"type": "convolution", "size": 600}}
STANDARD: dict[str, Any] = {"attention": {"type": "standard"}}
HIER: dict[str, Any] = {"attention": {"type": "hierarchical"}, "coarse": {"type": "bag_of_words"}, "freeze_words": True}


@dataclass(frozen=True)
class Setting:
    embedding: int
    hidden: int
    vocabulary: int
    steps: int
    target: int
    lengths: tuple[int, ...]
    longest_standard: int


PAPER = Setting(300, 500, 50_004, 15, 15, (400, 4_000, 40_000, 400_000), 40_000)
SMALL = Setting(64, 64, 5_000, 8, 8, (400, 4_000, 40_000), 4_000)


def model_of(setting: Setting, options: dict[str, Any]) -> Any:
    torch.manual_seed(1)
    sizes = {"embedding_size": setting.embedding, "hidden_size": setting.hidden, "chunks": None, "chunk_words": 40}
    spec = {"type": "coarse_to_fine", "dropout": 0.0, **sizes, **options}
    model = build("model", MODELS, spec, vocab_size=setting.vocabulary, **IDS)
    with torch.no_grad():
        model.target_embedding.weight.mul_(20)
        model.merge.weight.mul_(4)
    return model


def documents(setting: Setting, words: int, count: int) -> TrainingBatch:
    return made_batch(setting.vocabulary, count, words, setting.target)


def searched(model: Any, batch: TrainingBatch, setting: Setting) -> Step:
    """Beam 5 over exactly ``steps`` steps."""
    return search(model, batch, exactly(setting.steps, 5, early_stopping=False))


class EncodedRows:
    """Counts the chunks that the word encoder reads."""

    def __init__(self) -> None:
        self.pairs: list[tuple[int, int]] = []
        keep = ChunkStates.encode

        def encode(states: ChunkStates, rows: torch.Tensor, chunks: torch.Tensor) -> torch.Tensor:
            self.pairs += zip(rows.tolist(), chunks.tolist(), strict=True)
            return keep(states, rows, chunks)

        ChunkStates.encode = encode  # type: ignore[method-assign]


def updated(model: Any, batch: TrainingBatch) -> Step:
    """Forward and backward of both losses."""
    objectives = [build("objective", OBJECTIVES, {"type": name}) for name in ("nll", "reinforce")]
    model.train()

    def update() -> None:
        model.zero_grad(set_to_none=True)
        output = model(batch, context=UpdateContext(noise_seed=3))
        sum(objective(output, batch).sum for objective in objectives).backward()

    return update


def peak_of_saved_activations(update: Step) -> int:
    """Bytes that autograd keeps between forward and backward, each storage once."""
    kept: dict[int, int] = {}

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        update()
    return sum(kept.values())


def decoding(setting: Setting, batch: int, rounds: int, rows: EncodedRows) -> dict[str, dict[int, float]]:
    print(f"\nDecoding, beam 5, {setting.steps} words, batch {batch}; processor's seconds a batch")
    found: dict[str, dict[int, float]] = {}
    for name, options in {"C2F BOW": BOW, "C2F CONV": CONV, "HIER BOW": HIER, "STANDARD": STANDARD}.items():
        soft, model = name in ("HIER BOW", "STANDARD"), model_of(setting, options)
        runs, counts = {}, {}
        for words in setting.lengths:
            if soft and words > (setting.longest_standard if batch == 1 else 4_000):
                continue
            runs[words] = searched(model, documents(setting, words, batch), setting)
            rows.pairs.clear()
            runs[words]()
            counts[words] = len(rows.pairs)
            assert counts[words] == len(set(rows.pairs)), "a chunk was read twice"
        found[name] = {words: cpu for words, (_, cpu) in best_of(runs, 1 if soft else rounds).items()}
        for words, seconds in found[name].items():
            read, chunks = counts[words], batch * -(-words // 40)
            print(f"  {name:9} {words:>8,} words: {seconds:9.3f} s, {read:>6,} of {chunks:>6,} chunks read", flush=True)
    return found


def modes(setting: Setting, rounds: int) -> None:
    for kind in ("decoding", "training"):
        print(f"\nModes, {kind}, C2F BOW, batch 4; seconds, and auto against the better of full and lazy")
        for words in setting.lengths[:3]:
            runs = {}
            for mode in ("full", "lazy", "replay", "auto") if kind == "training" else ("full", "lazy", "auto"):
                if mode == "full" and words > 10_000:
                    continue
                model = model_of(setting, BOW | {"encode": mode})
                batch = documents(setting, words, 4)
                runs[mode] = searched(model, batch, setting) if kind == "decoding" else updated(model, batch)
            times = {mode: cpu for mode, (_, cpu) in best_of(runs, rounds).items()}
            best = min(times[mode] for mode in ("full", "lazy") if mode in times)
            line = "  ".join(f"{mode} {seconds:.3f}" for mode, seconds in times.items())
            print(f"  {words:>8,} words: {line}; auto / best {times['auto'] / best:.2f}", flush=True)


def memory(setting: Setting) -> None:
    print("\nTraining memory kept for the backward pass, batch 1, without the source's own ids; MB")
    first = None
    for words in setting.lengths[1:]:
        model = model_of(setting, BOW)
        kept = peak_of_saved_activations(updated(model, documents(setting, words, 1)))
        parameters = {p.untyped_storage().data_ptr(): p.untyped_storage().nbytes() for p in model.parameters()}
        first = first or kept
        print(
            f"  C2F BOW   {words:>8,} words: {kept / 2**20:9.1f} ({kept / first:.2f} times the first; "
            f"parameters alone {sum(parameters.values()) / 2**20:.0f})",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true", help="small sizes, for a quick look")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    print(place(options.threads))
    setting, rows = SMALL if options.short else PAPER, EncodedRows()
    for batch in (1, 4):
        found = decoding(setting, batch, options.rounds, rows)
        bow = found["C2F BOW"]
        long, short = max(bow), 4_000
        print(f"  C2F BOW, {long:,} words / {short:,} words: {bow[long] / bow[short]:.2f}")
        standard = found["STANDARD"]
        if max(standard) in bow and max(standard) > 4_000:
            words = max(standard)
            print(f"  STANDARD / C2F BOW at {words:,} words: {standard[words] / bow[words]:.1f}")
    modes(setting, options.rounds)
    memory(setting)


if __name__ == "__main__":
    main()
