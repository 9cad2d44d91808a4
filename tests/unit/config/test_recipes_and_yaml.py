"""Recipes, rows, sizes and overrides; the YAML they are written in."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from catchline.config.base import validate
from catchline.config.loading import (
    dump_run,
    load_recipe,
    load_run,
    merge,
    parse_overrides,
    parse_yaml,
    resolve_run,
    with_absolute_paths,
)
from catchline.config.schema import Recipe, RunConfig
from catchline.errors import ConfigError

PARENT = """
name: parent
title: Parent
base:
  model: {type: seq2seq, hidden_size: 8, attention: {type: additive, size: 4}}
  training: {max_epochs: 1, batch_size: 4}
rows:
  plain:
    label: Plain
    set: {model.attention: null}
  own:
    label: A class from outside
    set: {model.attention: {type: "mine:Own", memory: true}}
  attention:
    label: With attention
    published: {bleu: 0.1}
sizes:
  small: {set: {model.hidden_size: 16, model.attention.size: 6}}
  tiny:
    set: {model.hidden_size: 2}
    rows: {attention: {training.batch_size: 2}}
  large: {set: {model.attention.size: 9, model.hidden_size: 64}, rows: {own: {model.attention.width: 7}}}
default_row: attention
"""


@pytest.fixture
def recipe(tmp_path: Path) -> Recipe:
    path = tmp_path / "parent.yaml"
    path.write_text(PARENT)
    return load_recipe(path)


def test_row_then_size_then_the_sizes_row_then_overrides(recipe: Recipe) -> None:
    assert resolve_run(recipe).model == {
        "type": "seq2seq",
        "hidden_size": 16,
        "attention": {"type": "additive", "size": 6},
    }
    tiny = resolve_run(recipe, "attention", "tiny")
    assert tiny.training.batch_size == 2
    assert resolve_run(recipe, "attention", "tiny", ["training.batch_size=9"]).training.batch_size == 9
    assert resolve_run(recipe, "plain", "tiny").training.batch_size == 4
    assert tiny.published == {"bleu": 0.1}
    assert (tiny.name, tiny.row, tiny.size) == ("parent", "attention", "tiny")


def test_a_size_does_not_bring_back_what_a_row_took_away_but_the_user_may(recipe: Recipe) -> None:
    assert resolve_run(recipe, "plain", "small").model["attention"] is None
    run = resolve_run(recipe, "plain", "small", ["model.attention.type=additive"])
    assert run.model["attention"] == {"type": "additive"}


def test_a_class_from_outside_takes_no_numbers_that_a_size_has_for_the_bases(recipe: Recipe) -> None:
    """A recipe that extends a paper's has its sizes, which know nothing of the class: unknown keys would be refused."""
    own = {"type": "mine:Own", "memory": True}
    assert resolve_run(recipe, "own", "small").model == {"type": "seq2seq", "hidden_size": 16, "attention": own}
    assert resolve_run(recipe, "own", "large").model["attention"] == own | {"width": 7}
    assert resolve_run(recipe, "own", "small", ["model.attention.size=3"]).model["attention"] == own | {"size": 3}


def test_a_new_type_replaces_the_component_whole() -> None:
    base = {"attention": {"type": "additive", "size": 4}}
    assert merge(base, {"attention": {"type": "dot"}}) == {"attention": {"type": "dot"}}
    assert merge(base, {"attention": {"size": 5}}) == {"attention": {"type": "additive", "size": 5}}
    assert base == {"attention": {"type": "additive", "size": 4}}


def test_extends(tmp_path: Path) -> None:
    """Another file; neither itself nor what is not there."""
    (tmp_path / "parent.yaml").write_text(PARENT)
    child = tmp_path / "child.yaml"
    child.write_text("extends: parent.yaml\nname: child\nbase: {training: {max_epochs: 7}}\n")
    run = resolve_run(load_recipe(child))
    assert (run.name, run.training.max_epochs, run.training.batch_size) == ("child", 7, 4)
    (tmp_path / "a.yaml").write_text("extends: b.yaml\n")
    (tmp_path / "b.yaml").write_text(f"extends: ../{tmp_path.name}/a.yaml\n")
    with pytest.raises(ConfigError, match="extends itself"):
        load_recipe(tmp_path / "a.yaml")
    for name in ("headline_writter", "headline_writer.yaml"):
        child.write_text(f"extends: {name}\n")
        with pytest.raises(ConfigError, match=rf"child\.yaml extends '{name}': .* Did you mean 'headline_writer'\?"):
            load_recipe(child)


def test_overrides_are_read_as_yaml() -> None:
    assert parse_overrides(["a.b=1", "a.c=[x, y]", "d=null", "e=text with = sign", "f=1e-3"]) == {
        "a": {"b": 1, "c": ["x", "y"]},
        "d": None,
        "e": "text with = sign",
        "f": "1e-3",
    }
    for wrong in ("novalue", "=3", "a=[1", "a..b=1", ".=1", ".".join("a" * 5000) + "=1", "a=" + "[" * 5000, "a={1: 2}"):
        with pytest.raises(ConfigError, match="--set") as caught:
            parse_overrides([wrong])
        assert len(str(caught.value)) < 300


@pytest.mark.parametrize("turned", [False, True])
def test_the_order_of_overrides_loses_none(recipe: Recipe, turned: bool) -> None:
    pairs = ["training.optimizer.learning_rate=1e-3", "training.optimizer.type=adagrad", "text.tokenizer={type: bpe}"]
    optimizer = resolve_run(recipe, overrides=pairs[::-1] if turned else pairs).training.optimizer
    assert (optimizer.type, optimizer.learning_rate) == ("adagrad", 1e-3)
    assert parse_overrides(["a.b=1", "a.b=2", "a=null", "a.c=3"]) == {"a": {"c": 3}}


def check(recipe: Recipe, *overrides: str) -> str:
    with pytest.raises(ConfigError) as caught:
        resolve_run(recipe, overrides=overrides)
    return str(caught.value)


def test_messages_name_the_key_and_the_nearest_one(recipe: Recipe) -> None:
    message = check(recipe, "training.optimizer.learning_rat=1")
    assert "Unknown key 'training.optimizer.learning_rat'. Did you mean 'training.optimizer.learning_rate'?" in message
    message = check(recipe, "training.batch_size=many")
    assert "'training.batch_size'" in message
    assert "'many'" in message
    assert "never ends" in check(recipe, "training.max_epochs=null")
    assert "num_return 3" in check(recipe, "search.num_return=3")
    # also beside a type that is no name
    assert "search.beem" in check(recipe, "model.type={a: 1}", "search.beem=2")
    with pytest.raises(ConfigError, match="Did you mean 'attention'"):
        resolve_run(recipe, "atention")
    with pytest.raises(ConfigError, match=r"Known: .*small, tiny"):
        resolve_run(recipe, size="huge")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"a: [1", "line"),
        (b"- 1\n", "mapping"),
        (b"\xff", "utf-8"),
        *((f"extends: {name}".encode(), "Unknown recipe") for name in ("5", "[headline_writer]", "{a: b}", "true")),
    ],
)
def test_what_a_file_is_refused_for(content: bytes, said: str, tmp_path: Path) -> None:
    path = tmp_path / "broken.yaml"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=said):
        load_recipe(path)


@pytest.mark.parametrize(
    "name", ["headlne_writer", "absent.yaml", "\0", "a\0.yaml", "x" * 5000, "x" * 5000 + ".yaml", "."]
)
def test_what_names_no_recipe(name: str) -> None:
    with pytest.raises(ConfigError, match=r"Unknown recipe|no recipe file|cannot be read"):
        load_recipe(name)


def test_a_run_reads_back_equal(recipe: Recipe, tmp_path: Path) -> None:
    run = resolve_run(recipe, overrides=["description=für Überschriften", "training.precision=bf16"])
    path = tmp_path / "recipe.yaml"
    path.write_text(dump_run(run), encoding="utf-8")
    assert load_run(path) == run


def test_a_data_set_of_the_hub_is_no_local_path(recipe: Recipe) -> None:
    run = with_absolute_paths(resolve_run(recipe, overrides=["data.train=owner/name", "data.format=hub"]))
    assert run.data.train == "owner/name"


def test_sections_are_frozen(recipe: Recipe) -> None:
    run = resolve_run(recipe)
    with pytest.raises(Exception, match="frozen"):
        run.name = "x"  # type: ignore[misc]
    with pytest.raises(ConfigError, match="'training'"):
        validate(RunConfig, {"name": "x", "model": {}}, where="")


def doubling(first: str, later: str) -> str:
    """Twenty anchors, each naming the one before five times."""
    lines = [f"a0: &a0 {first}"]
    lines += [f"a{level}: &a{level} " + later.replace("*", f"*a{level - 1}") for level in range(1, 20)]
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (doubling("[x, x]", "[*, *, *, *, *]"), "holds more than 50,000 values"),
        (doubling("{x: 1}", "{<<: [*, *, *, *, *]}"), "holds more than 50,000 values"),
        ("&a [*a]", "not valid YAML: 'a'"),
        ("a: &a {b: *a}", "not valid YAML: 'a'"),
        ("a: {<<: 5}", "not valid YAML"),
        ("[" * 5000, "more than 30 levels"),
        ("x" * 2_000_000, "longer than 1,000,000 characters"),
        ("a: " + "1" * 5000, "a number of 5,000 characters"),
        ("a: 0x" + "f" * 5000, "a number of 5,002 characters"),
        ("a: {b: {on: c}}", "the key True is not text"),
        ("? [a]\n: b", "the key ['a'] is not text"),
        ("a: 1\nb: 2\na: 3", "the key 'a' occurs twice"),
        ("a: {b: 1, b: 1}", "the key 'b' occurs twice"),
        ("!!binary aa", "the tag"),
        ("!!python/object/apply:os.system [x]", "the tag"),
        ("\0", "not valid YAML"),
        ('"\\Uffffffff"', "not valid YAML"),
        ("--- a\n--- b", "not valid YAML"),
    ],
)
def test_what_is_refused(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)) as caught:
        parse_yaml(text, "the file")
    assert str(caught.value).startswith("the file")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


def test_what_is_read() -> None:
    """Also a merged mapping that is merged again."""
    text = "a: &a {b: 1, c: [yes, ~, 1.5, 0x10]}\nd: {<<: *a, b: 2}\ne: {<<: *a, f: 2020-01-01}\ng: 2020-99-99\nh: 1e-3"
    c = [True, None, 1.5, 16]
    assert parse_yaml(text, "") == {
        "a": {"b": 1, "c": c},
        "d": {"b": 2, "c": c},
        "e": {"b": 1, "c": c, "f": "2020-01-01"},
        "g": "2020-99-99",
        "h": "1e-3",
    }
    assert parse_yaml("a: &a {x: 1}\nb: &b {<<: *a, x: 2}\nc: {<<: *b}", "")["c"] == {"x": 2}


@pytest.mark.parametrize("key", ["name", "row", "size", "published", "published.rouge1"])
def test_where_the_settings_come_from_cannot_be_set(key: str) -> None:
    with pytest.raises(ConfigError, match="it cannot be set"):
        resolve_run(load_recipe("headline_writer"), overrides=[f"{key}=x"])
