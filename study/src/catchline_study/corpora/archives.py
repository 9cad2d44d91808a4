"""Python packages read where they lie in wheels and sdists: nothing is unpacked, installed or run.

What a package says of itself is in its ``METADATA`` (sdists: ``PKG-INFO``): its name, its version and its licence, as
an SPDX expression (PEP 639), as trove classifiers or in words. `licence_of` reads them in this order.
"""

from __future__ import annotations

import functools
import re
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from email.message import Message
from email.parser import HeaderParser
from pathlib import Path

from catchline.errors import DataError

SUFFIXES = (".whl", ".zip", ".tar.gz", ".tgz")
DAMAGE = (OSError, EOFError, zlib.error, zipfile.BadZipFile, tarfile.TarError)  # what reading a file of one may raise
# What may be used in anything, with a notice at most: no copyleft, however weak.
_PERMISSIVE = frozenset(
    """0BSD AFL-3.0 Apache-2.0 Artistic-2.0 BSD-2-Clause BSD-2-Clause-Patent BSD-3-Clause BSD-3-Clause-Clear
    BSD-3-Clause-LBNL BSD-3-Clause-Open-MPI BSD-4-Clause BSD-Source-Code BSL-1.0 CC0-1.0 CNRI-Python ECL-2.0 HPND
    HPND-sell-variant ISC MIT MIT-0 MIT-CMU MIT-Modern-Variant MIT-feh NCSA NIST-Software OFL-1.1 PostgreSQL PSF-2.0
    Python-2.0 Python-2.0.1 TCL Unicode-3.0 Unicode-DFS-2016 Unlicense UPL-1.0 W3C WTFPL X11 Zlib
    ZPL-2.1""".lower().split()
)
# The ends of trove classifiers, and names in the free field, that mean one of these.
_PERMISSIVE_WORDS = re.compile(
    r"""apache|\bbsd\b|\bbsd[ -]?[234]|\bmit\b|\bisc\b|historical\ permission|hpnd|\bpsf|python\ software\ foundation
    |zope\ public|zpl|zlib|unlicense|public\ domain|cc0|academic\ free|boost\ software|postgresql
    |university\ of\ illinois
    |permission\ is\ hereby\ granted,\ free\ of\ charge|redistribution\ and\ use\ in\ source\ and\ binary\ forms""",
    re.IGNORECASE | re.VERBOSE,
)
_OTHER_WORDS = re.compile(
    r"gpl|general public|mozilla|\bmpl\b|mpl-?\d|eclipse|\bepl\b|cddl|copyleft|eupl|cecill|proprietary|commercial"
    r"|all rights reserved\.?\Z|\bsspl\b|business source|elastic|noncommercial|non-commercial|by-nc|by-sa|nvidia",
    re.IGNORECASE,
)
_FREE_TEXT = 3000  # characters of the field "License" that are read: some hold a whole file of notices


@dataclass(frozen=True, slots=True)
class ArchivedFile:
    """One file in an archive; reads like a path."""

    archive: Path
    name: str

    def read_bytes(self) -> bytes:
        return _opened(self.archive)[1](self.name)


@dataclass(frozen=True, slots=True)
class ArchivedPackage:
    """What an archive's metadata says, and the names of its files (sdists: with the folder that holds them all)."""

    path: Path
    name: str
    version: str
    licence: str  # what the metadata says of it, in a few words
    permissive: bool  # is it known to be?
    files: Sequence[str]

    def python_files(self) -> Iterator[tuple[str, ArchivedFile]]:
        """Name below the package's root, and the file."""
        cut = 0 if self.path.suffix == ".whl" else 1
        for name in self.files:
            below = name.split("/", cut)[-1]
            if name.endswith(".py") and below:
                yield below.removeprefix("src/"), ArchivedFile(self.path, name)


def read_archives(folder: Path) -> list[ArchivedPackage]:
    """The packages of all archives in ``folder``, by name; of several archives of one package the last by name.

    Raises:
        DataError: the folder holds no archive, or one is damaged or has no metadata.
    """
    paths = sorted(path for path in folder.iterdir() if path.name.endswith(SUFFIXES)) if folder.is_dir() else []
    if not paths:
        raise DataError(f"{folder} holds no wheels or sdists ({', '.join('*' + suffix for suffix in SUFFIXES)}).")
    packages = {package.name: package for package in map(_read, paths)}
    return [packages[name] for name in sorted(packages)]


def _read(path: Path) -> ArchivedPackage:
    try:
        names, read = _opened(path)
        found = [name for name in names if re.fullmatch(r"[^/]+\.dist-info/METADATA|[^/]+/PKG-INFO", name)]
        if not found:
            raise DataError(f"{path} holds no METADATA or PKG-INFO: it is no wheel or sdist.")
        metadata = HeaderParser().parsestr(read(found[0]).decode("utf-8", "replace"))
    except DAMAGE as error:
        raise DataError(f"{path} cannot be read: {error}; download it again.") from error
    name = str(metadata["Name"] or path.name.split("-")[0]).lower().replace("_", "-").replace(".", "-")
    return ArchivedPackage(path, name, str(metadata["Version"] or ""), *licence_of(metadata), names)


# --------------------------------------------------------------------------------------- licences


def licence_of(metadata: Message) -> tuple[str, bool]:
    """What the metadata says of the licence in a few words, and whether all of it is permissive."""
    if expression := str(metadata["License-Expression"] or ""):
        return expression, is_permissive_expression(expression)
    classifiers = [str(value) for value in metadata.get_all("Classifier") or []]
    ends = [value.split(" :: ")[-1] for value in classifiers if value.startswith("License ::")]
    if names := [name for name in ends if name != "OSI Approved"]:
        return " / ".join(names), all(map(_permissive_words, names))
    text = str(metadata["License"] or "")[:_FREE_TEXT]
    lines = filter(None, map(str.strip, text.splitlines()))
    return next(lines, "nothing stated")[:80], _permissive_words(text)


def is_permissive_expression(expression: str) -> bool:
    """Whether an SPDX expression allows permissive use: every part joined by AND has a permissive alternative."""
    parts = re.split(r"\s+and\s+", re.sub(r"[()]", " ", expression.lower()))
    return all(
        any(re.split(r"\s+with\s+", name.strip())[0] in _PERMISSIVE for name in re.split(r"\s+or\s+", part))
        for part in parts
    )


def _permissive_words(text: str) -> bool:
    return bool(_PERMISSIVE_WORDS.search(text)) and not _OTHER_WORDS.search(text)


# --------------------------------------------------------------------------------------- archives


@functools.lru_cache(maxsize=2)
def _opened(path: Path) -> tuple[list[str], Callable[[str], bytes]]:
    """The names of the files in an archive, and what reads one of them; it is open as long as it is in the cache. A
    compressed tar file is read from front to back: once for the names, once for the files in their order."""
    if path.suffix in {".whl", ".zip"}:
        archive = zipfile.ZipFile(path)
        return archive.namelist(), archive.read
    tar = tarfile.open(path)  # noqa: SIM115
    names = [member.name for member in tar if member.isfile()]
    return names, lambda name: tar.extractfile(name).read()  # type: ignore[union-attr]
