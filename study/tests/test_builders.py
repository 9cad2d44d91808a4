"""Corpora of docstrings, of packages' READMEs and of package descriptions."""

from __future__ import annotations

import gzip
import json
import lzma
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from catchline.evaluation.run import read_lines
from catchline.evaluation.run import read_lines as rows
from catchline_study.corpora.debian import build_debian
from commands import program
from json_lines import write_lines

README = """# Tidepool

[![build](https://example.org/b.svg)](https://example.org)

Read the height of the tide from harbour gauges. Tidepool asks the gauges of
[three countries](https://example.org/gauges) and draws curves of the coming week.

## Installation

Use pip to install the package and its dependencies into your environment, then run it once.

```python
import tidepool
```

Curves are kept for a year, and a harbour without a gauge is read from its neighbours.

## How it works

The heights are joined by splines, and missing hours are filled with those of the day before.
"""


@pytest.fixture(scope="module")
def script() -> ModuleType:
    return program("readmes")


def package(**fields: Any) -> dict[str, Any]:
    metadata = {"name": "tidepool", "version": "1.2", "summary": "Heights of the tide from harbour gauges"}
    metadata |= {"description": README, "license": "MIT", "expression": None, "classifiers": []}
    return metadata | fields


def test_prose_of_the_sections_that_say_what_it_is(script: ModuleType) -> None:
    pair, reason = script.pair_of(package())
    assert reason == ""
    assert pair.summary == "Heights of the tide from harbour gauges"
    assert pair.document == (
        "Read the height of the tide from harbour gauges. Tidepool asks the gauges of three countries and draws curves "
        "of the coming week.\n\nThe heights are joined by splines, and missing hours are filled with those of the day "
        "before."
    )


FOREIGN = "Wysokość pływu " * 3 + "odczytana z mareografów portowych oraz narysowana jako krzywa " * 2


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"license": "GPL-3.0"}, "not known to be permissive"),
        ({"summary": "tides"}, "no summary sentence"),
        *(({"description": text}, "too little prose") for text in ("# Tidepool\n\nHeights of the tide.", FOREIGN)),
        ({"summary": "Bake bread with sourdough at home"}, "summary and text share too few words"),
    ],
)
def test_left_out(script: ModuleType, fields: dict[str, Any], reason: str) -> None:
    assert script.pair_of(package(**fields)) == (None, reason)


def test_doubles_and_what_others_hold_out_stay_out(script: ModuleType, tmp_path: Path) -> None:
    other = "Depths are told for every slope of three ranges, and a map of the coming week warns of snow and wind."
    packages = [
        package(),
        package(name="tidepool2"),
        package(name="snowpool", description=other, summary="Depths of the snow in the mountain"),
        package(name="Py_Kite", description=f"Kites fly. {other}", summary="Read the wind from mountain maps"),
    ]
    metadata = tmp_path / "metadata.jsonl"
    write_lines(metadata, packages)
    held = tmp_path / "held.jsonl"
    held.write_text(json.dumps({"id": "python3-kite", "document": "Of kites.", "summary": "Kites"}) + "\n")
    stats = script.build(tmp_path, metadata, [held], validation=0)
    assert stats.splits == {"train": 2, "validation": 0}
    assert dict(stats.left_out) == {"duplicate": 1, "held out elsewhere": 1}
    assert {row["id"] for row in read_lines(tmp_path / "train.jsonl")} == {"tidepool", "snowpool"}
    assert json.loads((tmp_path / "stats.json").read_text())["licences"] == {"MIT": 2}


PREFIX = "deb.example.org_debian_dists_"
KITES = (
    "Kites{0} fly on a line that is wound around reel{0}, and this program tells how long line{0} must be for wind{0}."
)


def stanza(package: str, source: str = "") -> str:
    lines = [f"Package: {package}", f"Source: {source}" if source else "", "Version: 1", "Description: short"]
    return "\n".join([*filter(None, lines), f"Description-md5: digest-of-{package}"]) + "\n\n"


def translation(package: str, synopsis: str, *lines: str) -> str:
    body = "".join(f" {line}\n" for line in lines)
    return f"Package: {package}\nDescription-md5: digest-of-{package}\nDescription-en: {synopsis}\n{body}\n"


def index(folder: Path, suite: str, packages: str, translations: str, ending: str = "") -> None:
    folder.mkdir(exist_ok=True)
    pack = {"": lambda data: data, ".gz": gzip.compress, ".xz": lzma.compress}[ending]
    for name, text in ((f"binary-amd64_Packages{ending}", packages), (f"i18n_Translation-en{ending}", translations)):
        (folder / f"{PREFIX}{suite}_main_{name}").write_bytes(pack(text.encode()))


@pytest.mark.parametrize("ending", ["", ".gz", ".xz"])
def test_one_entry_a_family(tmp_path: Path, ending: str) -> None:
    names = ["kite-doc", "kite-dev", "kite", "kite-reel", "owl"]
    packages = "".join(stanza(name, "kite (1.0-2)" if name.startswith("kite-") else "") for name in names)
    text = KITES.format(1)
    translations = (
        translation("kite-doc", "computes the length of a line - manual", text, ".", "This is the manual.")
        + translation("kite-dev", "computes the length of a line - headers", text, ".", "These are the headers.")
        + translation("kite", "computes the length of a kite's line", text, ".", "Also:", "  * prints it", "    nicely")
        + translation("kite-reel", "winds a line around a reel", KITES.format(2), "It turns until the rope is short.")
        + translation("owl", "looks at you", "Too short to say.")
    )
    index(tmp_path / "lists", "one", packages, translations, ending)
    index(tmp_path / "lists", "two-security", packages, translations.replace("kite's", "dragon's"), ending)
    (tmp_path / "lists" / f"{PREFIX}one_non-free_i18n_Translation-en").write_text(translations, encoding="utf-8")
    stats = build_debian(tmp_path / "out", lists=tmp_path / "lists")
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["train.jsonl"]
    written = {row["id"]: row for row in rows(tmp_path / "out" / "train.jsonl")}
    assert set(written) == {"kite", "kite-reel"}
    assert written["kite"] == {
        "id": "kite",
        "source_package": "kite",
        "document": f"{text}\n\nAlso:\n* prints it nicely",
        "summary": "computes the length of a kite's line",
    }
    assert written["kite-reel"]["source_package"] == "kite"
    assert stats.as_dict() == {
        "packages": 5,
        "source_packages": 2,
        "left_out": {"document too short": 1, "near duplicate": 2},
        "splits": {"train": 2},
    }


def test_splits_share_no_source_package(tmp_path: Path) -> None:
    numbers = range(60)
    packages = "".join(stanza(f"p{number}", f"source{number // 2}") for number in numbers)
    made = (translation(f"p{number}", f"counts number {number}", KITES.format(number)) for number in numbers)
    index(tmp_path, "one", packages, "".join(made))
    build_debian(tmp_path / "a", lists=tmp_path, validation=10)
    splits = {name: rows(tmp_path / "a" / f"{name}.jsonl") for name in ("train", "validation")}
    assert {name: len(found) for name, found in splits.items()} == {"train": 50, "validation": 10}
    sources = [{row["source_package"] for row in found} for found in splits.values()]
    assert not sources[0] & sources[1]
    build_debian(tmp_path / "b", lists=tmp_path, validation=10)
    build_debian(tmp_path / "c", lists=tmp_path, validation=10, seed=1)
    written = [(tmp_path / name / "validation.jsonl").read_bytes() for name in "abc"]
    assert written[0] == written[1] != written[2]
    build_debian(tmp_path / "a", lists=tmp_path)  # its validation pairs are in the training file now
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["train.jsonl"]
