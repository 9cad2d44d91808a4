"""What a run will read, said before it starts."""

from __future__ import annotations

import pytest

from catchline.config.loading import load_recipe, resolve_run
from catchline.config.schema import TextConfig
from catchline.data.dataset import EncodedDataset
from catchline.text.tokenizer import WordTokenizer
from catchline.training import outlook
from catchline.types import Record


def records(lengths: list[int]) -> list[Record]:
    return [Record("a " * length, "b " * (length // 10)) for length in lengths]


def encoded(lengths: list[int]) -> EncodedDataset:
    tokenizer = WordTokenizer(WordTokenizer.Config(min_frequency=1))
    tokenizer.train(["a b"])
    return EncodedDataset.build(records(lengths), tokenizer, TextConfig(max_source_tokens=40, max_target_tokens=7))


def test_table_and_what_to_set() -> None:
    data = encoded([20] * 15 + [60] * 5)
    header, row, advice = outlook.reading_table({"training": data}, {"training": 3})
    assert header.split("  ")[-2:] == ["documents over 40 tokens", "summaries over 7"]
    assert row.split() == ["training", "20", "3", "25%", "0%"]  # six words and EOS are seven tokens
    assert "at most 60 tokens, 95% of the summaries 7" in advice
    assert "set text.max_source_tokens=60 and text.max_target_tokens=7, or" in advice
    whole = data.limits(40, 5)
    assert outlook.reading_table({"training": whole}, {})[1].split()[-1] == "25%"
    assert len(outlook.reading_table({"training": encoded([20] * 19 + [60])}, {})) == 2, "no advice for so little"


def test_limits_are_those_of_the_data(monkeypatch: pytest.MonkeyPatch) -> None:
    run = resolve_run(load_recipe("headline_writer"), size="small")
    data = records([100] * 90 + [300] * 10)
    monkeypatch.setattr(outlook, "_free_memory", lambda: 16 * 2**30)
    changes, line = outlook.fitting_limits(run, data, set())
    assert changes["text"] == {"max_source_tokens": 310, "max_target_tokens": 40}
    assert changes["search"] == {"max_length": 40, "min_length": 3}
    labels = [Record(one.document, "bug") for one in data]
    assert outlook.fitting_limits(run, labels, set())[0]["search"]["min_length"] == 1
    assert changes["training"] == {"batch_size": 32, "accumulation": 1}
    assert "310 tokens" in line
    monkeypatch.setattr(outlook, "_free_memory", lambda: 2**28)
    changes, line = outlook.fitting_limits(run, data, set())
    assert changes["training"]["batch_size"] * changes["training"]["accumulation"] == 32
    assert changes["training"]["accumulation"] > 1
    monkeypatch.setattr(outlook, "_free_memory", lambda: 2**22)
    assert outlook.fitting_limits(run, data, set())[0]["text"]["max_source_tokens"] < 310
    changes, line = outlook.fitting_limits(run, data, {"max_source_tokens"})
    assert changes["text"] == {"max_source_tokens": run.text.max_source_tokens, "max_target_tokens": 40}
    assert f"up to {run.text.max_source_tokens} tokens and summaries up to 40 (95% of the data, but for --set)" in line


@pytest.mark.parametrize(
    ("setting", "memory", "least"),
    [
        ("batch_size=25", 0.4, 2),
        ("batch_size=33", 0.4, 2),
        ("batch_size=37", 0.2, 2),
        ("batch_size=33", 0.06, 2),
        ("batch_tokens=4096", 0.1, 2),
        ("batch_size=1", 0.001, 1),
    ],
)
def test_parts_of_a_batch_are_the_batch(
    monkeypatch: pytest.MonkeyPatch, setting: str, memory: float, least: int
) -> None:
    name, value = setting.split("=")
    run = resolve_run(load_recipe("headline_writer"), size="small", overrides=[f"training.{setting}"])
    monkeypatch.setattr(outlook, "_free_memory", lambda: int(memory * 2**30))
    changes, line = outlook.fitting_limits(run, records([400] * 20), set())
    assert changes["training"][name] * changes["training"]["accumulation"] == int(value)
    assert changes["training"]["accumulation"] >= least
    assert ("tokens x" in line) is (name == "batch_tokens")


def test_limits_end_where_the_model_has_no_positions() -> None:
    run = resolve_run(load_recipe("contrastive"), size="tiny", overrides=["model.max_positions=50"])
    assert outlook.fitting_limits(run, records([300] * 20), set())[0]["text"]["max_source_tokens"] == 50
    positions = "model.architecture.max_position_embeddings=50"
    run = resolve_run(load_recipe("coconet"), row="transformer", size="tiny-bart", overrides=[positions])
    assert outlook.fitting_limits(run, records([300] * 20), set())[0]["text"]["max_source_tokens"] == 50
