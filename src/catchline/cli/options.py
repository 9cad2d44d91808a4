"""The options that several commands have, each declared once; alone, or in groups that one parameter stands for.

A group is a dataclass whose fields are options:

    def command(file: File, *, reading: ReadingOptions, device: Device = "cpu") -> None:
        records = read_with(file, reading.options())
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel
from typer import Context, Option, Typer

from catchline.config.loading import merge, parse_overrides
from catchline.config.names import trusting
from catchline.config.schema import RunConfig, SearchConfig
from catchline.config.spellings import place_of_key
from catchline.data.lines import BadRecordError
from catchline.errors import ConfigError, unknown_choice

if TYPE_CHECKING:
    from catchline.data.readers import ReadOptions


def with_groups(function: Callable[..., None]) -> Callable[..., None]:
    """The command that has, where ``function`` takes a group of options, the options of the group."""
    taken = _parameters(function)
    groups: dict[str, Any] = {one.name: one.annotation for one in taken if is_dataclass(one.annotation)}
    flat: list[inspect.Parameter] = []
    for one in taken:
        flat += _parameters(groups[one.name]) if one.name in groups else [one]

    @functools.wraps(function)
    def command(**given: Any) -> None:
        has = set(given)
        made = {name: group(**{f.name: given.pop(f.name) for f in fields(group)}) for name, group in groups.items()}
        try:
            function(**given, **made)
        except BadRecordError as problem:
            name, value = problem.option or ("", "")
            if name in has:
                option = f"--{name.replace('_', '-')}"
                problem.lead_on(option if value is True else f"{option} {value}")
            raise

    command.__signature__ = inspect.Signature(flat)  # type: ignore[attr-defined]
    command.__annotations__ = {one.name: one.annotation for one in flat}
    return command


def _parameters(of: Callable[..., Any]) -> list[inspect.Parameter]:
    found = inspect.signature(of, eval_str=True).parameters.values()
    return [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in found]


class Commands(Typer):
    """A command, or one that is several, added with ``@app.command(name)``; they may take groups of options."""

    def __init__(self, help: str | None = None, **options: Any) -> None:
        # --beam_size is --beam-size too
        context = {"help_option_names": ["--help", "-h"], "token_normalize_func": lambda name: name.replace("_", "-")}
        super().__init__(add_completion=False, context_settings=context, help=help, **options)

    def command(self, name: str) -> Any:  # type: ignore[override]
        add = super().command(name)
        return lambda function: add(with_groups(function))


def _trust(context: Context, given: bool) -> bool:
    context.with_resource(trusting(given))  # until the command ends
    return given


TrustCode = Annotated[
    bool,
    Option(
        "--trust-code", callback=_trust, help="Run Python classes that the opened folders name; they can do anything."
    ),
]
AsJson = Annotated[bool, Option("--json", help="Print JSON.")]
Device = Annotated[str, Option(help="cpu, cuda, ... or auto.")]
BatchSize = Annotated[int, Option(min=1, help="Records decoded at once.")]
MostAtOnce = Annotated[
    int | None, Option("--batch-size", min=1, help="Records decoded at once; by their length if not given.")
]
Split = Annotated[str, Option(help="Which split of a folder.")]
MaxRecords = Annotated[int | None, Option(min=1, help="Use the first records only.")]
SearchSettings = Annotated[list[str] | None, Option("--set", metavar="KEY=VALUE", help="Any other setting.")]
RecipeKeys = Annotated[list[str] | None, Option("--set", metavar="KEY=VALUE", help="Change a key of the recipe.")]
Row = Annotated[str | None, Option(help="A row of the recipe; its default row if not given.")]
Size = Annotated[str | None, Option(help="A size of the recipe; its default size if not given.")]
DataFormat = Annotated[str, Option("--format", help="Format of the data; by the file's name when auto.")]
DocumentColumn = Annotated[str | None, Option(help="Name of the document's column.")]
SkipBad = Annotated[bool, Option("--skip-bad", help="Leave out and count bad records.")]
MinHumanScore = Annotated[int | None, Option(min=1, max=5, help="Only pairs that people rated so high (LCSTS: 3).")]


def search_settings(given: list[str] | None) -> dict[str, Any]:
    """``--set`` of a command that decodes: keys of the section ``search``, with or without its name."""
    settings = parse_overrides(given or [])
    section = settings.pop("search", {})
    if not isinstance(section, dict):
        raise ConfigError("--set search is a section: name a key of it, for example --set search.beam_size=4.")
    return merge(settings, section)


def check_picture(path: Path, formats: Sequence[str] = (".png", ".svg", ".pdf")) -> None:
    """Refuse the name of a picture that is not to be drawn."""
    if path.suffix not in formats:
        raise ConfigError(unknown_choice("picture format", path.suffix or path.name, formats))


@dataclass(frozen=True)
class ColumnOptions:
    """What a file of pairs looks like."""

    format: DataFormat = "auto"
    document_column: DocumentColumn = None
    summary_column: Annotated[str | None, Option(help="Name of the summary's column.")] = None

    def options(self, **more: Any) -> ReadOptions:
        """How to read; ``more`` are other fields of `ReadOptions`."""
        from catchline.data.readers import ReadOptions

        return ReadOptions(spelled="--{}-column", **vars(self), **more)

    def changes(self) -> dict[str, Any]:
        """What was given, as changes of a recipe."""
        given = {name: value for name, value in vars(self).items() if value not in (None, False, "auto")}
        return {"data": given} if given else {}


@dataclass(frozen=True)
class ReadingOptions(ColumnOptions):
    """The same of a file that may hold bad records."""

    skip_bad: SkipBad = False


@dataclass(frozen=True)
class DocumentOptions:
    """What a file of documents looks like, whether they have summaries or not."""

    format: DataFormat = "auto"
    document_column: DocumentColumn = None
    skip_bad: SkipBad = False


@dataclass(frozen=True)
class DecodingOptions:
    """How summaries are decoded and shown."""

    beam_size: Annotated[int | None, Option(min=1, help="Hypotheses kept at each step.")] = None
    max_length: Annotated[int | None, Option(min=1, help="Largest number of tokens.")] = None
    search: SearchSettings = None
    always_write: Annotated[bool, Option("--always-write", help="What the model wrote, also where it is not sure.")] = (
        False
    )
    raw: Annotated[bool, Option("--raw", help="The words as the model wrote them, nothing mended.")] = False

    def settings(self, model: str, **more: Any) -> dict[str, Any]:
        """What was given, as settings of ``model``, with ``more`` of a command's own.

        An extractive method shows the document's own words, raw or not.
        """
        from catchline.systems.extractive import is_method

        given = {"beam_size": self.beam_size, "max_length": self.max_length, **more}
        settings = {key: value for key, value in given.items() if value is not None} | search_settings(self.search)
        return settings | ({"surface": "raw"} if self.raw and not is_method(model) else {})


# what --set changes in the commands that have it
SET_CHANGES: dict[str, type[BaseModel]] = {
    **dict.fromkeys(("train", "compare", "recipes show"), RunConfig),
    **dict.fromkeys(("summarize", "evaluate", "explain", "tune"), SearchConfig),
}
# what was left out, by command and name
LEFT_OUT = {
    ("train", "recipe"): "The recipe stands first, for example: catchline train oneline --data FILE",
    ("export", "--out"): "The folder to write stands behind it: catchline export MODEL --out DIR",
}


def told(error: Any) -> str:
    """What typer says of a wrong option or argument, as a sentence, with what was meant where that can be guessed."""
    message = error.format_message()
    if message and message[-1] not in ".?!":
        message += "."
    if error.ctx is None:
        return message
    name, command = error.ctx.command_path.removeprefix("catchline "), error.ctx.command
    if message.startswith("No such command"):
        return f"{message} Known: {', '.join(sorted(command.commands))}."
    options = options_of(command)
    if extra := re.search(r"unexpected extra arguments?(?:\(s\))? \((.+)\)", message):
        if "--data" in options and Path(file := extra[1].split()[0]).exists():
            return f"{message} Data is named with --data: --data {file}"
        if {"--set", "--data"} <= options:
            return f"{message} A value of --set stands behind its key without a blank: --set key=value"
        return message
    missing = re.match(r"Missing (?:argument|option) '([\w-]+)'", message)
    if missing and (sentence := LEFT_OUT.get((name, missing[1].lower()))):
        return f"{message} {sentence}."
    given = getattr(error, "option_name", None)
    if given is None or not hasattr(error, "possibilities"):
        return message
    if given in {"--quiet", "-q", "--version", "-V"}:
        return f"{given} stands before the command: catchline {given} {name} ..."
    elsewhere = {
        "recipe": "The recipe stands first: catchline train headline_writer ...",
        "model": f"The model stands first: catchline {name} MODEL ...",
    }
    if name in ("train", "resume", "compare"):
        chooses = "CUDA_VISIBLE_DEVICES chooses among several."
        elsewhere["device"] = f"A training takes the accelerator that is there; {chooses}"
    if place := elsewhere.get(given.lstrip("-")):
        return f"No such option: {given}. {place}"
    meant = meant_option(name, options, given)
    return f"No such option: {given}. Did you mean {meant}?" if meant else message


def meant_option(name: str, options: set[str], given: str) -> str:
    """The option of the command ``name`` that ``given`` stands for, of its ``options`` or a key of --set; or empty."""
    if len(given) > 4 and len(longer := [option for option in options if option.startswith(given)]) == 1:
        return longer[0]
    section = SET_CHANGES.get(name)
    key = place_of_key(given.lstrip("-"), section, []) if section is not None else ""
    own = f"--{key.rpartition('.')[2].replace('_', '-')}"
    return own if key and own in options else f"--set {key}=VALUE" if key else ""


def options_of(command: Any) -> set[str]:
    """The names of a command's options."""
    return {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
