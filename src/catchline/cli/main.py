"""``catchline``: command names and one-line helps as literals; a command is imported when it is asked for.

Help and ``--version`` therefore import neither torch nor typer. What a command raises becomes one sentence
on stderr and an exit code (`EXIT_CODES`); where the output pipe was closed (``| head``) it is 141.

``CATCHLINE_TRACEBACK=1`` prints the Python traceback as well.
"""

from __future__ import annotations

import gc
import os
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from pkgutil import resolve_name
from typing import Any

from catchline import __version__
from catchline.errors import CatchlineError, ConfigError, DiskFullError, is_disk_full, missing_package, unknown_choice
from catchline.text.control import safe_print

EXIT_INTERRUPTED, EXIT_BROKEN_PIPE = 130, 141

# name -> (module:attribute, one line of help). The attribute is a function with typer's annotations, or a
# `typer.Typer` with sub-commands.
COMMANDS: dict[str, tuple[str, str]] = {
    "train": ("catchline.cli.train:command", "Train a recipe's row on your pairs."),
    "resume": ("catchline.cli.train:resume", "Resume an interrupted run, bit for bit."),
    "summarize": ("catchline.cli.summarize:command", "Summarize text, files, JSON lines or standard input."),
    "evaluate": ("catchline.cli.evaluate:command", "Score models and extractive methods on a data set."),
    "compare": ("catchline.cli.compare:command", "Train and score a recipe's rows, or systems, in one table."),
    "explain": ("catchline.cli.explain:command", "Show where each word of a summary came from."),
    "serve": ("catchline.cli.serve:command", "Serve models over HTTP, with a page to try them."),
    "export": ("catchline.cli.export:command", "Write a model as ONNX models that run without torch."),
    "rouge": ("catchline.cli.rouge:command", "Score a file of summaries against references by ROUGE."),
    "check": ("catchline.cli.check:command", "Find claims of a summary that its document lacks."),
    "data": ("catchline.cli.data:app", "Check or describe data sets."),
    "recipes": ("catchline.cli.recipes:command", "List, show and check the recipes."),
    "doctor": ("catchline.cli.doctor:command", "List installed and missing parts, and this machine's devices."),
    "push": ("catchline.cli.export:push", "Upload a model to the Hugging Face hub."),
}

# Commands of catchline-study, which it adds by entry points: `data subset` is the one named `data.subset`.
STUDY: dict[str, str] = {
    "align": "Find the attention head that aligns words best, and draw attention.",
    "breakdown": "Score systems by the length of documents.",
    "calibrate": "Fit a model's confidence to ratings or references.",
    "judge": "Make blinded sheets for human evaluation, and analyse them.",
    "plot": "Draw the training curves of one or several runs.",
    "reproduce": "Reproduce a table of docs/results.md.",
    "teach": "Make pairs to train on: texts with lines that a system writes.",
    "tune": "Search for the best decoding settings on validation data.",
    "data debian": "Build a corpus from apt's index.",
    "data docstrings": "Build a corpus from the docstrings of Python packages.",
    "data haystack": "Hide one document among many, after its first sentence.",
    "data prepare": "Prepare Gigaword, DUC, SAMSum or CNN/DailyMail as papers did.",
    "data select-spans": "Select spans of running text to pre-train on.",
    "data subset": "Write a part of a data set.",
}

ABOUT = "Train, compare, explain and serve attention- and copy-based abstractive summarizers."


def quiet() -> bool:
    """Was ``catchline --quiet`` (or ``CATCHLINE_QUIET``) given?"""
    return bool(os.environ.get("CATCHLINE_QUIET"))


def say(text: str) -> None:
    """Say on stderr what must be said, with ``--quiet`` too."""
    safe_print(f"catchline: {text}", file=sys.stderr, flush=True)


def note(text: str) -> None:
    """Say something on stderr unless ``--quiet`` is given."""
    if not quiet():
        say(text)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return its exit code. ``argv`` defaults to the process's arguments."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # closed by who started us: `catchline ... >&-`
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115, it stays open
    was_quiet = os.environ.get("CATCHLINE_QUIET")
    # before torch is imported: waiting threads give the core away, and oneDNN keeps fewer prepared products
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "128")
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")  # it reads what all installed packages say of them
    try:
        code = _dispatch(arguments)
        sys.stdout.flush()
    except Exception as error:
        code = _report(error)
    except KeyboardInterrupt as interrupt:
        say(str(interrupt) or "Interrupted.")
        code = EXIT_INTERRUPTED
    finally:
        if was_quiet is None:
            os.environ.pop("CATCHLINE_QUIET", None)
    if code == EXIT_BROKEN_PIPE:  # keep the interpreter's own flush at exit from complaining about the closed pipe
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return code


def _dispatch(arguments: list[str]) -> int:
    while arguments and arguments[0].startswith("-"):
        option = arguments.pop(0)
        if option in {"--help", "-h"}:
            print(help_text())
            return 0
        if option in {"--version", "-V"}:
            print(f"catchline {__version__}")
            return 0
        if option not in {"--quiet", "-q"}:
            raise ConfigError(unknown_choice("option", option, ["--help", "--version", "--quiet"]))
        os.environ["CATCHLINE_QUIET"] = "1"
    if arguments[:1] == ["help"]:
        return _dispatch([*arguments[1:], "--help"])
    if not arguments:
        print(FIRST_SCREEN)
        return 0
    name = " ".join(arguments[:2])
    return _run(name, arguments[2:]) if name in STUDY else _run(arguments[0], arguments[1:])


FIRST_SCREEN = f"""{ABOUT}

Summarize with the bundled model (Ctrl-D ends the text):
  catchline summarize                             type or paste a text
  catchline summarize article.txt                 or page.html, or articles.csv
  catchline explain article.txt --html why.html   where each word came from

Train your own model on a file with a document and a summary in each record:
  catchline data check pairs.csv                  describe the file and its problems
  catchline train oneline --data pairs.csv --out runs/mine
  catchline summarize runs/mine article.txt
  catchline serve runs/mine                       a page to try it

catchline --help lists the commands, catchline COMMAND --help describes one, catchline doctor lists missing parts."""

EXIT_CODES = {
    "0": "done",
    "1": "a file cannot be used, a row of compare failed, or serve dropped requests",
    "2": "an unknown or invalid command, option, recipe or name",
    "3": "bad or missing data",
    "4": "a missing or damaged model",
    "5": "a missing or damaged checkpoint",
    "6": "training cannot continue",
    "7": "the disk is full",
    "130": "interrupted",
    "141": "the reader of the output closed it, as `head` does",
}
VARIABLES = {
    "CATCHLINE_QUIET": "as --quiet",
    "CATCHLINE_TRACEBACK": "show the Python traceback of errors as well",
    "CATCHLINE_KERNELS": "off: use the papers' equations directly, slower",
    "CATCHLINE_TOKEN": "the token that clients of `catchline serve` must send",
    "CATCHLINE_CACHE": "folder of encoded training data (~/.cache/catchline); off: none",
    "OMP_NUM_THREADS": "number of CPU threads",
    "OMP_WAIT_POLICY": "how threads wait for each other (default: passive)",
    "ONEDNN_PRIMITIVE_CACHE_CAPACITY": "size of oneDNN's cache (default: 128)",
    "HF_TOKEN, HF_HOME, HF_HUB_OFFLINE": "settings of the Hugging Face hub",
}


def help_text() -> str:
    """The text of ``catchline --help``."""
    sections = {
        "Commands": {name: line for name, (_, line) in COMMANDS.items()},
        "Commands of catchline-study (pip install ./study)": STUDY,
        "Options": {
            "--quiet": "Hide progress on stderr.",
            "--version": "Print the version.",
            "--help": "Show this text; `catchline COMMAND --help` describes a command.",
        },
        "Exit codes": EXIT_CODES,
        "Environment variables": VARIABLES,
    }
    parts = [f"Usage: catchline [OPTIONS] COMMAND [ARGUMENTS]...\n\n{ABOUT}"]
    for title, lines in sections.items():
        width = max(map(len, [*COMMANDS, *STUDY, *lines])) + 2
        parts.append("\n".join([f"{title}:", *(f"  {name:<{width}}{meaning}" for name, meaning in lines.items())]))
    return "\n\n".join([*parts, "Start with: catchline summarize article.txt"])


def load_command(name: str) -> Any:
    """Import the command called ``name`` and return typer's command object for it."""
    place = COMMANDS[name][0] if name in COMMANDS else _place_in_study(name)
    from typer import Typer
    from typer.main import get_command

    from catchline.cli.options import Commands

    command = resolve_name(place)
    if not isinstance(command, Typer):
        app = Commands()
        app.command(name)(command)
        command = app
    return get_command(command)


def _place_in_study(name: str) -> str:
    """Where the command called ``name`` is in catchline-study."""
    from importlib.metadata import entry_points

    if name not in STUDY:
        raise ConfigError(unknown_choice("command", name, [*COMMANDS, *STUDY]))
    for found in entry_points(group="catchline.commands", name=name.replace(" ", ".")):
        return found.value
    raise ConfigError(f"`catchline {name}` is a command of catchline-study, not installed here: pip install ./study")


def _run(name: str, arguments: list[str]) -> int:
    gc.disable()  # what is imported stays: looking through it for what could go costs a fifth of a short command
    try:
        command = load_command(name)
    finally:
        gc.freeze()
        gc.enable()
    from typer import Exit, TyperException

    from catchline.cli.options import described

    try:
        with command.make_context(f"catchline {name}", arguments) as context:
            command.invoke(context)
    except Exit as stop:
        return int(stop.exit_code)
    except TyperException as error:  # a wrong option or argument
        if message := described(error):
            context = getattr(error, "ctx", None)
            say(f"{message} See `{context.command_path if context else f'catchline {name}'} --help`.")
        return 2
    return 0


def _report(error: Exception) -> int:
    """Print one sentence for ``error`` and return the exit code; errors of our own keep their traceback."""
    if os.environ.get("CATCHLINE_TRACEBACK"):
        traceback.print_exception(error)
    if isinstance(error, CatchlineError):
        say(str(error))
        return error.exit_code
    if isinstance(error, BrokenPipeError):
        return EXIT_BROKEN_PIPE
    if (missing := missing_package(error)) is not None:
        say(missing)
        return ConfigError.exit_code
    if is_disk_full(error):
        # of two names the second is where to: a copy names what it reads as well
        name = (error.filename2 or error.filename) if isinstance(error, OSError) else None
        where = f" while writing {name}" if name else ""
        say(
            f"The disk is full{where}. Completed parts are kept; free some space and run the command again "
            "(`catchline resume RUN` for training)."
        )
        return DiskFullError.exit_code
    if isinstance(error, OSError) and error.filename is not None:
        instead = "; name a file" if isinstance(error, IsADirectoryError) else ""
        say(f"Cannot use {error.filename}: {(error.strerror or str(error)).lower()}{instead}.")
        return 1
    if isinstance(error, MemoryError):
        say("There is not enough memory; use a smaller batch size, shorter texts or a smaller size of the recipe.")
        return 1
    if not os.environ.get("CATCHLINE_TRACEBACK"):
        traceback.print_exception(error)
    from catchline.config.names import outside_run

    if outside_run:
        say(f"This is a bug in {' or '.join(sorted(outside_run))}, which this command ran, or in Catchline.")
    else:
        say("This is a bug in Catchline; please report it with the lines above.")
    return 1


def entry() -> None:
    """The console script."""
    sys.exit(main())


if __name__ == "__main__":
    entry()
