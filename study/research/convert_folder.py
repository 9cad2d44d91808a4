"""Convert a model or run folder of an earlier version, in place.

    python study/research/convert_folder.py FOLDER [FOLDER ...]

Renames the project in JSON, YAML and Markdown files and in the producer's name of ONNX files, drops settings that no
longer exist, and prints their names. Then it writes the digests that the folder keeps of its files again. A folder that
is converted already stays as it is.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from catchline.config import names
from catchline.config.base import sections_in
from catchline.config.schema import RunConfig, SearchConfig, TextConfig

OLD, NEW = "laconic", "catchline"
CONVERTED = ("recipe.yaml", "config.json", "tokenizer_config.json", "generation_config.json", "state.json")


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


def drop_unknown(values: dict[str, Any], cls: Any, parts: Mapping[str, Any], where: str) -> Iterator[str]:
    """Remove the keys of ``values`` that ``cls`` lacks, sections and components included; yields their dotted names.

    ``parts`` gives the table of each key that holds a component.
    """
    for key, value in list(values.items()):
        name = f"{where}.{key}"
        if key not in cls.model_fields:
            if key != "type":
                del values[key]
                yield name
        elif isinstance(value, dict) and "type" in value and key in parts:
            component = names.resolve(key, parts[key], value["type"])
            inner = {part: table for part, (_, table) in getattr(component, "parts", {}).items()}
            yield from drop_unknown(value, component.Config, PARTS | inner, name)
        elif isinstance(value, dict) and (sections := sections_in(cls.model_fields[key].annotation)):
            yield from drop_unknown(value, sections[0], parts, name)
        elif key in parts and isinstance(value, list):
            for number, spec in enumerate(value):
                component = names.resolve(key, parts[key], spec["type"])
                yield from drop_unknown(spec, component.Config, {}, f"{name}.{number}")


PARTS: dict[str, Any] = {key: table for key, _, table in names.PARTS} | {
    "model": names.MODELS,
    "tokenizer": names.TOKENIZERS,
    "objectives": names.OBJECTIVES,
    "scorers": names.SCORERS,
}


def drop_settings(path: Path) -> None:
    """Drop unknown settings of one file of a model folder, a run folder or a checkpoint."""
    text = path.read_text(encoding="utf-8")
    values = yaml.safe_load(text) if path.suffix == ".yaml" else json.loads(text)
    if path.name == "config.json":
        model = {"model": values.get("model", {}), "text": values.get("text", {})}
        dropped = [*drop_unknown(model["text"], TextConfig, PARTS, "text")]
        if model["model"].get("type") in names.MODELS:
            dropped += drop_unknown({"model": model["model"]}, RunConfig, PARTS, "")
    elif path.name == "tokenizer_config.json":
        tokenizer, dropped = values.get(NEW) or {}, []
        if tokenizer.get("type") in names.TOKENIZERS:
            cls = names.resolve("tokenizer", names.TOKENIZERS, tokenizer["type"])
            apart = {key: tokenizer.pop(key) for key in ("sentence_separator", "decoder_start_id") if key in tokenizer}
            dropped = [*drop_unknown(tokenizer, cls.Config, {}, NEW)]
            tokenizer.update(apart)
    elif path.name == "generation_config.json":
        dropped = [*drop_unknown(values, SearchConfig, PARTS, "search")]
    else:
        run = values["identity"]["recipe"] if path.name == "state.json" else values
        dropped = [*drop_unknown(run, RunConfig, PARTS, "")]
    if dropped:
        print(f"{path}: dropped {', '.join(name.lstrip('.') for name in dropped)}")
        path.write_text(
            yaml.safe_dump(values, sort_keys=False, allow_unicode=True)
            if path.suffix == ".yaml"
            else json.dumps(values, indent=None if path.name == "state.json" else 2, ensure_ascii=False) + "\n",
            encoding="utf-8",
        )


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
        if path.name in CONVERTED:
            drop_settings(path)
    for inner in [folder, *(path for path in sorted(folder.rglob("*")) if path.is_dir())]:
        update_digests(inner)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        convert(Path(name))
