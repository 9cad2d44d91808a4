"""The corpus of package descriptions, from a made-up index."""

from __future__ import annotations

import gzip
import lzma
from pathlib import Path

import pytest

from catchline.errors import DataError
from catchline.evaluation.run import read_lines as rows
from catchline_study.corpora.debian import build_debian, read_descriptions

PREFIX = "deb.example.org_debian_dists_"
PROSE = (
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
    text = PROSE.format(1)
    translations = (
        translation("kite-doc", "computes the length of a line - manual", text, ".", "This is the manual.")
        + translation("kite-dev", "computes the length of a line - headers", text, ".", "These are the headers.")
        + translation("kite", "computes the length of a kite's line", text, ".", "Also:", "  * prints it", "    nicely")
        + translation("kite-reel", "winds a line around a reel", PROSE.format(2), "It turns until the rope is short.")
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
    made = (translation(f"p{number}", f"counts number {number}", PROSE.format(number)) for number in numbers)
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


def test_no_index(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"has no package descriptions: run apt-get update once"):
        read_descriptions(tmp_path / "missing")
    index(tmp_path, "one", stanza("kite"), "")
    with pytest.raises(DataError, match=r"Acquire::Languages=en"):
        read_descriptions(tmp_path)
    (tmp_path / f"{PREFIX}one_main_i18n_Translation-en.gz").write_bytes(b"no gzip")
    with pytest.raises(DataError, match=r"Translation-en\.gz cannot be read"):
        read_descriptions(tmp_path)
