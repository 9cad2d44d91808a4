"""Convert a model or run folder that was written under the project's former name, in place.

    python study/research/convert_folder.py FOLDER [FOLDER ...]

Renames the project in JSON, YAML and Markdown files and in the producer's name of ONNX files, then writes the digests
that the folder keeps of its files again. A folder that is converted already stays as it is.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

OLD, NEW = "laconic", "catchline"


def digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def rename_text(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    for old, new in ((OLD, NEW), (OLD.title(), NEW.title()), (OLD.upper(), NEW.upper())):
        text = text.replace(old, new)
    path.write_text(text, encoding="utf-8")


def rename_producer(path: Path) -> None:
    """Field 2 of an ONNX model is its producer's name, behind the version of the format (field 1)."""
    old, new = (bytes([0x12, len(name)]) + name.encode() for name in (OLD, NEW))
    content = path.read_bytes()
    if content[2 : 2 + len(old)] == old:
        path.write_bytes(content[:2] + new + content[2 + len(old) :])


def update_digests(folder: Path) -> None:
    """Write the SHA-256 and sizes of ``config.json``, ``manifest.json`` and ``export.json`` anew, in this order."""
    for name in ("config.json", "manifest.json", "export.json"):
        path = folder / name
        if not path.is_file():
            continue
        values = json.loads(path.read_text(encoding="utf-8"))
        if name == "manifest.json":
            for file, entry in values["files"].items():
                entry.update(bytes=(folder / file).stat().st_size, sha256=digest(folder / file))
        else:
            sums = (values[NEW] if name == "config.json" and NEW in values else values).get("sha256", {})
            sums.update({file: digest(folder / file) for file in sums})
        indent = 1 if name == "export.json" else 2
        path.write_text(json.dumps(values, indent=indent, ensure_ascii=False) + "\n", encoding="utf-8")


def convert(folder: Path) -> None:
    for path in sorted(folder.rglob("*")):
        if path.suffix in (".json", ".jsonl", ".yaml", ".md"):
            rename_text(path)
        elif path.suffix == ".onnx":
            rename_producer(path)
    for inner in [folder, *(path for path in sorted(folder.rglob("*")) if path.is_dir())]:
        update_digests(inner)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        convert(Path(name))
