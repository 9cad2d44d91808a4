"""Make ``src/catchline/metrics/data/ordinary_stems.txt``: stems of the English words that are no proper names.

    apt-get download wordnet-base && dpkg -x wordnet-base_*.deb wn
    python scripts/build_ordinary_stems.py wn/usr/share/wordnet

The argument is a folder with WordNet 3.0's ``data.POS`` and ``index.POS``. A word is ordinary if the most frequent of
its senses in some part of speech is written in lower case ("mark" is, "china" is not); only single words of three
letters or more are kept, as stems of Snowball's English stemmer, which gives their inflected forms too. Behind them,
with a minus, are names that equal the stem of another word ("berlin", of "berline").
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator
from pathlib import Path

import Stemmer

TARGET = Path(__file__).parent.parent / "src/catchline/metrics/data/ordinary_stems.txt"
HEADING = """\
# Stems of English words that are no proper names, from WordNet 3.0. Made by scripts/build_ordinary_stems.py.
#
# WordNet Release 3.0
#
"""
PARTS = ("noun", "verb", "adj", "adv")


def entries(path: Path) -> Iterator[list[str]]:
    """The fields of each line behind the licence."""
    for line in path.read_text(encoding="latin-1").splitlines():
        if not line.startswith("  "):
            yield line.split(" ")


def licence(path: Path) -> str:
    """The licence as WordNet's files begin, as comments."""
    text = [line for line in path.read_text(encoding="latin-1").splitlines() if line.startswith("  ")]
    return "".join(f"# {' '.join(line.split()[1:])}".rstrip() + "\n" for line in text)


def first_senses(folder: Path, part: str) -> Iterator[tuple[str, bool]]:
    """The words of one part of speech, and whether the first sense of each is written in lower case."""
    written = {}
    for fields in entries(folder / f"data.{part}"):
        count = int(fields[3], 16)
        written[fields[0]] = [re.sub(r"\(.*\)", "", fields[4 + 2 * place]) for place in range(count)]
    for fields in entries(folder / f"index.{part}"):
        word = fields[0]
        senses = [field for field in fields if field][-int(fields[2]) :]
        if re.fullmatch("[a-z]{3,}", word):
            yield word, word in written[senses[0]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="WordNet 3.0's folder, with data.noun and the like")
    parser.add_argument("--target", type=Path, default=TARGET)
    options = parser.parse_args()
    listed = [entry for part in PARTS for entry in first_senses(options.folder, part)]
    found = {word for word, ordinary in listed if ordinary}
    names = {word for word, _ in listed} - found
    stems = set(Stemmer.Stemmer("english").stemWords(sorted(found)))
    lines = sorted(stems) + [f"-{name}" for name in sorted(names & stems)]
    options.target.write_text(HEADING + licence(options.folder / "data.noun") + "".join(f"{s}\n" for s in lines))
    print(f"{options.target}: {len(stems)} stems of {len(found)} words")


if __name__ == "__main__":
    main()
