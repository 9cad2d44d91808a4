"""Files of JSON and of JSON lines."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml


def write_lines(path: Path, rows: Iterable[Any]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def read_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def change(path: Path, *keys: str | int, value: Any) -> None:
    """Set one value of a JSON or YAML file; ``...`` takes it away."""
    is_json = path.suffix == ".json"
    values = json.loads(path.read_text()) if is_json else yaml.safe_load(path.read_text())
    inner = values
    for key in keys[:-1]:
        inner = inner[key]
    if value is ...:
        del inner[keys[-1]]
    else:
        inner[keys[-1]] = value
    path.write_text(json.dumps(values) if is_json else yaml.safe_dump(values))
