"""Scores of neighbouring spans against plain counting, a dynamic programme and exact fractions; selections against a
ranking by hand, and the same bytes from whoever does the work, also after a stop."""

from __future__ import annotations

import dataclasses
import gzip
import json
import random
import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from fractions import Fraction
from functools import cache
from itertools import pairwise, product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import decoders, models, pre_tokenizers, trainers

from catchline.errors import ConfigError
from catchline_study.spans import selection
from catchline_study.spans.candidates import stable_hash
from catchline_study.spans.scoring import ScoreKey, Shape, WindowBlock
from catchline_study.spans.selection import select_spans
from catchline_study.spans.settings import SpanSettings
from catchline_study.spans.tokens import VocabularySpanTokenizer
from commands import run as command

Counts = tuple[int, int, int]


def longest(left: Sequence[Hashable], right: Sequence[Hashable]) -> int:
    """The textbook's table, a row at a time."""
    row = [0] * (len(right) + 1)
    for a in left:
        diagonal = 0
        for j, b in enumerate(right, start=1):
            above = row[j]
            row[j] = diagonal + 1 if a == b else max(above, row[j - 1])
            diagonal = above
    return row[-1]


def counted(tokens: Sequence[Hashable], start: int, shape: Shape) -> Counts:
    left = list(tokens[start : start + shape.input])
    right = list(tokens[start + shape.input : start + shape.window])
    common = [
        (Counter(one) & Counter(other)).total() for one, other in ((left, right), (pairwise(left), pairwise(right)))
    ]
    return common[0], common[1], longest(left, right)


def scored(counts: Counts, weights: Sequence[Fraction], shape: Shape) -> Fraction:
    """F1 from precision and recall, as one writes it down."""

    def f1(matches: int, left: int, right: int) -> Fraction:
        if not matches:
            return Fraction(0)
        precision, recall = Fraction(matches, right), Fraction(matches, left)
        return 2 * precision * recall / (precision + recall)

    sizes = [(shape.input, shape.output), (shape.input - 1, shape.output - 1), (shape.input, shape.output)]
    parts = (weight * f1(count, *size) for weight, count, size in zip(weights, counts, sizes, strict=True))
    return sum(parts, Fraction(0))


def block(rows: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    lengths = np.array([len(row) for row in rows])
    padded = [row + [-7] * (int(lengths.max()) - len(row)) for row in rows]
    return np.array(padded, dtype=np.int32).T.copy(), lengths


def key_of(weights: Sequence[int | Fraction], shape: Shape) -> ScoreKey:
    return ScoreKey.of(tuple(map(Fraction, weights)), shape)  # type: ignore[arg-type]


@st.composite
def chunks(draw: st.DrawFn) -> tuple[Shape, list[list[int]]]:
    shape = Shape(draw(st.integers(1, 40)), draw(st.sampled_from([1, 2, 5, 31, 32, 33, 64])), draw(st.integers(1, 12)))
    most = draw(st.integers(1, 9))
    rows = st.lists(st.integers(0, most), min_size=shape.window, max_size=shape.window + 30)
    return shape, draw(st.lists(rows, min_size=1, max_size=3))


@settings(max_examples=40)
@given(
    chunks(),
    st.sampled_from([*list(product((0, 1), repeat=3))[1:], (Fraction("0.3"), 2, Fraction("1.25"))]),
    st.sampled_from(["0", "0.2", "0.5", "1"]),
)
def test_the_best_windows_and_all_over_a_score_are_those_of_brute_force(
    drawn: tuple[Shape, list[list[int]]], weights: tuple[int, int, int], over: str
) -> None:
    shape, rows = drawn
    key, exact = key_of(weights, shape), list(map(Fraction, weights))
    tokens, lengths = block(rows)
    found = WindowBlock(shape, key, tokens, lengths, tokens != -9).best()
    assert found.column.tolist() == list(range(len(rows)))
    many = []
    for number, row in enumerate(rows):
        windows = {start: counted(row, start, shape) for start in range(0, len(row) - shape.window + 1, shape.stride)}
        scores = {start: scored(counts, exact, shape) for start, counts in windows.items()}
        start = max(scores, key=lambda place: (scores[place], -place))
        counts = (int(found.m1[number]), int(found.m2[number]), int(found.ml[number]))
        assert (int(found.start[number]), counts) == (start, windows[start])
        assert key.score(*counts) == scores[start]
        many += [(number, place, *windows[place]) for place in windows if scores[place] > Fraction(over)]
    above = WindowBlock(shape, key, tokens, lengths, tokens != -9).above(int(Fraction(over) * key.denominator))
    columns = [getattr(above, name).tolist() for name in ("column", "start", "m1", "m2", "ml")]
    assert list(zip(*columns, strict=True)) == many


def test_windows_of_blanks_are_passed_over_and_weights_have_few_digits() -> None:
    shape = Shape(3, 2)
    tokens, lengths = block([[1, 1, 1, 1, 1, 5, 6, 7, 5, 6], [1] * 10])
    windows = WindowBlock(shape, key_of((1, 1, 1), shape), tokens, lengths, tokens != 1)
    found, given_one = windows.best(), windows.given(np.array([7, 7], dtype=np.uint64))
    assert (found.column.tolist(), found.start.tolist(), given_one.column.tolist()) == ([0], [5], [0])
    assert 3 <= int(given_one.start[0]) <= 5
    with pytest.raises(ConfigError, match="too many digits"):
        key_of((Fraction("1.0000000000000000000001"), 1, 1), Shape())


WORDS = ["sun", "moon", "Sea", "sea", "hill", "tree", "wind", "rain", "old", "new", "é", "stone,", "road.", "bird"]
SMALL = SpanSettings(k=12, tokenizer="words", input_length=6, output_length=3, chunk=20, text="line", shard_records=5)


def write_corpus(folder: Path) -> Path:
    """Three files of documents: lines, JSON lines and compressed JSON lines."""
    generator = random.Random(1)

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


def documents(corpus: Path) -> Iterator[tuple[str, int, str]]:
    for name in ("a.txt", "c.jsonl.gz", "more/b.jsonl"):
        raw = (corpus / name).read_bytes()
        lines = (gzip.decompress(raw) if name.endswith(".gz") else raw).decode().splitlines()
        yield from (
            (name, number, line if name == "a.txt" else json.loads(line)["text"]) for number, line in enumerate(lines)
        )


class Window(NamedTuple):
    place: tuple[str, int, int]
    counts: Counts
    score: Fraction
    texts: tuple[str, str]
    output: tuple[str, ...]


@cache
def windows(corpus: Path, settings: SpanSettings) -> list[list[Window]]:
    """Of every chunk."""
    shape, weights, found = settings.shape, list(map(Fraction, settings.weights.split(","))), list[list[Window]]()
    for name, number, text in documents(corpus):
        spans = [match.span() for match in re.finditer(r"\w+|[^\w\s]", text)]
        tokens = [text[start:end].lower() if settings.lowercase else text[start:end] for start, end in spans]
        for offset in range(0, len(tokens), settings.chunk):
            found.append([])
            end = min(offset + settings.chunk, len(tokens))
            for start in range(offset, end - shape.window + 1, settings.stride):
                counts, (first, last) = counted(tokens, start, shape), (start + shape.input, start + shape.window)
                texts = text[spans[start][0] : spans[first - 1][1]], text[spans[first][0] : spans[last - 1][1]]
                one = Window(
                    (name, number, start), counts, scored(counts, weights, shape), texts, tuple(tokens[first:last])
                )
                found[-1].append(one)
    return list(filter(None, found))


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
        first = {one.output: one for one in reversed(found)}
        found = [one for one in found if first[one.output] is one]
    return found[: settings.k]


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
    settings = dataclasses.replace(SMALL, weights=",".join(weights), **changes)
    manifest, _ = run(corpus, tmp_path / "out", settings)
    expected = sorted(ranked(corpus, settings), key=lambda one: stable_hash(settings.seed, *one.place)[1])
    got, count = records(tmp_path / "out"), len(expected)
    assert [row["id"] for row in got] == ["{}:{}:{}".format(*one.place) for one in expected]
    for row, one in zip(got, expected, strict=True):
        assert (row["document"], row["summary"]) == one.texts
        assert (row["unigrams"], row["bigrams"], row["longest_subsequence"]) == one.counts
        assert row["score"] == float(one.score)
    few = [f"There are only {count:,} spans to choose from; {settings.k:,} were asked for."]
    assert manifest["warnings"] == (few if count < settings.k else [])


class StoppedError(Exception):
    """A job is killed."""


def stop_after_one(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The steps that begin; the second stops the job."""
    begun: list[str] = []

    def watched(name: str, right: Callable[..., None]) -> Callable[..., None]:
        def step(self: Any, number: int, *more: Any) -> None:
            begun.append(f"{name} {number}")
            if len(begun) > 1:
                raise StoppedError
            right(self, number, *more)

        return step

    for name in ("_scan", "_emit"):
        monkeypatch.setattr(selection._Job, name, watched(name, getattr(selection._Job, name)))
    return begun


def test_a_job_continues_where_it_stopped(corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is stopped at every step in turn, and no complete step is done twice; several workers write the same."""
    settings = dataclasses.replace(SMALL, validation=3)
    run(corpus, tmp_path / "whole", settings)
    done: list[str] = []
    for _ in range(20):
        with pytest.MonkeyPatch.context() as patch:
            begun = stop_after_one(patch)
            try:
                run(corpus, tmp_path / "parts", settings)
                break
            except StoppedError:
                assert not (tmp_path / "parts" / "manifest.json").exists()
                (tmp_path / "parts" / ".selection" / "00002.bin.partial").write_bytes(b"half")
            finally:
                done += begun[:1]
    assert written(tmp_path / "parts") == written(tmp_path / "whole")
    assert len(done) == len(set(done)) >= 6
    asked = ["--k", "12", "--tokenizer", "words", "--input-length", "6", "--output-length", "3", "--chunk", "20"]
    asked += ["--text", "line", "--records-per-file", "5", "--validation", "3", "--workers", "2"]
    said = command(capsys, "data", "select-spans", "--input", corpus, *asked, "--out", tmp_path / "many")
    assert "12" in said
    assert written(tmp_path / "many") == written(tmp_path / "whole")


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


def test_byte_level_tokens_are_slices_of_the_text(corpus: Path, tmp_path: Path) -> None:
    backend = tokenizers.Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=300, initial_alphabet=alphabet, special_tokens=["</s>"], show_progress=False
    )
    backend.train_from_iterator([" ".join(WORDS)] * 3, trainer)
    backend.enable_truncation(5)
    backend.save(str(tmp_path / "tokenizer.json"))
    sizes = {"input_length": 12, "output_length": 5, "chunk": 40}
    run(corpus, tmp_path / "out", dataclasses.replace(SMALL, tokenizer=str(tmp_path), **sizes))
    units = VocabularySpanTokenizer(tmp_path / "tokenizer.json")
    texts = {f"{name}:{number}": text for name, number, text in documents(corpus)}
    for row in records(tmp_path / "out"):
        document, start = row["id"].rsplit(":", 1)
        ids = units.encode([texts[document]])[0].tokens.tolist()
        assert row["document"] + row["summary"] in texts[document]
        assert units.encode([row["summary"]])[0].tokens.tolist() == ids[int(start) + 12 : int(start) + 17]


def test_bad_records_are_skipped_and_counted(corpus: Path, tmp_path: Path) -> None:
    folder = write_corpus(tmp_path / "in")
    with (folder / "more" / "b.jsonl").open("a") as file:
        file.write("{\n5\n")
    manifest = run(folder, tmp_path / "out", dataclasses.replace(SMALL, skip_bad=True))[0]
    assert manifest["corpus"]["skipped_records"] == {"int instead of an object": 1, "broken JSON": 1}
    assert len(manifest["warnings"]) == 1
    run(corpus, tmp_path / "clean")
    assert records(tmp_path / "out") == records(tmp_path / "clean")
