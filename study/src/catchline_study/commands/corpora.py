"""``catchline data docstrings`` and ``debian``: corpora built out of what is installed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from catchline.cli.io import aligned, print_result, progress
from catchline.cli.options import AsJson
from catchline.errors import DataError
from catchline_study.corpora.debian import build_debian
from catchline_study.corpora.docstrings import build_corpus, learnt_packages

OutFolder = Annotated[Path, Argument(metavar="OUT", help="The folder to write.")]


def docstrings_command(
    out: OutFolder,
    root: Annotated[list[Path] | None, Option(help="Read this folder (default: this Python's packages).")] = None,
    standard_library: Annotated[bool, Option(help="Read the standard library too.")] = True,
    permissive: Annotated[
        bool, Option("--permissive", help="Read only packages with a permissive licence in their metadata.")
    ] = False,
    validation: Annotated[
        int | None, Option(min=1, help="Hold out this many pairs, for validation only (default: a tenth each).")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Build a corpus of (body, summary line) pairs from the docstrings of installed packages.

    The packages are read, not imported, and no network is used. Whole packages go to one split; installed ones that the
    bundled model learnt from are not held out. stats.json tells what was read; with --permissive also the version
    and licence of each package, and those left out for theirs.
    """
    for folder in root or []:
        if not folder.is_dir():
            raise DataError(f"{folder} is not a folder of Python packages.")
    with progress("Collecting docstrings") as bar:
        stats = build_corpus(
            out,
            roots=root,
            standard_library=standard_library,
            permissive=permissive,
            validation=validation,
            in_training=() if permissive else learnt_packages(),
            progress=bar.update,
        )
    rows = [
        [name, f"{len(split['packages'])}", f"{split['pairs']:,}", *(f"{mean:.0f}" for mean in split["words"])]
        for name, split in stats.splits.items()
    ]
    told = [aligned(["split", "packages", "pairs", "words a body", "words a summary"], rows), ""]
    read = stats.read
    told.append(f"{read['docstrings']:,} docstrings in {read['files']:,} files read; left out: {stats.reasons}.")
    if stats.refused:
        told.append(f"Not read, for no permissive licence is stated: {', '.join(sorted(stats.refused))}.")
    print_result(as_json, stats.as_dict(), "\n".join(told))


def debian_command(
    out: OutFolder,
    lists: Annotated[Path, Option(help="Read apt's index in this folder.")] = Path("/var/lib/apt/lists"),
    validation: Annotated[int | None, Option(min=1, help="Hold out this many pairs for validation.")] = None,
    seed: Annotated[int, Option(help="Set the seed of the hold-out.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Build a corpus of (description, synopsis) pairs from apt's index, on any Debian or Ubuntu.

    One entry a family of packages that say the same; a source package's entries go to one split.
    """
    stats = build_debian(out, lists=lists, validation=validation, seed=seed)
    lines = [f"{out / name}.jsonl: {pairs:,} pairs" for name, pairs in stats.splits.items()]
    read = "{packages:,} packages of {source_packages:,} source packages read".format_map(stats.read)
    lines.append(f"{read}; left out: {stats.reasons}.")
    print_result(as_json, stats.as_dict(), "\n".join(lines))
