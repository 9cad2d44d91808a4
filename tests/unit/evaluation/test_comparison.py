"""Rows are trained and scored once, whatever happens in between; a failing row does not end the rest."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from catchline.config.loading import dump_run, load_recipe, parse_overrides
from catchline.config.schema import RunConfig, SearchConfig
from catchline.errors import ConfigError, TrainingError
from catchline.evaluation import compare as comparison
from catchline.evaluation.compare import Comparison, kept_scores, with_bleu
from catchline.evaluation.plan import Choice, Plan, plan_recipe
from catchline.evaluation.run import open_system, score
from catchline.evaluation.table import Outcome
from catchline.metrics.bleu import bleu_paper, corpus_bleu
from catchline.types import Record, Summary

RECORDS = [Record(f"word{i} cat sat. It rained {i}.", f"word{i} cat", id=str(i)) for i in range(8)]
ROWS = ["lstm", "gru"]
TRAINED = [f"{row}-1" for row in ROWS]
HEADLINE = load_recipe("headline_writer")


@dataclass
class Machine:
    """Counts what is trained and decoded; can be told to stop or to fail."""

    trained: list[str] = field(default_factory=list)
    decoded: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    asked: dict[str, Any] = field(default_factory=dict)  # by the folder of a run the settings it was opened with
    kill_at: str = ""
    fail_at: str = ""

    def train(self, run: RunConfig, folder: Path, *, resume: bool, title: str) -> None:
        name = f"{run.row}-{run.training.seed}"
        assert resume == (folder / "recipe.yaml").is_file()
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "recipe.yaml").write_text(dump_run(run))
        (folder / "model").mkdir(exist_ok=True)  # as of the first validation
        (folder / "model" / "config.json").write_text(json.dumps({"row": name}))
        if name == self.kill_at:
            raise KeyboardInterrupt
        if name == self.fail_at:
            raise TrainingError("The loss is not finite.")
        self.trained.append(name)
        (folder / "log.jsonl").write_text('{"kind": "train", "update": 1, "epoch": 1.0, "loss": 2.5}\n')
        metrics = {"validation": {"val_loss_tf": 3.0 + run.training.seed}}
        (folder / "model" / "metrics.json").write_text(json.dumps(metrics))

    def open(self, place: str, settings: Any, device: str) -> Any:
        if "type" in settings:
            return open_system(place, settings)
        self.asked[name := Path(place).name] = settings

        def summarize(records: Sequence[Record], **_: Any) -> list[Summary]:
            self.decoded += [f"{name}:{settings['beam_size']}:{record.id}" for record in records]
            count = 2 if "lstm" in name else 1
            return [Summary(" ".join(record.document.split()[:count]), id=record.id) for record in records]

        system = SimpleNamespace(unk_text="<unk>", batch=16)
        return SimpleNamespace(summarize=summarize, system=system, decoding=lambda: settings, name=name)

    def callbacks(self) -> dict[str, Any]:
        bar = SimpleNamespace(advance=lambda count: None)
        return {"train": self.train, "watch": lambda title, total: nullcontext(bar), "say": self.said.append}


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine()
    monkeypatch.setattr(comparison, "open_system", made.open)
    return made


Compare = Callable[..., dict[str, Outcome]]


@pytest.fixture
def compare(machine: Machine, tmp_path: Path) -> Compare:
    """Compare two rows and a method on the first records, with other settings; the outcomes by row."""
    (tmp_path / "train.jsonl").write_text("{}\n")

    def compared(plan: Plan | None = None, out: str = "out", count: int = 8, **how: Any) -> dict[str, Outcome]:
        earlier = [tmp_path / place for place in how.pop("earlier", ())]
        plan = plan or plan_of(tmp_path, **how)
        made = Comparison(plan, RECORDS[:count], tmp_path / out, earlier=earlier, **machine.callbacks())
        return {outcome.row.name: outcome for outcome in made.run()}

    return compared


def plan_of(tmp_path: Path, seeds: int = 1, **overrides: Any) -> Plan:
    train = str(tmp_path / "train.jsonl")
    changes = {"data": {"train": train, "validation": train}, **overrides}
    return plan_recipe(HEADLINE, Choice([*ROWS, "lead-1"], "tiny", seeds, changes))


def test_seeds_are_trained_and_scored_each_and_rows_that_decode_otherwise_share_a_training(
    machine: Machine, compare: Compare, tmp_path: Path
) -> None:
    plan = plan_of(tmp_path, seeds=2)
    greedy = next(entry for entry in plan.rows if entry.name == "gru")
    runs = [run.model_copy(update={"row": "wide", "search": SearchConfig(beam_size=3)}) for run in greedy.runs]
    wide = replace(greedy, name="wide", runs=tuple(runs))
    found = compare(replace(plan, rows=(*plan.rows, wide)))
    assert machine.trained == [f"{row}-{seed}" for row in ROWS for seed in (1, 2)]
    assert len(machine.decoded) == len(set(machine.decoded)) == 6 * len(RECORDS)
    assert [len(found[name].scored) for name in ("lead-1", *ROWS, "wide")] == [1, 2, 2, 2]
    assert [result["metrics"]["val_loss_tf"] for result in found["gru"].trained] == [4.0, 5.0]
    assert found["gru"].losses[0] == {"val_loss_tf": 4.0, "train_loss": 2.5}
    assert found["wide"].trained == found["gru"].trained
    compare(replace(plan, rows=(wide,)))  # found under the other row's name
    assert len(machine.trained) == 4


def test_a_killed_comparison_trains_and_scores_nothing_twice(machine: Machine, compare: Compare) -> None:
    machine.kill_at = "gru-1"
    with pytest.raises(KeyboardInterrupt):
        compare()
    machine.kill_at = ""
    assert machine.trained == ["lstm-1"]
    assert compare() == compare()
    assert machine.trained == TRAINED
    assert len(machine.decoded) == len(set(machine.decoded)) == 2 * len(RECORDS)


def test_scores_are_made_of_predictions_and_need_no_weights(machine: Machine, compare: Compare, tmp_path: Path) -> None:
    first, decoded = compare(), len(machine.decoded)
    for lost in ("scores", "runs"):
        shutil.rmtree(tmp_path / "out" / lost)
        again = compare()
        assert (len(machine.decoded), machine.trained) == (decoded, TRAINED)
        assert [o.scored[0].rouge for o in again.values()] == [o.scored[0].rouge for o in first.values()]
        assert again["gru"].trained[0]["metrics"] == first["gru"].trained[0]["metrics"]


def test_other_records_and_another_decoding_are_scored_anew(machine: Machine, compare: Compare) -> None:
    compare()
    compare(search={"beam_size": 2})
    compare(count=4)
    assert len(machine.decoded) == 2 * 2 * len(RECORDS) + 2 * 4
    assert machine.trained == TRAINED


def test_what_fails_does_not_end_the_rest(machine: Machine, compare: Compare, tmp_path: Path) -> None:
    machine.fail_at = "lstm-1"
    found = compare()
    assert (found["lstm"].errors, found["lstm"].scored) == (["The loss is not finite."], [])
    assert found["gru"].scored
    assert any("lstm failed" in text for text in machine.said)
    assert list(kept_scores(tmp_path / "out")) == ["gru"]
    machine.fail_at = ""
    assert all(one.scored for one in compare().values())  # it is tried again
    assert machine.trained == ["gru-1", "lstm-1"]
    machine.fail_at = "gru-2"
    found = compare(seeds=3)
    assert found["gru"].errors == ["seed 2: The loss is not finite."]
    assert len(found["gru"].scored) == 2


def test_other_settings_are_refused_at_once(machine: Machine, compare: Compare) -> None:
    machine.kill_at = "gru-1"
    with pytest.raises(KeyboardInterrupt):
        compare()
    with pytest.raises(ConfigError, match="was made with other settings, data or files"):
        compare(training={"batch_size": 4})
    assert machine.trained == ["lstm-1"]


@pytest.mark.parametrize(
    ("key", "file"),
    [
        ("data.train", "train.source"),  # both files of pairs
        ("data.validation", "given"),
        ("text.pretrained_embeddings", "given"),
        ("text.tokenizer.path", "given"),
        ("pretraining.data", "spans"),
    ],
)
def test_other_files_are_noticed(key: str, file: str, machine: Machine, compare: Compare, tmp_path: Path) -> None:
    for name in ("train.source", "train.target", "given"):
        (tmp_path / name).write_text("a\n")
    spans = tmp_path / "spans" / "train" / "train-00000.jsonl"
    spans.parent.mkdir(parents=True)
    spans.write_text("{}\n")
    kind = {"text.tokenizer.path": ["text.tokenizer.type=pretrained"], "pretraining.data": ["pretraining.enabled=true"]}
    given = [f"data.train={tmp_path / 'train.jsonl'}", f"{key}={tmp_path / file}", *kind.get(key, [])]
    plan = plan_of(tmp_path, **parse_overrides(given))
    compare(plan)
    (tmp_path / "spans" / "manifest.json").write_text('{"seconds": 3}')  # what is told of spans is not one of them
    compare(plan, "beside", earlier=["out"])
    assert machine.trained == TRAINED
    {"spans": spans, "given": tmp_path / "given"}.get(file, tmp_path / "train.target").write_text("b\n")
    compare(plan, "again", earlier=["out"])
    assert machine.trained == 2 * TRAINED
    with pytest.raises(ConfigError, match="was made with other settings, data or files"):
        compare(plan)


def test_a_run_is_decoded_as_its_row_says(machine: Machine, compare: Compare) -> None:
    def asked(**overrides: Any) -> tuple[str, int]:
        compare(**overrides)
        return machine.asked["lstm-seed-1"]["surface"], machine.asked["lstm-seed-1"]["beam_size"]

    assert asked() == ("raw", 1)
    assert asked(search={"surface": "cased", "beam_size": 3}) == ("raw", 3)
    assert asked(evaluation={"surface": None}) == ("clean", 1)
    assert machine.trained == TRAINED


def test_kept_scores_are_those_of_the_last_table(compare: Compare, tmp_path: Path) -> None:
    """Whichever was scored first, and however many seeds another one had."""

    def kept(count: int, seeds: int = 1) -> list[list[int]]:
        compare(seeds=seeds, count=count)
        return [[one.records for one in found] for found in kept_scores(tmp_path / "out").values()]

    assert [kept(8, seeds=2), kept(4), kept(4), kept(8)] == [2 * [[8, 8]], 2 * [[4]], 2 * [[4]], 2 * [[8]]]
    shutil.rmtree(tmp_path / "out" / "runs")
    assert kept(4) == 2 * [[4]]


def test_an_earlier_comparison_lends_its_scores_where_pairs_settings_and_records_are_the_same(
    machine: Machine, compare: Compare, tmp_path: Path
) -> None:
    compare()
    moved = tmp_path / "moved.jsonl"
    moved.write_text("{}\n")  # the same pairs in another place

    def trained(out: str, count: int = 8, **changes: Any) -> list[str]:
        before = len(machine.trained)
        data = {"train": str(moved), "validation": str(moved)}
        compare(None, out, count, earlier=["out"], data=data, **changes)
        return machine.trained[before:]

    assert trained("same") == []
    assert kept_scores(tmp_path / "same") == kept_scores(tmp_path / "out")
    assert list(kept_scores(tmp_path / "out")) == ROWS
    assert trained("fewer", 4) == trained("wider", search={"beam_size": 2}) == TRAINED
    assert trained("longer", training={"max_epochs": 2}) == TRAINED
    assert trained("clean", evaluation={"surface": "clean"}) == TRAINED


def test_own_code_is_part_of_what_was_scored_and_trained(
    machine: Machine, compare: Compare, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    scorer, words = tmp_path / "scorer_of_mine.py", tmp_path / "words_of_mine_too.py"
    scorer.write_text("from catchline.search.scorers import Renormalise as Mine\n")
    words.write_text("from catchline.text.tokenizer import WordTokenizer as Words\n")
    tokenizer = {"type": "words_of_mine_too:Words"}
    plan = plan_of(tmp_path, search={"scorers": [{"type": "scorer_of_mine:Mine"}]}, text={"tokenizer": tokenizer})
    compare(plan)
    shutil.rmtree(tmp_path / "out" / "runs")
    compare(plan)
    assert machine.trained == TRAINED
    scorer.write_text(scorer.read_text() + "# changed\n")
    compare(plan)
    assert machine.trained == 2 * TRAINED  # what was scored was of another scorer, and its weights are gone
    words.write_text(words.read_text() + "# changed\n")
    with pytest.raises(ConfigError, match="was made with other settings, data or files"):
        compare(plan)


def test_bleu_in_both_readings() -> None:
    texts = ["the cat sat", "<unk> rain"]
    lines = [{"summary": texts[0], "finished": False}, {"summary": texts[1]}]
    records = [Record("a", "The cat sat down"), Record("b", "it rains")]
    found = with_bleu(score("x", records, lines), records, lines).measures
    models = [[["the", "cat", "sat", "down"]], [["it", "rains"]]]
    expected = bleu_paper([["the", "cat", "sat"], ["<unk>", "rain"]], models, [False, True])
    assert found["bleu_paper"] == pytest.approx(expected)
    assert found["bleu"] == corpus_bleu(texts, ["The cat sat down", "it rains"])[0]
