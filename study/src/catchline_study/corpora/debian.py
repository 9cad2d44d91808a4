"""A corpus out of apt's own description index: a package's description is the document, its synopsis the summary.

Any Debian or Ubuntu keeps the index under ``/var/lib/apt/lists``: ``*_Packages`` has a stanza a package with its
source package and the digest of its description, ``*_Translation-en`` the descriptions. Only ``main`` and Ubuntu's
``universe`` are read, whose packages are free software.

The packages of a source often say nearly the same: the program or library comes first, what is made for it (``-dev``,
``-doc``) after it, and whoever repeats most of what its family, or all of what any package said before is left out.
"""

from __future__ import annotations

import gzip
import io
import lzma
import re
import subprocess
import zlib
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

from catchline.errors import DataError
from catchline_study.corpora.pairs import CorpusPair, CorpusStats, SeenPairs, hold_out, shuffled, write_splits

LISTS = Path("/var/lib/apt/lists")
MIN_WORDS = {"document": 15, "summary": 2}
_NAMES = re.compile(r".*_(?:main|universe)_(?:binary-[^_]+_(?P<packages>Packages)|i18n_Translation-en)(?:\.[a-z0-9]+)?")
_APT_HELPER = Path("/usr/lib/apt/apt-helper")
# What belongs to another package of the same source: read after it.
_SECOND = re.compile(
    r"-(?:dev|dbg|dbgsym|doc|docs|prof|data|common|bin|examples?|tests?|udeb|i18n|l10n|locales?|(?:l10n|i18n|lang)-.+|headers)\Z"
)
_ITEM = re.compile(r"[-*+•o]\s")


def build_debian(out: Path, *, lists: Path = LISTS, validation: int | None = None, seed: int = 0) -> CorpusStats:
    """Write ``train.jsonl`` and, if ``validation`` pairs are asked for, ``validation.jsonl`` into ``out``; one that is
    there else is removed: its pairs may be among those for training.

    ``lists`` is the folder of apt's index; ``seed`` decides of which source packages the validation pairs are, and the
    training pairs have nothing of those. Raises DataError: apt has no index there, or it cannot be read.
    """
    descriptions = read_descriptions(lists)
    sources = len({pair.group for pair in descriptions})
    stats = CorpusStats(Counter({"packages": len(descriptions), "source_packages": sources}))
    kept = sorted(one_a_family(descriptions, stats), key=lambda pair: shuffled(pair.name))
    held = hold_out(Counter(pair.group for pair in kept), validation, seed) if validation else set()
    splits = {"train": [pair for pair in kept if pair.group not in held]}
    splits["validation"] = [pair for pair in kept if pair.group in held]  # perhaps none, then an older file goes
    stats.splits = {split: len(chosen) for split, chosen in splits.items() if chosen}
    write_splits(out, splits, "source_package")
    return stats


def one_a_family(descriptions: Sequence[CorpusPair], stats: CorpusStats) -> list[CorpusPair]:
    """The first of each family and of its other packages those that have something else to say."""
    kept: list[CorpusPair] = []
    families: defaultdict[str, SeenPairs] = defaultdict(SeenPairs)
    everywhere = SeenPairs(near=1.0)
    for pair in sorted(descriptions, key=_rank):
        short = [side for side, least in MIN_WORDS.items() if len(getattr(pair, side).split()) < least]
        reason = f"{short[0]} too short" if short else families[pair.group].refuse(pair) or everywhere.refuse(pair)
        if reason:
            stats.left_out[reason] += 1
        else:
            kept.append(pair)
    return kept


def _rank(pair: CorpusPair) -> tuple[bool, bool, int, str]:
    """What is read first: programs and libraries, of these the one that the source is named after, short names."""
    return bool(_SECOND.search(pair.name)), pair.name != pair.group, len(pair.name), pair.name


# --------------------------------------------------------------------------------------- reading


def read_descriptions(lists: Path = LISTS) -> list[CorpusPair]:
    """Every package of the index once, with its English description. Raises DataError: there is no index, it has no
    descriptions, or it cannot be read."""
    paths = sorted(lists.iterdir()) if lists.is_dir() else []
    found = [(path, match) for path in paths if path.is_file() and (match := _NAMES.fullmatch(path.name))]
    texts: dict[str, str] = {}
    for path, match in found:
        if not match["packages"]:
            for stanza in _stanzas(path):
                texts.setdefault(stanza.get("Description-md5", ""), stanza.get("Description-en", ""))
    packages: dict[str, CorpusPair] = {}
    for path, match in found:
        if match["packages"]:
            for stanza in _stanzas(path):
                name, text = stanza.get("Package", ""), stanza.get("Description", "")
                text = text if "\n" in text else texts.get(stanza.get("Description-md5", ""), "")
                if name not in packages and "\n" in text:
                    synopsis, _, rest = text.partition("\n")
                    source = stanza.get("Source", name).split()[0]
                    packages[name] = CorpusPair(source, name, synopsis.strip(), plain_text(rest))
    if not packages:
        raise DataError(
            f"{lists} has no package descriptions: run apt-get update once, as root, on Debian or Ubuntu (in a "
            "container apt-get update -o Acquire::Languages=en)."
        )
    return list(packages.values())


def plain_text(description: str) -> str:
    """A description as the control file has it, as text: ``.`` alone parts paragraphs, lines are joined. Items of
    lists, which stand further in, begin a line."""
    paragraphs: list[list[str]] = [[]]
    for line in description.split("\n"):
        stripped = line.strip()
        if stripped in {"", "."}:
            paragraphs.append([])
        elif not paragraphs[-1] or (line.startswith("  ") and _ITEM.match(stripped)):
            paragraphs[-1].append(stripped)
        else:
            paragraphs[-1][-1] += f" {stripped}"
    return "\n\n".join("\n".join(lines) for lines in paragraphs if lines)


def _stanzas(path: Path) -> Iterator[dict[str, str]]:
    """The paragraphs of a control file (RFC 822 with continuation lines)."""
    fields: defaultdict[str, str] = defaultdict(str)
    name = ""
    with _open(path) as handle:
        for raw in io.TextIOWrapper(handle, "utf-8", "replace", newline="\n"):
            line = raw.rstrip("\n")
            if not line:
                if fields:
                    yield fields
                fields = defaultdict(str)
            elif line[0].isspace():
                fields[name] += f"\n{line}"
            else:
                name, _, value = line.partition(":")
                fields[name] = value.strip()
    if fields:
        yield fields


def _open(path: Path) -> IO[bytes]:
    """The file as it was before apt compressed it; what Python cannot undo (lz4), apt's helper does."""
    try:
        if decompress := {".gz": gzip.decompress, ".xz": lzma.decompress}.get(path.suffix):
            return io.BytesIO(decompress(path.read_bytes()))
        if path.suffix not in {".lz4", ".zst", ".bz2", ".lzma"}:
            return path.open("rb")
        return io.BytesIO(subprocess.run([_APT_HELPER, "cat-file", path], capture_output=True, check=True).stdout)
    except (OSError, EOFError, lzma.LZMAError, zlib.error, subprocess.CalledProcessError) as error:
        raise DataError(f"{path} cannot be read: {error}.") from None
