"""An option that a message names is an option of a command."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import catchline
from catchline.cli.main import COMMANDS, load_command

SOURCE = Path(catchline.__file__).parent
KNOWN = {"--help", "--quiet", "--version", "--install-completion", "--show-completion"}
# of another program or distribution: `accelerate launch --num_processes 2`, `catchline data subset`
ELSEWHERE = re.compile(r"(?:accelerate launch|torchrun|pip install|data subset)[^`]*")


def options_of(command: object) -> Iterator[str]:
    for parameter in getattr(command, "params", ()):
        yield from (*parameter.opts, *parameter.secondary_opts)
    for below in getattr(command, "commands", {}).values():
        yield from options_of(below)


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """The strings of a file; an f-string is one text."""
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    formatted = [node for node in nodes if isinstance(node, ast.JoinedStr)]
    inner = {id(part) for node in formatted for part in node.values}
    for node in nodes:
        if isinstance(node, ast.JoinedStr):
            yield node.lineno, "".join(str(getattr(part, "value", "X")) for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inner:
            yield node.lineno, node.value


def wrong_options(text: str, known: set[str]) -> list[str]:
    return [option for option in re.findall(r"(?<![\w-])--[a-z][\w-]+", ELSEWHERE.sub("", text)) if option not in known]


def test_options_in_messages_exist() -> None:
    known = KNOWN | {option for name in COMMANDS for option in options_of(load_command(name))}
    wrong = [
        f"{path.relative_to(SOURCE)}:{line}: {option}"
        for path in sorted(SOURCE.rglob("*.py"))
        for line, text in texts(path)
        for option in wrong_options(text, known)
    ]
    assert not wrong, "\n".join(wrong)


def test_the_check_finds_what_is_wrong() -> None:
    assert wrong_options("use --skip-badly", KNOWN | {"--skip-bad"}) == ["--skip-badly"]
    assert not wrong_options("use --skip-bad, or pip install --user x", KNOWN | {"--skip-bad"})
