"""Span selection: megabytes of text a second on one core, all included, and two processes against one.

    python benchmarks/span_selection.py [--megabytes 48] [--short]

The text is made up (`make_document`): words of a Zipf vocabulary, sentences that take up words of those before them. It
lies in eight files of JSON lines; the tokenizer is a byte-level BPE of 16,000 tokens trained on a part. Measured is
`catchline data select-spans` with its usual settings (128 and 32 tokens, chunks of 512, every start, weights 1,1,1, the
best half of the chunks): reading, tokenizing, scoring, choosing and writing. ``CPU`` counts the seconds of all
processes, so that other work on the machine matters less.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import tempfile
import time
from pathlib import Path

import numpy as np
import tokenizers
from tokenizers import decoders, models, pre_tokenizers, trainers

from catchline_study.spans.corpus import documents
from catchline_study.spans.scoring import WindowBlock
from catchline_study.spans.selection import select_spans
from catchline_study.spans.settings import SpanSettings
from catchline_study.spans.tokens import VocabularySpanTokenizer
from paired import zipf_words

FILES = 8


def make_document(generator: random.Random, words: list[str], weights: list[float]) -> str:
    """Some thousand words; a third of a sentence's words come from the last hundred."""
    text: list[str] = []
    for _ in range(generator.randint(20, 200)):
        fresh = generator.choices(words, cum_weights=weights, k=generator.randint(5, 25))
        recent = text[-100:] or fresh
        fresh = [generator.choice(recent).strip(".").lower() if generator.random() < 0.33 else word for word in fresh]
        text += [fresh[0].capitalize(), *fresh[1:-1], fresh[-1] + "."]
    return " ".join(text)


def make_corpus(folder: Path, megabytes: float) -> None:
    """Write the files."""
    generator = random.Random(1)
    words, weights = zipf_words(60_000)
    for number in range(FILES):
        size = 0
        with (folder / f"part-{number}.jsonl").open("w") as file:
            while size < megabytes * 1e6 / FILES:
                text = make_document(generator, words, weights)
                size += len(text)
                file.write(json.dumps({"text": text}) + "\n")


def train_tokenizer(folder: Path, corpus: Path) -> Path:
    """A byte-level BPE as BART's, but smaller."""
    backend = tokenizers.Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=16_000, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False
    )
    texts = [text for _, text in documents(corpus / "part-0.jsonl", text="file", column=None, skipped=None)]
    backend.train_from_iterator(texts[:300], trainer)
    backend.save(str(folder / "tokenizer.json"))
    return folder / "tokenizer.json"


def cpu() -> float:
    """CPU seconds of this process and of those it has waited for."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def measure(corpus: Path, out: Path, settings: SpanSettings, workers: int) -> tuple[float, float]:
    """Wall and CPU seconds of a selection."""
    start, before = time.perf_counter(), cpu()
    select_spans([str(corpus)], out, settings, workers=workers)
    return time.perf_counter() - start, cpu() - before


def stages(corpus: Path, settings: SpanSettings, megabytes: float) -> None:
    """CPU seconds a megabyte of the first pass, part by part, on one file."""
    units = VocabularySpanTokenizer(Path(settings.tokenizer))
    start = time.process_time()
    texts = [text for _, text in documents(corpus / "part-0.jsonl", text="file", column=None, skipped=None)]
    read = time.process_time()
    tokens = [encoded.tokens for encoded in units.encode(texts)]
    encoded = time.process_time()
    pieces = [some[at : at + 512] for some in tokens for at in range(0, len(some) - 511, 512)]
    for begin in range(0, len(pieces), 256):
        block = np.stack(pieces[begin : begin + 256], axis=1)
        WindowBlock(settings.shape, settings.key, block, np.full(block.shape[1], 512), block >= 0).best()
    scored = time.process_time()
    windows = len(pieces) * 353
    size = sum(len(text.encode()) for text in texts) / 1e6
    shares = (read - start) / size, (encoded - read) / size, (scored - encoded) / size
    print("CPU s a MB: reading {:.3f}, tokenizing {:.3f}, scoring {:.3f}".format(*shares))
    print(f"scoring: {(scored - encoded) / windows * 1e9:.0f} ns a window")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--megabytes", type=float, default=48.0)
    parser.add_argument("--short", action="store_true", help="4 MB")
    arguments = parser.parse_args()
    megabytes = 4.0 if arguments.short else arguments.megabytes
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # the number of workers says how many cores are used
    with tempfile.TemporaryDirectory() as name:
        folder, corpus = Path(name), Path(name) / "corpus"
        corpus.mkdir()
        make_corpus(corpus, megabytes)
        size = sum(path.stat().st_size for path in corpus.iterdir()) / 1e6
        tokenizer = train_tokenizer(folder, corpus)
        settings = SpanSettings(k=int(size * 230), tokenizer=str(tokenizer))
        print(f"{size:.1f} MB of made-up text in {FILES} files; load {os.getloadavg()[0]:.1f}")
        stages(corpus, settings, size)
        walls = {}
        for workers in (1, 2):
            walls[workers], seconds = measure(corpus, folder / f"out-{workers}", settings, workers)
            clock = f"{walls[workers]:.1f} s, {size / walls[workers]:.2f} MB/s by the clock"
            print(f"--workers {workers}: {clock}; {size / seconds:.2f} MB a CPU second", flush=True)
        print(f"two against one: {walls[1] / walls[2]:.2f}x")


if __name__ == "__main__":
    main()
