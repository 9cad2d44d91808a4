"""The tables of docs/results.md as the commands that make them, from ``reproduce.yaml``."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from catchline.data.records import split_of
from catchline.errors import DataError, refuse_unknown
from catchline.evaluation.compare import kept_scores
from catchline.evaluation.measures import REPEATED
from catchline.evaluation.run import by_document
from catchline.evaluation.table import SURE
from catchline.files import write_json
from catchline.metrics.significance import approximate_randomization, paired_bootstrap

COMPARISONS = 10  # primary ones of research/protocol.md, for the bound of Holm's correction
ANSWERS = "answers.json"  # of the commands within commands, by the first word
HOLDS, FAILS, OPEN = "holds", "does not hold", "undecided"
_HOLE = re.compile(r"\{(\w+)(?::(\w+))?\}")
_OUTPUT = re.compile(r"\$\(([^()]*)\)")


@dataclass(frozen=True, slots=True)
class TestedClaim:
    """That a ``row`` is better than another (``over``) on a ``measure``, by document: a kind of ROUGE (x 100), or
    ``repetition`` (the share of repeated 2-grams, per cent; less is better). ``published``: the paper's difference
    on the same measure; ``margin``: what the row may be worse by, if the claim is that it is not worse than that;
    ``place``: the folder of the comparison below that of the table."""

    name: str
    says: str
    row: str
    over: str
    measure: str = "1"
    published: float | None = None
    margin: float | None = None
    place: str = "."


@dataclass(frozen=True, slots=True)
class ReproducedTable:
    """A table to make: ``corpora`` maps the folder of a corpus to how many of its last training pairs are held out
    for choosing, ``steps`` are command lines without the ``catchline`` in front, ``claims`` what the table tests."""

    name: str
    title: str
    corpora: dict[str, int]
    steps: Sequence[str]
    claims: Sequence[TestedClaim] = ()


@dataclass(frozen=True, slots=True)
class Finding:
    """What became of a claim: the difference in the direction of the claim, its 95% bootstrap interval, two-sided p of
    approximate randomization times the number of `COMPARISONS`, and the verdict."""

    claim: TestedClaim
    difference: float
    low: float
    high: float
    p: float
    verdict: str


def tables() -> dict[str, ReproducedTable]:
    path = Path(__file__).with_suffix(".yaml")
    entries: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    found = {}
    for name, entry in entries.items():
        claims = [TestedClaim(claim, **values) for claim, values in entry.pop("claims", {}).items()]
        found[name] = ReproducedTable(name, claims=claims, **entry)
    return found


def table_named(name: str) -> ReproducedTable:
    """The table of that name; ConfigError where there is none."""
    known = tables()
    refuse_unknown("table", name, known)
    return known[name]


def commands(table: ReproducedTable, data: Path, out: Path, earlier: Sequence[Path] = ()) -> list[str]:
    """The command lines behind ``catchline``, in order: splits that hold pairs out, then the steps of the table.
    ``data`` has a folder a corpus with a training and a validation file; comparisons take rows from ``earlier`` ones.
    Raises DataError: a corpus or one of its splits is not there."""
    places = {"held": out / "held-out", "out": out / table.name}
    given = "".join(f" --earlier {shlex.quote(str(folder))}" for folder in earlier)
    made = [line for corpus, count in table.corpora.items() for line in _held_out(corpus, count, data, out)]
    for step in table.steps:
        line = _HOLE.sub(lambda hole: shlex.quote(str(places[hole[1]] / (hole[2] or ""))), step)
        made.append(line + given if line.startswith("compare") else line)
    return made


def _held_out(corpus: str, count: int, data: Path, out: Path) -> list[str]:
    if not (data / corpus).is_dir():
        raise DataError(f"{data} has no folder '{corpus}', the corpus that this table is about.")
    train, test = split_of(data / corpus, "train"), split_of(data / corpus, "validation")
    held = out / "held-out" / corpus
    rest = ["--last", str(count), "--rest", f"{held}/train.jsonl"]
    return [
        shlex.join(["data", "subset", train, f"{held}/validation.jsonl", *rest]),
        shlex.join(["data", "subset", test, f"{held}/test.jsonl", "--min-tokens", "0"]),
    ]


def run(lines: Sequence[str], say: Callable[[str], object], out: Path, earlier: Sequence[Path] = ()) -> int:
    """Run one command after the other, each in its own process; returns the exit code of the first that fails. Files of
    ``data`` commands are written once, comparisons resume, and what a command within a command printed is kept in
    `ANSWERS` of ``out`` and taken from there, or from ``earlier`` ones."""
    kept = [folder / ANSWERS for folder in (out, *earlier) if (folder / ANSWERS).is_file()]
    known: dict[str, str] = json.loads(kept[0].read_text(encoding="utf-8")) if kept else {}

    def answer(inner: re.Match[str]) -> str:
        words = shlex.split(inner[1])
        if words[0] not in known:
            known[words[0]] = _catchline(words, subprocess.PIPE).stdout
            out.mkdir(parents=True, exist_ok=True)
            write_json(out / ANSWERS, known)
        return known[words[0]]

    for line in lines:
        words = shlex.split(line)
        writes = words[0] == "data" and not words[3].startswith("--")  # selecting spans continues by itself
        if writes and _is_made(words):
            continue
        say(shown(line))
        try:
            _catchline(shlex.split(_OUTPUT.sub(answer, line)))
        except subprocess.CalledProcessError as error:
            return error.returncode
    return 0


def shown(line: str) -> str:
    """A command line as a shell takes it."""
    return "catchline " + _OUTPUT.sub(r"$(catchline \1)", line)


def _is_made(words: Sequence[str]) -> bool:
    """Are the files that a ``data`` command writes there?"""
    files = [words[3], *(words[place + 1] for place, word in enumerate(words) if word == "--rest")]
    return all(Path(file).exists() for file in files)


def _catchline(words: Sequence[str], stdout: int | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-P", "-m", "catchline", *words], check=True, text=True, stdout=stdout)


def findings(table: ReproducedTable, out: Path) -> list[Finding]:
    """Of each claim whose rows are scored below ``out``; with several seeds a document has their mean score."""
    found = []
    for claim in table.claims:
        scored = kept_scores(out / table.name / claim.place)
        if claim.row in scored and claim.over in scored:
            sign = -100.0 if claim.measure == REPEATED[2] else 100.0
            mine, theirs = (by_document(scored[row], claim.measure) for row in (claim.row, claim.over))
            found.append(_finding(claim, [sign * one for one in mine], [sign * one for one in theirs]))
    return found


def _finding(claim: TestedClaim, mine: list[float], theirs: list[float]) -> Finding:
    interval = paired_bootstrap(mine, theirs)
    assert interval.low is not None and interval.high is not None  # noqa: PT018
    p = min(1.0, COMPARISONS * approximate_randomization(mine, theirs).p)
    excluded = claim.published is not None and not interval.low <= claim.published <= interval.high
    if claim.margin is not None:
        verdict = HOLDS if interval.low > -claim.margin else FAILS if interval.high < -claim.margin else OPEN
    elif p < SURE:
        verdict = HOLDS if interval.difference > 0 else FAILS
    else:
        verdict = FAILS if excluded and interval.difference < (claim.published or 0.0) else OPEN
    return Finding(claim, interval.difference, interval.low, interval.high, p, verdict)
