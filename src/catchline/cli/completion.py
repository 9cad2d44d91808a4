"""``catchline completion``: commands, their options and file names at the touch of the tab key.

The script is made once and holds the words itself, so that no key waits for Python.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

from typer import Argument

from catchline.cli.main import COMMANDS, load_command
from catchline.cli.options import options_of
from catchline.config.loading import recipe_names
from catchline.errors import refuse_unknown
from catchline.text.normalization import safe_print as print

SHELLS = ("bash", "zsh", "fish")
TAKE_RECIPES = ("train", "compare", "recipes show", "recipes check")

_BASH = """\
_catchline() {{
  local word="${{COMP_WORDS[COMP_CWORD]}}" command="${{COMP_WORDS[1]}}" words=""
  if [ "$COMP_CWORD" -eq 1 ]; then words="{commands}"
  else
    case "$command ${{COMP_WORDS[2]}} ${{COMP_WORDS[3]}} " in
{cases}
    esac
  fi
  COMPREPLY=($(compgen -W "$words" -- "$word"))
  case "$word" in -*) ;; *) COMPREPLY+=($(compgen -f -- "$word")) ;; esac
}}
complete -o filenames -F _catchline catchline
"""


def command(shell: Annotated[str, Argument(metavar="SHELL", help="bash, zsh or fish.")]) -> None:
    """Print the completion script of a shell.

    bash: `source <(catchline completion bash)`, in ~/.bashrc for good; zsh: the same with zsh, in ~/.zshrc.
    fish: `catchline completion fish > ~/.config/fish/completions/catchline.fish`.
    """
    refuse_unknown("shell", shell, SHELLS)
    print(fish(words()) if shell == "fish" else bash(words(), zsh=shell == "zsh"), end="")


def words() -> dict[str, list[str]]:
    """By command, and by command and sub-command, what may follow: sub-commands, recipes, options."""
    return dict(entry for name in COMMANDS for entry in _following(name, load_command(name)))


def _following(name: str, command: Any) -> Iterator[tuple[str, list[str]]]:
    options = sorted({*(option for option in options_of(command) if option.startswith("--")), "--help"})
    subs = getattr(command, "commands", {})
    recipes = recipe_names() if name in TAKE_RECIPES else []
    yield name, [*subs, *recipes, *options]
    for sub, below in subs.items():
        yield from _following(f"{name} {sub}", below)


def bash(found: dict[str, list[str]], *, zsh: bool = False) -> str:
    """The script of bash, which zsh understands too."""
    order = sorted(found, key=lambda name: -name.count(" "))  # the longer name first
    cases = "\n".join(f'      "{name} "*) words="{" ".join(found[name])}" ;;' for name in order)
    script = _BASH.format(commands=" ".join(COMMANDS), cases=cases)
    return f"autoload -U +X bashcompinit && bashcompinit\n{script}" if zsh else script


def fish(found: dict[str, list[str]]) -> str:
    start = "complete -c catchline -n __fish_use_subcommand"
    lines = [f'{start} -a {name} -d "{text}"' for name, (_, text) in COMMANDS.items()]
    for name, following in found.items():
        first, _, sub = name.partition(" ")
        where = f"__fish_seen_subcommand_from {first}" + (f"; and __fish_seen_subcommand_from {sub}" if sub else "")
        plain = [word for word in following if not word.startswith("--")]
        if plain:
            lines.append(f"complete -c catchline -n '{where}' -a '{' '.join(plain)}'")
        lines += [f"complete -c catchline -n '{where}' -l {word[2:]}" for word in following if word.startswith("--")]
    return "\n".join(lines) + "\n"
