"""Wheels and sdists read where they lie; which licences are permissive."""

from __future__ import annotations

import io
import json
import tarfile
import zipfile
from email.message import Message
from pathlib import Path

import pytest

from catchline.data.readers import find_splits
from catchline.errors import DataError
from catchline.evaluation.predictions import read_lines
from catchline_study.corpora.archives import is_permissive_expression, licence_of, read_archives
from catchline_study.corpora.docstrings import build_corpus
from catchline_study.corpora.pairs import hold_out

DOCSTRING = '''def f():
    """Return the apple number {0} of a garden.

    The apple is taken from shelf {0} of the garden, where item{0} and thing{0} were put by visitor{0} in year{0}.
    """
    raise SystemExit("this must not run")
'''


def metadata(name: str, *lines: str) -> str:
    return "\n".join(["Metadata-Version: 2.4", f"Name: {name}", "Version: 1.5", *lines, "", "A description: GPL"])


def wheel(folder: Path, name: str, files: dict[str, str], *lines: str) -> None:
    folder.mkdir(exist_ok=True)
    with zipfile.ZipFile(folder / f"{name}-1.5-py3-none-any.whl", "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
        archive.writestr(f"{name}-1.5.dist-info/METADATA", metadata(name, *lines))


def sdist(folder: Path, name: str, files: dict[str, str], *lines: str) -> None:
    folder.mkdir(exist_ok=True)
    with tarfile.open(folder / f"{name}-1.5.tar.gz", "w:gz") as archive:
        for path, text in {**files, "PKG-INFO": metadata(name, *lines)}.items():
            info = tarfile.TarInfo(f"{name}-1.5/{path}")
            info.size = len(text.encode())
            archive.addfile(info, io.BytesIO(text.encode()))


def test_a_corpus_of_archives(tmp_path: Path) -> None:
    folder = tmp_path / "archives"
    places = ("one/__init__.py", "one/tests/test_it.py", "one/_vendor/other.py")
    files = {place: DOCSTRING.format(number) for number, place in enumerate(places)}
    wheel(folder, "one_pkg", files | {"setup.py": "this is (no Python"}, "License-Expression: MIT")
    sdist(folder, "two", {"src/two/core.py": DOCSTRING.format(4)}, "License: BSD 3-Clause")
    wheel(folder, "three", {"three.py": DOCSTRING.format(5)}, "Classifier: License :: OSI Approved :: GPLv3")
    wheel(folder, "four", {"four.py": DOCSTRING.format(6)})
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "test.jsonl").write_text("of an earlier call\n")
    stats = build_corpus(tmp_path / "out", archives=folder, standard_library=False, validation=1)
    assert stats.licences == {"one-pkg": "1.5: MIT", "two": "1.5: BSD 3-Clause"}
    assert stats.refused == {"three": "GPLv3", "four": "nothing stated"}
    written = json.loads((tmp_path / "out" / "stats.json").read_text())
    assert (written["licences"], written["not_permissive"]) == (stats.licences, stats.refused)
    rows = {split: read_lines(tmp_path / "out" / f"{split}.jsonl") for split in ("train", "validation")}
    assert {split: len(found) for split, found in rows.items()} == {"train": 1, "validation": 1}
    assert set(find_splits(tmp_path / "out")) == set(written["splits"]) == set(rows)  # no file without a pair
    assert {row["id"] for found in rows.values() for row in found} == {"one.__init__:f", "two.core:f"}


def test_what_is_no_archive(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"holds no wheels or sdists \(\*\.whl"):
        read_archives(tmp_path)
    (tmp_path / "broken-1.0-py3-none-any.whl").write_bytes(b"no zip file")
    with pytest.raises(DataError, match=r"broken-1\.0.*cannot be read"):
        read_archives(tmp_path)
    with zipfile.ZipFile(tmp_path / "broken-1.0-py3-none-any.whl", "w") as archive:
        archive.writestr("file.py", "")
    with pytest.raises(DataError, match="holds no METADATA"):
        read_archives(tmp_path)


@pytest.mark.parametrize("damaged", ["METADATA", "core.py"])
def test_a_damaged_byte_in_a_wheel(tmp_path: Path, damaged: str) -> None:
    path = tmp_path / "one-1.5-py3-none-any.whl"
    files = {"one/core.py": DOCSTRING.format(1), "one-1.5.dist-info/METADATA": metadata("one", "License: MIT")}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in files.items():
            archive.writestr(name, text)
        (info,) = [info for info in archive.infolist() if info.filename.endswith(damaged)]
    raw = bytearray(path.read_bytes())
    start = info.header_offset + 30 + len(info.filename)
    raw[start : start + 20] = b"\xff" * 20
    path.write_bytes(raw)
    with pytest.raises(DataError, match=r"cannot be read.*download it" if damaged == "METADATA" else "No usable doc"):
        build_corpus(tmp_path / "out", archives=tmp_path, standard_library=False)


def test_spdx_expressions() -> None:
    permissive = ["MIT", "mit", "BSD-3-Clause AND 0BSD AND Zlib", "GPL-2.0-only OR MIT"]
    permissive += ["(Apache-2.0 OR GPL-2.0-only) AND BSD-2-Clause", "Apache-2.0 WITH LLVM-exception"]
    others = ["GPL-3.0-or-later", "MIT AND LGPL-2.1-or-later", "MPL-2.0", "LicenseRef-Own"]
    assert [one for one in permissive + others if is_permissive_expression(one)] == permissive


OSI = "License :: OSI Approved"


@pytest.mark.parametrize(
    ("fields", "licence"),
    [
        ([("Classifier", f"{OSI} :: MIT License")], "MIT License"),
        ([("Classifier", OSI), ("License", "ISC")], "ISC"),
        ([("Classifier", f"{OSI} :: {one}") for one in ("BSD License", "GNU General Public License (GPL)")], None),
        ([("License", "BSD"), ("License-Expression", "AGPL-3.0-only")], None),
        ([("License", "Copyright us\n\nPermission is hereby granted, free of charge, to any person")], "Copyright us"),
        *(([("License", unclear)], None) for unclear in ("MIT, parts LGPL", "see the file")),
        ([], None),
    ],
)
def test_licences_of_metadata(fields: list[tuple[str, str]], licence: str | None) -> None:
    message = Message()
    for name, value in fields:
        message[name] = value
    stated, permissive = licence_of(message)
    assert permissive is (licence is not None)
    assert licence in (None, stated)


def test_held_out_groups_are_many_and_whole() -> None:
    counts = {"large": 400, **{f"p{number}": 7 for number in range(200)}}
    chosen = hold_out(counts, 100)
    assert "large" not in chosen
    assert sum(counts[name] for name in chosen) == 98  # fourteen whole packages
    assert hold_out(counts, 100) == chosen != hold_out(counts, 100, seed=1)
