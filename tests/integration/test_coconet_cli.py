"""CoCoNet from the command line: train a row in seconds, explain it, draw it, score it."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path

import pytest

from catchline.cli.main import main
from catchline.config.loading import load_recipe, resolve_run
from catchline.training.run import stage_of
from commands import run

NAMES, THINGS, VERBS = ("Anna", "Bob", "Carla", "Dan"), ("keys", "car", "phone", "lunch"), ("lost", "sold", "needs")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Dialogues of two turns and what became of somebody's thing."""
    folder, rng = tmp_path_factory.mktemp("talk"), random.Random(1)
    for split, count in (("train", 40), ("validation", 4)):
        lines = []
        for number in range(count):
            (one, other), thing, verb = rng.sample(NAMES, 2), rng.choice(THINGS), rng.choice(VERBS)
            dialogue = f"{one}: I {verb} my {thing}\n{other}: oh no, really"
            pair = {"id": f"{split}-{number}", "dialogue": dialogue, "summary": f"{one} {verb} the {thing}."}
            lines.append(json.dumps(pair) + "\n")
        raw = folder / f"{split}.raw.jsonl"
        raw.write_text("".join(lines))
        assert main(["--quiet", "data", "prepare", "samsum", str(raw), str(folder / f"{split}.jsonl")]) == 0
        raw.unlink()
    return folder


@pytest.fixture(scope="module", params=["tiny", "tiny-bart"])
def trained(request: pytest.FixtureRequest, data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("run") / request.param
    arguments = ["train", "coconet", "--size", request.param, "--data", str(data), "--out", str(out)]
    assert main(["--quiet", *arguments]) == 0
    return out


def test_each_token_of_a_summary_is_explained(trained: Path, data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["explain", trained, data / "validation.jsonl", "--max-records", 1, "--raw"]
    record = json.loads(run(capsys, *arguments, "--json"))
    assert record["words"]
    size = len(record["source_offsets"])
    specials = sum(end <= start for start, end in record["source_offsets"])
    first = True
    for word in record["words"]:
        assert set(word["maps"]) == {"p_co", "p_final"}
        assert all(len(weights) == size for weights in word["maps"].values())
        assert sum(word["maps"]["p_final"]) == pytest.approx(1.0, abs=1e-3)
        for token in word["tokens"]:
            figures = token["figures"]
            assert 0 < figures["copy_attention_gate"] <= 1
            assert 0 < figures["copy_semantic_gate"] < 1
            assert 0 <= figures["copied_from_specials"] < 1
            assert specials or figures["copied_from_specials"] == 0
            assert bool(token["sources"]["p_co"]) is not first  # nothing was copied before the first word
            assert len(token["sources"]["p_final"]) == 3
            first = False


@pytest.mark.parametrize("trained", ["tiny"], indirect=True)
def test_they_are_shown_in_the_terminal_on_a_page_and_in_a_picture(
    trained: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["explain", trained, data / "validation.jsonl", "--max-records", 1, "--raw"]
    text = run(capsys, *arguments)
    assert re.search(r"token +P +λ +g +u", text)
    page, picture = tmp_path / "page.html", tmp_path / "maps.png"
    run(capsys, *arguments, "--html", page, "--heatmap", picture)
    assert '"p_co":[' in page.read_text()
    assert picture.stat().st_size > 10_000


def test_scoring_says_how_much_was_copied(trained: Path, data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["evaluate", trained, "longest-3", "--data", data, "--profile", "samsum"]
    system, longest = json.loads(run(capsys, *arguments, "--json"))["systems"]
    assert 0 <= system["measures"]["correct_1"] <= 1
    assert 0 < system["measures"]["p_gen"] < 1
    assert longest["measures"]["copy_rate"] == 1.0


@pytest.mark.parametrize("size", ["paper", "samsum", "small", "dialogue-small", "tiny", "tiny-bart"])
def test_every_size_has_the_head_of_its_row(size: str) -> None:
    """A size with another type of model loses the row's head, unless it is put back."""
    recipe = load_recipe("coconet")
    heads = {row: resolve_run(recipe, row, size).model["head"] for row in recipe.rows}
    assert heads == {row: resolve_run(recipe, row, "paper").model["head"] for row in recipe.rows}
    assert heads["coconet"] == {"type": "correlational"}
    assert heads["transformer"] == heads["continued-pretraining"] == {"type": "vocabulary"}
    assert len({json.dumps(head) for head in heads.values()}) == 8


def test_decoding_is_that_of_the_paper() -> None:
    """BART's 55 to 140 tokens before the end, and its length penalty of 2."""
    recipe = load_recipe("coconet")
    search = resolve_run(recipe, "coconet", "paper").search
    assert (search.beam_size, search.min_length, search.max_length, search.no_repeat_ngram) == (4, 55, 140, 3)
    assert (search.length_normalisation, search.length_alpha) == ("predicted", 2.0)
    assert resolve_run(recipe, "coconet", "samsum").search.length_alpha == 1.0
    assert resolve_run(recipe, "coconet-pretraining", "paper").pretraining.enabled
    assert not resolve_run(recipe, "coconet", "paper").pretraining.enabled


@pytest.mark.parametrize(
    ("size", "ends"),
    [("paper", (1_000_000, None)), ("samsum", (1_000_000, None)), ("small", (None, 4)), ("tiny", (2, None))],
)
def test_the_stage_ends_where_it_should(size: str, ends: tuple[int | None, int | None], data: Path) -> None:
    """What the stage does not name it takes from the training, whose end is another."""
    run = resolve_run(load_recipe("coconet"), "coconet-pretraining", size, {"pretraining": {"data": str(data)}})
    training = stage_of(run).training
    assert (training.max_updates, training.max_epochs) == ends
    assert training.validation.metric == "val_loss_tf"
    assert training.initial_weights == run.training.initial_weights
