"""A corpus out of the metadata of packages: the prose of a package's README is the document, its summary line (the
field ``Summary``, a sentence by its author) the summary.

    python study/research/readmes.py OUT --metadata FILE.jsonl [--validation 1000]

A line of FILE has of a package ``name``, ``version``, ``summary``, ``description``, ``license``, ``expression`` (the
licence's) and ``classifiers``; ``readme_packages.txt.gz`` names those that the bundled model learnt from. Only packages
whose metadata names a permissive licence are read; ``stats.json`` has their number by licence and ``packages.json``
their names and versions. Left out: READMEs with fewer than 15 words of prose or in another language, summaries that are
no sentence of 3 to 20 words, pairs with too few words in common, and whatever says nearly the same as a pair before or
as a record of ``--apart`` (files of validation records: packages of the same name go too, with or without Debian's
``python3-``). Where the README repeats the summary word for word, that sentence is taken out of it.
"""

from __future__ import annotations

import argparse
import json
import re
from collections import Counter
from collections.abc import Sequence
from email.message import Message
from multiprocessing import Pool
from pathlib import Path
from typing import Any

from catchline.data.records import read_records
from catchline_study.corpora.docstring_text import clean_docstring
from catchline_study.corpora.docstrings import MIN_BODY_WORDS, MIN_OVERLAP, overlap
from catchline_study.corpora.pairs import CorpusPair, CorpusStats, SeenPairs, hold_out, shuffled, words_of, write_splits
from catchline_study.corpora.pairs import licence_of as licence_in

MAX_WORDS = 256
VALIDATION = 1000
WORDINGS = 40
_HEADING = re.compile(
    r"(?m)^ {0,3}#{1,6}[ \t]+(?P<hash>.+?)[ \t#]*$|^(?P<line>[^\n]{1,80})\n(?:([=~^\"'*+#-])\3{2,})[ \t]*$"
)
_OTHER_SECTIONS = re.compile(
    r"install|licen[cs]e|contribut|requirement|prerequisite|depend|usage|quick ?start|getting started|example|test"
    r"|change|history|release|author|credit|acknowledg|support|develop|build|link|document|reference|contact|sponsor|contents"
    r"|todo|roadmap|faq|badge|setup|configur|command|option|api|parameter|citation|cite|disclaimer|compatib|upgrad",
    re.IGNORECASE,
)
_SENTENCE = re.compile(r"(?<=[.!?])\s+")
_ENGLISH = frozenset(["the", "a", "and", "of", "to", "for", "is", "in", "with", "that", "this", "you"])


def pair_of(metadata: dict[str, Any]) -> tuple[CorpusPair | None, str]:
    """The pair of one package, given its metadata as PyPI's JSON interface names the fields, or why there is none."""
    if licence_of(metadata) is None:
        return None, "not known to be permissive"
    summary = re.sub(rf"(?i)^\W*{re.escape(metadata['name'])}\W*\s+(?:[-–—:|]|is)\s+", "", metadata["summary"] or "")
    summary, body = clean_docstring(f"{' '.join(summary.split())}\n\n{prose(metadata['description'] or '')}")
    if not summary:
        return None, "no summary sentence"
    body = without(summary, body)
    if len(body.split()) < MIN_BODY_WORDS:
        return None, "too little prose"
    words = words_of(body)
    if sum(word in _ENGLISH for word in words) < len(words) / 12:
        return None, "not English"
    if overlap(summary, body) < MIN_OVERLAP:
        return None, "summary and text share too few words"
    return CorpusPair(metadata["name"].lower(), metadata["name"], summary, body), ""


def licence_of(metadata: dict[str, Any]) -> str | None:
    """The permissive licence that the metadata names."""
    message = Message()
    if metadata.get("expression"):
        message["License-Expression"] = metadata["expression"]
    message["License"] = (metadata["license"] or "").replace("\n", " ")
    for classifier in metadata["classifiers"]:
        message["Classifier"] = classifier
    stated, permissive = licence_in(message)
    return stated if permissive else None


def prose(readme: str) -> str:
    """The sections of a README that say what the thing is, without their headings."""
    kept, start, wanted = [], 0, True
    for heading in [*_HEADING.finditer(readme), None]:
        if wanted:
            kept.append(readme[start : heading.start() if heading else len(readme)])
        if heading:
            wanted, start = not _OTHER_SECTIONS.search(heading["hash"] or heading["line"]), heading.end()
    return re.sub(r"<(?:br|p|div|/p|/div|h\d|/h\d|li)\b[^>]*>", "\n\n", "\n\n".join(kept))


def without(summary: str, body: str) -> str:
    """As many whole paragraphs as fit, less the sentences that are the summary itself."""
    same = words_of(summary)
    kept: list[str] = []
    for paragraph in body.split("\n"):
        sentences = [sentence for sentence in _SENTENCE.split(paragraph) if words_of(sentence) != same]
        if sum(len(text.split()) for text in [*kept, *sentences]) > MAX_WORDS and kept:
            break
        kept.append(" ".join(sentences))
    return "\n\n".join(text for text in kept if text)


def folded(name: str) -> str:
    """A package's name as Debian's and PyPI's have in common."""
    return re.sub(r"^(?:python3?-|py-?(?=[a-z]))", "", re.sub(r"[-_.]+", "-", name.lower()))


def build(out: Path, metadata: Path, apart: Sequence[Path] = (), validation: int = VALIDATION) -> CorpusStats:
    """Write ``train.jsonl``, ``validation.jsonl``, ``stats.json`` and ``packages.json`` into ``out``."""
    stats, seen = CorpusStats(), SeenPairs()
    taken = set()
    for record in (record for path in apart for record in read_records(path)):
        seen.refuse(CorpusPair("", record.id, record.summary, record.document))
        taken.add(folded(record.id))
    kept: dict[str, CorpusPair] = {}
    versions, licences = {}, Counter[str]()
    with metadata.open(encoding="utf-8") as handle, Pool() as pool:
        for name, version, licence, pair, reason in pool.imap(_read, handle, chunksize=200):
            reason = reason or ("held out elsewhere" if folded(name) in taken else "")
            reason = reason or (seen.refuse(pair) if pair else "")
            if pair is None or reason:
                stats.left_out[reason] += 1
            else:
                kept[name], versions[name] = pair, version
                licences[str(licence)] += 1
    order = sorted(kept.values(), key=lambda pair: shuffled(pair.name))
    held = hold_out(Counter(pair.group for pair in order), validation)
    splits = {"train": [pair for pair in order if pair.group not in held]}
    splits["validation"] = [pair for pair in order if pair.group in held]
    write_splits(out, splits, "package")
    stats.splits = {split: len(pairs) for split, pairs in splits.items()}
    record = {"left_out": dict(stats.left_out), "splits": stats.splits}
    record["licences"] = dict(licences.most_common(WORDINGS))
    (out / "stats.json").write_text(json.dumps(record, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    (out / "packages.json").write_text(json.dumps(versions, indent=0, sort_keys=True) + "\n", encoding="utf-8")
    return stats


def _read(line: str) -> tuple[str, str, str | None, CorpusPair | None, str]:
    metadata = json.loads(line)
    return metadata["name"], metadata["version"], licence_of(metadata), *pair_of(metadata)


def main() -> None:
    """Make the corpus."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--metadata", type=Path, required=True, help="JSON lines: name, version, summary, ...")
    parser.add_argument("--apart", type=Path, action="append", default=[], help="records that it must have nothing of")
    parser.add_argument("--validation", type=int, default=VALIDATION, help="pairs held out (default: %(default)s)")
    options = parser.parse_args()
    stats = build(options.out, options.metadata, options.apart, options.validation)
    print(f"{options.out}: {stats.splits}; left out: {stats.reasons}")


if __name__ == "__main__":
    main()
