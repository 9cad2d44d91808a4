"""The script that makes pairs out of packages' READMEs."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from catchline.evaluation.run import as_lines, read_lines
from commands import program

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


def test_the_summary_itself_is_taken_out(script: ModuleType) -> None:
    pair, _ = script.pair_of(package(summary="Tidepool - Read the height of the tide from harbour gauges"))
    assert pair.summary == "Read the height of the tide from harbour gauges"
    assert pair.document.startswith("Tidepool asks the gauges")


FOREIGN = "Wysokość pływu " * 3 + "odczytana z mareografów portowych oraz narysowana jako krzywa " * 2


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"license": "GPL-3.0"}, "not known to be permissive"),
        ({"license": "", "classifiers": ["License :: Other/Proprietary License"]}, "not known to be permissive"),
        *(({"summary": said}, "no summary sentence") for said in (None, "tides")),
        *(
            ({"description": said}, "too little prose")
            for said in ("# Tidepool\n\nHeights of the tide.", None, FOREIGN)
        ),
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
    metadata.write_text(as_lines(packages), encoding="utf-8")
    held = tmp_path / "held.jsonl"
    held.write_text(json.dumps({"id": "python3-kite", "document": "Of kites.", "summary": "Kites"}) + "\n")
    stats = script.build(tmp_path, metadata, [held], validation=0)
    assert stats.splits == {"train": 2, "validation": 0}
    assert dict(stats.left_out) == {"duplicate": 1, "held out elsewhere": 1}
    assert {row["id"] for row in read_lines(tmp_path / "train.jsonl")} == {"tidepool", "snowpool"}
    assert json.loads((tmp_path / "stats.json").read_text())["licences"] == {"MIT": 2}
