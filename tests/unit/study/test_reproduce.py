"""The tables as commands: every line is a command that exists, with rows that exist; made files are not made again."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from laconic.cli.main import load_command, main
from laconic.config.loading import load_recipe, parse_overrides
from laconic.errors import ConfigError, DataError
from laconic.study import reproduce
from laconic.study.plan import Choice, plan_recipe

PAIR = '{"id": "%s-%d", "document": "One cat sat. Two dogs %d ran.", "summary": "One cat"}\n'


@pytest.fixture
def corpora(tmp_path: Path) -> Path:
    for name in ("arxiv", "debian", "reuters"):
        folder = tmp_path / "corpora" / name
        folder.mkdir(parents=True)
        for split, count in (("train", 12), ("validation", 4)):
            (folder / f"{split}.jsonl").write_text("".join(PAIR % (split, i, i) for i in range(count)))
    return tmp_path / "corpora"


@pytest.mark.parametrize("name", list(reproduce.tables()))
def test_every_step_is_a_command_with_rows_that_exist(name: str, corpora: Path, tmp_path: Path) -> None:
    lines = reproduce.commands(reproduce.table_named(name), corpora, tmp_path / "out", [tmp_path / "old"])
    inner = [step for line in lines for step in reproduce._OUTPUT.findall(line)]
    for line in [*(reproduce._OUTPUT.sub("", line) for line in lines), *inner]:
        words = shlex.split(line)
        command = load_command(words[0])
        with command.make_context(words[0], words[1:]) as context:
            if words[0] == "data":
                with command.commands[words[1]].make_context(words[1], words[2:], parent=context):
                    pass
            if words[0] == "compare":
                asked = context.params
                rows = [row for given in asked["rows"] or [] for row in given.split(",")]
                changes = parse_overrides([given for given in asked["overrides"] or [] if "data." not in given])
                chosen = Choice(rows, asked["size"], asked["seeds"], changes, asked["baseline"])
                assert plan_recipe(load_recipe(asked["what"][0]), chosen).rows
                assert asked["earlier"][-1] == tmp_path / "old"


def test_pairs_are_held_out_once_and_a_failing_step_ends_it(
    corpora: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    steps = ("compare extractive --data {held:arxiv} --split test --rows $(--version) --out {out}",)
    monkeypatch.setattr(reproduce, "tables", lambda: {"t": reproduce.ReproducedTable("t", "T", {"arxiv": 3}, steps)})
    out = tmp_path / "out"
    said: list[str] = []
    lines = reproduce.commands(reproduce.table_named("t"), corpora, out)
    assert reproduce.run(lines, said.append) == 2
    assert "given: extractive, 0." in capfd.readouterr().err  # `--rows laconic 0.1.0`
    held = {path.name: path.read_text().splitlines() for path in (out / "held-out" / "arxiv").glob("*.jsonl")}
    assert {name: len(kept) for name, kept in held.items()} == {
        "train.jsonl": 9, "validation.jsonl": 3, "test.jsonl": 4,
    }  # fmt: skip
    assert all("train-9" not in line for line in held["train.jsonl"])
    assert "train-9" in held["validation.jsonl"][0]
    assert len(said) == 3
    assert reproduce.run(lines, said.append) == 2
    assert len(said) == 4  # the splits are there


def test_what_is_missing_is_named(corpora: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(DataError, match="no folder 'arxiv'"):
        reproduce.commands(reproduce.table_named("coconet"), tmp_path, tmp_path)
    with pytest.raises(ConfigError, match="coconet"):
        reproduce.table_named("coconett")
    assert main(["reproduce"]) == 0
    assert "headline-writer" in capsys.readouterr().out
    assert main(["reproduce", "distraction"]) == 2
    assert "folder with arxiv in it" in capsys.readouterr().err
    assert main(["reproduce", "distraction", "--data", str(corpora), "--out", str(tmp_path / "o"), "--dry-run"]) == 0
    assert capsys.readouterr().out.count("laconic ") == 3
