"""No setting anywhere is infinite, absurdly large, half a character, or a number where it should be true or false."""

from __future__ import annotations

import ast
import types
from collections.abc import Iterator
from typing import Any, Union, get_args, get_origin

import pytest
from pydantic import ValidationError
from pydantic.fields import FieldInfo

from catchline.config import names
from catchline.config.base import ConfigBase, validate
from catchline.config.loading import load_recipe, resolve_run
from catchline.config.names import check_run
from catchline.config.schema import Recipe, RunConfig
from catchline.errors import ConfigError

TABLES = {name: value for name, value in vars(names).items() if name.isupper() and isinstance(value, dict)}


def sections(annotation: Any) -> Iterator[type[ConfigBase]]:
    """The sections that a type names, and those within them."""
    if isinstance(annotation, type) and issubclass(annotation, ConfigBase):
        yield annotation
        for field in annotation.model_fields.values():
            yield from sections(field.annotation)
    for part in get_args(annotation):
        yield from sections(part)


def every_field() -> list[tuple[type[ConfigBase], str, FieldInfo]]:
    roots = [RunConfig, Recipe]
    roots += [names.resolve(table, entries, name).Config for table, entries in TABLES.items() for name in entries]
    found = dict.fromkeys(section for root in roots for section in sections(root))
    return [(section, name, field) for section in found for name, field in section.model_fields.items()]


def holds(annotation: Any, kinds: tuple[type, ...]) -> bool:
    if get_origin(annotation) in (Union, types.UnionType):
        return any(holds(part, kinds) for part in get_args(annotation))
    return annotation in kinds


FIELDS = every_field()
NUMBERS = [field for field in FIELDS if holds(field[2].annotation, (int, float))]


def refused(section: type[ConfigBase], name: str, value: Any) -> bool:
    """Does the value itself make the section complain about this field?"""
    try:
        section.model_validate({name: value})
    except ValidationError as error:
        return any(problem["loc"][:1] == (name,) for problem in error.errors())
    except ConfigError:
        return True
    return False


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), 1e30, -1e30, 10**30, "1e30", "nan", True])
def test_every_number_of_every_section_has_bounds(value: Any) -> None:
    lax = [
        f"{section.__module__}.{section.__qualname__}.{name}"
        for section, name, field in NUMBERS
        if not (value is True and holds(field.annotation, (bool,)))
        if not (isinstance(value, str) and holds(field.annotation, (str,)))
        if not refused(section, name, value)
    ]
    assert not lax
    assert len(NUMBERS) > 130


# What a setting is where nothing is said, the edges that are accepted, and what lies just beyond them.
EDGES = """
scorer repetition_penalty penalty 1.0 | 1e-9 | 0
objective nll weight 1.0 | 0 | -1e-9
objective nll label_smoothing 0.0 | 0 0.999 | -1e-9 1
objective opponent weight 1.0 | 0 | -1e-9
objective opponent label_smoothing 0.0 | 0 0.999 | -1e-9 1
objective coverage weight 1.0 | 0 | -1e-9
objective guidance weight 1.0 | 0 | -1e-9
objective reinforce discount 0.5 | 0 1 | -1e-9 1.001
objective reinforce scale 0.3 | 1e-9 | 0
"""


@pytest.mark.parametrize("line", EDGES.strip().splitlines())
def test_edges(line: str) -> None:
    (*place, name, default), good, bad = (part.split() for part in line.split("|"))
    tables = {"scorer": names.SCORERS, "objective": names.OBJECTIVES}
    section = names.resolve(place[0], tables[place[0]], place[1]).Config
    assert section.model_fields[name].default == ast.literal_eval(default)
    assert not any(refused(section, name, ast.literal_eval(value)) for value in good)
    assert all(refused(section, name, ast.literal_eval(value)) for value in bad)


def test_every_text_of_every_section_is_unicode() -> None:
    texts = [field for field in FIELDS if holds(field[2].annotation, (str,))]
    assert len(texts) > 20
    lax = [f"{section.__qualname__}.{name}" for section, name, _ in texts if not refused(section, name, "\ud800")]
    assert not lax


@pytest.mark.parametrize(
    "setting",  # that no bound of a single number refuses
    [
        "training.seed=-1",
        "training.optimizer.betas=[5, 7]",
        "training.optimizer.betas=[true, false]",
        "training.trackers=[nonsense]",
        "objectives=[]",
        "objectives=[{type: nll, weight: -1}]",
        "evaluation.profile=other",
        "evaluation.rouge={stm: true}",
        "evaluation.rouge={max_bytes: many}",
        "evaluation.rouge={alpha: .nan}",
        "evaluation.rouge={weight: .inf}",
        "evaluation.rouge={samples: 1000000000000}",
        "evaluation.rouge={kinds: [Q]}",
        "evaluation.rouge={multi: [average]}",
        "model=5",
        "model.attention=5",
    ],
)
def test_settings_that_make_no_sense(setting: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check_run(resolve_run(load_recipe("headline_writer"), overrides=[setting]))
    assert "\n" not in str(caught.value)


def test_a_long_value_is_not_repeated_in_full() -> None:
    with pytest.raises(ConfigError) as caught:
        validate(RunConfig, {"name": "x", "model": {}, "training": {"batch_size": ["y" * 10_000] * 10_000}}, where="")
    assert len(str(caught.value)) < 1000


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"rows": {}}, "'rows'"),
        ({"sizes": {}}, "'sizes'"),
        ({"default_row": "other"}, "default_row 'other' is not among the rows: a"),
        ({"default_size": "other"}, "default_size 'other' is not among the sizes: small"),
    ],
)
def test_a_recipe_has_rows_and_sizes_and_its_defaults_are_among_them(change: dict[str, Any], said: str) -> None:
    whole = {"name": "x", "title": "X", "base": {"a": 1}, "rows": {"a": {"label": "A"}}, "sizes": {"small": {}}}
    with pytest.raises(ConfigError, match=said):
        validate(Recipe, whole | {"default_row": "a"} | change, where="")
    validate(Recipe, whole | {"default_row": "a"}, where="")
