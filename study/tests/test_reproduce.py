"""The tables as commands: every line is a command that exists, with rows that exist; made files are not made again."""

from __future__ import annotations

import contextlib
import io
import json
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import asdict
from functools import cache
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from catchline.cli.main import load_command, main
from catchline.config.loading import load_recipe, parse_overrides, recipe_names
from catchline.evaluation.plan import Choice, plan_recipe
from catchline.evaluation.run import EvaluationResult
from catchline_study import reproduce
from commands import refused, run

TABLES = reproduce.tables()
recipe_of = cache(load_recipe)
PAIR = '{"id": "%s-%d", "document": "One cat sat. Two dogs %d ran.", "summary": "One cat"}\n'


@pytest.fixture
def corpora(tmp_path: Path) -> Path:
    for name in ("arxiv", "debian", "reuters"):
        folder = tmp_path / "corpora" / name
        folder.mkdir(parents=True)
        for split, count in (("train", 12), ("validation", 4)):
            (folder / f"{split}.jsonl").write_text("".join(PAIR % (split, i, i) for i in range(count)))
    return tmp_path / "corpora"


@pytest.mark.parametrize("name", TABLES)
def test_every_step_is_a_command_with_rows_that_exist(name: str, corpora: Path, tmp_path: Path) -> None:
    lines = reproduce.commands(TABLES[name], corpora, tmp_path / "out", [tmp_path / "old"])
    inner = [step for line in lines for step in reproduce._OUTPUT.findall(line)]
    for line in [*(reproduce._OUTPUT.sub("", line) for line in lines), *inner]:
        words = shlex.split(line)
        count = 2 if words[0] == "data" else 1
        name = " ".join(words[:count])
        with load_command(name).make_context(name, words[count:]) as context:
            if words[0] == "compare":
                asked = context.params
                rows = [row for given in asked["rows"] or [] for row in given.split(",")]
                changes = parse_overrides([given for given in asked["overrides"] or [] if "data." not in given])
                chosen = Choice(rows, asked["size"], asked["seeds"], changes, asked["baseline"])
                assert plan_recipe(recipe_of(asked["what"][0]), chosen).rows
                assert asked["earlier"][-1] == tmp_path / "old"


def in_this_process(words: Sequence[str], stdout: int | None = None) -> subprocess.CompletedProcess[str]:
    """`reproduce._catchline` without the seconds of a new process."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said) if stdout else contextlib.nullcontext():
        code = main(list(words))
    if code:
        raise subprocess.CalledProcessError(code, list(words))
    return subprocess.CompletedProcess(list(words), code, said.getvalue())


def test_pairs_are_held_out_once_and_a_failing_step_ends_it(
    corpora: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(reproduce, "_catchline", in_this_process)
    steps = ("compare extractive --data {held:arxiv} --split test --rows $(--version) --out {out}",)
    monkeypatch.setattr(reproduce, "tables", lambda: {"t": reproduce.ReproducedTable("t", "T", {"arxiv": 3}, steps)})
    out = tmp_path / "out"
    said: list[str] = []
    lines = reproduce.commands(reproduce.table_named("t"), corpora, out)
    assert reproduce.run(lines, said.append, out / "t") == 2
    assert "given: extractive, 0." in capfd.readouterr().err  # `--rows catchline 0.1.0`
    held = {path.stem: path.read_text().splitlines() for path in (out / "held-out" / "arxiv").glob("*.jsonl")}
    assert {name: len(kept) for name, kept in held.items()} == {"train": 9, "validation": 3, "test": 4}
    assert all("train-9" not in line for line in held["train"])
    assert "train-9" in held["validation"][0]
    assert len(said) == 3
    assert reproduce.run(lines, said.append, out / "t") == 2
    assert len(said) == 4  # the splits are there
    (out / "held-out" / "arxiv" / "train.jsonl").unlink()  # as when the first command was interrupted
    assert reproduce.run(lines, said.append, out / "t") == 2
    assert [one.split()[1] for one in said[4:]] == ["data", "compare"]
    assert said[-1].count("$(catchline --version)") == 1
    shutil.rmtree(out / "held-out")
    answers = out / "t" / reproduce.ANSWERS
    assert json.loads(answers.read_text())["--version"].startswith("catchline 0.")
    answers.write_text(json.dumps({"--version": "lead-1"}))
    assert reproduce.run(lines, said.append, out / "again", [tmp_path, out / "t"]) == 0  # as it was answered then
    assert "lead-1: scoring" in capfd.readouterr().err


def test_the_claims_of_kept_scores_are_tested_without_corpora(capsys: pytest.CaptureFixture[str]) -> None:
    kept = Path(__file__).parents[1] / "tables"
    assert "H10" in (printed := run(capsys, "reproduce", "haystack", "--out", kept))
    assert "-0.56" in printed
    refused(capsys, 2, "folder with", "reproduce", "haystack", "--out", kept, "--dry-run")


@pytest.mark.parametrize(
    ("shift", "published", "margin", "verdict", "measure"),
    [
        (5.0, None, None, "holds", "1"),
        (-5.0, None, None, "does not hold", "1"),
        (0.0, 0.1, None, "undecided", "1"),
        (0.0, 9.0, None, "does not hold", "1"),  # the interval excludes what was published
        (-1.0, None, 4.0, "holds", "1"),  # not worse by more than the margin
        (-9.0, None, 4.0, "does not hold", "repetition"),
    ],
)
def test_verdicts_follow_from_the_intervals(
    shift: float, published: float | None, margin: float | None, verdict: str, measure: str, tmp_path: Path
) -> None:
    noise = np.random.default_rng(1).normal(0.0, 0.1, 400)
    noise -= noise.mean()
    sign = -1 if measure == "repetition" else 1
    scores = {"mine": 0.3 + sign * shift / 100 + noise, "theirs": np.full(400, 0.3)}
    folder = tmp_path / "t" / "below"
    (folder / "scores").mkdir(parents=True)
    entries = {}
    for row, seed in product(scores, (1, 2)):  # the mean of the seeds counts
        moved = scores[row] + (0.05 if seed == 1 else -0.05)
        result = EvaluationResult(row, 400, {}, {}, "", 0.0, {measure: tuple(moved)})
        stored = {"result": asdict(result), "bleu_signature": "", "samples": []}
        (folder / "scores" / f"{row}{seed}.json").write_text(json.dumps(stored))
        entries[f"{row}{seed}"] = {"row": row, "scores": f"{row}{seed}.json", "run": "", "facts": {"seed": seed}}
    (folder / "state.json").write_text(json.dumps({"runs": {}, "scored": entries}))
    claim = reproduce.TestedClaim("H", "says", "mine", "theirs", measure, published, margin, "below")
    found = reproduce.findings(reproduce.ReproducedTable("t", "T", {}, (), (claim,)), tmp_path)
    assert [(f.verdict, round(f.difference, 6)) for f in found] == [(verdict, shift)]
    missing = reproduce.TestedClaim("H", "says", "mine", "another", place="below")
    assert reproduce.findings(reproduce.ReproducedTable("t", "T", {}, (), (missing,)), tmp_path) == []


def test_claims_name_rows_of_their_tables() -> None:
    claims = [(table, claim) for table in TABLES.values() for claim in table.claims]
    assert [claim.name for _, claim in claims] == [f"H{number}" for number in range(1, reproduce.COMPARISONS + 1)]
    for table, claim in claims:
        recipe = next(word for step in table.steps for word in step.split() if word in recipe_names())
        assert {claim.row, claim.over} <= set(recipe_of(recipe).rows)
