"""A thousand ``--set`` values: what is accepted acts, and a run can be trained with it or says why not."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hostile import UNSHRUNK, Findings, assert_a_sentence, assert_sound, import_everything, in_time, texts
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from catchline.config.loading import load_recipe, merge, parse_overrides, resolve_run
from catchline.config.names import check_run
from catchline.config.schema import RunConfig
from catchline.errors import CatchlineError
from catchline.training.run import train
from word_pairs import write_word_pairs

SIZES = {"headline_writer": "tiny", "distraction": "tiny", "coarse_to_fine": "tiny", "contrastive": "tiny"}
SIZES |= {"coconet": "tiny-bart"}
MORE = [
    *("model.attention.type", "model.head.type", "training.phases", "objectives", "search.scorers", "name", "training"),
    *("evaluation.rouge.stem", "training.optimizer", "model", "model.type", "trainig.seed", "training.seed.x"),
    *("a", "", ".", "a..b"),
]
TRAINED_WITH = {"data", "text", "model", "objectives", "training"}  # the rest decodes, scores and describes
SHORT = {"training": {"max_updates": 2, "max_epochs": None, "max_minutes": None}}


def keys_of(values: Any, path: str = "") -> Iterator[str]:
    if isinstance(values, dict):
        for key, value in values.items():
            yield from keys_of(value, f"{path}.{key}" if path else key)
    else:
        yield path


def base_of(recipe: str, data: Path) -> dict[str, Any]:
    files = {split: str(data / f"{split}.jsonl") for split in ("train", "validation")}
    return merge(SHORT, {"data": files, "pretraining": {"enabled": False}})


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.set_num_threads(1)
    return write_word_pairs(tmp_path_factory.mktemp("pairs"), {"train": 16, "validation": 4}, 3, lengths=(4, 9))


@pytest.mark.slow
def test_a_thousand_settings(
    data: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    import_everything()
    out = tmp_path_factory.mktemp("runs") / "run"
    recipes = {name: load_recipe(name) for name in SIZES}
    plain = {name: resolve_run(recipes[name], None, SIZES[name], base_of(name, data)) for name in SIZES}
    keys = {name: [*keys_of(plain[name].model_dump(mode="json")), *MORE] for name in SIZES}
    pairs = st.sampled_from(sorted(SIZES)).flatmap(
        lambda name: st.tuples(st.just(name), st.sampled_from(keys[name]), texts)
    )
    outcomes = {"refused": 0, "accepted": 0, "trained": 0, "refused in training": 0}
    findings = Findings()

    def tried(name: str, key: str, value: str) -> None:
        try:
            with in_time():
                given_ = merge(base_of(name, data), parse_overrides([f"{key}={value}"]), revive=True)
                run = resolve_run(recipes[name], None, SIZES[name], given_)
                check_run(run)
                assert_sound(run.model_dump())
                assert_it_acts(run, plain[name], key, value)
        except CatchlineError as error:
            assert_a_sentence(error)
            outcomes["refused"] += 1
            return
        if key.partition(".")[0] not in TRAINED_WITH:
            outcomes["accepted"] += 1
            return
        shutil.rmtree(out, ignore_errors=True)
        limits = {"max_updates": 2, "max_epochs": None, "max_minutes": None}
        run = run.model_copy(update={"training": run.training.model_copy(update=limits)})
        try:
            with in_time():
                train(run, out, on_message=lambda message: None)
            outcomes["trained"] += 1
        except CatchlineError as error:
            assert_a_sentence(error)
            outcomes["refused in training"] += 1

    @settings(max_examples=1000, **UNSHRUNK)
    @given(pair=pairs)
    def one(pair: tuple[str, str, str]) -> None:
        with findings.of(list(pair)):
            tried(*pair)

    one()
    findings.none()
    print(outcomes)
    assert min(outcomes.values()) > 10, outcomes


def assert_it_acts(run: RunConfig, plain: RunConfig, key: str, text: str) -> None:
    """What was said and accepted is in the run; nothing is passed over."""
    if run != plain:
        return
    said = parse_overrides([f"{key}={text}"])
    there: Any = plain.model_dump(mode="json")
    for part in key.strip().split("."):
        said, there = said[part], there[part]
    if isinstance(there, bool):
        said = TypeAdapter(bool).validate_python(said)  # "n" is false
    same = said == there or str(said).lower() == str(there).lower() or (not said and not there)
    assert same or float(said) == float(there), f"{key}={text} was accepted and changed nothing"
