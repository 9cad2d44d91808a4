"""``catchline recipes``: which recipes there are, what one of their rows resolves to, and whether all are sound."""

from __future__ import annotations

from itertools import product
from typing import Annotated, Any

import yaml
from typer import Argument, Context

from catchline.cli.io import aligned, print_result
from catchline.cli.options import AsJson, Commands, RecipeKeys, Row, Size
from catchline.config.loading import (
    dump_run,
    load_recipe,
    merge,
    parse_overrides,
    recipe_names,
    resolve_method,
    resolve_run,
)
from catchline.config.names import EXTRACTIVE, check_run, parse
from catchline.config.schema import Recipe
from catchline.errors import CatchlineError, ConfigError
from catchline.text.control import safe_print as print

command = Commands("List, show and check the recipes.", invoke_without_command=True)


@command.callback()
def list_recipes(context: Context, as_json: AsJson = False) -> None:
    """List the recipes with their rows and sizes; see also `show` and `check`."""
    if context.invoked_subcommand is not None:
        return
    recipes = [_described(load_recipe(name)) for name in recipe_names()]
    print_result(as_json, [values for values, _ in recipes], "\n".join(text for _, text in recipes))


@command.command("show")
def show(
    name: Annotated[str, Argument(help="A recipe's name or a YAML file.")],
    row: Row = None,
    size: Size = None,
    overrides: RecipeKeys = None,
) -> None:
    """Print the settings of a recipe, a row, a size and --set, as YAML."""
    recipe = load_recipe(name)
    if recipe.extractive:
        method = merge(resolve_method(recipe, row, size), parse_overrides(overrides or []))
        config = parse("extractive method", EXTRACTIVE, method)[1]
        print(yaml.safe_dump({"type": method["type"], **config.model_dump(mode="json")}, sort_keys=False), end="")
        return
    run = resolve_run(recipe, row, size, overrides or [])
    check_run(run)
    print(dump_run(run), end="")


@command.command("check")
def check(
    file: Annotated[str | None, Argument(help="A recipe's name or a YAML file (default: all recipes).")] = None,
) -> None:
    """Resolve every row in every size and build the configuration of every component."""
    problems, checked = dict[tuple[str, str], list[str]](), 0
    for name in [file] if file else recipe_names():
        recipe = load_recipe(name)
        for row, size in product(recipe.rows, recipe.sizes):
            checked += 1
            try:
                if recipe.extractive:
                    parse("extractive method", EXTRACTIVE, resolve_method(recipe, row, size))
                    continue
                check_run(resolve_run(recipe, row, size))
            except CatchlineError as error:
                problems.setdefault((name, str(error)), []).append(f"row {row}, size {size}")
    if problems:
        lines = [f"{sum(map(len, problems.values()))} of {checked} combinations are wrong:"]
        for (name, text), where in problems.items():  # each once, with the first combination that it is true of
            more = f" and {len(where) - 1} more" if where[1:] else ""
            lines.append(f"{name}, {where[0]}{more}: {text}")
        raise ConfigError("\n".join(lines))
    print(f"{checked} combinations of recipe, row and size are sound.")


def _described(recipe: Recipe) -> tuple[dict[str, Any], str]:
    """A recipe for machines, and for people."""
    rows = {name: row.label for name, row in recipe.rows.items()}
    sizes = {name: size.description for name, size in recipe.sizes.items()}
    values = {name: getattr(recipe, name) for name in ("name", "title", "default_row", "default_size")}
    values |= {"rows": rows, "sizes": sizes, "extractive_rows": list(recipe.extractive_rows)}

    def lines(entries: dict[str, str], default: str) -> str:
        marked = [(f"  {name}{' *' if name == default else ''}", text) for name, text in entries.items()]
        return "\n".join(aligned(("", ""), marked, left=2).splitlines()[2:])

    shown = f" rows (* default)\n{lines(rows, recipe.default_row)}\n sizes\n{lines(sizes, recipe.default_size)}"
    extractive = f"\n extractive rows: {', '.join(recipe.extractive_rows)}" if recipe.extractive_rows else ""
    return values, f"{recipe.name}: {recipe.title}\n{shown}{extractive}\n"
