"""ROUGE pairs a second: ours against rouge-score, on the same summaries, one core.

    python benchmarks/rouge_speed.py [--pairs 2000] [--processes 2]

Summaries of 20 to 60 words are drawn from a Zipf vocabulary with English inflections; both score ROUGE-1, -2 and -L
with stemming. ``cold`` is the first call in the process (every word still to be stemmed), ``warm`` a call on other
pairs of the same vocabulary by an engine that has seen it. rouge-score has no memory, so its first call is timed.
"""

from __future__ import annotations

import argparse
import random
import time

from laconic.metrics.rouge import rouge
from laconic.metrics.rouge_engine import RougeEngine
from laconic.metrics.rouge_options import make_options, parse_kind

KINDS = ("1", "2", "L")


def make_pairs(total: int, seed: int) -> list[tuple[str, str]]:
    """Hypotheses that share about half of their words with their reference."""
    generator = random.Random(seed)
    syllables = [
        "ba",
        "ce",
        "di",
        "fo",
        "gu",
        "la",
        "me",
        "ni",
        "po",
        "ru",
        "sta",
        "tre",
        "vi",
        "wo",
        "ark",
        "est",
        "ind",
        "olm",
    ]
    endings = ["", "", "s", "ed", "ing", "ation", "ly", "ness", "er"]
    makers = random.Random(0)
    stems = ["".join(makers.choices(syllables, k=makers.randint(1, 4))) for _ in range(20_000)]
    weights = [1.0 / (rank + 5) for rank in range(len(stems))]

    def words(count: int) -> list[str]:
        return [stem + generator.choice(endings) for stem in generator.choices(stems, weights, k=count)]

    pairs = []
    for _ in range(total):
        reference = words(generator.randint(20, 60))
        kept = [word for word in reference if generator.random() < 0.5]
        hypothesis = kept + words(max(0, generator.randint(20, 60) - len(kept)))
        pairs.append((" ".join(hypothesis) + ".", " ".join(reference) + "."))
    return pairs


def pairs_per_second(score, pairs: list[tuple[str, str]], repeats: int) -> float:
    """The best of ``repeats`` timings."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        score(pairs)
        times.append(time.perf_counter() - start)
    return len(pairs) / min(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=2000)
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    from rouge_score.rouge_scorer import RougeScorer

    pairs = make_pairs(options.pairs, seed=1)
    scorer = RougeScorer(["rouge1", "rouge2", "rougeL"], use_stemmer=True)
    some = pairs[: max(1, options.pairs // 8)]
    theirs = pairs_per_second(lambda chosen: [scorer.score(ref, hyp) for hyp, ref in chosen], some, 2)
    print(f"{'rouge-score':34}{theirs:10.0f} pairs/s")

    def whole(profile: str, processes: int = 1):
        return lambda chosen: rouge(*zip(*chosen, strict=True), kinds=KINDS, profile=profile, processes=processes)

    for profile in ("google", "rouge155"):
        rows = {"cold": pairs_per_second(whole(profile), pairs, 1)}
        settings = make_options(profile, {})
        engine = RougeEngine([parse_kind(kind, settings) for kind in KINDS], profile, settings)
        for hypothesis, reference in make_pairs(20_000, seed=2):
            engine.text.ids(hypothesis + " " + reference)
        rows["warm"] = pairs_per_second(lambda chosen, e=engine: [e.score(h, (r,)) for h, r in chosen], pairs, 3)
        for name, rate in rows.items():
            print(f"laconic {profile + ', ' + name:26}{rate:10.0f} pairs/s   ratio {rate / theirs:6.1f}")
    many = pairs * max(1, 20_000 // len(pairs))
    one = pairs_per_second(whole("rouge155"), many, 1)
    several = pairs_per_second(whole("rouge155", options.processes), many, 1)
    print(f"laconic, {options.processes} processes{several:29.0f} pairs/s   {several / one:.2f} times one process")


if __name__ == "__main__":
    main()
