"""What a search for decoding settings tries, and that it decodes what the settings alone would decode."""

from __future__ import annotations

import json
import math
import random
from pathlib import Path
from typing import Any

import pytest

from catchline.config.loading import load_run, merge
from catchline.errors import ConfigError, DataError
from catchline.evaluation.run import EvaluationOptions, score
from catchline.models.folder import load_model_folder, save_model_folder
from catchline.systems.neural import NeuralSystem
from catchline.types import Record
from catchline_study.tuning import (
    SearchRange,
    TrialLog,
    TuningResult,
    apply,
    batches_of,
    parse_grid,
    parse_range,
    plan,
    refuse_fixed,
    trials_of,
    tune,
)
from tiny_models import save_tiny_model
from watching import watch

DOCUMENTS = [
    "the quick fox jumps over the lazy dog . it was late .",
    "a small cat sat on the mat .",
    "the quick bird and the old dog",
    "it was late",
    "the old cat and the old dog sat on the mat and it was late , very late .",
]
RECORDS = [Record(text, " ".join(text.split()[:3]), id=str(i)) for i, text in enumerate(DOCUMENTS)]
OPTIONS = EvaluationOptions(batch_size=2)


# ------------------------------------------------------------------------------------------- plans


def test_grids_and_ranges_are_read() -> None:
    assert parse_grid("search.beam_size=4,5,4") == ("beam_size", (4, 5))
    assert parse_grid("distraction.variant=paper,released") == ("distraction.variant", ("paper", "released"))
    assert parse_grid("model.anything=0.1,0.2")[0] == "model.anything"
    blocking = {"type": "ngram_blocking", "size": 2}
    assert parse_grid("scorers=[],[{type: ngram_blocking, size: 2}],[]") == ("scorers", ([], [blocking]))
    signed = SearchRange("distraction.context", 0.05, 10.0, log=True, both_signs=True)
    assert parse_range("search.distraction.context=0.05:10:log:both-signs") == signed
    assert parse_range("beam_size=2:6").integer
    assert not parse_range("model.lambda_decode=0:1").integer


@pytest.mark.parametrize(
    ("read", "text", "said"),
    [
        (parse_grid, "search.distraction.atention=1", "Unknown key 'search.distraction.atention'"),
        (parse_grid, "beam_size", "not of the form"),
        (parse_grid, "beam_size=", "not of the form"),
        (parse_grid, "distraction=1", "holds several values"),
        (parse_grid, "scorers=1", "give lists of scorers between commas"),
        (parse_grid, "scorers.size=1", "is a single value"),
        (parse_grid, "beam_size.x=1", "is a single value"),
        (parse_grid, "beam_size=1,[", "give single values|not valid YAML"),
        (parse_range, "distraction.state=1", "two numbers low:high"),
        (parse_range, "distraction.state=nan:1", "must not be above"),
        (parse_range, "distraction.state=0:1:log", "must be above 0"),
        (parse_range, "distraction.state=-1:1:both-signs", "at least 0"),
        (parse_range, "distraction.state=0:1:both-sign", "Did you mean 'both-signs'?"),
        (parse_range, "beam_size=1.5:3", "whole number"),
        (parse_range, "shrink_beam=0:1", "is not a number"),
        (parse_range, "scorers=0:1", "is not a number"),
    ],
)
def test_mistakes_are_named(read: Any, text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        read(text)


def test_draws_keep_to_their_ranges() -> None:
    source = random.Random(0)
    wide = [SearchRange("x", 0.05, 10.0, log=True, both_signs=True).draw(source) for _ in range(2000)]
    sizes = [abs(value) for value in wide]
    assert min(sizes) >= 0.05
    assert max(sizes) <= 10
    assert 0.4 < sum(value < 0 for value in wide) / 2000 < 0.6
    middle = math.sqrt(0.05 * 10)
    assert 0.45 < sum(size < middle for size in sizes) / 2000 < 0.55, "half lie below the geometric middle"
    whole = [SearchRange("x", 2, 4, integer=True).draw(source) for _ in range(300)]
    assert set(whole) == {2, 3, 4}
    assert all(isinstance(value, int) for value in whole)
    flat = [SearchRange("x", -1.0, 1.0).draw(source) for _ in range(300)]
    assert min(flat) < -0.9
    assert max(flat) > 0.9


def test_a_longer_plan_continues_a_shorter_one() -> None:
    grids, ranges = [("beam_size", (2, 3))], [SearchRange("a", 0, 1), SearchRange("b", 0, 1)]
    short, long = plan(grids, ranges, 3, seed=5), plan(grids, ranges, 7, seed=5)
    assert long[: len(short)] == short
    assert len(long) == 1 + 2 * 7
    assert short[0] == {}
    assert short[1]["a"] == short[2]["a"], "a draw is tried with every combination"
    assert plan(grids, ranges, 3, seed=6) != short
    assert plan(grids, [], 99, seed=1) == [{}, {"beam_size": 2}, {"beam_size": 3}]
    with pytest.raises(ConfigError, match="searched twice"):
        plan([("beam_size", (1,))], [SearchRange("beam_size", 1, 2)], 5, 1)


# ------------------------------------------------------------------------------------------ tuning


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place, attention = tmp_path_factory.mktemp("models") / "tiny", {"type": "additive", "coverage": True}
    search = {"beam_size": 3, "max_length": 6}
    return save_tiny_model(place, DOCUMENTS, max_source_tokens=12, search=search, attention=attention)


@pytest.fixture
def system(folder: Path) -> NeuralSystem:
    return NeuralSystem.from_pretrained(folder, "cpu")


def run(system: NeuralSystem, settings: list[dict[str, Any]], log: TrialLog | None = None) -> TuningResult:
    how = {"metric": "rouge1", "options": OPTIONS, "progress": lambda count: None}
    return tune(system, RECORDS, trials_of(system, settings), log=log or TrialLog(None, ""), **how)


SETTINGS: list[dict[str, Any]] = [
    {},
    {"beam_size": 1, "max_length": 4},
    {"distraction.context": -1.5, "distraction.attention": 2.0},
    {"distraction.state": -3.0},
    {"min_length": 3},
]


def test_trials_are_what_the_settings_alone_would_give(system: NeuralSystem, monkeypatch: pytest.MonkeyPatch) -> None:
    encoded = watch(monkeypatch, system.model, "encode", lambda batch: len(batch.source_ids))
    result = run(system, SETTINGS)
    assert encoded == [2, 2, 1], "each batch once, whatever the number of settings"
    assert result.encodings == 3
    for trial, settings in zip(result.trials, SETTINGS, strict=True):
        options = system.options(merge({}, settings))
        texts: dict[int, str] = {}
        for indices in batches_of(RECORDS, 2):
            made = system.summarize_batch([RECORDS[i] for i in indices], explain=False, options=options)
            texts |= dict(zip(indices, (summary.text for summary in made), strict=True))
        expected = score("", RECORDS, [{"summary": text} for _, text in sorted(texts.items())], options=OPTIONS)
        for kind in ("1", "2", "L"):
            assert trial.scores[f"rouge{kind}"] == pytest.approx(expected.rouge[kind].f)
        assert trial.scores["mean"] == pytest.approx(sum(expected.rouge[k].f for k in ("1", "2", "L")) / 3)
        assert trial.settings == settings
    assert len({round(trial.scores["rouge1"], 6) for trial in result.trials}) > 2, "the settings differ in effect"
    assert result.best.scores["rouge1"] == max(trial.scores["rouge1"] for trial in result.trials)
    assert result.ranked()[0] is result.best
    assert "|ci:95%r1000|" in result.signature  # as evaluate and compare quote it
    assert result.present is result.trials[0]


def test_an_interrupted_search_goes_on(system: NeuralSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = SETTINGS[:3]
    expected = run(system, settings).as_dict()
    calls = []
    right = NeuralSystem.summarize_batch

    def failing(self: NeuralSystem, records: Any, **options: Any) -> Any:
        calls.append(len(records))
        if len(calls) == 5:
            raise KeyboardInterrupt
        return right(self, records, **options)

    monkeypatch.setattr(NeuralSystem, "summarize_batch", failing)
    with pytest.raises(KeyboardInterrupt), TrialLog(tmp_path, "abc") as log:
        run(system, settings, log)
    path = next(tmp_path.glob("trials-abc.jsonl"))
    path.write_text(path.read_text() + '{"trial": "cut sho')
    with TrialLog(tmp_path, "abc") as log:
        assert len(log.lines) == 4
        result = run(system, settings, log).as_dict()
    assert len(calls) == 5 + 3 * 3 - 4, "what was decoded is not decoded again"
    with TrialLog(tmp_path, "abc") as log:
        assert len(log.lines) == 3 * 3
        again = run(system, [*settings, {"beam_size": 2}], log)
    assert len(again.trials) == 4
    for kept in (expected, result):
        for trial in (*kept["trials"], kept["best"], kept["present"]):
            trial.pop("seconds")
        kept.pop("batches_encoded")
    assert result == expected
    with TrialLog(tmp_path, "other data") as log:
        assert not log.lines


def test_batches_are_decoded_side_by_side(
    system: NeuralSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = run(system, SETTINGS).as_dict()
    monkeypatch.setattr(NeuralSystem, "batches_at_once", lambda self, documents, options: 2)
    workers = watch(monkeypatch, NeuralSystem, "in_threads", lambda self, work, batches, workers: workers)
    with TrialLog(tmp_path, "abc") as log:
        done: list[int] = []
        how = {"metric": "rouge1", "options": OPTIONS, "progress": done.append}
        result = tune(system, RECORDS, trials_of(system, SETTINGS), log=log, **how).as_dict()
    assert workers == [2]
    assert sum(done) == len(RECORDS) * len(SETTINGS)
    for kept in (expected, result):
        for trial in (*kept["trials"], kept["best"], kept["present"]):
            trial.pop("seconds")
    assert result == expected
    run(system, [{}, {"model.coverage": False}])
    assert workers == [2, 1], "a switch holds for all threads"


def test_another_value_of_a_switch_encodes_again_where_it_may_matter(system: NeuralSystem) -> None:
    settings = [{}, {"model.coverage": False}, {"model.coverage": True}]
    known = run(system, settings)
    assert known.encodings == 3
    assert not known.notes
    system.model.encoder_switches = None  # a model that does not say
    unknown = run(system, settings)
    assert unknown.encodings == 6
    assert "search.model.coverage may change what the encoder leaves" in unknown.notes[0]
    assert [t.scores for t in unknown.trials] == [t.scores for t in known.trials]
    assert system.model.switches()["coverage"] is True


def test_values_that_do_not_fit_together_are_not_tried(system: NeuralSystem) -> None:
    grids, said = [parse_grid("coverage_penalty=none,wu"), parse_grid("coverage_beta=0,0.2")], []
    trials = trials_of(system, plan(grids, [], 1, 1), say=said.append)
    assert [tuple(trial.settings.values()) for trial in trials] == [(), ("none", 0), ("none", 0.2), ("wu", 0.2)]
    assert len(said) == 1
    assert said[0].startswith("1 of 5 settings do not fit together and are not tried: ")
    assert "set coverage_beta above 0" in said[0]
    with pytest.raises(ConfigError, match="set coverage_beta above 0"):
        trials_of(system, plan([grids[0], parse_grid("coverage_beta=0")], [], 1, 1), say=said.append)
    with pytest.raises(ConfigError, match="no switch 'covrage'"):
        trials_of(system, [{}, {"model.covrage": True}])
    assert system.model.switches()["coverage"] is True


def test_records_must_be_there_and_have_summaries(system: NeuralSystem) -> None:
    options = {"metric": "mean", "options": OPTIONS, "log": TrialLog(None, ""), "progress": print}
    with pytest.raises(DataError, match="nothing to tune on"):
        tune(system, [], trials_of(system, [{}]), **options)
    with pytest.raises(DataError, match="a:7 has no summary"):
        tune(system, [Record("a b", origin="a:7")], trials_of(system, [{}]), **options)


def test_the_surface_that_is_scored_is_the_one_asked_for(system: NeuralSystem) -> None:
    own, raw, clean = trials_of(system, [{}, {"surface": "raw"}, {"surface": "clean"}], "raw")
    assert [trial.scored.surface for trial in (own, raw, clean)] == ["raw", "raw", "clean"]
    assert own.search.surface == system.search.surface == "clean", "what --apply writes"
    assert own.key == raw.key != clean.key


def test_the_best_becomes_the_models_default(folder: Path, tmp_path: Path) -> None:
    loaded = load_model_folder(folder)
    copy = save_model_folder(tmp_path / "copy", model=loaded.model, tokenizer=loaded.tokenizer, run=loaded.run)
    system = NeuralSystem.from_pretrained(copy, "cpu")
    search = trials_of(system, [{"beam_size": 4, "distraction.state": -0.25}])[0].search
    apply(copy, search)
    assert load_model_folder(copy).search == search
    kept = load_run(copy / "recipe.yaml")
    assert kept.search == search
    assert kept.model_copy(update={"search": loaded.run.search}) == load_run(folder / "recipe.yaml")
    assert json.loads((copy / "generation_config.json").read_text())["distraction"]["state"] == -0.25
    assert not list(copy.glob("*.new"))
    refuse_fixed(str(copy), "--apply")
    (copy / "export.json").touch()  # holds the digests of the other files
    for model, said in (
        (copy, "was exported"),
        (tmp_path, "not made by catchline"),
        ("oneline", "part of the package"),
    ):
        with pytest.raises(ConfigError, match=said):
            refuse_fixed(str(model), "--apply")
