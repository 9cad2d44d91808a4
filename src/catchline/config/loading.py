"""From a YAML recipe, a row, a size and the user's overrides to one validated `RunConfig`.

A YAML file of a few hundred bytes can hold billions of values (aliases of aliases), nest deeper than any program
follows, or hold a number of a million digits. None of that is a setting, so `parse_yaml` refuses it, and with it a key
that stands twice and tags for sets or binary data; a date is text here.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from catchline.config.base import LONGEST_NUMBER, merge, validate
from catchline.config.names import SHIPPED, component_settings, refuse_code
from catchline.config.schema import SPLITS, Recipe, RunConfig
from catchline.errors import ConfigError, did_you_mean, refuse_unknown, unknown_choice

OF_THE_RECIPE = ("name", "row", "size", "published")
RECIPES = Path(__file__).parent.parent / "recipes"
MOST_BYTES, MOST_VALUES, DEEPEST = 1_000_000, 50_000, 30


def recipe_names() -> list[str]:
    """The names of the recipes that come with the toolkit."""
    return sorted(path.stem for path in RECIPES.glob("*.yaml"))


def load_recipe(name_or_path: str | Path) -> Recipe:
    """Read a recipe by name (``headline_writer``) or from a YAML file; ``extends`` names a parent."""
    values = _read(name_or_path, seen=())
    if lacking := {"title", "rows", "sizes"} - set(values):
        raise ConfigError(
            f"{name_or_path} is not a recipe: it lacks {', '.join(sorted(lacking))}. Your own begins with a line "
            "such as `extends: headline_writer` and says what differs."
        )
    return validate(Recipe, values, where="")


def resolve_run(
    recipe: Recipe,
    row: str | None = None,
    size: str | None = None,
    overrides: Iterable[str] | Mapping[str, Any] = (),
    *,
    revive: bool = True,
) -> RunConfig:
    """Apply row, size and overrides to a recipe's base. ``overrides`` is a nested mapping or ``key.path=value`` strings
    (the value is read as YAML); ``revive`` as in `merge`, for them."""
    row, size = _row_and_size(recipe, row, size)
    if recipe.extractive:
        raise ConfigError(
            f"The rows of recipe '{recipe.name}' are extractive methods: there is nothing to train. "
            f"Use them with `catchline compare {recipe.name} --data DIR` or `catchline summarize lexrank article.txt`."
        )
    merged = _sized(recipe, merge(recipe.base, recipe.rows[row].set), row, size)
    given = overrides if isinstance(overrides, Mapping) else parse_overrides(overrides)
    for key in given:
        if key.partition(".")[0] in OF_THE_RECIPE:
            raise ConfigError(f"'{key}' says where the settings come from; it cannot be set.")
    merged = merge(merged, given, revive=revive)
    merged |= {"name": recipe.name, "row": row, "size": size, "published": recipe.rows[row].published}
    merged.setdefault("description", recipe.rows[row].label)
    return validate(RunConfig, merged, where="", components=lambda: component_settings(merged))


def resolve_method(recipe: Recipe, row: str | None = None, size: str | None = None) -> dict[str, Any]:
    """The extractive method of a row at a size: ``{"type": name, **options}``."""
    row, size = _row_and_size(recipe, row, size)
    method = recipe.rows[row].method
    if method is None:
        raise ConfigError(f"Row '{row}' of recipe '{recipe.name}' is a model, not an extractive method.")
    return _sized(recipe, method, row, size)


def _row_and_size(recipe: Recipe, row: str | None, size: str | None) -> tuple[str, str]:
    row, size = row or recipe.default_row, size or recipe.default_size
    refuse_unknown(f"{recipe.name} row", row, recipe.rows)
    refuse_unknown(f"{recipe.name} size", size, recipe.sizes)
    return row, size


def _sized(recipe: Recipe, values: Mapping[str, Any], row: str, size: str) -> dict[str, Any]:
    """``values`` with the size's numbers. Those are of the base's components: a class from outside the tables that the
    row names in the place of one takes only what the size says of the row."""
    sized, base = merge(values, recipe.sizes[size].set), recipe.base.get("model", {})
    for key, spec in values.get("model", {}).items():
        theirs, kind = base.get(key), spec.get("type") if isinstance(spec, Mapping) else None
        if ":" in str(kind) and isinstance(theirs, Mapping) and theirs.get("type") != kind:
            sized["model"][key] = spec
    return merge(sized, recipe.sizes[size].rows.get(row, {}))


def load_run(path: Path) -> RunConfig:
    """Read the resolved ``recipe.yaml`` of a run or model folder, which names no code that nobody trusted."""
    run = read_run(path)
    refuse_code(run.model_dump(), path)
    return run


def read_run(path: Path) -> RunConfig:
    """`load_run` for a recipe that is only looked at: nothing may be built from it."""
    return validate(RunConfig, _read_yaml(path), where="")


def dump_run(config: RunConfig) -> str:
    """The YAML text of a resolved run, in a form `load_run` reads back to an equal object."""
    return yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False, allow_unicode=True)


def with_absolute_paths(run: RunConfig) -> RunConfig:
    """The run as its folder stores it: it can be resumed from any directory."""

    def absolute(path: str | None) -> str | None:
        return path if path is None or path.startswith("hub:") else os.path.abspath(path)

    weights = run.training.initial_weights
    if weights not in (None, *SHIPPED) and os.path.exists(str(weights)):  # else it is an id of the hub
        weights = os.path.abspath(str(weights))
    changes: dict[str, dict[str, Any]] = {
        "data": {split: absolute(getattr(run.data, split)) for split in SPLITS if run.data.format != "hub"},
        "text": {"pretrained_embeddings": absolute(run.text.pretrained_embeddings)},
        "training": {"initial_weights": weights},
        "pretraining": {"data": absolute(run.pretraining.data)},
    }
    return run.model_copy(update={name: getattr(run, name).model_copy(update=new) for name, new in changes.items()})


def parse_overrides(pairs: Iterable[str]) -> dict[str, Any]:
    """Turn ``["training.batch_size=8", ...]`` into a nested dictionary."""
    result: dict[str, Any] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals or not key.strip():
            raise ConfigError(f"--set '{pair}' is not of the form key=value, for example training.batch_size=16.")
        path = key.strip().split(".")
        if len(path) > DEEPEST or not all(path):
            raise ConfigError(f"--set '{pair[:100]}': the key is not names with single dots between them.")
        nested: Any = parse_yaml(text, f"--set '{pair[:100]}': the value")
        for part in reversed(path):
            nested = {part: nested}
        result = _joined(result, nested)
    return result


def _joined(old: Any, new: Any) -> Any:
    """Both, deeply, whatever their order; which components they replace shows where they meet the recipe."""
    if not (isinstance(old, Mapping) and isinstance(new, Mapping)):
        return new
    return {**old, **{key: _joined(old.get(key), value) for key, value in new.items()}}


def first_difference(old: Any, new: Any, path: str = "") -> str | None:
    """The first key in which two settings differ, with both values, or None."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for key in [*old, *(key for key in new if key not in old)]:
            if found := first_difference(old.get(key), new.get(key), f"{path}.{key}" if path else str(key)):
                return found
        return None
    return None if old == new else f"{path}: {json.dumps(old)} there, {json.dumps(new)} now"


def _read(name_or_path: str | Path, seen: tuple[str, ...]) -> dict[str, Any]:
    path = Path(name_or_path)
    if not path.suffix and not os.path.isfile(path):  # unlike `Path.is_file` no error, whatever the name
        path = RECIPES / f"{name_or_path}.yaml"
        if not os.path.isfile(path):
            raise ConfigError(unknown_choice("recipe", str(name_or_path), recipe_names()))
    if (place := os.path.abspath(path)) in seen:
        raise ConfigError(f"{path} extends itself.")
    if path.suffix.lower() in (".jsonl", ".json", ".csv", ".tsv", ".txt"):
        raise ConfigError(f"{path} is data, not a recipe: `catchline train oneline --data {path}`, for example.")
    values = _read_yaml(path)
    parent = values.pop("extends", None)
    if parent is None:
        return values
    beside = path.parent / (parent := str(parent))
    try:
        return merge(_read(beside if os.path.isfile(beside) else parent, (*seen, place)), values)
    except ConfigError as error:
        raise ConfigError(f"{path} extends '{parent}': {error}") from None


def _read_yaml(path: Path) -> dict[str, Any]:
    try:
        with path.open(encoding="utf-8") as file:
            values = parse_yaml(file.read(MOST_BYTES + 1), str(path))
    except FileNotFoundError:
        raise ConfigError(f"There is no recipe file {path}.{did_you_mean(path.stem, recipe_names())}") from None
    except (OSError, ValueError) as error:  # ValueError: not UTF-8, or a zero byte in the name
        raise ConfigError(f"{path} cannot be read as a recipe: {getattr(error, 'strerror', None) or error}.") from None
    if not isinstance(values, dict):
        raise ConfigError(f"{path} is not a mapping of keys; see `catchline recipes show headline_writer`.")
    return values


# --------------------------------------------------------------------------------------- the YAML itself


def parse_yaml(text: str, where: str) -> Any:
    """The value that ``text`` means; ConfigError, which begins with ``where``, if it is no YAML or no settings."""
    if len(text) > MOST_BYTES:
        raise ConfigError(f"{where} is longer than {MOST_BYTES:,} characters; it is not a recipe.")
    try:
        reader = _Reader(text)
        documents = [reader.value(event, 0) for event in reader.until(yaml.StreamEndEvent)]
    except (yaml.YAMLError, ValueError, LookupError, OverflowError, TypeError) as error:
        mark = getattr(error, "problem_mark", None)
        line = f" at line {mark.line + 1}" if mark else ""
        problem = _short(getattr(error, "problem", None) or error)
        raise ConfigError(f"{where} is not valid YAML{line}: {problem}.") from None
    if len(documents) > 1:
        raise ConfigError(f"{where} is not valid YAML: it has {len(documents)} documents.")
    return documents[0] if documents else None


def _short(what: object) -> str:
    text = " ".join(str(what).split()).rstrip(".")
    return text if len(text) <= 100 else f"{text[:100]}..."


_Parser: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml takes a seventh of the time
_OUTER = (yaml.StreamStartEvent, yaml.DocumentStartEvent, yaml.DocumentEndEvent)
_PATTERNS = {  # of what is no text, by the first character
    first: [pattern for tag, pattern in rules if tag.endswith((":null", ":bool", ":int", ":float"))]
    for first, rules in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


class _Reader:
    """Plain values from the parser's events: no tags, no key twice, and no more of anything than a recipe has. An alias
    is of what is complete before it, so nothing holds itself."""

    def __init__(self, text: str) -> None:
        self._events = (event for event in yaml.parse(text, Loader=_Parser) if not isinstance(event, _OUTER))
        self._anchors: dict[Any, tuple[Any, int]] = {}  # the value, and how many values are in it
        self._count = 0

    def until(self, end: type) -> Iterator[Any]:
        while not isinstance(event := next(self._events), end):
            yield event

    def value(self, event: Any, depth: int) -> Any:
        self._count += 1
        if depth > DEEPEST or self._count > MOST_VALUES:
            raise _problem(f"it holds more than {MOST_VALUES:,} values or nests more than {DEEPEST} levels deep", event)
        if isinstance(event, yaml.AliasEvent):
            value, size = self._anchors[event.anchor]
            self._count += size
            return value
        if event.tag not in (None, "!"):
            raise _problem(f"the tag '{_short(event.tag)}' is not read", event)
        before = self._count
        if isinstance(event, yaml.ScalarEvent):
            value = _scalar(event)
        elif isinstance(event, yaml.MappingStartEvent):
            value = self._mapping(depth + 1)
        else:
            value = [self.value(part, depth + 1) for part in self.until(yaml.SequenceEndEvent)]
        self._anchors[event.anchor] = value, self._count - before
        return value

    def _mapping(self, depth: int) -> dict[str, Any]:
        values, merged = dict[str, Any](), dict[str, Any]()
        for event in self.until(yaml.MappingEndEvent):
            key, value = self.value(event, depth), self.value(next(self._events), depth)
            if not isinstance(key, str):
                raise _problem(f"the key {_short(key)} is not text; put it in quotes", event)
            if key in values:
                raise _problem(f"the key '{_short(key)}' occurs twice", event)
            if key == "<<":
                for part in value if isinstance(value, list) else [value]:
                    merged = {**part, **merged}
            else:
                values[key] = value
        return merged | values


def _scalar(event: Any) -> Any:
    text = event.value
    if event.implicit[0] and any(pattern.match(text) for pattern in _PATTERNS.get(text[:1], ())):
        if len(text) > LONGEST_NUMBER:
            raise _problem(f"a number of {len(text):,} characters", event)
        return yaml.load(text, Loader=_Parser)
    return text


def _problem(text: str, event: Any) -> yaml.YAMLError:
    return yaml.constructor.ConstructorError(None, None, text, event.start_mark)
