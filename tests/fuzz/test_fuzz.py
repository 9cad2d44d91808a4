"""Damaged data files and model folders: what can be used or one sentence, in time; 250 of each kind."""

from __future__ import annotations

import gzip
import json
import math
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hostile import MANY, NONSENSE, Findings, assert_a_sentence, damage_bytes, damage_values, in_time, open_damaged
from hypothesis import given, settings
from hypothesis import strategies as st

from catchline import Summarizer
from catchline.config.loading import load_recipe, resolve_run
from catchline.config.names import MODELS, build
from catchline.data.records import SkipCounter, read_records
from catchline.errors import DataError
from catchline.models.checkpoints import BartSummarizer
from catchline.models.folder import save_model_folder
from catchline.text.tokenizer import WordTokenizer
from catchline.types import Summary
from tiny_bart import architecture

pytestmark = pytest.mark.slow

EXAMPLES = int(os.environ.get("FUZZ", 250))
DOCUMENTS = [
    "The river rose in the night. Crews carried forty people out of their houses.",
    "Schools stay closed until Thursday, the council said. “Nobody” was hurt — 3.5 % were away.",
    "Ein kleiner Vogel saß im Baum. Er sang.\nDann flog er fort.",
    "河水在夜里上涨。学校停课。",
    "It was late. 👩‍👧 The café closed.",
]
SUMMARIES = ["River rises; forty rescued", "Schools closed", "Vogel sang", "学校停课", "Café closed 🦊"]
ROWS = [
    {"id": f"n{number}", "document": document, "summary": summary}
    for number, (document, summary) in enumerate(zip(DOCUMENTS, SUMMARIES, strict=True))
]


def write_csv(path: Path) -> None:
    mark = "\t" if path.suffix == ".tsv" else ","
    cells = [[row[name].replace('"', '""') for name in row] for row in ROWS]
    text = "\n".join([mark.join(ROWS[0]), *(mark.join(f'"{cell}"' for cell in row) for row in cells)]) + "\n"
    path.write_text(text, encoding="utf-8")


def make(kind: str, home: Path) -> Path:
    """A sound data set; the place to read."""
    json_lines = "".join(json.dumps(row, ensure_ascii=number % 2 == 0) + "\n" for number, row in enumerate(ROWS))
    path = home / f"pairs.{kind}"
    if kind == "jsonl":
        path.write_text(json_lines, encoding="utf-8")
    elif kind == "jsonl.gz":
        path.write_bytes(gzip.compress(json_lines.encode()))
    elif kind == "json":
        path.write_text(json.dumps(ROWS, ensure_ascii=False, indent=1), encoding="utf-8")
    elif kind in ("csv", "tsv"):
        write_csv(path)
    else:
        path = home / "stories"
        path.mkdir()
        for number, row in enumerate(ROWS[:3]):
            text = f"{row['document']}\n\n@highlight\n\n{row['summary']}\n"
            (path / f"{number}.story").write_text(text, encoding="utf-8")
    return path


KINDS = ["jsonl", "jsonl.gz", "json", "csv", "tsv", "story"]


def damage(place: Path, draw: Any, whole: bool) -> str:
    """Do something to one file; values are changed only in one that is ``whole``."""
    files = sorted(path for path in place.parent.rglob("*") if path.is_file())
    path = draw(st.sampled_from(files))
    if whole and path.suffix == ".json" and draw(st.booleans()):
        return damage_values(path, draw)
    if whole and path.name.endswith(".jsonl") and draw(st.booleans()):
        rows = path.read_text(encoding="utf-8").splitlines()
        index = draw(st.integers(0, len(rows) - 1))
        one = path.with_name("one.json")
        one.write_text(rows[index])
        said = damage_values(one, draw)
        rows[index] = one.read_text()
        one.unlink()
        path.write_text("\n".join(rows) + "\n", encoding="utf-8")
        return f"line {index + 1}: {said}"
    return damage_bytes(path, draw)


def usable(text: str) -> bool:
    return bool(text.strip()) and "\0" not in text and text.encode("utf-8").decode("utf-8") == text


def read(place: Path, **options: Any) -> list[Any] | None:
    """The records; none where they are refused in a sentence."""
    try:
        return list(read_records(place, **options))
    except DataError as error:
        assert_a_sentence(error)
        return None


@pytest.mark.parametrize("kind", KINDS)
def test_data_files(kind: str) -> None:
    outcomes, findings = {"read": 0, "refused": 0}, Findings()

    @given(data=st.data())
    @settings(max_examples=EXAMPLES, **MANY)
    def check(data: Any) -> None:
        with tempfile.TemporaryDirectory() as home, findings.of(done := []):
            place = make(kind, Path(home))
            times = data.draw(st.integers(1, 3))
            done.extend(damage(place, data.draw, number == 0) for number in range(times))
            skipped = SkipCounter()
            with in_time():
                strict = read(place)
                lenient = read(place, skip_bad=True, on_skip=skipped)
            for record in [*(strict or ()), *(lenient or ())]:
                assert usable(record.document)
                assert all(map(usable, (record.summary, *record.references)))
                assert record.id.encode()
            if strict is not None:
                assert lenient is not None
                assert skipped.total == 0
                assert [vars_of(record) for record in strict] == [vars_of(record) for record in lenient]
            outcomes["refused" if strict is None else "read"] += 1

    check()
    findings.none()
    assert min(outcomes["read"], outcomes["refused"]) > 0, outcomes
    print(kind, outcomes)


def vars_of(record: Any) -> tuple[Any, ...]:
    return (record.document, record.summary, record.id, record.references, record.sentences, record.origin)


TEXT = "the quick fox sees the lazy dog and the small cat . it was late ."
RECIPES = {
    "seq2seq": ("headline_writer", None),
    "distraction": ("distraction", None),
    "coarse_to_fine": ("coarse_to_fine", None),
    "transformer": ("coconet", None),
}
FOLDERS = [*RECIPES, "bart", "marian"]


def tokenizer(separator: str | None = None) -> WordTokenizer:
    made = WordTokenizer(WordTokenizer.Config(min_frequency=1))
    made.use_separator(separator)
    made.train([TEXT, "a bird jumps over the mat"])
    return made


def make_folder(kind: str, folder: Path) -> Path:
    """A small sound folder."""
    recipe, row = RECIPES.get(kind, ("headline_writer", None))
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
    return {kind: make_folder(kind, home / kind) for kind in FOLDERS}


def holds_no_nonsense(values: Any) -> bool:
    """Numbers are finite, however they got there."""
    if isinstance(values, dict):
        return all(map(holds_no_nonsense, values.values()))
    if isinstance(values, list | tuple):
        return all(map(holds_no_nonsense, values))
    return not isinstance(values, float) or math.isfinite(values)


@pytest.mark.parametrize("kind", FOLDERS)
def test_model_folders(sound: dict[str, Path], imported: Callable[[], bool], kind: str) -> None:
    def explain(folder: Path) -> Summary:
        summarizer = Summarizer.from_pretrained(folder, max_length=8)
        summary = summarizer.explain(TEXT, min_length=0)
        json.dumps(summarizer.decoding(), allow_nan=False)
        assert holds_no_nonsense(summarizer.system.loaded.search.model_dump())
        return summary

    opened = open_damaged(sound[kind], EXAMPLES, explain, values=6, bytes_=3, lines=2)
    assert not imported()
    for what in opened if kind != "marian" else ():
        settings_file = what.startswith(("config.json: replace", "generation_config.json: replace"))
        assert not (settings_file and what.endswith(NONSENSE)), what
