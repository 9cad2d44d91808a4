"""Corpora of docstrings, of packages' READMEs and of package descriptions."""

from __future__ import annotations

import gzip
import json
import lzma
from pathlib import Path
from typing import Any

import pytest

from catchline.evaluation.run import read_lines
from catchline_study.corpora.debian import build_debian
from catchline_study.corpora.docstring_text import clean_docstring
from catchline_study.corpora.docstrings import (
    STANDARD_LIBRARY,
    CorpusPair,
    build_corpus,
    find_files,
    overlap,
    split_by_package,
    unusable,
)
from commands import program, refused, run

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


def package(**fields: Any) -> dict[str, Any]:
    metadata = {"name": "tidepool", "version": "1.2", "summary": "Heights of the tide from harbour gauges"}
    metadata |= {"description": README, "license": "MIT", "expression": None, "classifiers": []}
    return metadata | fields


FOREIGN = "Wysokość pływu " * 3 + "odczytana z mareografów portowych oraz narysowana jako krzywa " * 2


def test_prose_of_readmes_that_say_what_it_is() -> None:
    script = program("readmes")
    pair, reason = script.pair_of(package())
    assert (reason, pair.summary) == ("", "Heights of the tide from harbour gauges")
    assert pair.document == (
        "Read the height of the tide from harbour gauges. Tidepool asks the gauges of three countries and draws curves "
        "of the coming week.\n\nThe heights are joined by splines, and missing hours are filled with those of the day "
        "before."
    )
    for fields, reason in (
        ({"license": "GPL-3.0"}, "not known to be permissive"),
        ({"summary": "tides"}, "no summary sentence"),
        *(({"description": text}, "too little prose") for text in ("# Tidepool\n\nHeights of the tide.", FOREIGN)),
        ({"summary": "Bake bread with sourdough at home"}, "summary and text share too few words"),
    ):
        assert script.pair_of(package(**fields)) == (None, reason)


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
    written = {row["id"]: row for row in read_lines(tmp_path / "out" / "train.jsonl")}
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
    splits = {name: read_lines(tmp_path / "a" / f"{name}.jsonl") for name in ("train", "validation")}
    assert {name: len(found) for name, found in splits.items()} == {"train": 50, "validation": 10}
    sources = [{row["source_package"] for row in found} for found in splits.values()]
    assert not sources[0] & sources[1]
    build_debian(tmp_path / "b", lists=tmp_path, validation=10)
    build_debian(tmp_path / "c", lists=tmp_path, validation=10, seed=1)
    written = [(tmp_path / name / "validation.jsonl").read_bytes() for name in "abc"]
    assert written[0] == written[1] != written[2]
    build_debian(tmp_path / "a", lists=tmp_path)  # its validation pairs are in the training file now
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["train.jsonl"]


COUNTERS = "The counters are reset before each pass over the records, so that results do not add up."


BLOCKS = [
    ">>> count('x')\n3\n>>> count('y')\n4",
    "::\n\n    with open(path) as handle:\n        return sum(1 for _ in handle)",
    "```python\nfor record in records:\n    count the records of the file here\n```",
    ".. versionadded:: 3.2\n   This was added to count the records of a file.",
    "=====  =======\nname   meaning\n=====  =======\nfirst  the first record of a file\n=====  =======",
    "| a | b |\n|---|---|\n| the first record | of the file is here |",
    "    x = count(path)\n    y = count(path, most=3)",
]


def test_blocks_are_cut_and_reasons() -> None:
    behind = COUNTERS.replace("records", "lines")
    for block in BLOCKS:
        text = f"Count the records of a file.\n\n{COUNTERS}\n\n{block}\n\n{behind}"
        assert clean_docstring(text)[1] == f"{COUNTERS}\n{behind}"
    for summary, text, reason in (
        ("Count the records of a file.", COUNTERS, ""),
        ("Count the records of a file.", "Too short.", "body too short"),
        ("Count the records of a file.", COUNTERS * 30, "body too long"),
        ("Paint every window green.", COUNTERS, "summary and body share too few words"),
        ("", "", "no summary sentence"),
    ):
        assert unusable(CorpusPair("", "", summary, text)) == reason
    assert overlap("Count the records quickly", "Counting records is slow") == pytest.approx(2 / 3)


def folder_of_package(root: Path, name: str, *docstrings: str) -> None:
    folder = root / name
    (folder / "tests").mkdir(parents=True)
    lines = "".join(f'def f{n}():\n    """{text}"""\n    1 / 0\n\n' for n, text in enumerate(docstrings))
    (folder / "__init__.py").write_text(lines)
    (folder / "tests" / "test_x.py").write_text(lines.replace("records", "windows"))


def pair_text(number: int) -> str:
    names = ["apple", "river", "stone", "cloud", "engine", "garden", "market", "window", "letter", "bridge"]
    one, two = names[number % 10], names[(number * 7 + 3) % 10]
    return (
        f"Return the {one} number {number} of a {two}.\n\n"
        f"    The {one} is taken from shelf {number} of the {two}, where "
        f"item{number} and thing{number} were put by visitor{number} in year{number}."
    )


def test_corpus_of_a_folder(tmp_path: Path) -> None:
    root = tmp_path / "site"
    for number in range(20):
        folder_of_package(root, f"pkg{number}", *(pair_text(number * 5 + place) for place in range(5)))
    folder_of_package(root, "vendored", pair_text(3))  # a copy of pkg0's
    (root / "broken.py").write_text('def (:\n    """x"""')
    (root / "latin.py").write_bytes(b'"""caf\xe9"""')
    seen: list[tuple[float, float]] = []
    stats = build_corpus(tmp_path / "out", roots=[root], standard_library=False, progress=lambda *x: seen.append(x))
    assert stats.read["unreadable_files"] == 2
    assert stats.left_out["duplicate"] == 1
    assert seen[-1] == (23, 23)
    rows = {split: read_lines(tmp_path / "out" / f"{split}.jsonl") for split in ("train", "validation", "test")}
    homes = [{row["package"] for row in found} for found in rows.values()]
    assert sum(map(len, homes)) == len(set.union(*homes)), "no package is in two"
    assert {split: len(found) for split, found in rows.items()} == {"train": 80, "validation": 10, "test": 10}
    assert json.loads((tmp_path / "out" / "stats.json").read_text())["splits"]["test"]["pairs"] == 10
    assert set(rows["train"][0]) == {"id", "document", "summary", "package"}
    before = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    build_corpus(tmp_path / "again", roots=[root], standard_library=False)
    assert {path.name: path.read_bytes() for path in (tmp_path / "again").iterdir()} == before


def test_splits_are_of_whole_packages() -> None:
    pairs = [CorpusPair(STANDARD_LIBRARY, "x", "", "")] * 5 + [CorpusPair("huge", "x", "", "")] * 60
    pairs += [CorpusPair(f"p{number % 35}", "x", "", "") for number in range(35)]
    splits = split_by_package(pairs, in_training=["p3", "p4"])
    homes = {name: {pair.group for pair in found} for name, found in splits.items()}
    assert homes["train"] >= {STANDARD_LIBRARY, "huge", "p3", "p4"}
    assert len(splits["validation"]) == len(splits["test"]) == 10
    assert sum(map(len, homes.values())) == 37, "no package is in two"
    assert [len(found) for found in split_by_package(pairs, 4).values()] == [96, 4, 0]
    name, file, path = next(find_files([]))
    assert (name, path.as_posix().endswith(file)) == (STANDARD_LIBRARY, True)


def test_packages_of_permissive_licences(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    site = tmp_path / "site"
    for number, (name, licence) in enumerate((("one_pkg", "MIT"), ("two", "GPL-3.0-only"), ("three", ""))):
        folder_of_package(site, name, pair_text(number))
        folder_of_package(site / name, "_vendor", pair_text(number + 5))
        info = site / f"{name}-1.5.dist-info"
        info.mkdir()
        stated = f"License-Expression: {licence}\n" if licence else ""
        (info / "METADATA").write_text(f"Metadata-Version: 2.4\nName: {name}\nVersion: 1.5\n{stated}\nOf GPL\n")
        (info / "RECORD").write_text(f"{name}/__init__.py,,\n")
    asked = ["data", "docstrings", tmp_path / "out", "--root", site, "--no-standard-library", "--permissive"]
    said = json.loads(run(capsys, *asked, "--json"))
    assert said == json.loads((tmp_path / "out" / "stats.json").read_text())
    assert said["licences"] == {"one-pkg": "1.5: MIT"}
    assert said["not_permissive"] == {"two": "1.5: GPL-3.0-only", "three": "1.5: nothing stated"}
    assert [row["package"] for row in read_lines(tmp_path / "out" / "train.jsonl")] == ["one-pkg"]
    assert "Not read, for no permissive licence is stated: three, two." in run(capsys, *asked)
    refused(capsys, 3, "is not a folder of Python packages", *asked[:3], "--root", tmp_path / "none")
