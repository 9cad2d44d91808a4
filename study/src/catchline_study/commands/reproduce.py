"""``catchline reproduce``: the tables of docs/results.md, from their commands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Exit, Option

from catchline.cli.compare import Earlier
from catchline.cli.io import aligned, say
from catchline.errors import ConfigError
from catchline.text.control import safe_print as print
from catchline_study.reproduce import COMPARISONS, commands, findings, run, shown, table_named, tables


def command(
    table: Annotated[str | None, Argument(metavar="[TABLE]", help="The table (default: list all).")] = None,
    data: Annotated[
        Path | None, Option(help="Read corpora in this folder: one folder each, with train and validation files.")
    ] = None,
    out: Annotated[Path, Option(help="Write tables, runs and splits to this folder.")] = Path("runs/tables"),
    earlier: Earlier = None,
    dry_run: Annotated[bool, Option("--dry-run", help="Print the commands and run none.")] = False,
) -> None:
    """Reproduce a table of docs/results.md: hold pairs out for selection, train every row, score, compare.

    Each step is its own command, printed before it runs; interrupted, the same command continues. A row takes about
    twenty minutes of one core. Without --data the claims are tested on what is scored in --out (such as study/tables).
    """
    if table is None:
        listed = [[t.name, t.title, ", ".join(t.corpora)] for t in tables().values()]
        print(aligned(["table", "what it tests", "corpora"], listed, left=3))
        return
    chosen = table_named(table)
    code = 0
    if data is not None:
        lines = commands(chosen, data, out, earlier or [])
        if dry_run:
            print("\n".join(map(shown, lines)))
            return
        code = run(lines, say, out / chosen.name, earlier or [])
    rows = [
        [f.claim.name, f.claim.says, f"{f.difference:+.2f} [{f.low:+.2f}, {f.high:+.2f}]", f"{f.p:.4f}", f.verdict]
        for f in findings(chosen, out)
    ]
    if data is None and (dry_run or not rows):
        raise ConfigError(f"Which corpora? --data DIR, a folder with {' and '.join(chosen.corpora)} in it.")
    if rows:
        print(aligned(["claim", "says", "difference, 95%", f"p x {COMPARISONS}", "verdict"], rows, left=2))
    if code:
        raise Exit(code)
