"""A thousand recipes that are not quite right: each is read as it stands, or refused in a sentence."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hostile import UNSHRUNK, assert_a_sentence, assert_sound, import_everything, in_time, texts, values
from hypothesis import given, settings
from hypothesis import strategies as st

from catchline.config.loading import RECIPES, dump_run, load_recipe, load_run, recipe_names, resolve_method, resolve_run
from catchline.config.names import check_run
from catchline.errors import CatchlineError

TREES = {name: yaml.safe_load((RECIPES / f"{name}.yaml").read_text(encoding="utf-8")) for name in recipe_names()}
DUMPER = yaml.SafeDumper  # that in C cannot write half a surrogate pair
EXTREME = [
    *("extends: 5", "extends: headline_writer", "extends: [x]", "1: 2", "? [a]\n: b", "a: &a [*a, *a]", "<<: 5", "---"),
]


def places(tree: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of every value below ``tree``."""
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in items:
        yield (*path, key)
        yield from places(value, (*path, key))


@st.composite
def trees(draw: st.DrawFn) -> Any:
    """A recipe in which some values are replaced, removed, renamed, wrapped or put elsewhere."""
    name = draw(st.sampled_from(sorted(TREES)))
    tree = copy.deepcopy(TREES[name])
    for part, default in (("rows", "default_row"), ("sizes", "default_size")):  # fewer of them are read sooner
        kept = {tree.get(default, "small"), draw(st.sampled_from(sorted(tree[part])))}
        tree[part] = {key: value for key, value in tree[part].items() if key in kept}
    paths = list(places(tree))
    for _ in range(draw(st.integers(1, 3))):
        path = draw(st.sampled_from(paths))
        place = tree
        try:
            for key in path[:-1]:
                place = place[key]
            old = place[path[-1]]
        except (KeyError, IndexError, TypeError):
            continue  # an earlier change took it away
        what = draw(st.sampled_from(["replace", "replace", "replace", "remove", "rename", "wrap", "graft"]))
        if what == "replace":
            place[path[-1]] = draw(values)
        elif what == "remove":
            del place[path[-1]]
        elif what == "wrap":
            place[path[-1]] = [old]
        elif what == "graft":
            place[path[-1]] = copy.deepcopy(tree[draw(st.sampled_from(sorted(tree)))])
        elif isinstance(place, dict):
            place[draw(st.sampled_from(["x", "", "type", "a.b", "model", "extends", 5, True, None]))] = place.pop(
                path[-1]
            )
    return tree


@st.composite
def files(draw: st.DrawFn) -> bytes:
    """The text of such a recipe, perhaps with a piece cut out or put in."""
    text = yaml.dump(draw(trees()), Dumper=DUMPER, sort_keys=False, allow_unicode=True)
    what = draw(st.sampled_from(["whole", "whole", "cut", "hole", "insert", "line"]))
    place = draw(st.integers(0, len(text)))
    if what == "cut":
        text = text[:place]
    elif what == "hole":
        text = text[:place] + text[place + draw(st.integers(1, 200)) :]
    elif what == "insert":
        text = text[:place] + draw(texts) + text[place:]
    elif what == "line":
        text = f"{draw(st.sampled_from(EXTREME))}\n{text}"
    return text.encode("utf-8", "surrogatepass")


@pytest.mark.slow
def test_a_thousand_recipes(tmp_path_factory: pytest.TempPathFactory) -> None:
    import_everything()
    folder = tmp_path_factory.mktemp("recipes")
    outcomes = {"refused": 0, "read": 0}

    @settings(max_examples=1000, **UNSHRUNK)
    @given(content=files(), choice=st.integers(0, 10**6))
    def one(content: bytes, choice: int) -> None:
        path = folder / "mine.yaml"
        path.write_bytes(content)
        with in_time():
            try:
                read(path, choice)
                outcomes["read"] += 1
            except CatchlineError as error:
                assert_a_sentence(error)
                outcomes["refused"] += 1

    one()
    print(outcomes)
    assert min(outcomes.values()) > 100, outcomes


def read(path: Path, choice: int) -> None:
    """As `catchline recipes check` and `catchline train` read it; then as a run folder stores it."""
    recipe = load_recipe(path)
    row, size = (sorted(names)[choice % len(names)] for names in (recipe.rows, recipe.sizes))
    if recipe.extractive:
        assert_sound(resolve_method(recipe, row, size))
        return
    run = resolve_run(recipe, row, size)
    check_run(run)
    assert_sound(run.model_dump())
    stored = path.with_name("recipe.yaml")
    stored.write_text(dump_run(run), encoding="utf-8")
    assert load_run(stored) == run
