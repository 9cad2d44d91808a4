"""Print the oldest version that each range of pyproject.toml allows, one requirement a line.

    python scripts/floors.py core zstd     # the dependencies (the default) and those of an extra

torch is left out: its floor comes from another index, so it is installed by hand, as constraints.txt has it.
"""

from __future__ import annotations

import re
import sys
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


def main(names: Sequence[str]) -> None:
    project = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]
    groups = {"core": project["dependencies"], **project["optional-dependencies"]}
    for name in names or ["core"]:
        print("\n".join(floors(groups[name])))


if __name__ == "__main__":
    main(sys.argv[1:])
