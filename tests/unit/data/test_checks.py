"""The figures of ``catchline data check`` on files whose figures are known, and its exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from catchline.cli.main import main
from catchline.data.checks import CheckOptions, _words, check, duplicates, histogram, sketches_of
from catchline.data.subset import WORD
from catchline.errors import DataError

WORDS = [f"w{number}" for number in range(400)]


def write(path: Path, *pairs: tuple[str, str]) -> Path:
    path.write_text(
        "".join(json.dumps({"document": document, "summary": summary}) + "\n" for document, summary in pairs)
    )
    return path


def sentence(seed: int, length: int = 60) -> str:
    return " ".join(np.random.default_rng(seed).choice(WORDS, length))


def test_figures(tmp_path: Path) -> None:
    file = write(tmp_path / "a.jsonl", ("a b c d e f", "a b x"), ("a b c d e f g h", "c d"))
    report = check({"a": file}, CheckOptions(max_source=7, max_target=2)).as_dict()["splits"]["a"]
    assert report["records"] == 2
    assert report["document_words"] == {"mean": 7.0, "min": 6, "median": 7.0, "p90": 7.8, "max": 8}
    assert report["compression"] == 14 / 5
    assert report["documents_over_limit"] == {"limit": 7, "count": 1, "share": 0.5}
    assert report["summaries_over_limit"]["count"] == 1
    assert report["summary_words_in_document"] == pytest.approx((2 / 3 + 1) / 2, abs=1e-4)
    assert report["novel_ngrams"] == {"1": round(1 / 6, 4), "2": 0.25, "3": 1.0}


def test_suspicious_pairs(tmp_path: Path) -> None:
    file = write(
        tmp_path / "a.jsonl",
        ("a b c d e f", "a b c d e f g"),
        ("a b c d e f", "a b c d"),
        ("a b c d e f g", "x y"),
        ("a b", "a"),
    )
    found = check({"a": file}).as_dict()["splits"]["a"]["suspicious"]
    assert {reason: value["count"] for reason, value in found.items()} == {
        "summary not shorter than the document": 1,
        "summary is the beginning of the document": 1,
        "summary and document share no word": 1,
        "document of fewer than 5 words": 1,
    }
    assert found["summary and document share no word"]["examples"] == [f"{file}:3"]


def test_duplicates_and_leakage(tmp_path: Path) -> None:
    base = sentence(1)
    near = base.replace(base.split()[30], "other", 1)
    train = write(tmp_path / "train.jsonl", (base, "w1 w2"), (base.upper(), "w1"), (near, "w3"), (sentence(2), "w4"))
    test = write(tmp_path / "test.jsonl", (sentence(2), "w9"), (base + " more words here", "w8"), (sentence(3), "w5"))
    report = check({"train": train, "test": test}).as_dict()
    split = report["splits"]["train"]
    assert split["exact_duplicates"] == {"count": 1, "examples": [f"{train}:2 and {train}:1"]}
    assert split["near_duplicates"] == {"count": 1, "examples": [f"{train}:3 and {train}:1"]}
    leaks = report["leakage"]["train -> test"]
    assert leaks["exact"]["examples"] == [f"{test}:1 and {train}:4"]
    assert leaks["near"]["count"] == 1


def test_near_duplicate_search_agrees_with_true_similarity() -> None:
    random = np.random.default_rng(5)

    def shingles(words: list[str]) -> set[tuple[str, ...]]:
        return {tuple(words[start : start + 5]) for start in range(len(words) - 4)}

    wrong = total = 0
    for _ in range(40):
        words = list(random.choice(WORDS, 150))
        changed = list(words)
        for place in random.choice(150, random.integers(0, 25), replace=False):
            changed[place] = "new"
        one, other = shingles(words), shingles(changed)
        truth = len(one & other) / len(one | other)
        found = list(duplicates([sketches_of([words, changed])]))
        if not 0.45 < truth < 0.9:  # the estimate of 32 bins has a standard error of about 0.08
            total += 1
            wrong += bool(found) != (truth > 0.7)
    assert total > 15
    assert wrong <= 1


def test_bad_records_are_counted_not_raised(tmp_path: Path) -> None:
    file = write(tmp_path / "a.jsonl", ("", "x"), ("a b c d e", ""), ("a b c d e", "a"))
    report = check({"a": file})
    assert report.refused == 2
    assert check({"a": write(tmp_path / "b.jsonl", ("", "x"))}).refused == 1
    with pytest.raises(DataError, match="does not exist"):
        check({"a": tmp_path / "none.jsonl"})
    strange = tmp_path / "c.jsonl"
    strange.write_text('{"bad\n{"foo": "a b", "bar": "a"}\n')
    with pytest.raises(DataError, match="no column is known"):
        check({"a": strange})


def test_histogram() -> None:
    lines = histogram([1, 1, 1, 2, 3, 50], bins=4)
    assert sum(int(line.split()[-1]) for line in lines) == 6
    assert "and more" in lines[-1]
    assert histogram([]) == []
    assert len(histogram([7])) == 1


def test_exit_codes_and_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = write(tmp_path / "train.jsonl", ("a b c d e", "a"))
    assert main(["data", "check", str(tmp_path)]) == 0
    assert "Nothing suspicious" in capsys.readouterr().out
    bad = write(tmp_path / "bad.jsonl", ("", "x"), ("a b c d e", "a"))
    assert main(["data", "check", str(good), str(bad), "--json"]) == 3
    out = json.loads(capsys.readouterr().out)
    assert out["refused"] == 1
    assert set(out["splits"]) == {"train", "bad"}
    assert main(["data", "check", str(tmp_path / "none.jsonl")]) == 3
    assert "does not exist" in capsys.readouterr().err
    assert main(["data", "stats", str(good)]) == 0
    assert "document words, mean" in capsys.readouterr().out
    assert main(["data", "columns", str(good)]) == 0
    assert "document: 'document'" in capsys.readouterr().out
    assert main(["data", "columns", str(good), "--document-column", "summary", "--summary-column", "document"]) == 0
    assert "document: 'summary'" in capsys.readouterr().out
    (tmp_path / "alone.csv").write_text("text,other\na b c,x\n")
    assert main(["data", "columns", str(tmp_path / "alone.csv")]) == 0
    assert "document: 'text', summary: none" in capsys.readouterr().out
    assert main(["data", "check", str(good), "--recipe", "oneline", "--max-target", "2"]) == 2
    assert "leave them out" in capsys.readouterr().err


def test_docstrings_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    package = tmp_path / "site" / "one"
    package.mkdir(parents=True)
    body = "The records are counted one after the other until the file that they stand in has no more of them."
    text = f"Count the records.\n\n{body}"
    (package / "__init__.py").write_text(f'"""{text}"""')
    out = tmp_path / "out"
    arguments = ["data", "docstrings", str(out), "--root", str(tmp_path / "site"), "--no-standard-library"]
    assert main(arguments) == 0
    assert "one" in capsys.readouterr().out
    assert (out / "train.jsonl").is_file()
    assert main([*arguments[:3], "--root", str(tmp_path / "none")]) == 3


def test_one_finding_is_said_in_the_singular(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    same = (sentence(1), "no such words")
    write(tmp_path / "train.jsonl", same, same, (sentence(2), sentence(2, 5)))
    write(tmp_path / "test.jsonl", same)
    main(["data", "check", str(tmp_path)])
    said = capsys.readouterr().out
    assert "train: 1 document that stood there before" in said
    assert "test: 1 pair: " in said
    assert "train: 2 pairs: " in said
    assert ": 1 document is the same (leakage)" in said


def test_words_and_signs_of_ascii_are_those_of_the_pattern() -> None:
    text = "".join(f"{chr(code)}A{chr(code)}{chr(code)} b_" for code in range(128))
    assert _words(text) == WORD.findall(text.lower())
    assert _words(f"{text}é") == [*WORD.findall(text.lower())[:-1], "b_é"]


def test_a_text_has_the_same_sketch_whatever_stands_beside_it() -> None:
    texts = [
        [f"w{number}" for number in range(first, first + size)] for first, size in ((0, 40), (7, 3), (5, 90), (0, 0))
    ]
    together = sketches_of(texts)
    for place, text in enumerate(texts):
        alone = sketches_of([text])
        assert together.keys[place] == alone.keys[0]
        assert together.bins[place].tolist() == alone.bins[0].tolist()
