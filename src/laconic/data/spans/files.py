"""JSON of a selection; names of files may hold bytes that are no text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from laconic.files import part_of


def write_json(path: Path, value: Any) -> None:
    """JSON with an end of line."""
    with part_of(path) as file:
        file.write((json.dumps(value, ensure_ascii=False, indent=1) + "\n").encode("utf-8", "surrogateescape"))


def read_json(path: Path) -> Any:
    """What `write_json` wrote."""
    return json.loads(path.read_bytes().decode("utf-8", "surrogateescape"))
