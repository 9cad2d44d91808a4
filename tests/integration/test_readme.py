"""What README and docs say is true: files exist, links lead somewhere, commands and options are real."""

from __future__ import annotations

import ast
import re
import shlex
from pathlib import Path

import pytest
import typer

from catchline.cli.main import COMMANDS, STUDY, load_command
from catchline.config.loading import load_recipe, recipe_names

ROOT = Path(__file__).parent.parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def blocks(language: str) -> list[tuple[str, str]]:
    """(page, text) of every fenced block of a language."""
    return [
        (page.name, text)
        for page in PAGES
        for kind, text in FENCE.findall(page.read_text(encoding="utf-8").replace("\\\n", " "))
        if kind == language
    ]


def command_lines() -> list[tuple[str, str]]:
    """(page, ``catchline`` line) of every block without a language, and of every `code span` that is a whole
    command."""
    found = []
    for page, text in blocks(""):
        lines = (line.strip() for line in text.splitlines())
        found += [
            (page, line[line.index("catchline") :]) for line in lines if re.search(r"(^|[ /])catchline [a-z]", line)
        ]
    for page in PAGES:
        without_blocks = FENCE.sub("", page.read_text(encoding="utf-8"))
        found += [(page.name, span) for span in re.findall(r"`(catchline [a-z]+ [^`]+)`", without_blocks)]
    return found


def is_of_the_study(line: str) -> bool:
    words = line.split()
    return words[1] in STUDY or " ".join(words[1:3]) in STUDY


LINES = [(page, line) for page, line in command_lines() if not is_of_the_study(line)]


def test_commands_were_found() -> None:
    assert len(LINES) > 20
    assert {line.split()[1] for _, line in LINES} <= set(COMMANDS)
    assert {"train", "resume", "summarize", "evaluate", "explain", "recipes", "data", "rouge"} <= {
        line.split()[1] for _, line in LINES
    }


@pytest.mark.parametrize(("page", "line"), LINES, ids=[f"{page}: {line}" for page, line in LINES])
def test_every_command_line_parses(page: str, line: str) -> None:
    """The line is parsed as typer would, without running anything."""
    name, *arguments = shlex.split(line)[1:]
    command = load_command(name)
    context = command.make_context(f"catchline {name}", arguments, resilient_parsing=False)
    with context:
        if hasattr(command, "commands") and arguments and not arguments[0].startswith("-"):
            assert arguments[0] in command.commands, f"catchline {name} has no {arguments[0]}"
            sub = command.commands[arguments[0]]
            with sub.make_context(arguments[0], arguments[1:], parent=context):
                pass


def test_a_wrong_line_does_not_parse() -> None:
    with pytest.raises(typer.TyperException):
        test_every_command_line_parses("", "catchline train headline_writer --rwo x")
    with pytest.raises(AssertionError):
        test_every_command_line_parses("", "catchline recipes shwo x")


def test_rows_and_sizes_that_are_named_exist() -> None:
    recipes = {name: load_recipe(name) for name in recipe_names()}
    for _, line in LINES:
        words = shlex.split(line)
        recipe = next((recipes[word] for word in words if word in recipes), recipes["headline_writer"])
        for option, known in (("--row", recipe.rows), ("--size", recipe.sizes)):
            if option in words:
                assert words[words.index(option) + 1] in {*known, "auto"}, line


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_and_paths_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    linked = [target.split("#")[0] for target in re.findall(r"\]\(([^)]+)\)", text) if "://" not in target]
    missing = [target for target in linked if not (page.parent / target).exists()]
    named = re.findall(r"`((?:src|tests|docs|benchmarks)/[\w./-]+)`", FENCE.sub("", text))
    examples = re.findall(
        r"^`([\w./-]+)`:\n\n```", text, re.MULTILINE
    )  # a file that the reader writes stands above its content
    missing += [path for path in named if not (ROOT / path).exists() and path not in examples and "mine" not in path]
    assert not missing


def test_six_files_to_read_first() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    section = text.split("## Six files to read first")[1].split("\n## ")[0]
    paths = re.findall(r"\]\((src/[^)]+)\)", section)
    assert len(paths) == 6
    assert all((ROOT / path).is_file() for path in paths)


@pytest.mark.parametrize("name", ["headline_writer", "distraction", "coarse_to_fine", "contrastive", "coconet"])
def test_functions_of_the_equation_table_exist(name: str) -> None:
    """`function` in [file](../src/file.py) of a paper's page; without a file it is the one named above the table."""
    text = (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")
    section = text.split("## Where the equations are")[1].split("\n## ")[0]
    usual = re.search(r"Functions are in \[`[\w/.]+`\]\(\.\./(src/[\w/.]+)\)", section)
    assert usual, "the file of most functions is not named"
    checked = 0
    for row in section.splitlines():
        found = re.search(r"\| ((?:`\w+`(?:, )?)+)(?: in \[`[\w/.]+`\]\(\.\./(src/[\w/.]+)\))? \|$", row)
        if not found:
            continue
        path = found[2] or usual[1]
        tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
        names = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)}
        for function in re.findall(r"`(\w+)`", found[1]):
            assert function in names, f"{path} has no {function}"
            checked += 1
    assert checked >= 8


@pytest.mark.parametrize(("page", "code"), blocks("python"), ids=lambda value: value[:20])
def test_python_examples_name_what_exists(page: str, code: str) -> None:
    tree = ast.parse(f"{{{code}}}" if code.startswith(" ") else code)  # what is indented are lines of a table
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            module = __import__(node.module or "", fromlist=[alias.name for alias in node.names])
            for alias in node.names:
                assert hasattr(module, alias.name), f"{page}: {node.module} has no {alias.name}"


def test_the_makefile_has_the_targets() -> None:
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", text, re.MULTILINE))
    named = {
        target
        for page in PAGES
        for target in re.findall(r"(?:^|`)make ([a-z-]+)", page.read_text(encoding="utf-8"), re.MULTILINE)
    }
    assert named <= targets
    assert {"demo", "test", "test-all", "check", "bench", "clean", "help"} <= targets


def test_ci_runs_the_readmes_test_command() -> None:
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    assert "set -euo pipefail" in script
    assert "make test\n" in script
    assert "make check" in script
    assert (ROOT / ".ci" / "run").stat().st_mode & 0o111
