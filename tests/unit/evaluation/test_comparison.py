"""Rows are trained and scored once, whatever happens in between; a failing row does not end the rest."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
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
from catchline.evaluation.compare import Comparison, ComparisonCallbacks, kept_scores, paper_bleu, with_bleu
from catchline.evaluation.plan import Choice, Plan, plan_recipe
from catchline.evaluation.run import Contender, score
from catchline.metrics.bleu import bleu_paper, corpus_bleu
from catchline.summarizer.extractive import is_method
from catchline.text.tokenizer import WordTokenizer
from catchline.training.loop import TrainResult
from catchline.types import Record, Summary

RECORDS = [Record(f"word{i} cat sat. It rained {i}.", f"word{i} cat", id=str(i)) for i in range(8)]
ROWS = ["lstm", "gru"]
TRAINED = [f"{row}-1" for row in ROWS]
HEADLINE = load_recipe("headline_writer")


@pytest.mark.parametrize(
    ("words", "unknown", "printed"),
    [
        ("the 's the to the the the", 2, 0.02047),
        ("confidential document 's twitter to to", 5, 0.08263),
        ("confidential document $ peter thiel to thiel", 1, 0.11255),
    ],
)
def test_the_headline_papers_own_samples_have_its_figures(words: str, unknown: int, printed: float) -> None:
    """The headline paper's Figure 6, from the text that its tokens become."""
    gold = "confidential document shows how peter thiel really feels about palantir"
    tokenizer = WordTokenizer(WordTokenizer.Config(min_frequency=1))
    tokenizer.train([gold, words])
    tokens = [*words.split(), *["<unk>"] * unknown]
    text = tokenizer.decode([tokenizer.unk_id if t == "<unk>" else tokenizer.token_id(t) for t in tokens])
    assert paper_bleu([text], [[gold]], [True]) == pytest.approx(printed, abs=6e-6)


@dataclass
class Machine:
    """Counts what is trained and decoded; can be told to stop or to fail."""

    trained: list[str] = field(default_factory=list)
    decoded: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    asked: dict[str, Any] = field(default_factory=dict)  # by the name of a system the settings it was opened with
    kill_at: str = ""
    fail_at: str = ""

    def train(self, run: RunConfig, folder: Path, *, resume: bool, title: str) -> TrainResult:
        name = f"{run.row}-{run.training.seed}"
        assert resume == (folder / "recipe.yaml").is_file()
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "recipe.yaml").write_text(dump_run(run))
        (folder / "model").mkdir(exist_ok=True)  # as of the first validation
        (folder / "model" / "config.json").write_text(json.dumps({"row": name}))
        (folder / "model" / "generation_config.json").write_text(json.dumps(run.search.model_dump(mode="json")))
        if name == self.kill_at:
            raise KeyboardInterrupt
        if name == self.fail_at:
            raise TrainingError("The loss is not finite.")
        self.trained.append(name)
        (folder / "log.jsonl").write_text('{"kind": "train", "update": 1, "epoch": 1.0, "loss": 2.5}\n')
        losses = {"val_loss_tf": 3.0 + run.training.seed}
        return TrainResult(str(folder), str(folder / "model"), 1, 1, "max_updates", 3.0, 1, losses, 0.1)

    def open(self, contender: Contender) -> Any:
        name = contender.name
        self.asked[name] = contender._search

        def summarize(records: Sequence[Record], **_: Any) -> list[Summary]:
            self.decoded += [f"{name}:{record.id}" for record in records]
            count = 2 if "lstm" in name else 1
            return [Summary(" ".join(record.document.split()[:count]), id=record.id) for record in records]

        return SimpleNamespace(summarize=summarize, system=SimpleNamespace(unk_text="<unk>"))

    def callbacks(self) -> ComparisonCallbacks:
        def watch(title: str, total: int) -> Any:
            return nullcontext(SimpleNamespace(advance=lambda count: None))

        return ComparisonCallbacks(self.train, watch, self.said.append)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine()
    real = Contender.summarizer.func
    opened = property(lambda self: real(self) if is_method(self.name) else made.open(self))
    monkeypatch.setattr(Contender, "summarizer", opened)
    return made


def plan_of(tmp_path: Path, seeds: int = 1, **overrides: Any) -> Plan:
    train = tmp_path / "train.jsonl"
    if not train.exists():
        train.write_text("{}\n")
    changes = {"data": {"train": str(train), "validation": str(train)}, **overrides}
    return plan_recipe(HEADLINE, Choice([*ROWS, "lead-1"], "tiny", seeds, changes))


def run(
    machine: Machine, tmp_path: Path, plan: Plan | None = None, out: str = "out", count: int = 8, **earlier: Any
) -> list[comparison.Outcome]:
    made = Comparison(plan or plan_of(tmp_path), RECORDS[:count], tmp_path / out, machine.callbacks(), **earlier)
    return made.run()


def stopped(machine: Machine, tmp_path: Path, at: str, plan: Plan | None = None) -> None:
    """As when the process is killed while the run ``at`` is trained."""
    machine.kill_at = at
    with pytest.raises(KeyboardInterrupt):
        run(machine, tmp_path, plan)
    machine.kill_at = ""


def more_pairs(tmp_path: Path) -> None:
    (tmp_path / "train.jsonl").write_text("{}\n{}\n")


def test_seeds_are_trained_and_scored_each(machine: Machine, tmp_path: Path) -> None:
    outcomes = run(machine, tmp_path, plan_of(tmp_path, seeds=2))
    assert machine.trained == [f"{row}-{seed}" for row in ROWS for seed in (1, 2)]
    assert len(machine.decoded) == len(set(machine.decoded)) == 4 * len(RECORDS)
    found = {outcome.row.name: outcome for outcome in outcomes}
    assert [len(found[name].scored) for name in ("lead-1", *ROWS)] == [1, 2, 2]
    assert [result["metrics"]["val_loss_tf"] for result in found["gru"].trained] == [4.0, 5.0]
    assert found["gru"].trained[0]["train_loss"] == 2.5


def test_rows_that_only_decode_differently_share_a_training(machine: Machine, tmp_path: Path) -> None:
    plan = plan_of(tmp_path, seeds=2)
    greedy = next(entry for entry in plan.rows if entry.name == "gru")
    runs = [run.model_copy(update={"row": "wide", "search": SearchConfig(beam_size=3)}) for run in greedy.runs]
    wide = replace(greedy, name="wide", runs=tuple(runs))
    outcomes = run(machine, tmp_path, replace(plan, rows=(*plan.rows, wide)))
    assert machine.trained == [f"{row}-{seed}" for row in ROWS for seed in (1, 2)]
    found = {outcome.row.name: outcome for outcome in outcomes}
    assert found["wide"].trained == found["gru"].trained
    assert [name.split(":")[0] for name in machine.decoded].count("wide-seed-2") == len(RECORDS)
    run(machine, tmp_path, replace(plan, rows=(wide,)))  # found under the other row's name
    assert len(machine.trained) == 4


def test_a_killed_comparison_trains_and_scores_nothing_twice(machine: Machine, tmp_path: Path) -> None:
    stopped(machine, tmp_path, "gru-1")
    assert machine.trained == ["lstm-1"]
    first = run(machine, tmp_path)
    again = run(machine, tmp_path)
    assert machine.trained == TRAINED
    assert len(machine.decoded) == len(set(machine.decoded)) == 2 * len(RECORDS)
    assert [o.scored for o in first] == [o.scored for o in again]
    assert [o.trained for o in first] == [o.trained for o in again]


def test_what_is_lost_is_made_of_what_is_left(machine: Machine, tmp_path: Path) -> None:
    """Scores of the predictions; what was done of what lies there; and neither needs the weights."""
    first = run(machine, tmp_path)
    decoded = len(machine.decoded)
    for path in (tmp_path / "out" / "scores").iterdir():
        path.unlink()
    again = run(machine, tmp_path)
    assert [o.scored[0].result.rouge for o in again] == [o.scored[0].result.rouge for o in first]
    assert len(machine.decoded) == decoded
    shutil.rmtree(tmp_path / "out" / "runs")
    without = run(machine, tmp_path)
    assert machine.trained == TRAINED
    assert [o.scored for o in without] == [o.scored for o in again]
    assert [o.trained[0]["metrics"] for o in without[1:]] == [o.trained[0]["metrics"] for o in first[1:]]
    assert len(machine.decoded) == decoded


def test_a_damaged_state_file_costs_nothing(machine: Machine, tmp_path: Path) -> None:
    run(machine, tmp_path)
    (tmp_path / "out" / "state.json").write_text('{"runs": {')
    decoded = len(machine.decoded)
    run(machine, tmp_path)  # asks to resume, which for a finished run means to read its last checkpoint
    assert len(machine.decoded) == decoded


def test_other_records_and_another_decoding_are_scored_anew(machine: Machine, tmp_path: Path) -> None:
    run(machine, tmp_path)
    run(machine, tmp_path, plan_of(tmp_path, search={"beam_size": 2}))
    assert len(machine.decoded) == 2 * 2 * len(RECORDS)
    run(machine, tmp_path, count=4)
    assert len(machine.decoded) == 2 * 2 * len(RECORDS) + 2 * 4
    assert machine.trained == TRAINED


def test_a_failing_row_does_not_end_the_rest(machine: Machine, tmp_path: Path) -> None:
    machine.fail_at = "lstm-1"
    outcomes = {o.row.name: o for o in run(machine, tmp_path)}
    assert outcomes["lstm"].errors == ["The loss is not finite."]
    assert not outcomes["lstm"].scored
    assert outcomes["gru"].scored
    assert any("lstm failed" in text for text in machine.said)
    machine.fail_at = ""
    assert all(one.scored for one in run(machine, tmp_path))  # it is tried again
    assert machine.trained == ["gru-1", "lstm-1"]


def test_one_seed_that_fails_leaves_the_others(machine: Machine, tmp_path: Path) -> None:
    machine.fail_at = "gru-2"
    outcomes = {o.row.name: o for o in run(machine, tmp_path, plan_of(tmp_path, seeds=3))}
    assert outcomes["gru"].errors == ["seed 2: The loss is not finite."]
    assert len(outcomes["gru"].scored) == 2


@pytest.mark.parametrize("at", ["", "lstm-1"], ids=["complete", "interrupted"])
def test_other_settings_and_other_data_are_refused_at_once(at: str, machine: Machine, tmp_path: Path) -> None:
    stopped(machine, tmp_path, at) if at else run(machine, tmp_path)
    with pytest.raises(ConfigError, match=r"training\.batch_size: 8 there, 4 now"):
        run(machine, tmp_path, plan_of(tmp_path, training={"batch_size": 4}))
    more_pairs(tmp_path)
    with pytest.raises(ConfigError, match="was made with other data or files"):
        run(machine, tmp_path)
    assert machine.trained == ([] if at else TRAINED)


@pytest.mark.parametrize("name", ["train", "train.source"])
def test_both_files_of_pairs_are_what_a_row_is_trained_on(name: str, machine: Machine, tmp_path: Path) -> None:
    for half in ("source", "target"):
        (tmp_path / f"train.{half}").write_text("a\n")
    plan = plan_of(tmp_path, data={"train": str(tmp_path / name)})
    run(machine, tmp_path, plan)
    (tmp_path / "train.target").write_text("b\n")
    with pytest.raises(ConfigError, match="was made with other data or files"):
        run(machine, tmp_path, plan)


def test_a_training_that_was_removed_is_not_taken_for_the_one_that_was_begun_instead(
    machine: Machine, tmp_path: Path
) -> None:
    run(machine, tmp_path)
    shutil.rmtree(tmp_path / "out" / "runs")
    more_pairs(tmp_path)
    longer = plan_of(tmp_path, training={"max_epochs": 2})
    stopped(machine, tmp_path, "lstm-1", longer)
    run(machine, tmp_path, longer)
    assert machine.trained == 2 * TRAINED


@pytest.mark.parametrize("key", ["data.validation", "text.pretrained_embeddings", "text.tokenizer.path"])
def test_other_validation_pairs_vectors_and_tokenizers_are_noticed(key: str, machine: Machine, tmp_path: Path) -> None:
    given = tmp_path / "given"
    given.write_text("{}\n")
    (tmp_path / "train.jsonl").write_text("{}\n")
    kind = ["text.tokenizer.type=pretrained"] if "tokenizer" in key else []
    changes = parse_overrides([f"data.train={tmp_path / 'train.jsonl'}", f"{key}={given}", *kind])
    plan = plan_of(tmp_path, **changes)
    run(machine, tmp_path, plan)

    def trained_beside() -> int:
        before = len(machine.trained)
        run(machine, tmp_path, plan, f"beside {len(given.read_text())}", earlier=[tmp_path / "out"])
        return len(machine.trained) - before

    assert trained_beside() == 0
    given.write_text("{}\n{}\n")
    assert trained_beside() == 2
    with pytest.raises(ConfigError, match="was made with other data or files"):
        run(machine, tmp_path, plan)


def test_a_tuned_model_is_decoded_as_the_row_says(machine: Machine, tmp_path: Path) -> None:
    def asked(**overrides: Any) -> dict[str, Any]:
        run(machine, tmp_path, plan_of(tmp_path, **overrides))
        return machine.asked["lstm-seed-1"]

    assert asked() == {"surface": "raw"}
    for settings in (tmp_path / "out" / "runs").glob("*/model/generation_config.json"):
        settings.write_text(json.dumps(json.loads(settings.read_text()) | {"max_length": 3}))
    usual = plan_of(tmp_path).rows[1].runs[0].search.max_length
    assert asked() == {"surface": "raw", "max_length": usual}
    assert asked(search={"max_length": 3, "surface": "cased", "beam_size": 3}) == {"surface": "raw", "beam_size": 3}
    assert asked(evaluation={"surface": None}) == {"surface": "clean", "max_length": usual}
    assert machine.trained == TRAINED


def test_rows_whose_names_differ_in_signs_have_runs_of_their_own(machine: Machine, tmp_path: Path) -> None:
    plan = plan_of(tmp_path)
    rows = [replace(row, name=name) for row, name in zip(plan.rows[1:], ("a+b", "a-b"), strict=True)]
    run(machine, tmp_path, replace(plan, rows=tuple(rows)))
    assert machine.trained == TRAINED
    assert "a-b-seed-1" in {path.name for path in (tmp_path / "out" / "runs").iterdir()}


def test_kept_scores_are_those_of_the_last_table(machine: Machine, tmp_path: Path) -> None:
    """Whichever was scored first, and however many seeds another one had."""

    def compare(count: int, seeds: int = 1) -> list[list[int]]:
        run(machine, tmp_path, plan_of(tmp_path, seeds=seeds), count=count)
        return [[one.records for one in found] for found in kept_scores(tmp_path / "out").values()]

    assert compare(8, seeds=2) == 2 * [[8, 8]]
    assert compare(4) == 2 * [[4]]
    assert compare(8) == 2 * [[8]]
    shutil.rmtree(tmp_path / "out" / "runs")
    assert compare(4) == 2 * [[4]]
    machine.fail_at = "gru-1"
    run(machine, tmp_path, plan_of(tmp_path, training={"max_epochs": 2}))
    assert list(kept_scores(tmp_path / "out")) == ["lstm"]


def test_bleu_in_both_readings() -> None:
    texts = ["the cat sat", "<unk> rain"]
    lines = [{"summary": texts[0], "finished": False}, {"summary": texts[1]}]
    records = [Record("a", "The cat sat down"), Record("b", "it rains")]
    found = with_bleu(score("x", records, lines), records, lines)
    expected = bleu_paper(
        [["the", "cat", "sat"], ["<unk>", "rain"]],
        [[["the", "cat", "sat", "down"]], [["it", "rains"]]],
        [False, True],
    )
    assert found.result.measures["bleu_paper"] == pytest.approx(expected)
    assert found.result.measures["bleu"] == corpus_bleu(texts, ["The cat sat down", "it rains"])[0]


def test_an_earlier_comparison_lends_its_scores_where_pairs_settings_and_records_are_the_same(
    machine: Machine, tmp_path: Path
) -> None:
    earlier = tmp_path / "out"
    run(machine, tmp_path)
    moved = tmp_path / "moved.jsonl"
    moved.write_text("{}\n")  # the same pairs in another place

    def compare(out: str, count: int = 8, **changes: Any) -> list[str]:
        before = len(machine.trained)
        plan = plan_of(tmp_path, **{"data": {"train": str(moved), "validation": str(moved)}} | changes)
        run(machine, tmp_path, plan, out, count, earlier=[earlier])
        return machine.trained[before:]

    assert compare("same") == []
    assert kept_scores(tmp_path / "same") == kept_scores(earlier)
    assert list(kept_scores(earlier)) == ROWS
    assert compare("fewer", 4) == compare("wider", search={"beam_size": 2}) == TRAINED
    assert compare("longer", training={"max_epochs": 2}) == TRAINED
    assert compare("clean", evaluation={"surface": "clean"}) == TRAINED
    moved.write_text("{}\n{}\n")
    assert compare("others") == TRAINED


def test_pairs_of_a_stage_count_by_what_is_in_them(machine: Machine, tmp_path: Path) -> None:
    """Not by where they lie, nor by what is told of their selection."""

    def compare(spans: str, pairs: str = "{}\n", told: str = "{}") -> int:
        (tmp_path / spans / "train").mkdir(parents=True)
        (tmp_path / spans / "train" / "train-00000.jsonl").write_text(pairs)
        (tmp_path / spans / "manifest.json").write_text(told)
        before = len(machine.trained)
        plan = plan_of(tmp_path, pretraining={"enabled": True, "data": str(tmp_path / spans)})
        run(machine, tmp_path, plan, f"of/{spans}", earlier=[tmp_path / "of" / "first"])
        return len(machine.trained) - before

    assert [compare("first"), compare("moved", told='{"seconds": 3}'), compare("others", pairs="{}\n{}\n")] == [2, 0, 2]


def test_a_log_that_is_being_written_is_read(tmp_path: Path) -> None:
    """Another process may train there, or was killed in the middle of a line."""
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "metrics.json").write_text('{"validation": {"val_loss_tf": 3.0}}')
    (tmp_path / "log.jsonl").write_text('{"kind": "train", "update": 1, "epoch": 1.0, "loss": 2.5}\n{"kind": "tr')
    found = comparison._training_of(tmp_path)
    assert found == {"metrics": {"val_loss_tf": 3.0}, "train_loss": 2.5}


def test_ones_own_code_is_part_of_what_was_scored_and_trained(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    scorer, words = tmp_path / "scorer_of_mine.py", tmp_path / "words_of_mine_too.py"
    scorer.write_text("from catchline.search.scorers import Renormalise as Mine\n")
    words.write_text("from catchline.text.tokenizer import WordTokenizer as Words\n")
    tokenizer = {"type": "words_of_mine_too:Words"}
    plan = plan_of(tmp_path, search={"scorers": [{"type": "scorer_of_mine:Mine"}]}, text={"tokenizer": tokenizer})
    run(machine, tmp_path, plan)
    shutil.rmtree(tmp_path / "out" / "runs")
    run(machine, tmp_path, plan)
    assert machine.trained == TRAINED
    scorer.write_text(scorer.read_text() + "# changed\n")
    run(machine, tmp_path, plan)
    assert machine.trained == 2 * TRAINED  # what was scored was of another scorer, and its weights are gone
    words.write_text(words.read_text() + "# changed\n")
    with pytest.raises(ConfigError, match="was made with other data or files"):
        run(machine, tmp_path, plan)
