"""Training on sorted batches and batches by tokens: exact continuation, the length filter, the separator."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from runs import bits, quiet

from catchline.models.folder import load_model_folder
from catchline.summarizer import Summarizer
from catchline.training.prepare import plan
from catchline.training.run import train


@pytest.mark.parametrize(
    "batching",
    [
        pytest.param({"batching": "sorted"}, marks=pytest.mark.slow),
        pytest.param({"batch_tokens": 30}, marks=pytest.mark.slow),
        {"batch_tokens": 30, "accumulation": 2},
    ],
)
def test_a_stopped_run_continues_exactly(make_run: Any, tmp_path: Path, batching: dict[str, Any]) -> None:
    changes = {"model.dropout": 0.3, "training.checkpoint": {"every_updates": 4, "keep": 9}}
    changes |= {f"training.{key}": value for key, value in batching.items()}
    whole = make_run(**changes, **{"training.max_updates": 11})
    train(whole, tmp_path / "whole", on_message=quiet)
    # stopped within an epoch, by its own end, and continued
    train(make_run(**changes, **{"training.max_updates": 7}), tmp_path / "parts", on_message=quiet)
    train(whole, tmp_path / "parts", resume=True, on_message=quiet)
    mine, theirs = bits(tmp_path / "parts"), bits(tmp_path / "whole")
    assert mine[1] == theirs[1]
    assert mine[2]["train_state"]["epoch"] == theirs[2]["train_state"]["epoch"] > 0


def test_batches_hold_as_many_tokens_as_asked_for(make_trainer: Any) -> None:
    trainer = make_trainer(**{"training.batch_tokens": 30})
    stream = trainer.stream
    seen: list[int] = []
    for position in range(stream.batches_per_epoch):
        for batch in stream.take(0, position):
            assert batch.source_ids.numel() <= 30
            assert batch.target_ids.numel() <= 30
            seen += batch.indices
    assert sorted(seen) == list(range(40))
    assert "30 tokens" in "\n".join(plan(trainer.run, trainer.parts, trainer.accelerator))


def test_length_filter_counts_and_says_so(make_trainer: Any, pairs: Path) -> None:
    parts = make_trainer(**{"data.max_document_tokens": 6}).parts
    for file, name, data in (("train", "training", parts.train_set), ("validation",) * 2 + (parts.validation_set,)):
        lines = (pairs / f"{file}.jsonl").read_text().splitlines()
        lengths = [len(json.loads(line)["document"].split()) for line in lines]
        kept = [length for length in lengths if length <= 6]
        assert 0 < len(kept) < len(lengths)
        assert data.source_lengths.tolist() == kept
        left_out = f"{name} data: {len(lengths) - len(kept):,} of {len(lengths):,} pairs"
        assert any(left_out in note and "6 tokens" in note for note in parts.notes)


def test_skipped_records_are_counted_by_reason(make_trainer: Any, pairs: Path, tmp_path: Path) -> None:
    data = tmp_path / "train.jsonl"
    broken = [{"document": "", "summary": "a"}, {"document": "a b", "summary": " "}, {"document": "b", "summary": ""}]
    data.write_text((pairs / "train.jsonl").read_text() + "".join(json.dumps(row) + "\n" for row in broken))
    trainer = make_trainer(**{"data.train": str(data), "data.skip_bad": True})
    assert len(trainer.parts.train_set) == 40
    assert any("3 records skipped: 2 empty summary, 1 empty document" in note for note in trainer.parts.notes)


def test_the_vocabulary_of_documents_only(make_trainer: Any, tmp_path: Path) -> None:
    data = tmp_path / "some.jsonl"
    data.write_text(json.dumps({"document": "alpha beta", "summary": "alpha gamma"}) + "\n")
    both = make_trainer(**{"data.train": str(data)}).parts.tokenizer.vocabulary
    assert set(both[4:]) == {"alpha", "beta", "gamma"}
    shutil.rmtree(tmp_path / "run" / "tokenizer")
    changes = {"data.train": str(data), "text.vocabulary_from": "documents"}
    documents = make_trainer(**changes).parts.tokenizer.vocabulary
    assert set(documents[4:]) == {"alpha", "beta"}


def test_a_model_reads_and_writes_separators(make_run: Any, tmp_path: Path) -> None:
    """From training through the exported folder to summaries: no separator is ever shown."""
    pairs = tmp_path / "pairs.jsonl"
    row = {"document": "alpha beta. gamma delta.", "summary": "alpha.\ngamma."}
    pairs.write_text((json.dumps(row) + "\n") * 12)
    run = make_run(
        **{"data.train": str(pairs), "data.validation": str(pairs), "text.sentence_separator": "<EOS>"},
        **{"training.max_updates": 50, "training.optimizer.learning_rate": 0.05, "training.log_every": 50},
        **{"training.validation": {"decode_records": 4, "metric": "rouge1", "every_updates": 25}},
        **{"text.max_target_tokens": 8, "search.max_length": 8, "training.batch_size": 6},
    )
    result = train(run, tmp_path / "run", on_message=quiet)
    loaded = load_model_folder(result.model_folder)
    assert loaded.tokenizer.separator_id == 4
    assert result.metrics["rouge1"] == 1.0  # as decoded for validation: without the separator
    summary = Summarizer.from_pretrained(result.model_folder).explain(row["document"])
    assert summary.text == "alpha.\ngamma."
    assert [word.text for word in summary.words] == ["alpha", ".", "gamma", "."]
    assert all(summary.text[word.start : word.end] == word.text for word in summary.words)
    assert summary.tokens_read == summary.tokens_given == 7
    assert len(summary.source_offsets) == 7
    assert all(row["document"][s.start : s.end] == s.text for word in summary.words for s in word.sources)
