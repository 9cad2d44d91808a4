"""Many short documents in one `catchline summarize`, with one thread, two, or two processes; beside old code or on Ray.

    python benchmarks/bulk.py [--documents 2000] [--before SRC | --ray] [--exported] [--rounds 2] [--short]

The model is a pointer-generator with coverage of size ``small`` after one update, so that nearly every summary is as
long as the search allows: beam 4, documents of 30 to 60 words of a Zipf vocabulary. ``--before`` is the folder ``src``
of an older checkout, which makes the model (later ones open what earlier ones wrote) and takes turns with this one;
with ``--ray`` workers of Ray take turns with processes, the start of a cluster on this machine included; with
``--exported`` the same model's graphs of 32 and of eight bits do.
Printed: seconds by the clock and of the processors, from the shell to the last line of the file, and their ratio.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from paired import SOURCE, catchline, write_pairs

TRAIN = ("training.max_updates=1", "training.batch_size=8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=2000)
    parser.add_argument("--before", type=Path, help="the folder src of an older checkout")
    parser.add_argument("--ray", action="store_true", help="beside as many workers of Ray")
    parser.add_argument("--exported", action="store_true", help="beside the model's graphs, of 32 bits and of eight")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--short", action="store_true", help="100 documents, once")
    options = parser.parse_args()
    checkouts = {"before": options.before.resolve(), "now": SOURCE} if options.before else {"now": SOURCE}
    if options.ray:
        checkouts["ray"] = SOURCE
    with tempfile.TemporaryDirectory() as folder:
        pairs, given, model = Path(folder, "pairs.jsonl"), Path(folder, "given.jsonl"), Path(folder, "run")
        write_pairs(pairs, 400, 30, 60)
        write_pairs(given, 100 if options.short else options.documents, 30, 60, seed=1)
        settings = [part for change in (f"data.train={pairs}", *TRAIN) for part in ("--set", change)]
        row = ("headline_writer", "--row", "pointer-generator-coverage", "--size", "small")
        catchline("train", *row, *settings, "--out", str(model), source=next(iter(checkouts.values())))
        models = dict.fromkeys(checkouts, model)
        for name, how in {"32 bits": (), "8 bits": ("--int8",)}.items() if options.exported else ():
            checkouts[name], models[name] = SOURCE, Path(folder, name)
            catchline("export", str(model), "--out", str(models[name]), *how)
        for jobs, threads in ((1, 1), (1, 2), (2, 1)):
            best = dict.fromkeys(checkouts, (float("inf"), float("inf")))
            for turn in range(1 if options.short else options.rounds):
                for name, source in checkouts.items():
                    out = Path(folder, f"{name}-{jobs}-{threads}-{turn}.jsonl")
                    asked: tuple[str, ...] = ("--jobs", str(jobs), "--set", "beam_size=4", "--output", str(out))
                    asked += ("--ray",) if name == "ray" else ()
                    how = {"source": source, "threads": threads}
                    best[name] = min(
                        best[name], catchline("summarize", str(models[name]), str(given), *asked, **how)[:2]
                    )
            for name, (clock, processors) in best.items():
                of = f"{jobs} process{'es' * (jobs > 1)}, {threads} thread{'s' * (threads > 1)}"
                print(f"{of}, {name}: {clock:.1f} s, {processors:.1f} s of the processors", flush=True)


if __name__ == "__main__":
    main()
