"""Checkpoints decode as transformers' ``generate`` does, token for token, whatever its settings; those without a copy
head through every door, and back.

transformers' search counts in 32-bit floats, ours in 64-bit ones: with random weights a rounding would now and then
decide between two words. So the networks here are 64-bit, and `Exact` keeps ``generate`` from rounding their logits.
"""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoModelForSeq2SeqLM, AutoTokenizer, GenerationConfig

from catchline import Summarizer
from catchline.config.generation import search_from
from catchline.models.folder import load_model_folder
from catchline.models.stored import FAMILY
from catchline.search.torch_bridge import decode
from catchline.types import Batch
from commands import refused, run
from json_lines import write_lines
from plain_checkpoints import BOS, CHECKPOINTS, EOS, PAD, SIZE, UNK, WORDS, save_checkpoint

# One setting of each kind, and the settings of well-known checkpoints (bart-large-cnn; Marian's translators)
SETTINGS: list[dict[str, Any]] = [
    {"max_length": 12, "no_repeat_ngram_size": 2},
    {"num_beams": 4, "max_length": 10},
    {"num_beams": 2, "max_length": 10, "early_stopping": "never", "length_penalty": -1.0, "min_length": 4},
    {"num_beams": 3, "max_new_tokens": 7, "min_new_tokens": 2, "length_penalty": 0.8, "num_return_sequences": 3},
    {"num_beams": 4, "length_penalty": 0.0, "suppress_tokens": [5, 7], "repetition_penalty": 1.3},
    {
        **{"num_beams": 4, "early_stopping": True, "length_penalty": 2.0, "no_repeat_ngram_size": 3, "max_length": 11},
        **{"min_length": 5, "forced_bos_token_id": BOS, "forced_eos_token_id": EOS},
    },
    {
        **{"num_beams": 4, "max_length": 12, "bad_words_ids": [[PAD], [EOS]], "forced_eos_token_id": EOS},
        **{"renormalize_logits": True, "num_return_sequences": 2},
    },
]


class Exact(Tensor):
    """Logits that stay as they are."""

    def to(self, *args: Any, **kwargs: Any) -> Tensor:
        return self.as_subclass(Tensor).clone()


def keep_logits(module: Any, inputs: Any, output: Any) -> Any:
    output.logits = output.logits.as_subclass(Exact)
    return output


def documents(count: int) -> Batch:
    generator = torch.Generator().manual_seed(1)
    mask = torch.arange(13) < torch.randint(1, 14, (count, 1), generator=generator)
    ids = torch.randint(4, SIZE, (count, 13), generator=generator).masked_fill(~mask, PAD)
    return Batch(source_ids=ids, source_extended_ids=ids, source_mask=mask, extended_vocab_size=SIZE)


@pytest.mark.filterwarnings("ignore:Using the model-agnostic default")  # a checkpoint may name no length
@pytest.mark.parametrize(
    "kind",  # `test_bart` compares every family's probabilities, and a search sees nothing else
    [pytest.param(kind, marks=[pytest.mark.slow] * (kind in FAMILY[1:])) for kind in CHECKPOINTS],
)
def test_equal_to_generate(kind: str, tmp_path: Path) -> None:
    folder, batch = save_checkpoint(tmp_path, kind), documents(24 if kind in FAMILY else 8)
    dtype = torch.float32 if kind == "prophetnet" else torch.float64  # in which its own mask is not a number
    model = load_model_folder(folder).model.to(dtype)
    network = AutoModelForSeq2SeqLM.from_pretrained(folder, dtype=dtype).eval()
    network.register_forward_hook(keep_logits)
    ids = {"eos_token_id": EOS, "pad_token_id": PAD, "bos_token_id": BOS}
    start = {"decoder_start_token_id": network.config.decoder_start_token_id}
    read: dict[str, Any] = {"attention_mask": batch.source_mask.long()}
    if kind == "led":
        read["global_attention_mask"] = torch.zeros_like(batch.source_ids).index_fill(1, torch.tensor([0]), 1)
    ends: Counter[str] = Counter()
    for settings in SETTINGS:
        written = network.generate(
            batch.source_ids, generation_config=GenerationConfig(**ids, **start, **settings), **read
        )
        search, refused = search_from(GenerationConfig(**settings).to_dict(), eos_id=EOS, limit=30)
        assert not refused
        model.forced_bos_id = settings.get("forced_bos_token_id")
        found = decode(model, batch, search, unk_id=UNK, bos_id=model.bos_id, eos_id=EOS, pad_id=PAD)
        longest = settings.get("max_new_tokens", settings.get("max_length", 21) - 1)
        for row, one in zip(written[:, 1:].tolist(), (one for every in found for one in every), strict=True):
            ended = one.finished or ("forced_eos_token_id" in settings and len(one.ids) == longest - 1)
            wanted = (row[: row.index(EOS)], True) if EOS in row else (row, False)
            assert (one.ids, ended) == wanted, settings
            ends["cut" if not ended else "ended" if one.ids else "empty"] += 1
    assert kind not in FAMILY or min(ends[name] for name in ("cut", "empty", "ended")) >= 3, ends


DOCUMENT = "a storm closed the ferry to the island on monday , boat stays in harbour ."


def test_a_prefix_and_decoding_of_the_task_through_every_door(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, text = save_checkpoint(tmp_path / "t5", "t5"), tmp_path / "text.txt"
    text.write_text(DOCUMENT)
    summarizer, reader = Summarizer.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    assert summarizer.decoding()["beam_size"] == 3
    tokenizer = summarizer.system.tokenizer
    read = tokenizer.encode(DOCUMENT, specials=True)
    given = reader(f"summarize: {DOCUMENT}", return_tensors="pt")
    assert list(read.ids) == given["input_ids"][0].tolist()
    assert DOCUMENT[slice(*read.offsets[2])] == "a", "places are in the document itself"
    network = AutoModelForSeq2SeqLM.from_pretrained(folder)
    written = network.generate(**given, num_beams=3, max_length=12)
    line = reader.decode(written[0], skip_special_tokens=True)
    assert summarizer.summarize(DOCUMENT).text == line
    assert run(capsys, "summarize", folder, text).strip() == line
    plain = run(capsys, "summarize", folder, text, "--prefix", "").strip()
    written = network.generate(**reader(DOCUMENT, return_tensors="pt"), num_beams=3, max_length=12)
    assert plain == reader.decode(written[0], skip_special_tokens=True)
    summarizer.save_pretrained(tmp_path / "again")
    assert Summarizer.from_pretrained(tmp_path / "again").summarize(DOCUMENT).text == line
    (folder / "tokenizer.json").rename(folder / "vocab.json")
    refused(capsys, 4, "cannot be converted", "summarize", folder, text)
    refused(capsys, 2, "trained with one", "summarize", text, "--prefix", "summarize:")
    refused(capsys, 2, "takes no prefix", "summarize", "lead", text, "--prefix", "summarize:")


def pairs(folder: Path) -> Path:
    draw = random.Random(1)
    for name in ("train", "validation"):
        texts = [draw.choices(WORDS[:18], k=9) for _ in range(8)]
        write_lines(folder / f"{name}.jsonl", [{"document": " ".join(t), "summary": " ".join(t[:3])} for t in texts])
    return folder


@pytest.mark.parametrize("kind", ["t5", "bart"])
def test_fine_tuned_with_its_own_sizes_and_lora(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("peft")
    start, out = save_checkpoint(tmp_path / "start", kind), tmp_path / "run"
    row = "coconet" if kind == "bart" else "transformer"
    settings = ["training.max_updates=2", "training.lora=2", "training.optimizer.learning_rate=0.1"]
    settings += ["training.batch_size=4", "training.validation.decode_records=2", "training.schedule.warmup_updates=0"]
    command = ["train", "coconet", "--row", row, "--data", pairs(tmp_path), "--from", start, "--out", out]
    run(capsys, *command, *(word for setting in settings for word in ("--set", setting)))
    before = run(capsys, "summarize", out, tmp_path / "train.jsonl")
    opened = load_model_folder(out)
    names = dict(opened.model.named_parameters())
    assert not [name for name in names if "lora" in name]
    begun = load_model_folder(start).model.state_dict()
    changed = {name for name, value in names.items() if name in begun and not torch.equal(value, begun[name])}
    assert changed
    assert all(name.endswith(".weight") and names[name].ndim == 2 and "embed" not in name for name in changed)
    run(capsys, "resume", out, "--set", "training.max_updates=3")
    assert run(capsys, "summarize", out, tmp_path / "train.jsonl")
    if kind == "bart":
        assert opened.model.head.copies
        return
    _, report = AutoModelForSeq2SeqLM.from_pretrained(out / "model", output_loading_info=True)
    assert not report["missing_keys"]
    assert not report["unexpected_keys"]
    assert before.count("\n") == 8
    assert run(capsys, "compare", out, "lead-1", "--data", tmp_path / "validation.jsonl", "--out", tmp_path / "table")
    refused(capsys, 2, "no copy head", *["coconet" if word == "transformer" else word for word in command], "--force")
    lora = ("--set", "training.lora=2", "--force")
    refused(capsys, 2, "is for checkpoints", "train", "headline_writer", "--data", tmp_path, "--out", out, *lora)
