"""Pairs that are read and encoded once: the same as made anew, and made again when anything they depend on changed; the
scheduled-sampling mask; what the processes of an update read."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from catchline.config.names import trusting
from catchline.config.schema import DataConfig, TeacherForcingConfig, TrainingConfig
from catchline.data.dataset import EncodedDataset
from catchline.errors import DataError
from catchline.training import data as data_module
from catchline.training.data import CACHE, OFF, UNUSED_DAYS, BatchStream, Corpus, cached, forced_mask, free_running_mask


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(CACHE, str(tmp_path / "cache"))
    return tmp_path / "cache"


def examples(data: EncodedDataset) -> list[Any]:
    found = [data[index] for index in range(len(data))]
    return [(e.source_extended_ids.tolist(), e.oov_words, e.target_extended_ids.tolist(), e.record_id) for e in found]


def test_what_is_kept_is_what_is_made_anew(make_trainer: Any, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"text.tokenizer.max_vocabulary": 12, "data.min_supported": 0.2, "data.max_document_tokens": 8}
    first = make_trainer(**settings).parts
    assert sorted(path.name.split("-")[0] for path in cache.iterdir()) == ["encoded", "encoded", "pairs", "pairs"]
    others = []
    with monkeypatch.context() as patched:
        patched.setattr(data_module, "encode", lambda *_: pytest.fail("encoded again"))
        patched.setattr(data_module, "read_with", lambda *_, **__: pytest.fail("read again"))
        others.append(make_trainer(**settings).parts)
    for place in (OFF, "/proc/none", str(cache / "other")):  # the second is where nothing can be kept
        monkeypatch.setenv(CACHE, place)
        others.append(make_trainer(**settings).parts)
        monkeypatch.setattr(data_module, "_PIECE", 7)  # the others by several threads
        monkeypatch.setenv("OMP_NUM_THREADS", "2")
    for parts in others:
        assert examples(parts.train_set) == examples(first.train_set)
        assert (parts.notes, parts.identity) == (first.notes, first.identity)
        assert parts.validation_set.references[0] == first.validation_set.references[0] != []
        assert parts.train_set.source_lengths.tolist() == first.train_set.source_lengths.tolist()


def test_a_change_is_encoded_anew(make_trainer: Any, pairs: Path, cache: Path, tmp_path: Path) -> None:
    file = tmp_path / "train.jsonl"
    file.write_text((pairs / "train.jsonl").read_text())
    before = os.stat(file)
    first = make_trainer(**{"data.train": str(file)}).parts.train_set
    file.write_text(file.read_text().replace("word1 ", "word2 "))
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))  # the content counts, not the clock
    assert examples(make_trainer(**{"data.train": str(file)}).parts.train_set) != examples(first)
    count = len(list(cache.iterdir()))
    make_trainer(**{"data.train": str(file), "text.max_source_tokens": 4})
    assert len(list(cache.iterdir())) > count
    for damaged in cache.glob("encoded-*/pairs.arrow"):
        damaged.write_bytes(damaged.read_bytes()[:-40])
    with pytest.raises(DataError, match=r"is damaged .*: remove it"):
        make_trainer(**{"data.train": str(file)})


def test_changed_code_of_a_tokenizer_encodes_anew(
    make_trainer: Any, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = tmp_path / "words_of_mine.py"
    code.write_text(
        "from catchline.text.tokenizer import WordTokenizer\n"
        "class Words(WordTokenizer):\n    name = 'words_of_mine:Words'\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    for more, kept_folders in (("", 4), ("", 4), ("# changed\n", 6)):
        code.write_text(code.read_text() + more)
        with trusting({"words_of_mine:Words"}):
            make_trainer(**{"text.tokenizer": {"type": "words_of_mine:Words", "min_frequency": 1}})
        assert len(list(cache.iterdir())) == kept_folders


def test_what_nobody_uses_goes(cache: Path) -> None:
    old, new = cached("encoded", "a" * 40, lambda place: None), cached("encoded", "b" * 40, lambda place: None)
    draft, photos = cache / f".{old.name}.partial", cache / "my-photos"  # of the user
    for place in (draft, photos):
        place.mkdir()
    long_ago = old.stat().st_mtime - (UNUSED_DAYS + 1) * 86_400
    for place in (old, draft, photos):
        os.utime(place, (long_ago, long_ago))
    cached("encoded", "c" * 40, lambda place: None)
    assert sorted(path.name[:9] for path in cache.iterdir()) == ["encoded-b", "encoded-c", "my-photos"]
    assert new.exists()


def test_a_pipe_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pairs.jsonl")
    with pytest.raises(DataError, match="is a pipe or device"):
        _ = Corpus(DataConfig(train=str(tmp_path / "pairs.jsonl")), "train").key


# ------------------------------------------------------------------------------------------------- batches

SCOPES = ("step", "example_step", "sequence")


def drawn(
    config: TeacherForcingConfig, size: tuple[int, int], *, first: int = 0, seed: int = 1, update: int = 7
) -> Any:
    """Of the examples ``first``, ``first + 1``, ..."""
    training = TrainingConfig(max_updates=1, seed=seed, teacher_forcing=config)
    batch: Any = SimpleNamespace(target_ids=torch.zeros(size), indices=range(first, first + size[0]))
    return forced_mask(training, batch, update)


def test_scopes_and_places() -> None:
    """What a mask is the same for, and what it depends on."""
    before = torch.get_rng_state()
    step, each, whole = (drawn(TeacherForcingConfig(ratio=0.5, scope=scope), (50, 40)) for scope in SCOPES)
    assert bool((step == step[:1]).all())
    assert len({tuple(row) for row in each.tolist()}) == 50
    assert bool((whole[:, 1:] == whole[0, 1]).all())
    assert torch.equal(before, torch.get_rng_state())
    for place in ({"seed": 2}, {"update": 8}, {"first": 50}):
        assert not torch.equal(each, drawn(TeacherForcingConfig(ratio=0.5, scope="example_step"), (50, 40), **place))


@pytest.mark.parametrize("scope", SCOPES)
def test_the_ratio_is_the_probability(scope: str) -> None:
    assert drawn(TeacherForcingConfig(ratio=1.0, scope=scope), (2, 3)) is None
    none = drawn(TeacherForcingConfig(ratio=0.0, scope=scope), (3, 4))
    assert none.tolist() == free_running_mask(none).tolist() == [[True, False, False, False]] * 3  # the first is BOS
    draws = [drawn(TeacherForcingConfig(ratio=0.3, scope=scope), (4, 9), update=update) for update in range(1000)]
    assert float(torch.stack(draws)[..., 1:].float().mean()) == pytest.approx(0.3, abs=0.04)


@pytest.mark.parametrize("scope", SCOPES)
def test_a_minibatch_draws_the_same_mask_however_it_is_split(scope: str) -> None:
    config = TeacherForcingConfig(ratio=0.5, scope=scope)
    whole, parts = drawn(config, (7, 20)), [drawn(config, (3, 20)), drawn(config, (4, 20), first=3)]
    assert torch.equal(torch.cat(parts), whole)
    # targets of a micro-batch are cut where its longest ends
    assert torch.equal(drawn(config, (7, 5)), whole[:, :5])


@pytest.mark.parametrize("batching", ["bucket", "sorted"])
def test_processes_read_together_what_one_reads_in_larger_batches(make_trainer: Any, batching: str) -> None:
    trainer = make_trainer(**{"training.batch_size": 3, "training.batching": batching, "training.accumulation": 2})

    def records(size: int, rank: int, processes: int) -> list[list[int]]:
        """A process's micro-batches of an epoch, with another stream from its middle on."""
        config = trainer.run.training.model_copy(update={"batch_size": size})
        made = (trainer.parts.train_set, trainer.parts.collator, config, rank, processes)
        streams, taken = [BatchStream(*made), BatchStream(*made)], list[Any]()
        while len(taken) < streams[0].batches_per_epoch:
            taken += streams[len(taken) >= 4].take(1, len(taken))
        return [list(batch.indices) for batch in taken]

    alone, *together = records(6, 0, 1), records(3, 0, 2), records(3, 1, 2)
    assert [sorted(one + other) for one, other in zip(*together, strict=True)] == [sorted(batch) for batch in alone]
    assert max(len(batch) for batches in together for batch in batches) == 3
