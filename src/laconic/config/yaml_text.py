"""YAML as recipes, ``--set`` and run folders use it: mappings with names for keys, lists and plain values.

A file of a few hundred bytes can stand for billions of values (aliases of aliases), nest deeper than any program
follows, or hold a number of a million digits. None of that is a setting, so the reader refuses it, and with it what
YAML would pass over in silence: a key that stands twice, and tags for dates, sets or binary data (a date is text here).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import yaml

from laconic.errors import ConfigError

MOST_BYTES, MOST_VALUES, DEEPEST, LONGEST_NUMBER = 1_000_000, 50_000, 30, 40
_TAG = "tag:yaml.org,2002:"


def parse_yaml(text: str, where: str) -> Any:
    """The value that ``text`` stands for.

    Raises:
        ConfigError: it is no YAML, or no settings; the sentence begins with ``where``.
    """
    if len(text) > MOST_BYTES:
        raise ConfigError(f"{where} is longer than {MOST_BYTES:,} characters; that is no recipe.")
    try:
        value = yaml.load(text, Loader=_Loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f" at line {mark.line + 1}" if mark else ""
        raise ConfigError(
            f"{where} is not valid YAML{line}: {_short(getattr(error, 'problem', None) or error)}."
        ) from None
    except (ValueError, LookupError, OverflowError) as error:  # `!!int x`, `!!bool x`, "\Uffffffff"
        raise ConfigError(f"{where} is not valid YAML: {_short(error)}.") from None
    for count, _ in enumerate(_checked(value, where, ())):
        if count > MOST_VALUES:
            raise ConfigError(f"{where} stands for more than {MOST_VALUES:,} values; that is no recipe.")
    return value


def _checked(value: Any, where: str, path: tuple[str, ...]) -> Iterator[None]:
    """One step for each value below ``value``, itself included; aliases count each time."""
    yield None
    if len(path) > DEEPEST:
        raise ConfigError(f"{where} nests more than {DEEPEST} levels deep; that is no recipe.")
    if isinstance(value, dict):
        for key, part in value.items():
            if not isinstance(key, str):
                inside = f" in '{'.'.join(path)}'" if path else ""
                raise ConfigError(f"{where}: the key {_short(key)}{inside} is no text for YAML; put it in quotes.")
            yield from _checked(part, where, (*path, key))
    elif isinstance(value, list):
        for number, part in enumerate(value):
            yield from _checked(part, where, (*path, str(number)))


def _short(what: object) -> str:
    text = " ".join(str(what).split()).rstrip(".")
    return text if len(text) <= 100 else f"{text[:100]}..."


class _Loader(yaml.SafeLoader):
    """Plain values only; no key twice."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._depth = 0
        self._flat: set[int] = set()

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        self._depth += 1
        if self._depth > DEEPEST:
            raise yaml.YAMLError(f"it nests more than {DEEPEST} levels deep")
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        if id(node) in self._flat:  # the keys that were merged into it are among its own now
            return
        self._flat.add(id(node))
        names = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        twice = next((name for name, count in Counter(names).items() if count > 1), None)
        if twice is not None:
            raise _problem(f"the key '{_short(twice)}' stands there twice", node)
        super().flatten_mapping(node)
        if len(node.value) > MOST_VALUES:
            raise _problem(f"a mapping of more than {MOST_VALUES:,} keys", node)

    def construct_number(self, node: yaml.ScalarNode) -> int | float:
        if len(node.value) > LONGEST_NUMBER:
            raise _problem(f"a number of {len(node.value):,} characters", node)
        whole = node.tag == f"{_TAG}int"
        return self.construct_yaml_int(node) if whole else self.construct_yaml_float(node)


def _problem(text: str, node: yaml.Node) -> yaml.YAMLError:
    return yaml.constructor.ConstructorError(None, None, text, node.start_mark)


_NUMBERS = (f"{_TAG}int", f"{_TAG}float")
_PLAIN = (None, *(f"{_TAG}{kind}" for kind in ("null", "bool", "str", "seq", "map")))
_Loader.yaml_constructors = {tag: _Loader.yaml_constructors[tag] for tag in _PLAIN} | {
    tag: _Loader.construct_number for tag in _NUMBERS
}
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in found if tag != f"{_TAG}timestamp"]
    for first, found in _Loader.yaml_implicit_resolvers.items()
}
