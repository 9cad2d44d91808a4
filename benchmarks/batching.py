"""What it would be worth if batches had summaries of similar length and not only documents, in turns in one process.

    python benchmarks/batching.py [--data FOLDER] [--recipe headline_writer --size study] [--updates 100] [--rounds 2]

Printed for both ways: which share of the documents', of the summaries' and of the attention's places (document times
summary) is padding in an epoch, and what an update of a training takes: processor seconds of one thread, the first
updates not counted. What a batch takes goes with its lengths, so both take ``--updates`` batches of the same pairs: as
many pairs as that, so that an epoch is over then. Without ``--data`` pairs are made up: documents of 30 to 300 words,
lines of 2 to 30.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

from catchline.config.loading import load_recipe, resolve_run
from catchline.config.schema import RunConfig
from catchline.data.sampler import BucketSampler, Sampler
from catchline.training import batches, loop
from catchline.training.run import train

WARM = 10  # updates that are not counted


class ByBoth(BucketSampler):
    """Within a pool in classes of documents, each up to a tenth longer than the one before, and in a class by their
    summaries' length: up in one and down in the next, so that a batch over the border of two is alike as well."""

    targets: np.ndarray

    def _every_batch(self, epoch: int) -> list[np.ndarray]:
        size, numbers = self._batch_size, np.random.default_rng((self._seed, epoch))
        order, found = numbers.permutation(len(self._lengths)), []
        for start in range(0, len(order), size * self._pool_batches):
            pool = order[start : start + size * self._pool_batches]
            classes = np.ceil(np.log(np.maximum(self._lengths[pool], 1)) / np.log(1.1)).astype(int)
            targets = self.targets[pool]
            pool = pool[np.lexsort((np.where(classes % 2, targets, -targets), classes))]
            found += [pool[place : place + size] for place in range(0, len(pool), size)]
        return [found[number] for number in numbers.permutation(len(found))]


WAYS = {"documents only": BucketSampler, "documents and summaries": ByBoth}


def make_corpus(folder: Path, pairs: int) -> None:
    """Lines that their documents hold; lengths in words are log-normal, of lines about the titles of papers."""
    chosen, words = random.Random(0), [f"w{number}" for number in range(3000)]
    for name, count in (("train", pairs), ("validation", 16)):
        with (folder / f"{name}.jsonl").open("w") as file:
            for _ in range(count):
                document = chosen.choices(words, k=min(300, max(30, int(chosen.lognormvariate(4.8, 0.5)))))
                line = document[: min(30, max(2, int(chosen.lognormvariate(2.2, 0.45))))]
                file.write(json.dumps({"document": " ".join(document), "summary": " ".join(line)}) + "\n")


def padding(sampler: BucketSampler, targets: np.ndarray) -> list[float]:
    """The shares of an epoch's places that are padding, in per cent: documents', summaries', attention's."""
    sources = sampler._lengths
    found = [np.array(batch) for batch in sampler.batches(0)]

    def share(lengths: np.ndarray, padded: list[int]) -> float:
        return 100 * (1 - float(lengths.sum()) / sum(padded))

    longest = [(int(sources[batch].max()), int(targets[batch].max()), len(batch)) for batch in found]
    return [
        share(sources, [source * size for source, _, size in longest]),
        share(targets, [target * size for _, target, size in longest]),
        share(sources * targets, [source * target * size for source, target, size in longest]),
    ]


def measured(run: RunConfig, way: type[BucketSampler], out: Path) -> tuple[list[float], float]:
    """Train, and give the padding and the mean processor time of an update."""
    shares: list[list[float]] = []
    times: list[float] = []
    plain, usual = loop.Trainer._update, batches.BatchStream._new_sampler

    def chosen(stream: batches.BatchStream, dataset: Any) -> Sampler:
        sampler = usual(stream, dataset)
        assert isinstance(sampler, BucketSampler)
        sampler.__class__, targets = way, dataset.target_lengths
        vars(sampler)["targets"] = targets
        shares.append(padding(sampler, targets))
        return sampler

    def timed(trainer: loop.Trainer, stop: Any) -> None:
        start = time.process_time()
        plain(trainer, stop)
        times.append(time.process_time() - start)

    with (
        patch.object(batches.BatchStream, "_new_sampler", chosen),
        patch.object(loop.Trainer, "_update", timed),
    ):
        train(run, out, on_message=lambda _: None)
    return shares[-1], statistics.fmean(times[WARM:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="a folder with train and validation files")
    parser.add_argument("--recipe", default="headline_writer")
    parser.add_argument("--size", default="study")
    parser.add_argument("--updates", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(1)
    taken: dict[str, list[float]] = {name: [] for name in WAYS}
    with tempfile.TemporaryDirectory() as folder:
        recipe = load_recipe(options.recipe)
        size = resolve_run(recipe, None, options.size, []).training.batch_size
        if (data := options.data) is None:
            make_corpus(data := Path(folder), size * options.updates)
        settings = {
            "data.train": data / "train.jsonl", "data.validation": data / "validation.jsonl", "data.min_supported": 0,
            "data.max_train_records": size * options.updates, "data.max_validation_records": 8,
            "training.max_epochs": 1, "training.max_updates": "null", "training.max_minutes": "null",
            "training.validation.every_updates": 10**6, "training.validation.decode_records": 4,
            "training.validation.metric": "val_loss_tf",
        }  # fmt: skip
        run = resolve_run(recipe, None, options.size, [f"{name}={value}" for name, value in settings.items()])
        for turn in range(options.rounds):
            for name, way in WAYS.items():
                shares, seconds = measured(run, way, Path(folder, f"{turn}-{way.__name__}"))
                taken[name].append(seconds)
                if not turn:
                    print(
                        f"{name:<24} padding: documents {{:.1f}}%, summaries {{:.1f}}%, attention {{:.1f}}%".format(
                            *shares
                        )
                    )
                print(f"{name:<24} {seconds:.3f} CPU seconds an update", flush=True)
    usual, both = map(statistics.median, taken.values())
    print(f"\nAn update takes {both / usual:.2f} of its time with batches by the documents' length only.")


if __name__ == "__main__":
    main()
