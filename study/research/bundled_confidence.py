"""Fit the confidence of the bundled model to what readers said of its lines, and store it in its folder.

    python study/research/bundled_confidence.py [FOLDER] [--data ../shared/data] [--accept 2]

Readers rated lines from 0 to 3 (``ratings.jsonl.gz``); a line is accepted from 2 on. The domain is that of arXiv's and
Debian's training documents and the READMEs. ``english_words.txt.gz`` has the occurrences of 16,000 words in ten million
words of English of no particular kind (spacy-lookups-data, MIT, and the State of the Union addresses, public domain).
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import zstandard

from catchline import Summarizer
from catchline.config.names import DEFAULT, ROOT
from catchline.metrics.confidence import Calibration, packed
from catchline.summarizer.confidence import with_domain
from catchline.text.base import Tokenizer
from catchline.types import Record
from catchline_study.calibration import Ratings, calibrate, describe

HERE = Path(__file__).parent
MOST = 6000  # training documents of a corpus
THRESHOLD = 0.4  # of the rated answers as many would do as with 0.5, and more are lines
TRAINED_ON = (("arxiv", "train"), ("debian", "train"), ("readmes", "validation"))


def read(path: Path) -> list[dict[str, Any]]:
    content = zstandard.ZstdDecompressor().decompressobj().decompress(path.read_bytes())
    return [json.loads(line) for line in content.decode("utf-8").splitlines()]


def english(tokenizer: Any) -> np.ndarray:
    """ln p of each id of the vocabulary in English; ids that no word has get the least share that can be counted."""
    with gzip.open(HERE / "english_words.txt.gz", "rt", encoding="ascii") as file:
        lines = [line.split() for line in file if not line.startswith("#")]
    shares = np.full(tokenizer.vocab_size, 1e-7)
    for text, (_, count) in zip(tokenizer.encode_stream(word for word, _ in lines), lines, strict=True):
        shares[list(text.ids)] += int(count) / 1e7
    return np.log(shares)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", default=ROOT / DEFAULT)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--accept", type=float, default=2.0)
    options = parser.parse_args()
    unpacked = options.folder / "ratings.tmp"
    unpacked.write_bytes(gzip.decompress((HERE / "ratings.jsonl.gz").read_bytes()))
    ratings = Ratings.read(unpacked, options.accept)
    unpacked.unlink()
    words = packed(english(Tokenizer.load(options.folder)))
    replace(Calibration.blank(), english=words).save(options.folder)  # what the domain is measured against
    rated = {name for name, _ in ratings.means}
    every = [
        row for corpus in ("arxiv", "debian", "readmes") for row in read(options.data / corpus / "validation.jsonl.zst")
    ]
    records = [Record(row["document"], row["summary"], id=row["id"]) for row in every if row["id"] in rated]
    summarizer = Summarizer.from_pretrained(str(options.folder))
    system: Any = summarizer.system
    calibration, found = calibrate(summarizer, records, ratings, threshold=THRESHOLD)
    documents = []
    for corpus, split in TRAINED_ON:
        texts = [row["document"] for row in read(options.data / corpus / f"{split}.jsonl.zst")]
        documents += random.Random(1).sample(texts, min(MOST, len(texts)))
    replace(with_domain(calibration, system, documents), english=words).save(options.folder)
    print("\n".join(describe(calibration, found)))


if __name__ == "__main__":
    main()
