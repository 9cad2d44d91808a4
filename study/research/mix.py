"""Write the training mix of the bundled model: one file of pairs drawn from every folder by fixed shares.

    python study/research/mix.py OUT [--data ../shared/data] [--docstrings FOLDER] [--readmes FOLDER] [--draws 120000]

OUT gets ``train.jsonl`` (records with ``source``, the folder), ``validation.jsonl`` (the same number of every folder),
``sources/NAME.jsonl`` (all validation records of a folder) and ``mix.json``: shares, pairs read, pairs left out, draws.
A pair is left out when fewer than `LEAST_SUPPORT` of the words of its line stand in the first `WORDS_READ` words of the
text: such a line teaches a model that copies to invent. A folder with fewer pairs than draws is read more than once, in
another order each time. The same arguments give the same bytes.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import json
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import zstandard

Row = dict[str, str]

MIX = {  # kind, percent of the draws: at most 20 a folder, 1 to 25 a kind, news-doj under 5, wiki-desc at most 2
    "arxiv": ("paper", 17.0),
    "debian": ("package", 14.0),
    "docstrings": ("package", 4.0),
    "readmes": ("package", 0.5),
    "support_questions": ("question", 10.0),
    "forum": ("question", 4.0),
    "issues": ("issue", 10.0),
    "pull_requests": ("change", 8.0),
    "commits-open": ("change", 8.0),
    "news-senate": ("news", 4.5),
    "news-doj": ("news", 2.5),
    "law-bills": ("law", 3.5),
    "law-dccode": ("law", 3.5),
    "docs-office": ("article", 2.0),
    "blog-opensource": ("article", 3.5),
    "blog-gov": ("article", 2.0),
    "meetings": ("meeting", 1.5),
    "wiki-desc": ("description", 1.5),
}
KINDS = {name: kind for name, (kind, _) in MIX.items()}
LEAST_SUPPORT = 0.34
WORDS_READ = 384
VALIDATED = 40  # records of a folder in validation.jsonl
WORD = re.compile(r"\w+")


def main() -> None:
    """Read the folders and write the mix."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--docstrings", type=Path, help="folder of a docstring corpus (train, validation)")
    parser.add_argument("--readmes", type=Path, help="folder of a README corpus (train)")
    parser.add_argument("--draws", type=int, default=120_000)
    options = parser.parse_args()
    places = {name: place_of(name, options.data) for name in KINDS}
    places |= {"docstrings": options.docstrings, "readmes": options.readmes}
    shares = {name: share for name, (_, share) in MIX.items() if places[name] is not None}
    total = sum(shares.values())
    check({name: 100 * share / total for name, share in shares.items()})
    train: list[Row] = []
    validation: list[Row] = []
    facts = {}
    for name, share in shares.items():
        rows = [row_of(record, name) for record in read(places[name], "train")]
        supported = [row for row in rows if support(row) >= LEAST_SUPPORT]
        wanted = round(options.draws * share / total)
        train += draw(supported, wanted)
        held = [row_of(record, name) for record in read(held_out(name, places, options.data), "validation")]
        write(options.out / "sources" / f"{name}.jsonl", held)
        validation += sorted(held, key=key)[:VALIDATED]
        facts[name] = {"kind": KINDS[name], "pairs": len(rows), "left_out": len(rows) - len(supported), "draws": wanted}
    write(options.out / "train.jsonl", sorted(train, key=key))
    write(options.out / "validation.jsonl", validation)
    (options.out / "mix.json").write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    for name, fact in facts.items():
        print(f"{name:18} {fact['pairs']:7,} pairs, {fact['left_out']:6,} left out, {fact['draws']:6,} draws")


def place_of(name: str, data: Path) -> Path:
    """The folder of a corpus in the shared data."""
    return data / name if (data / name).is_dir() else data / "titles" / name


def held_out(name: str, places: dict[str, Path], data: Path) -> Path:
    """Where the validation records lie: those of READMEs are the shared ones."""
    return data / name if name == "readmes" else places[name]


def check(shares: dict[str, float]) -> None:
    """Refuse a mix in which a folder or kind has more or less than it may."""
    kinds = Counter[str]()
    for name, share in shares.items():
        kinds[KINDS[name]] += share  # type: ignore[assignment]
    limits = {"news-doj": 5.0, "wiki-desc": 2.0}
    if wrong := [name for name, share in shares.items() if share > limits.get(name, 20.0)]:
        raise SystemExit(f"These folders have too large a share: {', '.join(wrong)}.")
    if odd := [kind for kind, share in kinds.items() if not 1.0 <= share <= 25.0]:
        raise SystemExit(f"These kinds have too small or too large a share: {', '.join(odd)}.")


def read(folder: Path, split: str) -> Iterator[dict[str, str]]:
    """The records of a split, packed or not."""
    plain = folder / f"{split}.jsonl"
    if plain.is_file():
        yield from map(json.loads, plain.open(encoding="utf-8"))
    else:
        with plain.with_suffix(".jsonl.zst").open("rb") as packed:
            stream = zstandard.ZstdDecompressor().stream_reader(packed)
            yield from map(json.loads, io.TextIOWrapper(stream, encoding="utf-8"))


def row_of(record: dict[str, str], source: str) -> Row:
    """One record of the mix; line breaks inside a paragraph go."""
    paragraphs = [" ".join(part.split()) for part in record["document"].split("\n\n")]
    document, summary = "\n\n".join(filter(None, paragraphs)), " ".join(record["summary"].split())
    return {"id": f"{source}/{record['id']}", "document": document, "summary": summary, "source": source}


def support(row: Row) -> float:
    """The share of the line's words that stand in the part of the text that is read."""
    words = WORD.findall(row["summary"].lower())
    offered = set(WORD.findall(row["document"].lower())[:WORDS_READ])
    return sum(word in offered for word in words) / max(1, len(words))


def draw(rows: list[Row], wanted: int) -> list[Row]:
    """As many rows as wanted, all of them once before any is taken again."""
    drawn: list[Row] = []
    while len(drawn) < wanted:
        time = len(drawn) // len(rows)
        again = [row | {"id": f"{row['id']}~{time}"} if time else row for row in rows]
        drawn += sorted(again, key=key)[: wanted - len(drawn)]
    return drawn


def key(row: Row) -> str:
    """An order that looks random and is the same everywhere."""
    return hashlib.sha256(row["id"].encode()).hexdigest()


def write(path: Path, rows: list[Row]) -> None:
    """JSON lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")


if __name__ == "__main__":
    main()
