"""Make the bundled folder of a run that ``lines.yaml`` describes: weights, calibration, card, graphs, one step a call.

    python study/research/lines_export.py weights INTO --run RUN        # int8, with how words are written
    python study/research/lines_export.py calibrate INTO --mix MIX --lines NBEST [--given 0.65]
    python study/research/lines_export.py card INTO --mix MIX --scores OUT/scores.json --predictions OUT/NAME.jsonl
    python study/research/lines_export.py graphs INTO                   # last: they hold digests of the other files

Written for the code of revision 058ff37d, in whose checkout it is called (``--scripts`` is the folder of its
``make_model.py``). NBEST has a record a line: ``id``, ``source``, ``document``, ``summary``, and of the line that the
model writes ``text`` and ``facts``.
"""

from __future__ import annotations

import argparse
import importlib
import json
import random
import sys
import zlib
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from laconic.data.dataset import encode_documents
from laconic.metrics.card import Facts, write_card
from laconic.metrics.confidence import packed, word_ids
from laconic.models.folder import load_model_folder
from laconic.study.calibration import OTHER_DOMAIN, TAIL, accepted, fit, word_ratios
from laconic.types import Record

ACCEPT = 0.4
MOST_READ = 20_000  # texts of the mix from which the frequencies of words are taken
SEED, SHOWN = 14, 100
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
LIMITS = """\
It writes one line about English texts of the kinds above and reads the first 384 words and signs of a text. It may name
what the text does not, or say something that is not so: look up numbers and names in the text. Of long texts and of
conversations it knows little.\
"""


def main() -> None:
    """Do one step."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("step", choices=("weights", "calibrate", "card", "graphs"))
    parser.add_argument("into", type=Path)
    for name in ("run", "mix", "lines", "scores", "predictions"):
        parser.add_argument(f"--{name}", type=Path)
    parser.add_argument("--origin", default="", help="how it was trained, for the card")
    parser.add_argument("--given", type=float, default=0.65, help="share of the texts that get a line")
    parser.add_argument("--name", default="new", help="the model's name in the scores")
    parser.add_argument("--set", dest="settings", action="append", default=[], metavar="SEARCH.KEY=VALUE")
    parser.add_argument("--scripts", type=Path, default=Path("scripts"))
    options = parser.parse_args()
    sys.path.insert(0, str(options.scripts.resolve()))
    {"weights": weights, "calibrate": calibrate, "card": card, "graphs": graphs}[options.step](options)


def weights(options: argparse.Namespace) -> None:
    """The run's model with its matrices in eight bits, and with other settings of the search if wanted."""
    loaded = load_model_folder(options.run)
    changes = dict(setting.split("=", 1) for setting in options.settings)
    loaded.search = type(loaded.search).model_validate(
        loaded.search.model_dump() | {key: json.loads(value) for key, value in changes.items()}
    )
    loaded.name, loaded.in_eight_bits, loaded.calibration = "oneline", True, None
    loaded.save_pretrained(options.into)


def calibrate(options: argparse.Namespace) -> None:
    """Fit the confidence to lines on validation records; the figures of texts to those of the mix."""
    rows = [json.loads(line) for line in options.lines.open(encoding="utf-8")]
    records = [Record(id=row["id"], document=row["document"], summary=row["summary"]) for row in rows]
    good = accepted([row["text"] for row in rows], records, ACCEPT)
    facts = [row["facts"] for row in rows]
    rule = f"ROUGE-1 of {ACCEPT:g} or more, no content word twice, no number or name that the document lacks"
    calibration, found = fit(facts, good, 0.5, rule)
    loaded = load_model_folder(options.into)
    read = random.Random(SEED).sample(list((options.mix / "train.jsonl").open(encoding="utf-8")), MOST_READ)
    mixed = [Record(document=json.loads(line)["document"]) for line in read]
    _, sources = encode_documents(mixed, loaded.tokenizer, loaded.text)
    ids = [word_ids(source) for source in sources]
    ratios, most = word_ratios(loaded.tokenizer, ids)
    unknown = [own.count(loaded.tokenizer.unk_id) / max(1, len(own)) for own in ids]
    ranges = replace(
        calibration.ranges,
        least_tokens=int(np.percentile([source.total or len(source.ids) for source in sources], TAIL)),
        most_unknown=float(np.percentile(unknown, 100 - TAIL)),
        most_ratio=most,
    )
    confidence = [calibration.confidence(one) for one in facts]
    threshold = float(np.quantile(confidence, 1 - options.given))
    calibration = replace(calibration, ranges=ranges, word_ratios=packed(ratios), threshold=round(threshold, 3))
    calibration.save(options.into)
    print(f"threshold {threshold:.3f}; AUC {found.auc:.3f}, calibration error {found.error:.3f}; {ranges}")
    print(f"words of other kinds: above {most:.3f}, {OTHER_DOMAIN:g}% of the mix")
    report(rows, confidence, good, threshold)


def report(rows: Sequence[dict[str, Any]], confidence: Sequence[float], good: Sequence[bool], threshold: float) -> None:
    """By folder: the mean confidence, the share accepted, the share that gets a line, and what of it is accepted."""
    by = defaultdict(list)
    for row, sure, right in zip(rows, confidence, good, strict=True):
        by[row["source"]].append((sure, right))
    for name, pairs in by.items():
        given = [right for sure, right in pairs if sure >= threshold]
        sure, right = (float(np.mean(column)) for column in zip(*pairs, strict=True))
        share, of_these = len(given) / len(pairs), np.mean(given or [0])
        print(f"{name:18} {sure:.2f} {right:.2f} given {share:.0%}, of these {of_these:.2f}")


def card(options: argparse.Namespace) -> None:
    """``data.json``, ``card.json`` and ``README.md``."""
    mix = json.loads((options.mix / "mix.json").read_text(encoding="utf-8"))
    before = (
        json.loads((options.into / "data.json").read_text("utf-8")) if (options.into / "data.json").exists() else {}
    )
    data = before | {"mix": mix}
    (options.into / "data.json").write_text(json.dumps(data, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    total = sum(fact["draws"] for fact in mix.values())
    lines = [options.origin, ""] if options.origin else []
    lines += ["| corpus | what | kind | training pairs | share of the draws | licence |", "| --- " * 6 + "|"]
    for name, fact in mix.items():
        what, licence = SOURCES[name]
        lines.append(
            f"| {name} | {what} | {fact['kind']} | {fact['pairs']:,} | {fact['draws'] / total:.1%} | {licence} |"
        )
    answers = [json.loads(line) for line in options.predictions.open(encoding="utf-8")]
    drawn = random.Random(SEED).sample(answers, SHOWN)
    lines += ["", f"## {SHOWN} outputs", "", f"Drawn by `random.Random({SEED}).sample`, unedited.", ""]
    lines += ["| document | line |", "| --- | --- |"]
    for answer in drawn:
        line = answer["alternatives"][0]["summary"] if answer.get("declined") else answer["summary"]
        lines.append(f"| {answer['id'].replace('|', '/')} | {line.replace('|', '/')} |")
    scores = json.loads(options.scores.read_text(encoding="utf-8"))[options.name]
    lines += ["", "## By kind", "", "| corpus | records | ROUGE-1 | ROUGE-2 | ROUGE-L | words |", "| --- " * 6 + "|"]
    for name, fact in scores.items():
        figures = " | ".join("{:.1f} ±{:.1f}".format(*fact["rouge"][kind]) for kind in ("1", "2", "L"))
        lines.append(f"| {name} | {fact['records']} | {figures} | {fact['words']:.1f} |")
    write_card(
        options.into,
        Facts(license="apache-2.0", language=["en"], datasets=[*mix], notes="\n".join(lines), limits=LIMITS),
        opened_as="oneline",
    )


def graphs(options: argparse.Namespace) -> None:
    """The ONNX files; prints how large the folder is when packed."""
    importlib.import_module("make_model").add_graphs(options.into)
    size = sum(len(zlib.compress(path.read_bytes())) for path in options.into.iterdir())
    print(f"{options.into}: {size / 1e6:.1f} MB packed")


if __name__ == "__main__":
    main()
