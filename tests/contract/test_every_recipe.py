"""Every recipe, in every row and size, resolves; its components parse; its YAML reads back equal."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import pytest

from catchline.config.loading import dump_run, load_recipe, load_run, recipe_names, resolve_method, resolve_run
from catchline.config.names import EXTRACTIVE, MODELS, SHIPPED, check_run, parse
from catchline.errors import ConfigError
from catchline.summarizer.extractive import method_spec

EVERY = {name: load_recipe(name) for name in recipe_names()}
RECIPES = {name: recipe for name, recipe in EVERY.items() if not recipe.extractive}
METHODS = {name: recipe for name, recipe in EVERY.items() if recipe.extractive}
CASES = [(name, row, size) for name, recipe in RECIPES.items() for row in recipe.rows for size in recipe.sizes]


def meets(name: str, row: str, size: str) -> bool:
    """Whether the row or the size is the usual one, or the size says something of the row."""
    recipe = RECIPES[name]
    return row in (recipe.default_row, *recipe.sizes[size].rows) or size == recipe.default_size


# A size is merged over a row whatever the row is: every row and every size once, and where they meet.
@pytest.mark.parametrize(
    ("name", "row", "size"), [pytest.param(*case, marks=[] if meets(*case) else pytest.mark.slow) for case in CASES]
)
def test_every_combination_is_sound(name: str, row: str, size: str, tmp_path: Path) -> None:
    run = resolve_run(RECIPES[name], row, size)
    assert (run.name, run.row, run.size) == (name, row, size)
    assert isinstance(check_run(run), parse("model", MODELS, run.model)[0].Config)
    path = tmp_path / "recipe.yaml"
    path.write_text(dump_run(run), encoding="utf-8")
    again = load_run(path)
    assert again == run
    assert again.model_dump_json() == run.model_dump_json(), "also of what compares equal"


@pytest.mark.parametrize("name", RECIPES)
def test_recipes_are_complete(name: str) -> None:
    """No two rows resolve to the same settings, and extractive rows are methods."""
    recipe = RECIPES[name]
    assert recipe.name == name
    assert recipe.title
    assert recipe.citation
    wanted = {"box", "finetune", "tiny"} if name in SHIPPED else {"paper", "small", "tiny"}
    assert wanted <= set(recipe.sizes)
    assert all(row.label for row in recipe.rows.values())
    runs = [resolve_run(recipe, row).model_dump(exclude={"row", "description", "published"}) for row in recipe.rows]
    assert not [(a, b) for a, b in combinations(runs, 2) if a == b]
    for row in recipe.extractive_rows:
        parse("method", EXTRACTIVE, method_spec(row))


@pytest.mark.parametrize(("name", "size"), [(name, size) for name, recipe in RECIPES.items() for size in recipe.sizes])
def test_papers_tables_measure_what_the_model_wrote(name: str, size: str) -> None:
    scored = resolve_run(RECIPES[name], None, size).evaluation.surface
    tokenized = (name, size) == ("distraction", "paper")  # its references are tokens with blanks between them
    assert scored == (None if name in SHIPPED else "clean" if size == "demo" else "tokens" if tokenized else "raw")
    assert resolve_run(RECIPES[name], None, size).search.surface == "clean", "what people are shown"


@pytest.mark.parametrize("name", METHODS)
def test_recipes_of_methods_are_complete(name: str) -> None:
    """Every method of the table has a row, and every row parses at every size."""
    recipe = METHODS[name]
    assert recipe.name == name
    for size in recipe.sizes:
        specs = [
            resolve_method(recipe, row, size) for row in recipe.rows if row != "first"
        ]  # the paper's word for lead-1
        assert {spec["type"] for spec in specs} == set(EXTRACTIVE)
        parsed = [(cls, config.model_dump_json()) for cls, config in (parse("method", EXTRACTIVE, s) for s in specs)]
        assert len(set(parsed)) == len(parsed)
    with pytest.raises(ConfigError, match="nothing to train"):
        resolve_run(recipe)


def test_a_wrong_option_of_a_component_is_found() -> None:
    recipe = RECIPES["headline_writer"]
    with pytest.raises(ConfigError, match="objective"):
        check_run(resolve_run(recipe, overrides={"objectives": [{"type": "nll", "smoothness": 1}]}))
    with pytest.raises(ConfigError, match="Did you mean 'word'"):
        check_run(resolve_run(recipe, overrides={"text": {"tokenizer": {"type": "wrd"}}}))
