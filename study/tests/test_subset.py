"""Parts of a data set, haystacks, and scores by document length."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catchline.data.records import write_records
from catchline.errors import DataError
from catchline.evaluation.run import read_lines as rows
from catchline.metrics.rouge import rouge
from catchline.types import Record
from catchline_study.commands.breakdown import buckets
from catchline_study.corpora.subset import SubsetOptions, build_haystacks, choose
from commands import refused, run

LENGTHS = st.lists(st.integers(1, 60), min_size=1, max_size=25)


@given(lengths=LENGTHS, mean=st.floats(1, 60), window=st.floats(1, 60))
@settings(max_examples=100)
def test_shortest_documents_by_mean_and_as_many_of_another(lengths: list[int], mean: float, window: float) -> None:
    """By the definition: of all prefixes of the sorted list the longest whose mean is within the bound."""
    order = sorted(range(len(lengths)), key=lambda place: (lengths[place], place))
    count = max((n for n in range(1, len(order) + 1) if sum(lengths[i] for i in order[:n]) <= mean * n), default=0)
    shortest, both = SubsetOptions(shortest_mean=mean), SubsetOptions(shortest_mean=mean, window_mean=window)
    if not count:
        with pytest.raises(DataError, match="Even the shortest"):
            choose(lengths, shortest)
        return
    assert choose(lengths, shortest) == sorted(order[:count])
    windows = [order[start : start + count] for start in range(count, len(order) - count + 1)]
    if not windows:
        with pytest.raises(DataError):
            choose(lengths, both)
        return
    best = min(windows, key=lambda places: abs(sum(lengths[i] for i in places) / count - window))
    assert choose(lengths, both) == sorted(best)


def test_bounds_and_samples() -> None:
    lengths = [5, 1, 9, 5, 7]
    assert choose(lengths, SubsetOptions(min_tokens=5, max_tokens=7)) == [0, 3, 4]
    with pytest.raises(DataError, match="within the bounds"):
        choose(lengths, SubsetOptions(min_tokens=10))
    assert choose(lengths, SubsetOptions(last=2)) == [3, 4]
    assert choose(lengths, SubsetOptions(last=2, max_tokens=5)) == [1, 3]
    many = list(range(1, 200))
    one, again = (choose(many, SubsetOptions(sample=20, seed=3)) for _ in range(2))
    assert one == again == sorted(set(one))
    assert len(one) == 20
    assert choose(many, SubsetOptions(sample=20, seed=4)) != one
    assert choose(many, SubsetOptions(sample=5, max_tokens=5)) == [0, 1, 2, 3, 4]
    with pytest.raises(DataError, match="6 documents"):
        choose(lengths, SubsetOptions(sample=6))


RECORDS = [
    Record(f"Kite {n} is of paper. It flew over hill {n}. The wind was from the north of {n}.", f"kite {n}", id=f"k{n}")
    for n in range(6)
] + [Record("Too short for a needle.", "short", id="s")]


def test_needles_in_haystacks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = build_haystacks(tmp_path / "hay.jsonl", RECORDS, documents=4, count=12, seed=3)
    made = rows(tmp_path / "hay.jsonl")
    assert len(made) == 12
    assert words == round(sum(len(row["document"].split()) for row in made) / 12)
    for row in made:  # the needle is where the record says, without its first sentence
        needle = next(record for record in RECORDS if record.id == row["needle"])
        first, rest = needle.document.split(" It flew", 1)
        question, *others = row["document"].split("\n\n")
        assert (question, len(set(others)), row["document"].count(first)) == (first, 4, 1)
        assert row["document"][slice(*row["place"])] == "It flew" + rest
        assert row["summary"] == needle.summary
    assert len({row["document"].split("\n\n").index(row["document"][slice(*row["place"])]) for row in made}) > 1
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        build_haystacks(tmp_path / name, RECORDS, documents=2, count=12, seed=seed)
    needles = [row["needle"] for row in rows(tmp_path / "a")]
    assert sorted(needles[:6]) == sorted(needles[6:]) == [f"k{n}" for n in range(6)]
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes() != (tmp_path / "c").read_bytes()
    source, out = tmp_path / "pairs.jsonl", tmp_path / "hay.jsonl"
    write_records(source, RECORDS)
    asked = ["data", "haystack", source, out, "--documents"]
    assert "5 haystacks of 3 documents" in run(capsys, *asked, "3", "--count", "5")
    assert len(rows(out)) == 5
    refused(capsys, 2, "same file", "data", "haystack", source, source)
    refused(capsys, 3, "too few for haystacks of 50", *asked, "50")


LENGTHY = [Record("word " * length + ".", "word", str(length)) for length in (9, 2, 5, 2, 30, 7, 1)]


def test_buckets_of_equal_size() -> None:
    found = buckets(LENGTHY, 3)
    # lengths in order: 1 2 2 | 5 7 | 9 30 (seven documents, cut at 2.33 and 4.67)
    assert [bucket.positions for bucket in found] == [(1, 6), (2, 3, 5), (0, 4)]
    assert [(bucket.low, bucket.high) for bucket in found] == [(1, 2), (2, 7), (9, 30)]
    assert found[2].mean == 19.5
    assert [len(bucket.positions) for bucket in buckets(LENGTHY, 7)] == [1] * 7


def test_scores_of_a_bucket_are_those_of_its_documents(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    records = [
        Record("One two three four five six. Eggs.", "one two three"),
        Record("One two. Yes.", "one zero"),
        Record("One two three. Zoo.", "two"),
    ]
    write_records(tmp_path / "pairs.jsonl", records)
    arguments = ["breakdown", "lead-1", "--data", tmp_path / "pairs.jsonl", "--by-length", "2"]
    made = json.loads(run(capsys, *arguments, "--json"))
    assert [entry["positions"] for entry in made["by_length"]] == [[1, 2], [0]]  # half of three is rounded to even
    alone = made["by_length"][1]["systems"][0]
    assert alone["rouge"]["1"]["f"] == pytest.approx(
        rouge(["one two three four five six"], ["one two three"]).mean["1"].f
    )
    assert "3 to 4 (mean 3.5)" in run(capsys, *arguments)
    refused(capsys, 2, "there are 3 documents", *arguments[:-1], "99")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Documents of 5, 10, ..., 40 words and signs."""
    texts = [" ".join(f"Word{n} stands here {place}." for place in range(n + 1)) for n in range(8)]
    pairs = [Record(text, f"word{n} ## 0", str(n), (f"word{n} ## 0", "x", "here")) for n, text in enumerate(texts)]
    write_records(tmp_path / "pairs.jsonl", pairs)
    return tmp_path / "pairs.jsonl"


def ids(path: Path) -> list[str]:
    return [json.loads(line)["id"] for line in path.read_text().splitlines()]


def test_subsets(data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    short, long, rest = (tmp_path / f"{name}.jsonl" for name in ("short", "long", "rest"))
    content = json.loads(run(capsys, "data", "subset", data, short, "--shortest-mean", 10, "--rest", rest, "--json"))
    assert ids(short) == ["0", "1", "2"]
    assert ids(rest) == ["3", "4", "5", "6", "7"]
    run(capsys, "data", "subset", data, tmp_path / "all.jsonl", "--last", 8, "--rest", rest)
    assert ids(rest) == []  # what an earlier call left there stands in the other file now
    assert content[str(short)] == {"records": 3, "document_tokens": 10.0, "summary_tokens": 4.0}
    assert content[str(data)]["records"] == 8
    text = run(capsys, "data", "subset", data, long, "--shortest-mean", 10, "--window-mean", 31)
    assert ids(long) == ["4", "5", "6"]  # 25, 30, 35: mean 30 is nearest
    assert "30.0" in text
    first = json.loads(short.read_text().splitlines()[0])
    assert first["references"] == ["word0 ## 0", "x", "here"]
    run(capsys, "data", "subset", data, short, "--min-tokens", 8, "--max-tokens", 12)
    assert ids(short) == ["1"]


def test_nothing_is_written_over_what_is_read(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("q.source").write_text("A text of words.\nAnother text.\n")
    Path("q.target").write_text("Text\nOther\n")
    Path("one").mkdir()
    data.rename("one/x.jsonl")
    Path("link.jsonl").symlink_to("one/x.jsonl")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    for arguments, said in (
        ("subset q.source q.target --last 1", "same file (q.target)"),
        ("subset one one/new.jsonl --last 1", "one/new.jsonl would lie in"),
        ("subset link.jsonl one/x.jsonl --last 1", "same file (one/x.jsonl)"),
        ("prepare duc2004 one q/../one/x.jsonl --references two", "would lie in"),
    ):
        refused(capsys, 2, said, "data", *arguments.split())
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
