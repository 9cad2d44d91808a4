"""ROUGE pairs a second: ours against rouge-score, on the same summaries, one core.

    python benchmarks/rouge_speed.py [--pairs 2000]

Summaries of 20 to 60 words are drawn from a Zipf vocabulary with English inflections; both score ROUGE-1, -2 and -L
with stemming. ``cold`` is a whole call of `catchline.rouge`, which has every word still to stem; ``warm`` an engine
that has seen the words. rouge-score remembers nothing.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Callable

from catchline.metrics import rouge_text
from catchline.metrics.rouge import RougeEngine, make_options, parse_kind, rouge
from paired import zipf_words

KINDS = ("1", "2", "L")


def make_pairs(total: int, seed: int) -> list[tuple[str, str]]:
    """Hypotheses that share about half of their words with their reference."""
    generator = random.Random(seed)
    endings = ["", "", "s", "ed", "ing", "ation", "ly", "ness", "er"]
    stems, weights = zipf_words(20_000)

    def words(count: int) -> list[str]:
        return [stem + generator.choice(endings) for stem in generator.choices(stems, cum_weights=weights, k=count)]

    pairs = []
    for _ in range(total):
        reference = words(generator.randint(20, 60))
        kept = [word for word in reference if generator.random() < 0.5]
        hypothesis = kept + words(max(0, generator.randint(20, 60) - len(kept)))
        pairs.append((" ".join(hypothesis) + ".", " ".join(reference) + "."))
    return pairs


def seconds(run: Callable[[], object], clock: Callable[[], float] = time.process_time) -> float:
    """How long one call takes (CPU time, which other programs on the machine disturb least)."""
    start = clock()
    run()
    return clock() - start


def cold(hypotheses: list[str], references: list[str], profile: str) -> None:
    """A call in a process that has seen no word yet."""
    for stem in (rouge_text.stem_rouge155, rouge_text.stem_nltk):
        stem.cache_clear()
    rouge(hypotheses, references, kinds=KINDS, profile=profile)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    from rouge_score.rouge_scorer import RougeScorer

    pairs = make_pairs(options.pairs, seed=1)
    some = pairs[: max(1, options.pairs // 10)]
    scorer = RougeScorer(["rouge1", "rouge2", "rougeL"], use_stemmer=True)
    engines = {}
    for profile in ("google", "rouge155"):
        settings = make_options(profile, {})
        engines[profile] = RougeEngine([parse_kind(kind) for kind in KINDS], profile, settings)
        for hypothesis, reference in pairs:
            engines[profile].text.ids(hypothesis + " " + reference)
    hypotheses, references = [list(side) for side in zip(*pairs, strict=True)]
    runs: dict[str, Callable[[], object]] = {}
    for profile, engine in engines.items():
        runs[f"{profile}, warm"] = lambda e=engine: [e.score(h, (r,)) for h, r in pairs]
        runs[f"{profile}, cold"] = lambda p=profile: cold(hypotheses, references, p)
    rates: dict[str, list[float]] = {name: [] for name in ("rouge-score", *runs)}
    ratios: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(options.rounds):  # side by side, so that a busy moment strikes both
        theirs = len(some) / seconds(lambda: [scorer.score(reference, hypothesis) for hypothesis, reference in some])
        rates["rouge-score"].append(theirs)
        for name, run in runs.items():
            rates[name].append(len(pairs) / seconds(run))
            ratios[name].append(rates[name][-1] / theirs)
    print(f"{options.pairs} pairs, median of {options.rounds} rounds, one core")
    for name, values in rates.items():
        ratio = f"   {statistics.median(ratios[name]):5.1f} x" if name in ratios else ""
        print(f"  {name:20}{statistics.median(values):9.0f} pairs/s{ratio}")


if __name__ == "__main__":
    main()
