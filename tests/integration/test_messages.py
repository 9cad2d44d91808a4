"""Every option that a message or help text names exists in the commands that can show it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from catchline.cli.main import COMMANDS, load_command
from catchline.cli.options import options_of

SOURCE = Path(__file__).parent.parent.parent / "src" / "catchline"
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z0-9_-]+")
# what a file below the commands says, and who says it: reading data
READING = {"train", "evaluate", "compare"}
SHOWN_BY = {
    "data/columns.py": READING,  # summarize and explain need no summary, and ask for none
    "data/lines.py": READING | {"summarize", "explain"},
    "data/readers.py": READING | {"summarize", "explain"},
    "data/tables.py": READING | {"summarize", "explain"},
    "data/subset.py": {"data stats"},
    "evaluation/comparison.py": {"compare"},
    "server": {"serve"},
    "training/prepare.py": {"train", "compare"},
    "training/run.py": {"train"},
    "training/checkpoint.py": {"train"},
    "systems/bulk.py": {"summarize"},
    "jobs.py": {"summarize"},
    "config/loading.py": {"train", "compare", "summarize", "recipes show"},
    "config/names.py": {"train", "summarize", "evaluate", "serve", "resume"},
    "cli/inputs.py": {"evaluate", "compare"},
    "cli/card.py": {"card", "push"},
    "cli/compare.py": {"compare"},
    "cli/train.py": {"train", "resume"},
}
# files of several commands: one of them has it
SEVERAL = {f"cli/{name}.py" for name in ("card", "compare", "data", "options", "recipes", "train")}
# of all of catchline
OWN = {"cli/options.py": {"--quiet", "--version"}, "cli/main.py": {"--quiet", "--version", "--help"}}
# of another program, or said with the words before it: `catchline train --skip-bad`
ELSEWHERE = re.compile(r"(?:accelerate launch|pip install)[^`\n]*|`?catchline ([a-z]+(?: [a-z-]+)?)([^`\n;]*)`?")


def commands(name: str, command: object) -> Iterator[tuple[str, set[str]]]:
    if hasattr(command, "commands"):
        for sub, found in command.commands.items():
            yield from commands(f"{name} {sub}", found)
        return
    yield name, options_of(command) | {"--help"}


OPTIONS = {name: options for top in COMMANDS for name, options in commands(top, load_command(top))}


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """The strings of a file that somebody may read: docstrings are left out; f-strings are one text each."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    bodies = [node.body for node in ast.walk(tree) if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)]
    silent = {id(body[0].value) for body in bodies if body and isinstance(body[0], ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            silent |= {id(part) for part in node.values}
    for node in ast.walk(tree):
        if id(node) in silent:
            continue
        if isinstance(node, ast.JoinedStr):
            parts = [part.value if isinstance(part, ast.Constant) else "X" for part in node.values]
            yield node.lineno, "".join(map(str, parts))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


def shown_by(file: str) -> set[str]:
    own = Path(file).stem.replace("_", "-")
    found = next((names for place, names in SHOWN_BY.items() if file.startswith(place)), None)
    return {name for name in OPTIONS if name.split()[0] == own} if found is None else found


def wrong_options(file: str, text: str) -> list[str]:
    """What ``text``, said by ``file``, names and nobody has; a command that it spells out is held to itself."""
    found = []
    for command, rest in re.findall(ELSEWHERE, text):
        name = command if command in OPTIONS else command.split()[0] if command else ""
        if name in OPTIONS:
            found += [f"catchline {name} {option}" for option in OPTION.findall(rest) if option not in OPTIONS[name]]
    places = shown_by(file)
    for option in OPTION.findall(ELSEWHERE.sub("", text)):
        if option in OWN.get(file, ()):
            continue
        having = [name for name in places or OPTIONS if option in OPTIONS[name]]
        if not having or (file not in SEVERAL and len(having) < len(places)):
            found.append(f"{option} ({', '.join(sorted(places - set(having)))})")
    return found


def test_options_in_messages_exist() -> None:
    wrong = [
        f"{path.relative_to(SOURCE)}:{line}: {option}"
        for path in sorted(SOURCE.rglob("*.py"))
        for line, text in texts(path)
        if "--" in text
        for option in wrong_options(str(path.relative_to(SOURCE)), text)
    ]
    assert not wrong, "\n".join(wrong)


def test_the_check_finds_what_is_wrong() -> None:
    assert wrong_options("cli/train.py", "use --skip-badly")
    assert wrong_options("cli/train.py", "see `catchline serve RUN --skip-bad`")
    assert wrong_options("data/lines.py", "use --max-records")
    assert not wrong_options("data/lines.py", "use --skip-bad")


def test_places_of_the_table_exist() -> None:
    assert all((SOURCE / place).exists() for place in SHOWN_BY)
    assert all(names <= set(OPTIONS) for names in SHOWN_BY.values())
