"""The shared script and style of our pages: the served page loads these files, a report holds them inline.

The files in ``view/`` are plain ES modules and one style sheet; nothing is compiled. A browser loads them one by
one from the server. A report is one file, so `bundle` puts the modules behind each other, imported ones first, into
one function: ``import`` lines and documentation fall away, ``export`` is taken off. That asks three things of the
modules, which `bundle` checks: imports have the form ``import { a, b } from "./file.js";`` without renaming, exports
stand before a declaration, and no two modules declare the same name at top level.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

_IMPORT = re.compile(r'^import \{([^}]*)\} from "\./([\w.-]+)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:function|const|class)\b)", re.MULTILINE)
_TOP_LEVEL = re.compile(r"^(?:export )?(?:async )?(?:function\*?|const|let|class) +([\w$]+)", re.MULTILINE)
_COMMENT = re.compile(r"^[ \t]*/\*\*.*?\*/\n", re.MULTILINE | re.DOTALL)  # of a module or a declaration
_LEFT_OVER = re.compile(r"^(?:import|export)\b.*", re.MULTILINE)


@cache
def view_files() -> Mapping[str, str]:
    """Name and text of each shared file."""
    folder = files("laconic.explain") / "view"
    return {file.name: file.read_text(encoding="utf-8") for file in folder.iterdir() if file.is_file()}


def style() -> str:
    """The shared style sheet."""
    return view_files()["view.css"]


@cache
def report_script() -> str:
    """The script of a report."""
    return bundle("report.js", view_files())


def bundle(entry: str, modules: Mapping[str, str]) -> str:
    """``entry`` and all it imports as one script that leaves no global name behind.

    Raises:
        ValueError: a module is written in a way that this simple joining cannot carry.
    """
    order = _in_order(entry, modules, (), [])
    declared: dict[str, str] = {}
    bodies = []
    for name in order:
        for found in _TOP_LEVEL.findall(modules[name]):
            if found in declared:
                raise ValueError(f"{name} and {declared[found]} both declare {found}")
            declared[found] = name
        body = _EXPORT.sub("", _IMPORT.sub("", _COMMENT.sub("", modules[name])))
        if left := _LEFT_OVER.search(body):
            raise ValueError(f"{name}: cannot be joined: {left.group()}")
        bodies.append(body.strip())
    joined = "\n\n".join(bodies)
    if "</script" in joined.lower() or "<!--" in joined:
        raise ValueError("a script that would end its element")
    return f'(() => {{\n"use strict";\n{joined}\n}})();'


def _in_order(name: str, modules: Mapping[str, str], above: tuple[str, ...], order: list[str]) -> list[str]:
    """The modules that ``name`` needs, each before those that import it."""
    if name in above:
        raise ValueError(f"modules import each other: {' -> '.join([*above, name])}")
    for names, target in _IMPORT.findall(modules[name]):
        if " as " in names:
            raise ValueError(f"{name}: imports cannot be renamed: {names.strip()}")
        _in_order(target, modules, (*above, name), order)
    if name not in order:
        order.append(name)
    return order
