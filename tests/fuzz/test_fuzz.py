"""Damaged model folders: one sentence or a summary, in time, and no code that a folder names; 250 of each kind."""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import reduce
from operator import getitem
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch
import yaml
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from catchline import Summarizer
from catchline.config.loading import load_recipe, resolve_run
from catchline.config.names import MODELS, build
from catchline.errors import CatchlineError
from catchline.models.checkpoints import BartSummarizer
from catchline.models.folder import save_model_folder
from catchline.text.tokenizer import WordTokenizer
from catchline.types import Summary
from tiny_bart import architecture

SECONDS = 20
# of `hypothesis.settings`: drawn values say enough as they are, unshrunk
MANY: dict[str, Any] = {"phases": [Phase.explicit, Phase.generate], "database": None}
MANY |= {"suppress_health_check": list(HealthCheck)}
UNREAD = ("README.md", ".lock")  # files of a folder that nothing reads

EVIL = "evil_module:Model"
VALUES: list[Any] = [
    *(None, True, False, [], {}, [[[]]], "", "x", "\ud800", "\x1b[2J", "nan", "a" * 10_000, EVIL),
    *(-1, 0, 1, 2, 7, 10**6, 10**9, -(10**9), 2**63, 10**30, 0.5, -0.5, 1e-300, 1e308, -1e308),
    *(float("nan"), float("inf"), float("-inf"), {"type": EVIL}, [{"type": EVIL}], {"type": "nonsense"}, {"type": 5}),
]
NONSENSE = (" nan", " inf", "-inf", " 1e+308", "-1e+308")  # how `damage_values` ends for numbers that mean nothing
BYTES = [
    *(b"", b"\0", b"\xff\xfe", b"\xef\xbb\xbf", b"\r", b"\n", b"\x80", b'"', b"{", b"[" * 3000, b"}"),
    *(b"\\ud83d", b"\t,;|"),
]


# ----------------------------------------------------------------------------------------------- the watch


class TooSlow(BaseException):
    """Not an `Exception`: nothing may take it for a failure that it can report."""


@contextmanager
def in_time() -> Iterator[None]:
    """Nothing here may hang: not for so many seconds of the processor, nor for ten times as many of a busy machine."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise TooSlow(f"not done after {SECONDS} s")

    before = [signal.signal(number, stop) for number in (signal.SIGPROF, signal.SIGALRM)]
    signal.setitimer(signal.ITIMER_PROF, SECONDS)
    signal.alarm(10 * SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.alarm(0)
        for number, handler in zip((signal.SIGPROF, signal.SIGALRM), before, strict=True):
            signal.signal(number, handler)


# ------------------------------------------------------------------------------------------ damage to files


def damage_one(folder: Path, draw: Any) -> str:
    """Do something to one file of ``folder``; says what."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name not in UNREAD)
    path = draw(st.sampled_from(files))
    how = draw(st.sampled_from(["value"] * 6 + ["bytes"] * 3 + ["remove", "folder"]))
    if how in ("remove", "folder"):
        path.unlink()
        if how == "folder":
            path.mkdir()
        return f"{path.name} {how}"
    is_values = how == "value" and path.suffix in (".json", ".yaml")
    return f"{path.name}: {damage_values(path, draw) if is_values else damage_bytes(path, draw)}"


def places(values: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every value in nested JSON, of long lists the first and the last."""
    if path:
        yield path
    if isinstance(values, dict):
        keys = list(values)
        for key in keys if len(keys) < 60 else [*keys[:5], *keys[-2:]]:
            yield from places(values[key], (*path, key))
    elif isinstance(values, list):
        for index in sorted({0, 1, len(values) - 1} & set(range(len(values)))):
            yield from places(values[index], (*path, index))


def damage_values(path: Path, draw: Any) -> str:
    """Replace one value of a JSON or YAML file, take it out, or give it an unknown neighbour; says what was done."""
    is_json = path.suffix == ".json"
    text = path.read_text(encoding="utf-8")
    values = json.loads(text) if is_json else yaml.safe_load(text)
    if not (found := list(places(values))):
        return damage_bytes(path, draw)
    *before, last = place = draw(st.sampled_from(found))
    value = draw(st.sampled_from(VALUES))
    how = draw(st.sampled_from(["replace"] * 6 + ["remove", "add"]))
    inner = reduce(getitem, before, values)
    if how == "remove":
        del inner[last]
    else:
        inner["unknown_key" if how == "add" and isinstance(inner, dict) else last] = value
    path.write_text(json.dumps(values) if is_json else yaml.safe_dump(values), encoding="utf-8")
    return f"{how} {'.'.join(map(str, place))} {value!r:.60}"


def damage_bytes(path: Path, draw: Any) -> str:
    """Cut, flip, insert, repeat or empty."""
    raw = path.read_bytes()
    at = draw(st.integers(0, max(0, len(raw) - 1)))
    how = draw(st.sampled_from(["cut", "flip", "insert", "repeat", "drop", "head"]))
    odd = draw(st.one_of(st.sampled_from(BYTES), st.binary(max_size=20)))
    begin, end = raw[:at], raw[at:]
    middle = {
        "cut": b"",
        "flip": bytes(byte ^ 1 << draw(st.integers(0, 7)) for byte in end[:1]) + end[1:],
        "insert": odd + end,
        "repeat": end[:50] * draw(st.integers(2, 50)) + end,
        "drop": end[draw(st.integers(1, 100)) :],
    }
    path.write_bytes(odd + raw if how == "head" else begin + middle[how])
    return f"{how} at {at}"


pytestmark = pytest.mark.slow

EXAMPLES = int(os.environ.get("FUZZ", 250))
DOCUMENT = "the quick fox sees the lazy dog and the small cat . it was late ."
RECIPES = {
    **{"seq2seq": "headline_writer", "transformer": "coconet"},
    **{name: name for name in ("distraction", "coarse_to_fine")},
}
FOLDERS = [*RECIPES, "bart", "marian"]


def make(kind: str, folder: Path) -> Path:
    """A small sound folder."""
    recipe = RECIPES.get(kind, "headline_writer")
    run = resolve_run(load_recipe(recipe), size="tiny", overrides={"search.max_length": 8, "search.min_length": 0})
    words = WordTokenizer(WordTokenizer.Config(min_frequency=1))
    words.use_separator(run.text.sentence_separator)
    words.train([DOCUMENT, "a bird jumps over the mat"])
    torch.manual_seed(1)
    ids = {f"{name.removesuffix('_id')}_token_id": value for name, value in words.ids.items() if name != "unk_id"}
    changes = ids | {"vocab_size": words.vocab_size, "decoder_start_token_id": words.bos_id}
    spec = architecture("marian" if kind == "marian" else "bart", **changes)
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
    return {kind: make(kind, home / kind) for kind in FOLDERS}


@pytest.mark.parametrize("kind", FOLDERS)
def test_model_folders(sound: dict[str, Path], imported: Callable[[], bool], kind: str) -> None:
    def explain(folder: Path) -> Summary:
        summarizer = Summarizer.from_pretrained(folder, max_length=8)
        summary = summarizer.explain(DOCUMENT, min_length=0)
        json.dumps([summarizer.decoding(), summarizer.system.loaded.search.model_dump()], allow_nan=False)
        return summary

    opened, findings = list[str](), list[str]()  # what was damaged, and what went wrong, all of it
    assert math.isfinite(explain(sound[kind]).log_prob)

    @given(data=st.data())
    @settings(max_examples=EXAMPLES, **MANY)
    def check(data: Any) -> None:
        with tempfile.TemporaryDirectory() as home:
            copy = Path(shutil.copytree(sound[kind], Path(home) / "folder"))
            what = damage_one(copy, data.draw)
            try:
                with in_time():
                    summary = explain(copy)
                assert isinstance(summary.text, str)
                assert math.isfinite(summary.log_prob)
                opened.append(what)
            except CatchlineError as error:  # what a user can read: not empty, not pages
                if not 10 < len(said := str(error)) < 4000 or said.count("\n") > 1 or "Traceback" in said:
                    findings.append(f"{what}: {said[:500]}")
            except (Exception, TooSlow) as error:
                findings.append(f"{what}: {''.join(traceback.format_exception(error)[-6:])[-2500:]}")

    check()
    assert not findings, f"{len(findings)} findings:\n" + "\n----\n".join(findings[:30])
    assert 0 < len(opened) < EXAMPLES
    assert not imported()
    for what in opened if kind != "marian" else ():
        settings_file = what.startswith(("config.json: replace", "generation_config.json: replace"))
        assert not (settings_file and what.endswith(NONSENSE)), what
