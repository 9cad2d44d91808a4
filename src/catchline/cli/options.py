"""The options that several commands have, alone or in groups: dataclasses whose fields are options, for which a command
has one parameter."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Context, Option, Typer

from catchline.config.base import merge
from catchline.config.names import trusting
from catchline.errors import ConfigError, unknown_choice

if TYPE_CHECKING:
    from catchline.data.records import ReadOptions


def with_groups(function: Callable[..., None]) -> Callable[..., None]:
    """The command that has, where ``function`` takes a group of options, the options of the group."""
    taken = _parameters(function)
    groups: dict[str, Any] = {one.name: one.annotation for one in taken if is_dataclass(one.annotation)}
    flat: list[inspect.Parameter] = []
    for one in taken:
        flat += _parameters(groups[one.name]) if one.name in groups else [one]

    @functools.wraps(function)
    def command(**given: Any) -> None:
        made = {name: group(**{f.name: given.pop(f.name) for f in fields(group)}) for name, group in groups.items()}
        function(**given, **made)

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
    Option("--trust-code", callback=_trust, help="Run Python classes that model folders name; they can do anything."),
]
AsJson = Annotated[bool, Option("--json", help="Print JSON.")]
Device = Annotated[str, Option(help="Decode on cpu, cuda, mps or auto.")]
BatchSize = Annotated[int, Option(min=1, help="Decode this many records at once.")]
MostAtOnce = Annotated[
    int | None, Option("--batch-size", min=1, help="Decode this many records at once (default: by their length).")
]
Split = Annotated[str, Option(help="Choose the split of a folder.")]
MaxRecords = Annotated[int | None, Option(min=1, help="Use the first records only.")]
SearchSettings = Annotated[list[str] | None, Option("--set", metavar="KEY=VALUE", help="Change any other setting.")]
RecipeKeys = Annotated[list[str] | None, Option("--set", metavar="KEY=VALUE", help="Change a key of the recipe.")]
Row = Annotated[str | None, Option(help="Choose a row of the recipe (default: its default row).")]
Size = Annotated[str | None, Option(help="Choose a size of the recipe (default: its default size).")]
DataFormat = Annotated[str, Option("--format", help="Set the data format (auto: from the file's name).")]
DocumentColumn = Annotated[str | None, Option(help="Name the document's column.")]
SkipBad = Annotated[bool, Option("--skip-bad", help="Leave out and count bad records.")]
MinHumanScore = Annotated[int | None, Option(min=1, max=5, help="Leave out pairs rated lower by people (LCSTS: 3).")]


def search_settings(given: list[str] | None) -> dict[str, Any]:
    """``--set`` of a command that decodes: keys of the section ``search``, with or without its name."""
    from catchline.config.loading import parse_overrides

    settings = parse_overrides(given or ())
    section = settings.pop("search", {})
    if not isinstance(section, dict):
        raise ConfigError("--set search is a section: name a key of it, for example --set search.beam_size=4.")
    return merge(settings, section)


def check_picture(path: Path, formats: Sequence[str] = (".png", ".svg", ".pdf")) -> None:
    """Refuse a picture of another format."""
    if path.suffix not in formats:
        raise ConfigError(unknown_choice("picture format", path.suffix or path.name, formats))


@dataclass(frozen=True)
class ColumnOptions:
    """What a file of pairs looks like."""

    format: DataFormat = "auto"
    document_column: DocumentColumn = None
    summary_column: Annotated[str | None, Option(help="Name the summary's column.")] = None

    def options(self, **more: Any) -> ReadOptions:
        """How to read; ``more`` are other fields of `ReadOptions`."""
        from catchline.data.records import ReadOptions

        return ReadOptions(**vars(self), **more)

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

    beam_size: Annotated[int | None, Option(min=1, help="Keep this many hypotheses at each step.")] = None
    max_length: Annotated[int | None, Option(min=1, help="Write at most this many tokens.")] = None
    long: Annotated[str | None, Option(help="Read long documents so: truncate, select or parts.")] = None
    words: Annotated[str | None, Option(help="Limit the shown words: 12, or 5-12.")] = None
    characters: Annotated[int | None, Option(min=1, help="Show at most this many characters.")] = None
    sentences: Annotated[int | None, Option(min=1, help="Show at most this many sentences.")] = None
    search: SearchSettings = None
    always_write: Annotated[bool, Option("--always-write", help="Always write the model's line.")] = False
    raw: Annotated[bool, Option("--raw", help="Show the words as the model wrote them, without clean-up.")] = False

    def settings(self, model: str, **more: Any) -> dict[str, Any]:
        """What was given, as settings of ``model``, with ``more`` of a command's own. An extractive method shows the
        document's own words, raw or not."""
        from catchline.summarizer.extractive import is_method
        from catchline.summarizer.summarize import LANGUAGE_MODEL

        names = ("long", "beam_size", "max_length", "words", "characters", "sentences")
        given = {name: getattr(self, name) for name in names} | more
        settings = {key: value for key, value in given.items() if value is not None}
        settings |= search_settings(self.search) if self.search else {}
        decodes = not (is_method(model) or model.startswith(LANGUAGE_MODEL))
        return settings | ({"surface": "raw"} if self.raw and decodes else {})


@dataclass(frozen=True)
class PromptOptions:
    """How language models of a server are prompted."""

    prompt: Annotated[Path | None, Option(help="Send openai: systems the prompt in this file.")] = None
    shots: Annotated[int | None, Option(min=1, max=100, help="Show openai: systems this many pairs.")] = None
    examples: Annotated[
        Path | None, Option(help="Take the pairs for --shots from this file (default: the split train of --data).")
    ] = None

    def settings(self, systems: Sequence[str], data: str | Path | None) -> dict[str, Any]:
        """What was given, as settings of the ``openai:`` systems. Raises ConfigError: there is none."""
        from catchline.data.records import splits_in
        from catchline.summarizer.summarize import LANGUAGE_MODEL

        given = {name: value if name == "shots" else str(value) for name, value in vars(self).items() if value}
        if given and not any(name.startswith(LANGUAGE_MODEL) for name in systems):
            raise ConfigError(f"--{next(iter(given))} is for {LANGUAGE_MODEL} systems, and none is named.")
        train = splits_in(data).get("train") if self.shots and data else None
        return ({"examples": train} if train else {}) | given


def described(error: Any) -> str:
    """Typer's message on a wrong option or argument as a sentence, with the known sub-commands."""
    message: str = error.format_message()
    if message and message[-1] not in ".?!":
        message += "."
    if message.startswith("No such command") and error.ctx is not None:
        return f"{message} Known: {', '.join(sorted(error.ctx.command.commands))}."
    return message
