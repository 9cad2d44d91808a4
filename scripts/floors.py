"""Print the oldest version that each range of pyproject.toml allows, one requirement a line.

torch is left out: its floor comes from another index, so it is installed by hand, as constraints.txt has it.
"""

from __future__ import annotations

import argparse
import re
import tomllib
from collections.abc import Sequence
from pathlib import Path

PROJECT = Path(__file__).parent.parent / "pyproject.toml"


def floors(requirements: Sequence[str]) -> list[str]:
    """``name>=1.2,<3; marker`` -> ``name==1.2; marker``; names without a range and torch are left out."""
    found = []
    for requirement in requirements:
        match = re.fullmatch(r"([\w.-]+(?:\[[\w,]+\])?)>=([\w.]+)[^;]*(;.*)?", requirement)
        if match and match[1] != "torch":
            found.append(f"{match[1]}=={match[2]}{match[3] or ''}")
    return found


def main() -> None:
    project = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]
    groups = {"core": project["dependencies"], **project["optional-dependencies"]}
    parser = argparse.ArgumentParser(description=__doc__)
    known = ", ".join(groups)
    parser.add_argument("names", nargs="*", metavar="NAME", default=["core"], help=f"{known}; core if not given")
    names = parser.parse_args().names
    if unknown := [name for name in names if name not in groups]:
        parser.error(f"unknown: {', '.join(unknown)}; known: {known}")
    for name in names:
        print("\n".join(floors(groups[name])))


if __name__ == "__main__":
    main()
