"""Damaged model and run folders: one sentence or a summary, in time, and no code that a folder names.

2,000 folders: 250 of each kind of model, 500 runs.
"""

from __future__ import annotations

import contextlib
import io
import json
import math
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from hostile import EVIL, MANY, NONSENSE, Findings, copy_of, damage_one, open_damaged, said_by
from hypothesis import given, settings
from hypothesis import strategies as st

from catchline import Summarizer
from catchline.cli.main import main
from catchline.config.loading import load_recipe, resolve_run
from catchline.config.names import MODELS, build
from catchline.errors import CatchlineError
from catchline.models.checkpoints import BartSummarizer
from catchline.models.folder import save_model_folder
from catchline.text.tokenizer import WordTokenizer
from catchline.types import Summary
from tiny_bart import architecture
from word_pairs import write_word_pairs

pytestmark = pytest.mark.slow

TEXT = "the quick fox sees the lazy dog and the small cat . it was late ."
ROWS = {
    "seq2seq": ("headline_writer", None),
    "distraction": ("distraction", None),
    "coarse_to_fine": ("coarse_to_fine", None),
    "transformer": ("coconet", None),
}
KINDS = [*ROWS, "bart", "marian"]
EXAMPLES = {"model": int(os.environ.get("FUZZ", 250)), "run": int(os.environ.get("FUZZ", 500))}


def tokenizer(separator: str | None = None) -> WordTokenizer:
    made = WordTokenizer(WordTokenizer.Config(min_frequency=1))
    made.use_separator(separator)
    made.train([TEXT, "a bird jumps over the mat"])
    return made


def make(kind: str, folder: Path) -> Path:
    """A small sound folder."""
    recipe, row = ROWS.get(kind, ("headline_writer", None))
    run = resolve_run(load_recipe(recipe), row, "tiny", {"search.max_length": 8, "search.min_length": 0})
    words = tokenizer(run.text.sentence_separator)
    torch.manual_seed(1)
    spec = architecture("marian" if kind == "marian" else "bart") | {
        "vocab_size": words.vocab_size,
        **{f"{name.removesuffix('_id')}_token_id": value for name, value in words.ids.items() if name != "unk_id"},
        "decoder_start_token_id": words.bos_id,
    }
    if kind == "marian":
        network = BartSummarizer(BartSummarizer.Config(architecture=spec)).network
        network.generation_config.max_length = 12
        network.save_pretrained(folder)
        words.save(folder)
        return folder
    if kind == "bart":
        run = run.model_copy(update={"model": {"type": "bart", "architecture": spec, "head": {"type": "pointer"}}})
    model = build("model", MODELS, run.model, vocab_size=words.vocab_size, **words.ids)
    return save_model_folder(folder, model=model, tokenizer=words, run=run, metrics={"rouge1": 0.5})


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], bool]]:
    place = tmp_path_factory.mktemp("elsewhere")
    (place / "evil_module.py").write_text(
        'from pathlib import Path\nPath(__file__).with_name("imported").touch()\n'
        "from catchline.models.seq2seq import Seq2Seq as Model\n"
    )
    sys.path.insert(0, str(place))
    yield (place / "imported").exists
    sys.path.remove(str(place))


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    home = tmp_path_factory.mktemp("sound")
    return {kind: make(kind, home / kind) for kind in KINDS}


def holds_no_nonsense(values: Any) -> bool:
    """Numbers are finite, however they got there."""
    if isinstance(values, dict):
        return all(map(holds_no_nonsense, values.values()))
    if isinstance(values, list | tuple):
        return all(map(holds_no_nonsense, values))
    return not isinstance(values, float) or math.isfinite(values)


@pytest.mark.parametrize("kind", KINDS)
def test_model_folders(sound: dict[str, Path], imported: Callable[[], bool], kind: str) -> None:
    def explain(folder: Path) -> Summary:
        summarizer = Summarizer.from_pretrained(folder, max_length=8)
        summary = summarizer.explain(TEXT, min_length=0)
        json.dumps(summarizer.decoding(), allow_nan=False)
        assert holds_no_nonsense(summarizer.system.loaded.search.model_dump())
        return summary

    opened = open_damaged(sound[kind], EXAMPLES["model"], explain, values=6, bytes_=3, lines=2)
    assert not imported()
    for what in opened if kind != "marian" else ():
        settings_file = what.startswith(("config.json: replace", "generation_config.json: replace"))
        assert not (settings_file and what.endswith(NONSENSE)), what


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two updates with two checkpoints."""
    home = tmp_path_factory.mktemp("trained")
    write_word_pairs(home, {"train": 16, "valid": 4}, 1)
    changes = ["max_updates=2", "max_epochs=null", "checkpoint.every_updates=1", "batch_size=8"]
    options = [part for change in changes for part in ("--set", f"training.{change}")]
    command = ["train", "headline_writer", "--size", "tiny", "--data", str(home), "--out", str(home / "run")]
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        assert main([*command, *options]) == 0
    return home / "run"


def test_run_folders(trained: Path, imported: Callable[[], bool]) -> None:
    codes, findings = list[int](), Findings()

    @given(data=st.data())
    @settings(max_examples=EXAMPLES["run"], **MANY)
    def check(data: Any) -> None:
        with copy_of(trained) as folder, findings.of(done := []):
            done.append(what := damage_one(folder, data.draw, values=6, bytes_=3))
            command = data.draw(
                st.sampled_from(
                    [
                        ["resume", str(folder), "--set", "training.max_updates=2"],
                        ["summarize", str(folder), str(folder / "text.txt")],
                        ["plot", str(folder), "--out", str(folder / "x.svg")],
                    ]
                )
            )
            (folder / "text.txt").write_text("word1 word2 word3")
            code, _, err = said_by(["--quiet", *command])
            codes.append(code)
            assert code == 0 or "catchline:" in err, (what, err)

    check()
    assert not imported()
    findings.none()
    print({code: codes.count(code) for code in sorted(set(codes))})


def test_the_damage_reaches_what_code_would_be_named_by(sound: dict[str, Path]) -> None:
    """The guard of the guard: a folder that names the module is refused for that."""
    with copy_of(sound["seq2seq"]) as folder:
        values = yaml.safe_load((folder / "recipe.yaml").read_text())
        values["model"]["type"] = EVIL
        (folder / "recipe.yaml").write_text(yaml.safe_dump(values))
        with pytest.raises(CatchlineError, match="--trust-code"):
            Summarizer.from_pretrained(folder)
