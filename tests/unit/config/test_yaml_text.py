"""YAML of a few hundred bytes that no program should follow, and what YAML would pass over in silence."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from catchline.config.loading import load_recipe, parse_overrides, parse_yaml, resolve_run
from catchline.errors import ConfigError


def doubling(first: str, later: str) -> str:
    """Twenty anchors, each naming the one before five times."""
    lines = [f"a0: &a0 {first}"]
    lines += [f"a{level}: &a{level} " + later.replace("*", f"*a{level - 1}") for level in range(1, 20)]
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (doubling("[x, x]", "[*, *, *, *, *]"), "holds more than 50,000 values"),
        (doubling("{x: 1}", "{a: *, b: *, c: *, d: *, e: *}"), "holds more than 50,000 values"),
        (doubling("{x: 1}", "{<<: [*, *, *, *, *]}"), "more than 50,000 keys"),
        ("&a [*a]", "more than 30 levels"),
        ("a: &a {b: *a}", "more than 30 levels"),
        ("[" * 5000, "more than 30 levels"),
        ("a: " + "[" * 40 + "]" * 40, "more than 30 levels"),
        ("x" * 2_000_000, "longer than 1,000,000 characters"),
        ("a: " + "1" * 5000, "a number of 5,000 characters"),
        ("a: 0x" + "f" * 5000, "a number of 5,002 characters"),
        ("a: " + "1" * 5000 + ".0", "a number of 5,002 characters"),
        ("1: a", "the key 1 is no text"),
        ("a: {b: {on: c}}", "the key True in 'a.b' is no text"),
        ("? [a]\n: b", "unhashable key"),
        ("a: 1\nb: 2\na: 3", "the key 'a' stands there twice"),
        ("a: {b: 1, b: 1}", "the key 'b' stands there twice"),
        ("!!int x", "not valid YAML"),
        ("!!int ''", "not valid YAML"),
        ("!!bool x", "not valid YAML"),
        ("!!binary aa", "could not determine a constructor"),
        ("!!set {a}", "could not determine a constructor"),
        ("!!timestamp 2020-01-01", "could not determine a constructor"),
        ("!!python/object/apply:os.system [x]", "could not determine a constructor"),
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


def test_what_names_no_recipe(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    for value in ("5", "[headline_writer]", "{a: b}", "true"):
        path.write_text(f"extends: {value}\n")
        with pytest.raises(ConfigError, match="'extends' is the name of a recipe"):
            load_recipe(path)
    for name in ("\0", "a\0.yaml", "x" * 5000, "x" * 5000 + ".yaml"):
        with pytest.raises(ConfigError):
            load_recipe(name)
    (tmp_path / "a.yaml").mkdir()
    with pytest.raises(ConfigError, match="cannot be read as a recipe: is a directory"):
        load_recipe(tmp_path / "a.yaml")


@pytest.mark.parametrize("pair", ["a..b=1", ".=1", ".".join("a" * 5000) + "=1", "a=" + "[" * 5000, "a={1: 2}"])
def test_impossible_overrides(pair: str) -> None:
    with pytest.raises(ConfigError, match="--set") as caught:
        parse_overrides([pair])
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("key", ["name", "row", "size", "published", "published.rouge1"])
def test_where_the_settings_come_from_cannot_be_set(key: str) -> None:
    with pytest.raises(ConfigError, match="it cannot be set"):
        resolve_run(load_recipe("headline_writer"), overrides=[f"{key}=x"])
