"""Score the lines of models and baselines on validation records of every folder, kind by kind.

    python study/research/lines.py OUT --system lead-1 --system lexrank-1 --system today=oneline \
        [--command "catchline"] [--data ../shared/data] [--folders issues,forum] [--set search.length_alpha=2.0]

A system is an extractive method or a model folder, with a name if wanted (NAME=MODEL). Its own line is scored, also
where the model would rather give a sentence. Predictions go to OUT/NAME.jsonl and are continued if they are partial;
scores go to OUT/scores.json, beside those of earlier calls, and one Markdown table of all of them is printed. A row's
``references`` all count, as in ``evaluate``. All contact with the package is through its commands.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import shlex
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from mix import KINDS, Row, place_of, read, row_of

COUNTS = {"arxiv": 600, "debian": 600, "readmes": 600}  # of the others COUNT
COUNT = 200
SEED = 20261128
SAMPLES = 1000
TO_REACH = {  # what the goal adds to today's ROUGE-1 line, from the table
    "support_questions": 5.7,
    "issues": 9.2,
    "pull_requests": 10.2,
    "commits-open": 9.0,
    "forum": 6.7,
    "meetings": 9.8,
    "news-senate": 21.5,
    "news-doj": 23.8,
    "law-bills": 10.6,
    "law-dccode": 13.4,
    "docs-office": 16.2,
    "blog-opensource": 5.5,
    "blog-gov": 4.6,
    "wiki-desc": 14.1,
    "emails": 3.4,
    "arxiv": -1.0,
    "debian": -1.0,
    "readmes": -1.0,
}


def main() -> None:
    """Write, score and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--system", action="append", default=[], metavar="[NAME=]MODEL_OR_METHOD")
    parser.add_argument("--command", default="catchline", help="the package's command, or python -m PACKAGE")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--folders", default=",".join([*TO_REACH]))
    parser.add_argument("--count", type=int, help="records of a folder")
    parser.add_argument("--skip", type=int, default=0, help="the number of drawn records to leave out first")
    parser.add_argument("--set", dest="settings", action="append", default=[], metavar="KEY=VALUE")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "scores.json"
    scores: dict[str, dict[str, Any]] = json.loads(path.read_text("utf-8")) if path.is_file() else {}
    folders = options.folders.split(",") if options.system else []
    records = [row for name in folders for row in drawn(name, options)]
    for system in options.system:
        name, _, model = system.rpartition("=")
        name = name or model
        lines = written(name, model, records, options)
        scores.setdefault(name, {}).update(scored(lines, records, options))
        scores.setdefault("people", {}).update(lengths(records))
        path.write_text(json.dumps(scores, indent=1) + "\n", encoding="utf-8")
    print(table(scores))


def drawn(name: str, options: argparse.Namespace) -> list[Row]:
    """Validation records of a folder, the same ones every time."""
    folder = place_of(name, options.data)
    rows = [row_of(record, name) | {"document": record["document"]} for record in read(folder, "validation")]
    random.Random(SEED).shuffle(rows)
    return rows[options.skip :][: options.count or COUNTS.get(name, COUNT)]


def written(name: str, model: str, records: Sequence[Row], options: argparse.Namespace) -> list[dict[str, Any]]:
    """What the system answers, in the order of the records."""
    given = json.dumps([*records, options.settings], ensure_ascii=False).encode()
    source = options.out / f"records-{hashlib.sha256(given).hexdigest()[:12]}.jsonl"
    write(source, records)
    output = options.out / f"{name}-{source.stem.rpartition('-')[2]}.jsonl"
    changes = [part for setting in options.settings for part in ("--set", setting)]
    command = [*shlex.split(options.command), "summarize", model, str(source), "--output", str(output), *changes]
    subprocess.run(command, check=True)
    return [json.loads(line) for line in output.open(encoding="utf-8")]


def extracted(answer: dict[str, Any]) -> bool:
    """Is a sentence of the document the answer (of the version before: declined)?"""
    return bool(answer.get("extracted") or answer.get("declined"))


def own_line(answer: dict[str, Any]) -> str:
    """The line that the model wrote; where a sentence was the answer it is the first alternative."""
    declined = extracted(answer) and answer.get("alternatives")
    return str(answer["alternatives"][0]["summary"] if declined else answer["summary"])


def scored(
    answers: Sequence[dict[str, Any]], records: Sequence[Row], options: argparse.Namespace
) -> dict[str, dict[str, Any]]:
    """By folder: ROUGE-1, 2 and L with half of the 95% interval, words, shares of declined and empty lines."""
    lines = [own_line(answer) for answer in answers]
    with tempfile.TemporaryDirectory() as place:
        ours, theirs = Path(place, "lines.jsonl"), Path(place, "people.jsonl")
        write(ours, [{"id": row["id"], "summary": line} for row, line in zip(records, lines, strict=True)])
        write(theirs, [{"id": row["id"], "summary": row["summary"]} for row in records])
        command = [*shlex.split(options.command), "rouge", str(ours), str(theirs), "--stem", "--json", "--per-document"]
        found = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)["per_document"]
    facts = {}
    for name in dict.fromkeys(row["source"] for row in records):
        places = [place for place, row in enumerate(records) if row["source"] == name]
        facts[name] = {
            "records": len(places),
            "rouge": {kind: interval([100 * found[place][kind]["f"] for place in places]) for kind in ("1", "2", "L")},
            "words": fmean(len(lines[place].split()) for place in places),
            "declined": fmean(extracted(answers[place]) for place in places),
            "empty": fmean(not lines[place].strip() for place in places),
        }
    return facts


def interval(values: Sequence[float]) -> tuple[float, float]:
    """The mean and half of the 95% bootstrap interval."""
    rng = random.Random(SEED)
    means = sorted(fmean(rng.choices(values, k=len(values))) for _ in range(SAMPLES))
    return round(fmean(values), 2), round((means[int(0.975 * SAMPLES)] - means[int(0.025 * SAMPLES)]) / 2, 2)


def lengths(records: Sequence[Row]) -> dict[str, dict[str, float]]:
    """How long people's lines are."""
    names = dict.fromkeys(row["source"] for row in records)
    return {n: {"words": fmean(len(r["summary"].split()) for r in records if r["source"] == n)} for n in names}


def table(scores: dict[str, dict[str, Any]]) -> str:
    """One row a folder: what every system has in ROUGE-1 / 2 / L, words of the lines and share declined."""
    systems = [name for name in scores if name != "people"]
    rows = [
        f"| folder | kind | to reach | people, words | {' | '.join(systems)} |",
        "| --- " * (4 + len(systems)) + "|",
    ]
    for name in scores.get("people", {}):
        goal = scores.get("today", {}).get(name)
        reach = f"{goal['rouge']['1'][0] + TO_REACH[name]:.1f}" if goal else ""
        cells = [cell(scores[system].get(name)) for system in systems]
        kind = KINDS.get(name, "mail")
        rows.append(f"| {name} | {kind} | {reach} | {scores['people'][name]['words']:.1f} | {' | '.join(cells)} |")
    means = [cell(mean_of([*scores[system].values()])) for system in systems]
    return "\n".join([*rows, f"| mean | | | | {' | '.join(means)} |"])


def mean_of(facts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The mean over folders; its interval takes folders as given."""
    rouge = {
        kind: (
            fmean(fact["rouge"][kind][0] for fact in facts),
            sum(fact["rouge"][kind][1] ** 2 for fact in facts) ** 0.5 / len(facts),
        )
        for kind in ("1", "2", "L")
    }
    return {"rouge": rouge} | {key: fmean(fact[key] for fact in facts) for key in ("words", "declined", "empty")}


def cell(facts: dict[str, Any] | None) -> str:
    """What a system has on a folder, for the table."""
    if facts is None:
        return ""
    one, two, long = (facts["rouge"][kind] for kind in ("1", "2", "L"))
    notes = [f"{facts['words']:.1f} w"]
    notes += [f"{share:.0%} {what}" for what in ("declined", "empty") if (share := facts[what])]
    return f"{one[0]:.1f} ±{one[1]:.1f} / {two[0]:.1f} / {long[0]:.1f} ({', '.join(notes)})"


def write(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    """JSON lines."""
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")


if __name__ == "__main__":
    main()
