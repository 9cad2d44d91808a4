"""Cleaning of docstrings, deduplication, and splits by package."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from catchline.evaluation.run import read_lines
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
from commands import refused, run

PROSE = "The counters are reset before each pass over the records, so that results do not add up."


def body(text: str) -> str:
    return clean_docstring("Count the records of a file.\n\n" + text)[1]


@pytest.mark.parametrize(
    "block",
    [
        ">>> count('x')\n3\n>>> count('y')\n4",
        "::\n\n    with open(path) as handle:\n        return sum(1 for _ in handle)",
        "```python\nfor record in records:\n    count the records of the file here\n```",
        ".. versionadded:: 3.2\n   This was added to count the records of a file.",
        "=====  =======\nname   meaning\n=====  =======\nfirst  the first record of a file\n=====  =======",
        "| a | b |\n|---|---|\n| the first record | of the file is here |",
        "    x = count(path)\n    y = count(path, most=3)",
    ],
)
def test_blocks_are_cut(block: str) -> None:
    behind = PROSE.replace("records", "lines")
    assert body(f"{PROSE}\n\n{block}\n\n{behind}") == f"{PROSE}\n{behind}"


def test_reasons_and_overlap() -> None:
    for summary, text, reason in (
        ("Count the records of a file.", PROSE, ""),
        ("Count the records of a file.", "Too short.", "body too short"),
        ("Count the records of a file.", PROSE * 30, "body too long"),
        ("Paint every window green.", PROSE, "summary and body share too few words"),
        ("", "", "no summary sentence"),
    ):
        assert unusable(CorpusPair("", "", summary, text)) == reason
    assert overlap("Count the records quickly", "Counting records is slow") == pytest.approx(2 / 3)


def package(root: Path, name: str, *docstrings: str) -> None:
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
        package(root, f"pkg{number}", *(pair_text(number * 5 + place) for place in range(5)))
    package(root, "vendored", pair_text(3))  # a copy of pkg0's
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
    assert {name: len(found) for name, found in split_by_package(pairs, 4).items()} == {
        "train": 96, "validation": 4, "test": 0,
    }  # fmt: skip
    name, file, path = next(find_files([]))
    assert (name, path.as_posix().endswith(file)) == (STANDARD_LIBRARY, True)


def test_packages_of_permissive_licences(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    site = tmp_path / "site"
    for number, (name, licence) in enumerate((("one_pkg", "MIT"), ("two", "GPL-3.0-only"), ("three", ""))):
        package(site, name, pair_text(number))
        package(site / name, "_vendor", pair_text(number + 5))
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
