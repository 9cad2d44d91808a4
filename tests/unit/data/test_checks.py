"""The figures of ``catchline data check`` on files whose figures are known, and its exit codes; pairs held out."""

from __future__ import annotations

import json
import random
from itertools import chain
from pathlib import Path

import numpy as np
import pytest

from catchline.cli.main import main
from catchline.data import checks
from catchline.data.checks import (
    ENOUGH_FOR_TEST,
    LEAST,
    CheckOptions,
    check,
    duplicates,
    hold_out,
    sketch,
    supported_share,
)
from catchline.errors import DataError
from catchline.types import Record

WORDS = [f"w{number}" for number in range(400)]


def write(path: Path, *pairs: tuple[str, str]) -> Path:
    lines = (json.dumps({"document": document, "summary": summary}) + "\n" for document, summary in pairs)
    path.write_text("".join(lines))
    return path


def sentence(seed: int, length: int = 60) -> str:
    return " ".join(np.random.default_rng(seed).choice(WORDS, length))


def test_figures(tmp_path: Path) -> None:
    file = write(tmp_path / "a.jsonl", ("a b c d e f", "a b x"), ("a b c d e f g h", "c d"))
    report = check({"a": file}, CheckOptions(max_source=7, max_target=2)).as_dict()["splits"]["a"]
    assert report["document_words"] == {"mean": 7.0, "min": 6, "median": 7.0, "p90": 7.8, "max": 8}
    assert (report["records"], report["compression"]) == (2, 14 / 5)
    assert report["documents_over_limit"] == {"limit": 7, "count": 1, "share": 0.5}
    assert report["summaries_over_limit"]["count"] == 1
    assert report["summary_words_in_document"] == pytest.approx((2 / 3 + 1) / 2, abs=1e-4)
    assert report["document_words_in_summary"] == pytest.approx((2 / 6 + 2 / 8) / 2, abs=1e-4)
    options = CheckOptions(7, 2, count=lambda record: (len(record.document), len(record.summary)))
    report = check({"a": file}, options).as_dict()["splits"]["a"]
    assert (report["document_tokens"]["max"], report["documents_over_limit"]["count"]) == (15, 2)


GERMAN = "Die Heizung im Zimmer ist seit gestern kalt, und wir haben nicht mehr viel Zeit für die Arbeit."
ENGLISH = "The heating in the room has been cold since yesterday, and we have no more time for the work."


def test_suspicious_pairs(tmp_path: Path) -> None:
    file = write(
        tmp_path / "a.jsonl",
        *(("a b c d e f", "a b c d e f g"), ("a b c d e f", "a b c d"), ("a b c d e f g", "x y"), ("a b", "a")),
        *[(ENGLISH, "The heating is cold")] * 3,
        (GERMAN, "Heizung kalt"),
        ("The door &amp; the key<br>are gone since Monday.", "The door"),
    )
    found = check({"a": file}).as_dict()["splits"]["a"]["problems"]
    assert {reason: value["count"] for reason, value in found.items()} == {
        "summaries not shorter than the document": 1,
        "summaries that are the beginning of the document": 1,
        "summaries that share no word with the document": 1,
        "documents of fewer than 5 words": 1,
        "documents the same as an earlier one": 3,
        "documents in de": 1,
        "records with HTML entities or tags": 1,
    }
    assert found["documents in de"]["examples"] == [f"{file}:8"]
    assert found["records with HTML entities or tags"]["examples"] == [f"{file}:9 (&amp;)"]
    german = check({"a": write(tmp_path / "b.jsonl", *[(GERMAN, "Heizung kalt")] * 2)}).splits[0].problems()
    assert "documents in de" not in german


def test_duplicates_and_leakage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    base = sentence(1)
    near = base.replace(base.split()[30], "other", 1)
    train = write(tmp_path / "train.jsonl", (base, "w1 w2"), (base.upper(), "w1"), (near, "w3"), (sentence(2), "w4"))
    test = write(tmp_path / "test.jsonl", (sentence(2), "w9"), (base + " more words here", "w8"), (sentence(3), "w5"))
    report = check({"train": train, "test": test}).as_dict()
    found = report["splits"]["train"]["problems"]
    assert found["documents the same as an earlier one"] == {"count": 1, "examples": [f"{train}:2 and {train}:1"]}
    assert found["documents nearly the same as an earlier one"]["examples"] == [f"{train}:3 and {train}:1"]
    leaks = report["leakage"]["train -> test"]
    assert leaks["exact"]["examples"] == [f"{test}:1 and {train}:4"]
    assert leaks["near"]["count"] == 1
    monkeypatch.setattr(checks, "sketcher", lambda: None)
    alone = check({"train": train, "test": test})
    assert not alone.near
    assert list(alone.leakage["train -> test"]) == ["exact"]
    with pytest.raises(DataError, match=r"cannot be held out\. This needs rensa, .* or --all-pairs"):
        hold_out(pairs(30))


def test_near_duplicate_search_agrees_with_true_similarity() -> None:
    random, total = np.random.default_rng(5), 0
    for _ in range(60):
        words = list(random.choice(WORDS, 150))
        changed = list(words)
        for place in random.choice(150, random.integers(0, 25), replace=False):
            changed[place] = "new"
        one, other = ({tuple(some[start : start + 5]) for start in range(146)} for some in (words, changed))
        truth = len(one & other) / len(one | other)
        if not 0.58 < truth < 0.82:  # the estimate of 128 permutations has a standard error of about 0.04
            total += 1
            assert bool(list(duplicates(map(sketch, [words, changed])))) == (truth > 0.7)
    assert total > 20


def test_bad_records_are_counted_not_raised(tmp_path: Path) -> None:
    for refused, *records in ((2, ("", "x"), ("a b c d e", ""), ("a b c d e", "a")), (1, ("", "x"))):
        assert check({"a": write(tmp_path / "a.jsonl", *records)}).refused == refused
    (tmp_path / "c.jsonl").write_text('{"bad\n{"foo": "a b", "bar": "a"}\n')
    for name, words in (("none", "does not exist"), ("c", "no column name is known")):
        with pytest.raises(DataError, match=words):
            check({"a": tmp_path / f"{name}.jsonl"})


def test_exit_codes_and_what_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def said(*arguments: object, code: int = 0) -> str:
        assert main(["data", *map(str, arguments)]) == code
        shown = capsys.readouterr()
        return shown.out or shown.err

    good = write(tmp_path / "train.jsonl", ("a b c d e", "a"))
    assert "Nothing suspicious" in said("check", tmp_path)
    bad = write(tmp_path / "bad.jsonl", ("", "x"), ("a b c d e", "a"))
    out = json.loads(said("check", good, bad, "--json", code=3))
    assert (out["refused"], set(out["splits"])) == (1, {"train", "bad"})
    assert "does not exist" in said("check", tmp_path / "none.jsonl", code=3)
    assert "document tokens, mean" in said("check", good, "--recipe", "oneline")
    (tmp_path / "alone.csv").write_text("text,other\na b c,x\n")
    assert "document: 'text', summary: none" in said("columns", tmp_path / "alone.csv")
    assert "summary   then   highlights, tldr" in said("columns")
    same = (sentence(1), "no such words")
    write(good, same, same, (sentence(2), sentence(2, 5)))
    bad.unlink()
    write(tmp_path / "test.jsonl", same)
    shown = said("check", tmp_path)
    assert "train: documents the same as an earlier one: 1" in shown
    assert "test: summaries that share no word with the document: 1" in shown
    assert ": 1 document is the same (leakage)" in shown


def test_supported_share() -> None:
    for document, summary, share in (
        ("采用HPLC法。色谱柱为C18柱，效果好。", "HPLC色谱法", 1.0),
        ("大阪の橋は約9週間閉鎖。", "大阪の橋、9週間閉鎖", 1.0),
        ("यह हिन्दी भाषा है।", "हिन्दी कम", 0.5),
        ("Das Mu\u0308nchner Haus", "Mu\u0308nchner", 1.0),
        ("The cat, sat_down on it.", "cat SAT_DOWN up", 2 / 3),
        ("x", "...", 1.0),
    ):
        assert supported_share(Record(document, summary)) == pytest.approx(share)
        assert supported_share(Record(f"a b {document}", summary), 2) in (0.0, 1.0)


def pairs(count: int) -> list[Record]:
    draw = random.Random(0)
    return [Record(" ".join(draw.sample(WORDS, 30)), "s", str(number)) for number in range(count)]


def names(held: tuple[dict[str, list[Record]], int], split: str = "validation") -> set[str]:
    return {record.id for record in held[0][split]}


def test_held_out_sizes_and_order() -> None:
    found = hold_out(pairs(300))[0]
    assert {name: len(kept) for name, kept in found.items()} == {"train": 270, "validation": 15, "test": 15}
    numbers = [[int(record.id) for record in kept] for kept in found.values()]
    assert numbers == list(map(sorted, numbers))
    assert sorted(chain.from_iterable(numbers)) == list(range(300))
    for count, test, splits in ((ENOUGH_FOR_TEST - 1, True, 2), (LEAST - 1, True, 1), (ENOUGH_FOR_TEST, False, 2)):
        assert list(hold_out(pairs(count), test=test)[0]) == ["train", "validation"][:splits]


def test_the_seed_decides_and_near_duplicates_are_in_one_split() -> None:
    records = pairs(120)
    assert names(hold_out(records)) == names(hold_out(records[::-1])) != names(hold_out(records, seed=2))
    doubles = [Record(f"{r.document} again", "s", f"{r.id}-near") for r in records]
    found = hold_out(records + doubles)
    assert found[1] == 120
    assert names(found) == names(hold_out((records + doubles)[::-1]))
    for split in found[0]:
        own = names(found, split)
        assert {f"{name.removesuffix('-near')}{end}" for name in own for end in ("", "-near")} == own
