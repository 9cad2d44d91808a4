"""A corpus to find a needle in: many documents in random order behind the first sentence of one of them, whose summary
is to be written.

Coarse-to-fine attention is for reading little of much. The needle stands in the haystack without its first sentence,
so that it has to be found by what it is about. Each line has the needle's id and the characters of its place, by which
one can see whether what was read is what was asked for.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from pathlib import Path

from catchline.errors import DataError
from catchline.files import part_of
from catchline.text.sentences import split_sentences
from catchline.types import Record

BETWEEN = "\n\n"
MIN_SENTENCES = 3  # of a document that may be the needle


def build_haystacks(
    out: Path,
    records: Sequence[Record],
    *,
    documents: int,
    count: int,
    seed: int = 0,
    progress: Callable[[], object] | None = None,
) -> int:
    """Write ``count`` haystacks of so many documents each to the file ``out``; returns the mean number of words.

    No record is a needle twice before all were; what lies around it is drawn anew for each haystack.

    Raises:
        DataError: there are fewer records than documents of a haystack, or none has three sentences.
    """
    needles = [number for number, record in enumerate(records) if _parts(record.document)]
    if len(records) < documents or not needles:
        raise DataError(
            f"{len(records):,} documents, {len(needles):,} of them with {MIN_SENTENCES} sentences: too few for "
            f"haystacks of {documents:,}."
        )
    generator = random.Random(seed)
    order, words = list[int](), 0
    with part_of(out) as handle:
        for number in range(count):
            order = order or generator.sample(needles, len(needles))
            needle = order.pop()
            others = [other for other in generator.sample(range(len(records)), documents) if other != needle]
            texts = [records[other].document for other in others[: documents - 1]]
            question, rest = _parts(records[needle].document)
            place = generator.randrange(documents)
            texts.insert(place, rest)
            start = len(BETWEEN.join([question, *texts[:place], ""]))
            document = BETWEEN.join([question, *texts])
            row = {
                "id": f"{number}-{records[needle].id or needle}",
                "document": document,
                "summary": records[needle].summary,
                "needle": records[needle].id or str(needle),
                "place": [start, start + len(rest)],
            }
            handle.write(json.dumps(row, ensure_ascii=False).encode() + b"\n")
            words += len(document.split())
            if progress:
                progress()
    return round(words / count)


def _parts(document: str) -> list[str]:
    """The first sentence and the others; nothing where they are too few."""
    spans = split_sentences(document)
    enough = len(spans) >= MIN_SENTENCES
    return [document[slice(*spans[0])].strip(), document[spans[1][0] :].strip()] if enough else []
