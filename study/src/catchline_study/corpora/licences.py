"""The licence that a Python package's metadata states: an SPDX expression (PEP 639), trove classifiers, or words."""

from __future__ import annotations

import re
from email.message import Message
from importlib.metadata import PackageMetadata

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


def licence_of(metadata: PackageMetadata | Message) -> tuple[str, bool]:
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
