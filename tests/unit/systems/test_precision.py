"""Decoding in a lower precision: what was found out about it, who may choose it, and that BART's layers take part."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import torch

import tiny_bart
from boxed import make_stand_in
from catchline import Summarizer
from catchline.config.schema import SearchConfig
from catchline.decoding import TorchModel
from catchline.errors import ConfigError, ModelError
from catchline.kernels import dispatch, packed
from catchline.kernels.packed import Packing
from catchline.metrics.lower_precision import Lowered, Precisions, fastest, measure
from catchline.metrics.scoring import scoring
from catchline.search.decode import decode
from catchline.systems.neural import NeuralSystem
from catchline.types import Record
from catchline_study.calibration import try_precisions

GOOD = Lowered(0.97, {"1": 0.1, "2": 0.0, "L": -0.2})
NO_CHANGE = {"1": 0.0, "2": 0.0, "L": 0.0}
TEXT = "This will sort the table and return nothing. The table is kept. Errors are raised."


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("precision")
    return make_stand_in(root, root / "models", updates=2)


def test_measured_against_fp32_on_the_same_records() -> None:
    texts = {"fp32": ["a b c", "d e f"], "bf16": ["a b c", "d e f"], "int8": ["a b c", "d x y"]}
    records = [Record("a b c d", "a b c"), Record("d e f g", "d e f")]
    found = measure(texts.__getitem__, records)
    assert found.records == 2
    assert found.of["bf16"] == Lowered(1.0, NO_CHANGE)
    assert found.of["int8"].equal == 0.5
    assert found.of["int8"].rouge == {"1": -33.333, "2": -50.0, "L": -33.333}
    assert found.may_be(127) == ("fp32", "bf16")
    assert "int8 50% equal" in found.say()


def test_words_of_other_scripts_count_and_a_run_counts_its_own_way() -> None:
    texts = {"fp32": ["лифт сломан"], "int8": ["лифт"]}
    records = [Record("лифт сломан да", "лифт сломан")]
    assert measure(texts.__getitem__, records, ["int8"]).of["int8"].rouge["1"] == -33.333
    assert measure(texts.__getitem__, records, ["int8"], scoring("rouge155")).of["int8"].rouge == NO_CHANGE


def test_a_file_without_one_of_the_scores_is_damaged(tmp_path: Path) -> None:
    (tmp_path / "precision.json").write_text('{"records": 5, "of": {"bf16": {"equal": 0.95, "rouge": {"2": 0.1}}}}')
    with pytest.raises(ModelError, match="rouge lacks 1"):
        Precisions.load(tmp_path)


@pytest.mark.parametrize(
    ("trial", "holds"),
    [
        (GOOD, True),
        (Lowered(0.79, NO_CHANGE), False),
        (Lowered(0.8, NO_CHANGE), True),
        (Lowered(1.0, NO_CHANGE | {"2": -0.31}), False),
    ],
)
def test_a_precision_holds_where_words_and_rouge_do(trial: Lowered, holds: bool) -> None:
    assert trial.holds is holds


def test_int8_is_not_taken_where_it_is_coarser_than_it_was_tried(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    both = {"bf16": GOOD, "int8": GOOD}
    assert Precisions(20, both).may_be(63) == ("fp32", "bf16")
    assert Precisions(20, both, 63).may_be(63) == Precisions(20, both, 63).may_be(127) == ("fp32", *both)
    monkeypatch.setattr("catchline.systems.neural.can_multiply", lambda precision: True)
    asked = []
    monkeypatch.setattr("catchline.systems.neural.fastest", lambda may_be, seconds: asked.append(may_be) or "fp32")
    system = NeuralSystem.from_pretrained(folder, "cpu")
    system.loaded.precisions = Precisions(20, both)
    for steps in (63, 127):
        monkeypatch.setattr("catchline.systems.neural.byte_steps", lambda steps=steps: steps)
        Summarizer(system).summarize(TEXT, precision="auto")
        system._taken.clear()
    assert asked == [("fp32", "bf16"), ("fp32", "bf16", "int8")]


def test_the_fastest_is_taken_after_it_has_packed() -> None:
    times = {"fp32": [3.0, 3.0, 3.0], "int8": [9.0, 2.0, 2.5], "bf16": [1.0, 4.0, 4.0]}
    assert fastest(("fp32", "bf16", "int8"), lambda name: times[name].pop(0)) == "int8"


def test_stored_in_the_model_folder_and_refused_when_damaged(folder: Path, tmp_path: Path) -> None:
    system = NeuralSystem.from_pretrained(folder, "cpu")
    assert system.loaded.precisions is None
    system.loaded.precisions = Precisions(20, {"bf16": GOOD})
    system.save_pretrained(tmp_path / "model")
    assert NeuralSystem.from_pretrained(tmp_path / "model", "cpu").loaded.precisions == system.loaded.precisions
    (tmp_path / "model" / "precision.json").write_text('{"records": 0, "of": {}}')
    with pytest.raises(ModelError, match=r"precision.json is damaged .* delete it, then run `catchline calibrate`"):
        Summarizer.from_pretrained(tmp_path / "model")


def test_auto_stays_with_fp32_where_nothing_is_known(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    summarizer = Summarizer(NeuralSystem.from_pretrained(folder, "cpu"))
    with caplog.at_level(logging.WARNING):
        summarizer.summarize(TEXT, precision="auto")
        summarizer.summarize(TEXT, precision="auto")
    assert [record.getMessage() for record in caplog.records] == [
        "oneline decodes 8 rows in fp32 (nothing is known of lower ones: `catchline calibrate` finds out)."
    ]


@pytest.mark.skipif(not dispatch.ENABLED, reason="CATCHLINE_KERNELS=off: nothing is packed")
def test_auto_takes_what_is_fast_and_holds(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    summarizer = Summarizer(NeuralSystem.from_pretrained(folder, "cpu"))
    system = summarizer.system
    assert isinstance(system, NeuralSystem)
    system.loaded.precisions = Precisions(20, {"bf16": GOOD, "int8": Lowered(0.5, NO_CHANGE)})
    asked = []
    monkeypatch.setattr(
        "catchline.systems.neural.fastest", lambda may_be, seconds: asked.append((may_be, seconds("bf16"))) or "bf16"
    )
    monkeypatch.setattr(packed, "_WORTH_PACKING", 1)
    monkeypatch.setattr(packed, "_OUTPUT_WORTH_PACKING", 1)
    monkeypatch.setattr("catchline.systems.neural.can_multiply", lambda precision: True)
    monkeypatch.setitem(packed.PACKED, "bf16", packed.PackedLinear)  # on any CPU
    read, encode = [], system.model.encode
    monkeypatch.setattr(system.model, "encode", lambda batch: read.append(len(batch.source_ids)) or encode(batch))
    summarizer.summarize(
        [TEXT.replace("table", word) for word in ("list", "row", "set", "file", "map", "heap")], precision="auto"
    )
    assert read == [4, 6]  # to time it, and to decode
    assert asked[0][0] == ("fp32", "bf16")
    assert asked[0][1] > 0
    assert system._packings["bf16"]._kept
    assert not system._packings["fp32"]._kept
    system.to("cpu")
    assert not system._packings["bf16"]._kept


def test_what_the_cpu_lacks_is_refused_and_never_taken(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    summarizer = Summarizer(NeuralSystem.from_pretrained(folder, "cpu"))
    monkeypatch.setattr("catchline.systems.neural.can_multiply", lambda precision: precision == "fp32")
    for name, need in (("bf16", "AVX-512"), ("int8", "an x86 CPU with AVX2, VNNI or AMX")):
        with pytest.raises(ConfigError, match=f"search.precision {name} needs {need}, which this CPU lacks: use fp32"):
            summarizer.summarize(TEXT, precision=name)
    assert isinstance(summarizer.system, NeuralSystem)
    summarizer.system.loaded.precisions = Precisions(20, {"bf16": GOOD, "int8": GOOD})
    summarizer.summarize(TEXT, precision="auto")
    assert set(summarizer.system._taken.values()) == {"fp32"}
    assert try_precisions(summarizer, [Record(TEXT, "sort the table.")]) is None


def test_trying_decodes_in_each_precision(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("catchline.systems.neural.can_multiply", lambda precision: True)
    summarizer = Summarizer(NeuralSystem.from_pretrained(folder, "cpu"))
    found = try_precisions(
        summarizer, [Record(TEXT, "sort the table."), Record(TEXT.replace("sort", "merge"), "merge.")]
    )
    assert found is not None
    assert found.records == 2
    assert set(found.of) == {"bf16", "int8"}
    assert found.byte_steps == summarizer.system.byte_steps
    assert try_precisions(Summarizer.from_pretrained("lead-1"), [Record(TEXT, "x")]) is None


def test_another_device_has_none_of_it(folder: Path) -> None:
    system = NeuralSystem.from_pretrained(folder, "cpu")
    system.model.to("meta")
    with pytest.raises(ConfigError, match=r"search.precision int8 is for the CPU, and the model is on meta: use fp32"):
        system._decoder(SearchConfig(precision="int8"), None)  # type: ignore[arg-type]


@pytest.mark.skipif(not dispatch.ENABLED, reason="CATCHLINE_KERNELS=off: nothing is packed")
def test_the_layers_of_bart_are_packed_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed, "_WORTH_PACKING", 1)
    monkeypatch.setattr(packed, "_OUTPUT_WORTH_PACKING", 1)
    model = tiny_bart.copying_bart().float().eval()
    sources = torch.arange(4, 20).view(2, 8)
    batch = tiny_bart.Batch(sources, sources, torch.ones_like(sources, dtype=torch.bool), tiny_bart.VOCABULARY)
    ids = {"pad_id": tiny_bart.PAD, "unk_id": tiny_bart.UNK, "bos_id": model.decoder_start_id, "eos_id": tiny_bart.EOS}
    config = SearchConfig(beam_size=2, max_length=6, min_length_share=None)
    plain = decode(TorchModel(model), batch, config, **ids)
    for precision in ("fp32", "int8"):
        packing = Packing(precision)
        found = decode(TorchModel(model, packing), batch, config, **ids)
        linears = [
            m for m in model.network.modules() if isinstance(m, torch.nn.Linear) and m is not model.network.lm_head
        ]
        assert len(packing._kept) == len(linears) + 1  # and the vocabulary
        if precision == "fp32":
            assert [best[0].ids for best in found] == [best[0].ids for best in plain]
            assert found[0][0].score == pytest.approx(plain[0][0].score, abs=1e-4)
        else:
            assert found[0][0].score != pytest.approx(plain[0][0].score, abs=1e-6)
