"""Selections of spans: against a ranking by hand; the same bytes from whoever does the work, also after a kill."""

from __future__ import annotations

import dataclasses
import gzip
import json
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from tokenizers import decoders, models, pre_tokenizers, trainers

from catchline.cli.main import main
from catchline.errors import ConfigError
from catchline_study.spans import selection
from catchline_study.spans.candidates import stable_hash
from catchline_study.spans.selection import select_spans
from catchline_study.spans.settings import SpanSettings
from catchline_study.spans.tokens import VocabularySpanTokenizer
from span_counts import counted, scored

WORDS = ["sun", "moon", "Sea", "sea", "hill", "tree", "wind", "rain", "old", "new", "é", "stone,", "road.", "bird"]
SMALL = SpanSettings(k=12, tokenizer="words", input_length=6, output_length=3, chunk=20, text="line", shard_records=5)


def write_corpus(folder: Path, seed: int = 1) -> Path:
    """Three files of documents: lines, JSON lines and compressed JSON lines."""
    generator = random.Random(seed)

    def text() -> str:
        return " ".join(generator.choices(WORDS, k=generator.randint(2, 60)))

    (folder / "more").mkdir(parents=True)
    (folder / "a.txt").write_text("\n".join([*(text() for _ in range(12)), "", "  "]) + "\n")
    (folder / "more" / "b.jsonl").write_text("".join(json.dumps({"text": text()}) + "\n" for _ in range(12)))
    lines = [json.dumps({"text": text(), "id": f"x{n}"}) + "\n" for n in range(9)]
    (folder / "c.jsonl.gz").write_bytes(gzip.compress("".join(lines).encode(), mtime=0))
    (folder / "notes.md").write_text("not part of it")
    (folder / ".hidden.txt").write_text(text())
    return folder


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_corpus(tmp_path_factory.mktemp("corpus") / "in")


def written(out: Path) -> dict[str, bytes]:
    return {str(path.relative_to(out)): path.read_bytes() for path in sorted(out.rglob("*")) if path.is_file()}


def records(out: Path) -> list[dict[str, Any]]:
    """In the order of the shuffle: held out ones first."""
    files = [out / file["name"] for file in json.loads((out / "manifest.json").read_text())["files"]]
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def run(corpus: Path, out: Path, settings: SpanSettings = SMALL, **more: Any) -> tuple[dict[str, Any], bool]:
    return select_spans([str(corpus)], out, settings, **more)


# --------------------------------------------------------------------------------- a ranking by hand


def documents(corpus: Path) -> Iterator[tuple[str, int, str]]:
    for number, line in enumerate((corpus / "a.txt").read_text().splitlines()):
        yield "a.txt", number, line
    with gzip.open(corpus / "c.jsonl.gz", "rt") as file:
        for number, line in enumerate(file):
            yield "c.jsonl.gz", number, json.loads(line)["text"]
    for number, line in enumerate((corpus / "more" / "b.jsonl").read_text().splitlines()):
        yield "more/b.jsonl", number, json.loads(line)["text"]


@dataclasses.dataclass
class Window:
    place: tuple[str, int, int]
    counts: tuple[int, int, int]
    score: Fraction
    texts: tuple[str, str]
    output: tuple[str, ...]


@cache
def windows(corpus: Path, settings: SpanSettings) -> list[list[Window]]:
    """Of every chunk."""
    size, shape = settings.chunk, settings.shape
    found = []
    for name, number, text in documents(corpus):
        spans = [match.span() for match in re.finditer(r"\w+|[^\w\s]", text)]
        tokens = [text[start:end] for start, end in spans]
        if settings.lowercase:
            tokens = [token.lower() for token in tokens]
        for offset in range(0, len(tokens), size):
            end = min(offset + size, len(tokens))
            places = range(offset, end - shape.window + 1, settings.stride)
            some = [window(settings, (name, number, place), tokens, spans, text) for place in places]
            if some:
                found.append(some)
    return found


def window(
    settings: SpanSettings, place: tuple[str, int, int], tokens: list[str], spans: list[tuple[int, int]], text: str
) -> Window:
    start, shape = place[2], settings.shape
    middle, end = start + shape.input, start + shape.window
    counts = counted(tokens, start, shape)
    score = scored(counts, list(map(Fraction, settings.weights.split(","))), shape)
    texts = text[spans[start][0] : spans[middle - 1][1]], text[spans[middle][0] : spans[end - 1][1]]
    return Window(place, counts, score, texts, tuple(tokens[middle:end]))


def ranked(corpus: Path, settings: SpanSettings) -> list[Window]:
    """The K best, best first."""
    if settings.over is not None:
        found = [one for some in windows(corpus, settings) for one in some if one.score > Fraction(settings.over)]
    else:
        found = [max(some, key=lambda one: (one.score, -one.place[2])) for some in windows(corpus, settings)]
    if settings.drop_ceiling:
        found = [one for one in found if one.counts[2] < 3]
    found.sort(key=lambda one: (-one.score, stable_hash(settings.seed, *one.place)[0]))
    if settings.drop_duplicate_outputs:
        seen: set[tuple[str, ...]] = set()
        found = [one for one in found if not (one.output in seen or seen.add(one.output))]  # type: ignore[func-returns-value]
    return found[: settings.k]


def check(corpus: Path, out: Path, settings: SpanSettings) -> None:
    manifest, _ = run(corpus, out, settings)
    expected = sorted(ranked(corpus, settings), key=lambda one: stable_hash(settings.seed, *one.place)[1])
    got, count = records(out), len(expected)
    assert [row["id"] for row in got] == ["{}:{}:{}".format(*one.place) for one in expected]
    for row, one in zip(got, expected, strict=True):
        assert (row["document"], row["summary"]) == one.texts
        assert (row["unigrams"], row["bigrams"], row["longest_subsequence"]) == one.counts
        assert row["score"] == float(one.score)
    few = [f"There are only {count:,} spans to choose from; {settings.k:,} were asked for."]
    assert manifest["warnings"] == (few if count < settings.k else [])


@pytest.mark.parametrize(
    ("weights", "changes"),
    [
        ("111", {}),
        ("100", {"over": "0.3", "k": 25, "drop_duplicate_outputs": True}),
        ("010", {"stride": 4, "k": 10_000}),
        ("001", {"input_length": 2, "output_length": 9}),
        ("101", {"seed": 2, "validation": 4}),
        ("011", {"lowercase": True}),
        ("111", {"over": "0.5", "drop_ceiling": True}),
        (("0.5", "2", "0.125"), {"k": 1}),
    ],
    ids=str,
)
def test_the_selection_is_the_ranking_by_hand(
    corpus: Path, tmp_path: Path, weights: Sequence[str], changes: dict[str, Any]
) -> None:
    """Every set of weights and every option, not all pairs of them."""
    check(corpus, tmp_path / "out", dataclasses.replace(SMALL, weights=",".join(weights), **changes))


# ------------------------------------------------------------------------------------ the same bytes


class StoppedError(Exception):
    """A job is killed."""


def stop_after(monkeypatch: pytest.MonkeyPatch, count: int) -> list[str]:
    """The steps that begin; the one after ``count`` of them stops the job."""
    begun: list[str] = []

    def watched(name: str, right: Callable[..., None]) -> Callable[..., None]:
        def step(self: Any, number: int, *more: Any) -> None:
            begun.append(f"{name} {number}")
            if len(begun) > count:
                raise StoppedError
            right(self, number, *more)

        return step

    for name in ("_scan", "_emit"):
        monkeypatch.setattr(selection._Job, name, watched(name, getattr(selection._Job, name)))
    return begun


def test_a_job_continues_where_it_stopped(corpus: Path, tmp_path: Path) -> None:
    """It is stopped at every step in turn, and no complete step is done twice."""
    settings = dataclasses.replace(SMALL, validation=3)
    run(corpus, tmp_path / "whole", settings)
    done: list[str] = []
    for _ in range(20):
        with pytest.MonkeyPatch.context() as patch:
            begun = stop_after(patch, 1)
            try:
                run(corpus, tmp_path / "parts", settings)
                break
            except StoppedError:
                assert not (tmp_path / "parts" / "manifest.json").exists()
            finally:
                done += begun[:1]
    assert written(tmp_path / "parts") == written(tmp_path / "whole")
    assert len(done) == len(set(done)) >= 6


def test_a_complete_selection_is_left_alone(corpus: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    run(corpus, out)
    before = written(out)
    assert run(corpus, out)[1]
    with pytest.raises(ConfigError, match=r"other settings \(k 12 instead of 5\)"):
        run(corpus, out, dataclasses.replace(SMALL, k=5))
    with pytest.raises(ConfigError, match="other files"):
        run(corpus / "a.txt", out)
    assert written(out) == before
    again = run(corpus, out, dataclasses.replace(SMALL, k=5), overwrite=True)
    assert not again[1]
    assert again[0]["records"] == len(records(out)) == 5


# ------------------------------------------------------------------------------------------- what is written


# ---------------------------------------------------------------------------------------------- tokens


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    backend = tokenizers.Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=300, initial_alphabet=alphabet, special_tokens=["</s>"], show_progress=False
    )
    backend.train_from_iterator([" ".join(WORDS)] * 3, trainer)
    backend.enable_truncation(5)
    folder = tmp_path_factory.mktemp("tokenizer")
    backend.save(str(folder / "tokenizer.json"))
    return folder


def test_byte_level_tokens_are_slices_of_the_text(corpus: Path, tokenizer: Path, tmp_path: Path) -> None:
    sizes = {"input_length": 12, "output_length": 5, "chunk": 40}
    run(corpus, tmp_path / "out", dataclasses.replace(SMALL, tokenizer=str(tokenizer), **sizes))
    units = VocabularySpanTokenizer(tokenizer / "tokenizer.json")
    texts = {f"{name}:{number}": text for name, number, text in documents(corpus)}
    for row in records(tmp_path / "out"):
        document, start = row["id"].rsplit(":", 1)
        ids = units.encode([texts[document]])[0].tokens.tolist()
        assert row["document"] + row["summary"] in texts[document]
        assert units.encode([row["summary"]])[0].tokens.tolist() == ids[int(start) + 12 : int(start) + 17]


# ------------------------------------------------------------------------------------------- bad input


def test_bad_records_are_skipped_and_counted(corpus: Path, tmp_path: Path) -> None:
    folder = write_corpus(tmp_path / "in")
    with (folder / "more" / "b.jsonl").open("a") as file:
        file.write("{\n5\n")
    manifest = run(folder, tmp_path / "out", dataclasses.replace(SMALL, skip_bad=True))[0]
    assert manifest["corpus"]["skipped_records"] == {"int instead of an object": 1, "broken JSON": 1}
    assert len(manifest["warnings"]) == 1
    run(corpus, tmp_path / "clean")
    assert records(tmp_path / "out") == records(tmp_path / "clean")


ARGUMENTS = ["--tokenizer", "words", "--input-length", "8", "--output-length", "4", "--chunk", "40"]


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    generator = random.Random(2)
    words = ["".join(generator.choices("abcdefgh", k=generator.randint(1, 5))) for _ in range(60)]
    folder = tmp_path_factory.mktemp("corpus")
    for number in range(12):
        texts = (" ".join(generator.choices(words, k=generator.randint(10, 300))) for _ in range(40))
        (folder / f"part-{number:02d}.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts))
    return folder


def selected(*arguments: str) -> int:
    return main(["--quiet", "data", "select-spans", *ARGUMENTS, *arguments])


def test_a_killed_job_goes_on_to_the_same_bytes(large: Path, tmp_path: Path) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    arguments = ["--input", str(large), "--k", "300", "--validation", "10", "--records-per-file", "100"]
    assert selected(*arguments, "--out", str(whole)) == 0
    command = [sys.executable, "-m", "catchline.cli.main", "--quiet", "data", "select-spans", *arguments, *ARGUMENTS]
    command += ["--out", str(killed), "--workers", "2"]
    scans = killed / ".selection"
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None and len(list(scans.glob("0*.json"))) < 2:
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (killed / "manifest.json").exists(), "the job was over before it could be killed"
    before = {path.name: path.stat().st_mtime_ns for path in scans.glob("0*.json")}
    assert before
    time.sleep(0.5)  # its workers end by themselves
    (scans / "00011.bin.partial").write_bytes(b"half")
    finished = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    assert written(killed) == written(whole)
    assert "300" in finished.stdout
