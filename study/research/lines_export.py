"""What the bundled folder holds beside its weights: confidence by readers' ratings, data, card; one step a call.

    python study/research/lines_export.py lines EXPORTED RECORDS --out LINES
    python study/research/lines_export.py confidence FOLDER RECORDS --lines LINES --mix MIX [--threshold 0.4]
    python study/research/lines_export.py card FOLDER RECORDS --lines LINES --mix MIX --docstrings DOCSTRINGS

RECORDS is what ``lines.py`` writes; LINES has the line of each record and its facts; DOCSTRINGS is the corpus of the
mix, whose packages are named beside those of earlier ones. Readers' ratings are in
``lines_ratings.jsonl.gz``. What counts as English stays as the bundled folder has it: ``english_words.txt.gz`` has
16,000 words of ten million (spacy-lookups-data, MIT; the State of the Union addresses, public domain). Then:
``catchline export FOLDER --out BUNDLED --int8``, and ``data.json`` is copied beside.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Any

from catchline import Summarizer, rouge
from catchline.config.names import DEFAULT, ROOT
from catchline.metrics.confidence import Calibration
from catchline.metrics.significance import bootstrap_interval
from catchline.models.card import Card, write_card
from catchline.summarizer.confidence import regression, with_domain
from catchline.types import Record

RATINGS = Path(__file__).with_name("lines_ratings.jsonl.gz")
ACCEPT = 1.75  # mean of two readers, from 0 to 3
READ, SEED, SHOWN = 8_000, 15, 100  # texts of the mix for the domain; outputs of the card
SOURCES = {
    "arxiv": ("abstracts and titles of papers", "arXiv metadata, CC0 1.0"),
    "debian": ("package descriptions and synopses of Debian 12 main", "free licences of the packages"),
    "docstrings": ("docstrings of Python packages and their summary lines", "permissive, named in data.json"),
    "readmes": ("READMEs of Python and Node packages and their summaries", "permissive, counted in data.json"),
    "support_questions": ("support.mozilla.org: questions by its users", "CC BY-SA 3.0 or later"),
    "forum": ("topics of the OpenEnergyMonitor forum", "MIT"),
    "issues": ("Titanium's Jira archive (TiDev); issue archive of Rust", "Apache-2.0; MIT or Apache-2.0"),
    "pull_requests": ("pull requests of Rust, Bevy, Apache Arrow, Cargo", "MIT or Apache-2.0"),
    "commits-open": ("commits of OpenStack Nova, curl, Go tools, Apache Arrow, Cargo", "Apache-2.0, curl, BSD-3, MIT"),
    "news-senate": ("press releases of US senators, 2003 to 2008 (Grimmer's collection)", "public domain"),
    "news-doj": ("press releases of the US Department of Justice", "public domain"),
    "law-bills": ("summaries of bills by the Congressional Research Service", "public domain"),
    "law-dccode": ("sections of the Code of the District of Columbia", "law, no copyright"),
    "docs-office": ("Microsoft's documentation of Dynamics AX 2012", "CC BY 4.0, Microsoft"),
    "blog-opensource": ("articles of opensource.com by their authors", "CC BY-SA 4.0"),
    "blog-gov": ("posts of Digital.gov and 18F", "CC0 1.0, public domain"),
    "meetings": ("notes of Ethereum's protocol meetings (ethereum/pm)", "CC BY-SA 3.0"),
    "wiki-desc": ("first paragraphs of Wikipedia, descriptions of Wikidata (WikiDes)", "CC BY-SA 3.0; CC0"),
}
ORIGIN = """\
`data.json` names the packages of the docstrings with version and licence, counts the licences of the READMEs, and has
the mix. The model was first trained on the first four corpora (180,556 pairs, an H200, 2,687 updates of 256 pairs),
then on all of them (CPU, 32 pairs an update: about 500 updates with two layers frozen, 3,500 and 2,850 with all
weights), then by the expected risk of its own lines (by ROUGE, about 4,000 updates of 8 texts; by ROUGE and ratings of
language models, about 5,700). It is a mean of weights.

The encoder began as the lowest layers of
[all-MiniLM-L6-v2](https://huggingface.co/sentence-transformers/all-MiniLM-L6-v2) (Apache 2.0), itself trained from
Microsoft's MiniLM (MIT); each word began as the mean of its pieces there.\
"""
LIMITS = """\
It writes one line about English texts of the kinds above and reads the first 384 words and signs of a text. It may name
what the text does not, or say something that is not so: look up numbers and names in the text. Of long texts and of
conversations it knows little.\
"""


def main() -> None:
    """Do one step."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("step", choices=("lines", "confidence", "card"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("records", type=Path)
    for name in ("lines", "mix", "out", "docstrings"):
        parser.add_argument(f"--{name}", type=Path)
    parser.add_argument("--threshold", type=float, default=0.4)
    options = parser.parse_args()
    {"lines": lines, "confidence": confidence, "card": card}[options.step](options)


def read(path: Path) -> list[dict[str, Any]]:
    """JSON lines."""
    return [json.loads(line) for line in path.open(encoding="utf-8")]


def lines(options: argparse.Namespace) -> None:
    """The model's own line of each record, whatever its confidence, with the facts of it."""
    rows, summarizer = read(options.records), Summarizer.from_pretrained(str(options.folder))
    summarizer.system.calibration = Calibration.blank()
    made = summarizer.summarize([Record(row["document"], row["summary"], id=row["id"]) for row in rows])
    answers = [{"id": row["id"], "summary": one.text, "facts": one.facts} for row, one in zip(rows, made, strict=True)]
    text = "".join(json.dumps(answer, ensure_ascii=False) + "\n" for answer in answers)
    options.out.write_text(text, encoding="utf-8")


def confidence(options: argparse.Namespace) -> None:
    """Fit the confidence to the ratings of the new lines, and the domain to texts of the mix."""
    facts = {row["id"]: row["facts"] for row in read(options.lines)}
    rated = [json.loads(line) for line in gzip.decompress(RATINGS.read_bytes()).splitlines()]
    good = [fmean(row["ratings"]["new"]) >= ACCEPT for row in rated]
    calibration = regression([facts[row["id"]] for row in rated], good)
    texts = random.Random(14).sample((options.mix / "train.jsonl").read_text("utf-8").splitlines(), READ)
    system: Any = Summarizer.from_pretrained(str(options.folder)).system
    calibration = with_domain(calibration, system, [json.loads(text)["document"] for text in texts])
    bundled = Calibration.load(ROOT / DEFAULT)
    english = bundled.english if bundled else ""
    said = {"threshold": options.threshold, "accepted": "rated 2 or more by readers", "english": english}
    replace(calibration, **said).save(options.folder)  # type: ignore[arg-type]


def card(options: argparse.Namespace) -> None:
    """``data.json``, ``card.json`` and ``README.md``."""
    mix = json.loads((options.mix / "mix.json").read_text("utf-8"))
    data = json.loads((ROOT / DEFAULT / "data.json").read_text("utf-8")) | {"mix": mix}
    data["licences"] |= json.loads((options.docstrings / "stats.json").read_text("utf-8"))["licences"]
    data["docstring_packages"] = sorted({*data["docstring_packages"], *data["licences"]}, key=str.lower)
    (options.folder / "data.json").write_text(json.dumps(data, indent=2, ensure_ascii=False) + "\n", "utf-8")
    total = sum(fact["draws"] for fact in mix.values())
    notes = ["| corpus | what | kind | training pairs | share of the draws | licence |", "| --- " * 6 + "|"]
    for name, fact in mix.items():
        what, licence = SOURCES[name]
        share = fact["draws"] / total
        notes.append(f"| {name} | {what} | {fact['kind']} | {fact['pairs']:,} | {share:.1%} | {licence} |")
    rows, answers = read(options.records), read(options.lines)
    notes += ["", ORIGIN, "", f"## {SHOWN} outputs", "", f"Drawn by `random.Random({SEED}).sample`, unedited.", ""]
    notes += ["| document | line |", "| --- | --- |"]
    for answer in random.Random(SEED).sample(answers, SHOWN):
        notes.append(f"| {answer['id'].replace('|', '/')} | {answer['summary'].replace('|', '/')} |")
    texts, people = [answer["summary"] for answer in answers], [[row["summary"]] for row in rows]
    scores = rouge(texts, people, kinds=("1", "2", "L"), stem=True).per_document
    notes += ["", "## By corpus", "", "ROUGE F1 with half of its 95% interval; `emails` was never trained on.", ""]
    notes += ["| corpus | records | ROUGE-1 | ROUGE-2 | ROUGE-L |", "| --- " * 5 + "|"]
    for name in dict.fromkeys(row["source"] for row in rows):
        places = [place for place, row in enumerate(rows) if row["source"] == name]
        cells = []
        for kind in ("1", "2", "L"):
            values = [100 * scores[kind][place].f for place in places]
            low, high = bootstrap_interval(values)
            cells.append(f"{fmean(values):.1f} ±{(high - low) / 2:.1f}")
        notes.append(f"| {name} | {len(places)} | {' | '.join(cells)} |")
    facts = {"license": "apache-2.0", "language": ["en"], "datasets": [*mix], "limits": LIMITS}
    write_card(options.folder, Card(notes="\n".join(notes), **facts))


if __name__ == "__main__":
    main()
