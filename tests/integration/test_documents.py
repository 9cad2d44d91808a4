"""What the pages say is true: files, links, commands, options, keys and functions exist; and the site."""

from __future__ import annotations

import ast
import inspect
import re
import shlex
from pathlib import Path
from types import ModuleType
from typing import Any, get_args

import pytest
import typer
from pydantic import BaseModel

from catchline.cli.main import COMMANDS, STUDY, load_command
from catchline.config import names
from catchline.config.loading import load_recipe, recipe_names
from catchline.config.schema import RunConfig
from commands import program

ROOT = Path(__file__).parent.parent.parent
DOCS = sorted((ROOT / "docs").glob("*.md"))
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *DOCS]
TEXTS = {page.name: page.read_text(encoding="utf-8") for page in PAGES}
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
PROSE = {name: FENCE.sub("", text) for name, text in TEXTS.items()}
NAMES = sorted(TEXTS)


def blocks(language: str) -> list[tuple[str, str]]:
    """(page, text) of every fenced block of a language."""
    joined = {name: text.replace("\\\n", " ") for name, text in TEXTS.items()}
    return [(name, text) for name in NAMES for kind, text in FENCE.findall(joined[name]) if kind == language]


def command_lines() -> list[tuple[str, str]]:
    """(page, ``catchline`` line) of every block without a language and of every code span that is a whole command."""
    found = [
        (page, line[line.index("catchline") :].split(" | ")[0])
        for page, text in blocks("")
        for line in text.splitlines()
        if re.search(r"(^|[ /])catchline [a-z]", line)
    ]
    spans = [(name, span) for name in NAMES for span in re.findall(r"`(catchline\s[a-z]+\s[^`]+)`", PROSE[name])]
    lines = found + [(name, re.sub(r"\s+", " ", span)) for name, span in spans]
    return [(page, line) for page, line in lines if not re.fullmatch(r"catchline data [a-z-]+", line)]


LINES = command_lines()


def parse(line: str) -> None:
    """Parse a command as typer would, without running it."""
    words = shlex.split(line)[1:]
    size = 2 if " ".join(words[:2]) in STUDY else 1
    name, arguments = " ".join(words[:size]), words[size:]
    if name in STUDY:
        pytest.importorskip("catchline_study")
    command = load_command(name)
    while hasattr(command, "commands") and arguments and not arguments[0].startswith("-"):
        command, arguments = command.commands[arguments[0]], arguments[1:]
    with command.make_context(f"catchline {name}", arguments):
        pass


@pytest.mark.parametrize(("page", "line"), LINES, ids=[f"{page}: {line}" for page, line in LINES])
def test_every_command_line_parses(page: str, line: str) -> None:
    parse(line)
    words = shlex.split(line)
    recipes = {name: load_recipe(name) for name in recipe_names()}
    recipe = next((recipes[word] for word in words if word in recipes), recipes["headline_writer"])
    for option, known in (("--row", recipe.rows), ("--size", recipe.sizes)):
        assert option not in words or words[words.index(option) + 1] in {*known, "auto"}


def test_commands_were_found_and_wrong_ones_do_not_parse() -> None:
    assert {"train", "resume", "summarize", "evaluate", "explain", "recipes", "data", "rouge", "serve"} <= {
        line.split()[1] for _, line in LINES
    }
    for line in ("catchline train headline_writer --rwo x", "catchline recipes shwo x"):
        with pytest.raises((typer.TyperException, KeyError)):
            parse(line)


def parameters(command: Any) -> set[str]:
    if inner := getattr(command, "commands", None):
        return set().union(*map(parameters, inner.values()))
    return {option for parameter in command.params for option in [*parameter.opts, *parameter.secondary_opts]}


@pytest.mark.parametrize("name", NAMES)
def test_options_and_keys_that_are_named_exist(name: str) -> None:
    pytest.importorskip("catchline_study")
    known = set().union(*(parameters(load_command(command)) for command in (*COMMANDS, *STUDY)))
    known |= {"--help", "--quiet", "--version", "--nproc"}
    spans = re.findall(r"`([^`\n]+)`", PROSE[name])
    options = {word for span in spans if re.match(r"--[a-z]", span) for word in re.findall(r"^--[a-z][a-z0-9-]+", span)}
    assert options <= known, options - known
    sections = "|".join(RunConfig.model_fields)
    keys = {span for span in spans if re.fullmatch(rf"(?:{sections})(?:\[\])?(?:\.[a-z_]+(?:\[\])?)+", span)}
    unknown = {key for key in keys if key.rsplit(".", 1)[1].removesuffix("[]") not in all_keys()}
    assert unknown <= {"model.safetensors"}


def all_keys() -> set[str]:
    """The last parts of all keys of recipes."""

    def inside(cls: type[BaseModel]) -> set[str]:
        groups = [part for field in cls.model_fields.values() for part in parts(field.annotation)]
        return set(cls.model_fields).union(*map(inside, groups))

    def parts(annotation: Any) -> list[type[BaseModel]]:
        here = [annotation] if inspect.isclass(annotation) and issubclass(annotation, BaseModel) else []
        return here + [part for one in get_args(annotation) for part in parts(one)]

    tables = [value for key, value in vars(names).items() if key.isupper() and isinstance(value, dict)]
    classes = [names.resolve("component", table, entry) for table in tables for entry in table]
    return inside(RunConfig).union(*(cls.Config.model_fields for cls in classes))


def anchors(text: str) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    plain = [re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading) for heading in headings]
    return {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in plain}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_anchors_and_paths_exist(page: Path) -> None:
    text = PROSE[page.name]
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        place, _, anchor = target.partition("#")
        if "://" not in target:
            assert not place or (page.parent / place).exists(), target
            if anchor:
                assert anchor in anchors(PROSE[Path(place).name] if place else text), target
    named = re.findall(r"`((?:src|tests|docs|benchmarks|study|examples|notebooks|deploy)/[\w./-]+)`", text)
    written = re.findall(r"^`([\w./-]+)`:\n\n```", TEXTS[page.name], re.MULTILINE)  # files that the reader writes
    assert not [path for path in named if not (ROOT / path).exists() and path not in written]


@pytest.mark.parametrize("name", ["headline_writer", "distraction", "coarse_to_fine", "contrastive", "coconet"])
def test_functions_of_the_equation_table_exist(name: str) -> None:
    """`function` in [file](../src/file.py) of a paper's page; without a file it is the one named above the table."""
    section = TEXTS[f"{name}.md"].split("## Where the equations are")[1].split("\n## ")[0]
    usual = re.search(r"Functions are\s+in\s+\[`[\w/.]+`\]\(\.\./(src/[\w/.]+)\)", section)
    assert usual, "the file of most functions is not named"
    checked = 0
    for row in re.finditer(r"\| ((?:`\w+`(?:, )?)+)(?: in \[`[\w/.]+`\]\(\.\./(src/[\w/.]+)\))? \|$", section, re.M):
        tree = ast.parse((ROOT / (row[2] or usual[1])).read_text(encoding="utf-8"))
        defined = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)}
        assert set(re.findall(r"`(\w+)`", row[1])) <= defined, row[0]
        checked += 1
    assert checked >= 8


@pytest.mark.parametrize(("page", "code"), blocks("python"), ids=lambda value: value[:20])
def test_python_examples_name_what_exists(page: str, code: str) -> None:
    tree = ast.parse(f"{{{code}}}" if code.startswith(" ") else code)  # what is indented are lines of a table
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            if (node.module or "").startswith("catchline_study"):
                pytest.importorskip("catchline_study")
            module = __import__(node.module or "", fromlist=[alias.name for alias in node.names])
            for alias in node.names:
                assert hasattr(module, alias.name), f"{page}: {node.module} has no {alias.name}"


def test_the_makefile_and_ci_have_what_the_pages_name() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = {target for text in TEXTS.values() for target in re.findall(r"(?:^|`)make ([a-z-]+)", text, re.MULTILINE)}
    assert named | {"demo", "test", "test-all", "check", "bench", "clean", "help"} <= targets
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert all(part in script for part in ("set -euo pipefail", "make test\n", "make check"))
    assert (ROOT / ".ci" / "run").stat().st_mode & 0o111


# ----------------------------------------------------------------------------------------------- the site


@pytest.fixture(scope="module")
def site() -> ModuleType:
    return program("site_pages")


def test_every_page_is_in_the_contents(site: ModuleType) -> None:
    pages = {place for place in site.site_pages() if not place.startswith("source/")} | {"brand_new.md"}
    assert {"index.md", *(page.name for page in DOCS)} <= pages
    listed = [place for section in site.navigation(pages) for places in section.values() for place in places]
    assert sorted(listed) == sorted(place for place in pages if place.endswith(".md"))
