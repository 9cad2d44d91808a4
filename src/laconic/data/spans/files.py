"""Files that are written beside their place and get their name when complete."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO


@contextmanager
def part_of(path: Path) -> Iterator[BinaryIO]:
    """Open for writing; whoever is killed meanwhile leaves no file of that name."""
    draft = path.with_name(path.name + ".partial")
    try:
        with draft.open("wb") as file:
            yield file
    except BaseException:
        draft.unlink(missing_ok=True)
        raise
    os.replace(draft, path)


def write_json(path: Path, value: Any) -> None:
    """JSON with an end of line."""
    with part_of(path) as file:
        file.write((json.dumps(value, ensure_ascii=False, indent=1) + "\n").encode("utf-8", "surrogateescape"))


def read_json(path: Path) -> Any:
    """What `write_json` wrote."""
    return json.loads(path.read_bytes().decode("utf-8", "surrogateescape"))
