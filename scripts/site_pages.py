"""Write the documentation site's pages into build/docs, from which `make docs` builds it.

Commands come from their parsers, the keys of recipes from the schema, the API from docstrings, the first page from the
README. A file outside docs/ that a page links to is in the site too, below source/.
"""

from __future__ import annotations

import argparse
import inspect
import json
import os
import re
import shutil
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel

from catchline.cli.main import COMMANDS, EXIT_CODES, STUDY, VARIABLES, load_command
from catchline.config import names
from catchline.config.schema import RunConfig

ROOT = Path(__file__).parent.parent
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")
TABLES = {
    "Models (`model.type`)": names.MODELS,
    "Attention (`model.attention.type`)": names.ATTENTIONS,
    "Attention over chunks": names.CHUNK_ATTENTIONS,
    "Encoders of chunks": names.COARSE_ENCODERS,
    "Copy heads (`model.head.type`)": names.COPY_HEADS,
    "Opponents (`model.opponent.type`)": names.OPPONENTS,
    "Objectives (`objectives`)": names.OBJECTIVES,
    "Scorers of the search (`search.scorers`)": names.SCORERS,
    "Tokenizers (`text.tokenizer.type`)": names.TOKENIZERS,
    "Extractive methods": names.EXTRACTIVE,
}
PAPERS = {  # file of equations -> its title, and the page that tells the rest
    "pointer_generator": ("pointer-generator, coverage", "headline_writer.md"),
    "distraction": ("distraction", "distraction.md"),
    "coarse_to_fine": ("coarse-to-fine", "coarse_to_fine.md"),
    "contrastive": ("contrastive attention", "contrastive.md"),
    "coconet": ("correlational copying", "coconet.md"),
}
API = {
    "Summarize": ("catchline.summarizer.Summarizer",),
    "Train and evaluate": (
        *("catchline.training.api.train", "catchline.training.loop.TrainResult", "catchline.evaluation.run.evaluate"),
        *("catchline.evaluation.run.EvaluationResult", "catchline.evaluation.run.RougeScore"),
    ),
    "Read and score": ("catchline.data.records.read_records", "catchline.metrics.rouge.rouge"),
    "Records": tuple(f"catchline.types.{name}" for name in ("Record", "Summary", "SummaryWord", "SourceSpan", "Chunk")),
    "Pages": ("catchline.explain.html.render",),
    "Errors": ("catchline.errors",),
}


# ---------------------------------------------------------------------------------------------- the site


def main() -> int:
    """Write every page into ``build/docs`` and the contents into ``build/mkdocs.yml``, from which zensical builds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=ROOT / "build", help="folder of what is written")
    out = parser.parse_args().out
    shutil.rmtree(out / "docs", ignore_errors=True)
    shutil.copytree(ROOT / "docs", out / "docs", ignore=shutil.ignore_patterns("*.md", "take"))
    pages = site_pages()
    for place, text in pages.items():
        target = out / "docs" / place
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(text) if isinstance(text, bytes) else target.write_text(text, encoding="utf-8")
    config = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    contents = json.dumps(navigation({place for place in pages if not place.startswith("source/")}))
    (out / "mkdocs.yml").write_text(f"{config}nav: {contents}\n", encoding="utf-8")
    return 0


def site_pages() -> dict[str, str | bytes]:
    """Place in the site -> content: the written pages, the made ones, and below ``source/`` what they link to."""
    written = {"index.md": ROOT / "README.md"} | {page.name: page for page in (ROOT / "docs").glob("*.md")}
    places = {path: place for place, path in written.items()}
    pages: dict[str, str | bytes] = {**made_pages()}
    waiting = dict(written)
    while waiting:
        place, path = waiting.popitem()
        if path.suffix != ".md":
            pages[place] = path.read_bytes()
            continue

        def moved(link: re.Match[str], place: str = place, path: Path = path) -> str:
            target, _, anchor = link[3].partition("#")
            file = (path.parent / target).resolve()
            if "://" in target or not target:
                return link[0]
            if not file.is_file():
                return link[2]  # a folder
            if file.is_relative_to(ROOT / "docs/images"):
                places[file] = str(file.relative_to(ROOT / "docs"))
            elif file not in places:
                waiting[f"source/{file.relative_to(ROOT)}"] = file
                places[file] = f"source/{file.relative_to(ROOT)}"
            to = os.path.relpath(places[file], Path(place).parent)
            return f"{link[1]}[{link[2]}]({to}{'#' if anchor else ''}{anchor})"

        pages[place] = LINK.sub(moved, path.read_text(encoding="utf-8"))
    return pages


def made_pages() -> dict[str, str]:
    """Place in the site -> Markdown that is made, not written."""
    card = (ROOT / "src/catchline/oneline/README.md").read_text(encoding="utf-8")
    pages = {
        "model_card.md": re.sub(r"\A---\n.*?\n---\n", "", card, flags=re.DOTALL),
        "reference/api.md": api_page(),
        "reference/commands.md": commands_page(),
        "reference/recipe_keys.md": keys_page(),
    }
    for name, (title, page) in PAPERS.items():
        pages[f"papers/{name}.md"] = (
            f"# Equations: {title}\n\nEach function is one equation, under its number in the paper, as it runs. "
            f"[How it is trained and used](../{page}).\n\n::: catchline.papers.{name}\n"
        )
    return pages


def navigation(pages: set[str]) -> list[Any]:
    """The site's contents. A page that no list names stands under "More", so that a new one is never lost."""
    papers = [place for name, (_, page) in PAPERS.items() for place in (page, f"papers/{name}.md")]
    sections = {
        "Start": ["index.md", "install.md", "tutorial.md", "oneline.md", "summarize.md", "python.md"],
        "Your own model": ["data.md", "training.md", "evaluate.md", "explain.md"],
        "Serve": ["serving.md"],
        "Results": ["results.md"],
        "Papers": papers,
        "Reference": ["decoding.md", *(f"reference/{name}.md" for name in ("commands", "recipe_keys", "api"))],
        "The bundled model": ["model_card.md"],
    }
    named = {place for places in sections.values() for place in places}
    sections["More"] = sorted(place for place in pages - named if place.endswith(".md"))
    return [{title: [place for place in places if place in pages]} for title, places in sections.items() if places]


# --------------------------------------------------------------------------------------------- the pages


def api_page() -> str:
    """What a program uses, by mkdocstrings."""
    parts = [
        "# Python\n\n`import catchline` has the first of these under short names; [how to use them](../python.md).\n"
    ]
    for title, places in API.items():
        parts += [f"## {title}\n", *(f"::: {place}\n    options:\n      heading_level: 3\n" for place in places)]
    return "\n".join(parts)


def commands_page() -> str:
    """Every command and its options, from the parsers; exit codes and environment variables from ``catchline
    --help``."""
    parts = [
        "# Commands\n\nOptions that every command knows: `--help`; `catchline --quiet COMMAND` shows no progress.\n"
    ]
    parts += [_command(f"catchline {name}", load_command(name)) for name in COMMANDS]
    parts.append("## Commands of catchline-study\n\n`pip install ./study` adds these.\n")
    parts += [_command(f"catchline {name}", load_command(name), 3) for name in STUDY]
    for title, table in {"Exit codes": EXIT_CODES, "Environment variables": VARIABLES}.items():
        rows = [f"| `{key}` | {said} |" for key, said in table.items()]
        parts += [f"## {title}\n", "| | |", "| --- | --- |", *rows, ""]
    return "\n".join(parts)


def _command(name: str, command: Any, level: int = 2) -> str:
    lines = [f"{'#' * level} `{name}`\n", _plain(command.help or ""), ""]
    if subcommands := getattr(command, "commands", None):
        return "\n".join([*lines, *(_command(f"{name} {sub}", one, level + 1) for sub, one in subcommands.items())])
    lines += ["| argument or option | default | meaning |", "| --- | --- | --- |"]
    for parameter in command.params:
        spelled = ", ".join(f"`{spelling}`" for spelling in [*parameter.opts, *parameter.secondary_opts])
        if not parameter.opts[0].startswith("-"):
            spelled = f"`{(parameter.metavar or parameter.name).upper()}`"
        lines.append(f"| {spelled} | {_default(parameter)} | {_cell(getattr(parameter, 'help', '') or '')} |")
    return "\n".join([*lines, ""])


def _default(parameter: Any) -> str:
    value = parameter.default
    if parameter.required:
        return "required"
    return "" if value in (None, False, ()) or callable(value) else f"`{getattr(value, 'value', value)}`"


def keys_page() -> str:
    """Every key that a recipe and ``--set`` know: default, range, and the class it is declared in."""
    parts = [
        "# Keys of recipes\n",
        "`catchline recipes show NAME` prints a recipe with all of them, `--set section.key=value` changes one. Source "
        "is the class that declares the key; its documentation stands above the table.\n",
    ]
    parts += list(_group(RunConfig, ""))
    for title, table in TABLES.items():
        parts.append(f"## {title}\n")
        for name in table:
            owner = names.resolve("component", table, name)
            parts += _group(owner.Config, "", f"### `{name}`", documented=owner)
    return "\n".join(parts)


def _group(cls: type[BaseModel], prefix: str, heading: str = "", documented: Any = None) -> Iterator[str]:
    """The table of one class, then those of the groups in it."""
    yield f"{heading or f'## `{prefix[:-1]}`' if prefix or heading else '## Top'}\n"
    yield f"{_plain(inspect.getdoc(documented or cls) or '')}\n"
    groups = {key: found for key, field in cls.model_fields.items() if (found := _group_in(field.annotation))}
    lines = ["| key | type and range | default | source |", "| --- | --- | --- | --- |"]
    for key, field in cls.model_fields.items():
        if key in groups and get_origin(field.annotation) is None:
            continue
        default = "required" if field.is_required() else f"`{_shown(field.get_default(call_default_factory=True))}`"
        owner = next(one for one in cls.__mro__ if key in getattr(one, "__annotations__", {}))
        source = f"`{owner.__module__.removeprefix('catchline.')}.{owner.__qualname__}`"
        lines.append(f"| `{prefix}{key}` | {_cell(_range(field))} | {_cell(default)} | {source} |")
    if len(lines) > 2:
        yield "\n".join([*lines, ""])
    for key, group in groups.items():
        yield from _group(group, f"{prefix}{key}.", f"{'###' if prefix else '##'} `{prefix}{key}`")


def _group_in(annotation: Any) -> type[BaseModel] | None:
    options = [annotation, *get_args(annotation)]
    return next((one for one in options if inspect.isclass(one) and issubclass(one, BaseModel)), None)


def _range(field: Any) -> str:
    """``float, above 0, at most 1``."""
    words = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below", "min_length": "of length at least"}
    bounds = [
        f"{word} {getattr(part, name)}"
        for part in [*field.metadata, *_metadata_in(field.annotation)]
        for name, word in words.items()
        if getattr(part, name, None) is not None
    ]
    return ", ".join([_type(field.annotation), *bounds])


def _metadata_in(annotation: Any) -> list[Any]:
    return [part for one in get_args(annotation) for part in getattr(one, "__metadata__", ())]


def _type(annotation: Any) -> str:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return "one of " + ", ".join(f"`{value}`" for value in arguments)
    if origin in (Union, types.UnionType):
        return " or ".join("null" if one is type(None) else _type(one) for one in arguments)
    if hasattr(annotation, "__metadata__"):
        return _type(arguments[0])
    if origin in (tuple, list):
        inner = list(dict.fromkeys(_type(one) for one in arguments if one is not Ellipsis))
        return f"list of {', '.join(inner)}"
    if origin is not None:
        return "keys and values"
    if annotation is Any:
        return "any"
    return {"str": "text", "int": "integer", "bool": "true or false", "float": "number"}.get(
        annotation.__name__, "its own keys"
    )


def _shown(value: Any) -> str:
    text = {None: "null", True: "true", False: "false"}.get(value) if isinstance(value, bool | None) else None
    return text or (str(list(value)) if isinstance(value, tuple) else str(value)) or '""'


def _plain(text: str) -> str:
    """A docstring as Markdown: no hard spaces, no headings, no links of Sphinx."""
    return re.sub(r"``([^`]+)``", r"`\1`", inspect.cleandoc(text)).replace("::\n", ":\n").replace("\f", "")


def _cell(text: str) -> str:
    return _plain(text).replace("|", "\\|").replace("\n", " ")


if __name__ == "__main__":
    sys.exit(main())
