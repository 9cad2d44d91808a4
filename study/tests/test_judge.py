"""From predictions to sheets to figures, blinded and reproducible; confidence is fitted to what readers said."""

from __future__ import annotations

import csv
import io
import json
import math
from collections import Counter
from collections.abc import Sequence
from itertools import product
from operator import itemgetter
from pathlib import Path
from statistics import fmean

import numpy as np
import pytest

from catchline import Summarizer
from catchline.data.records import write_records
from catchline.errors import DataError
from catchline.evaluation.run import read_lines
from catchline.metrics.confidence import FACTS, Calibration
from catchline.metrics.significance import holm, paired_t_test
from catchline.types import Record
from catchline_study import calibration
from catchline_study.calibration import Ratings, fit, reliability
from catchline_study.judge import SheetOptions, analyse, krippendorff_alpha, make_sheets, read_predictions
from commands import refused, run
from json_lines import write_lines
from tiny_models import DOCUMENTS, save_tiny_model

RECORDS = [Record(f'Document {i}, line one.\nLine two; "quoted".', f"human {i}", id=f"r{i}") for i in range(30)]
SYSTEMS = {name: [f"{name}-text {i}" for i in range(30)] for name in ("alpha", "beta", "gamma")}
HIDDEN = {f"{name}-text": name for name in SYSTEMS}
Rows = list[list[str]]


def read(path: Path) -> Rows:
    return list(csv.reader(io.StringIO(path.read_text(encoding="utf-8-sig"), newline="")))


def write(path: Path, rows: Sequence[Sequence[str]], separator: str = ",", encoding: str = "utf-8") -> None:
    out = io.StringIO()
    csv.writer(out, delimiter=separator, lineterminator="\r\n").writerows(rows)
    path.write_bytes(out.getvalue().encode(encoding))


def planted(system: str, item: int, annotator: int, criterion: str) -> int:
    """alpha is rated 4 or 5, beta 2 or 3 on other items, gamma as beta; annotators differ on every fifth by one."""
    base, place = (4, item // 2) if system == "alpha" else (2, item)
    return base + (place + (annotator if item % 5 == 0 else 0) + (criterion == "informativeness")) % 2


def fill(folder: Path) -> None:
    for annotator, path in enumerate(sorted((folder / "sheets").glob("*.csv"))):
        rows = read(path)
        for row in rows[1:]:
            system = HIDDEN[row[3].split()[0]]
            row[4:6] = [str(planted(system, int(row[0]), annotator, name)) for name in rows[0][4:6]]
        write(path, rows)


@pytest.fixture
def filled(tmp_path: Path) -> Path:
    make_sheets(SYSTEMS, RECORDS, tmp_path / "j", SheetOptions(sample=20))
    fill(tmp_path / "j")
    return tmp_path / "j"


def test_sheets_are_blind_shuffled_and_seeded(tmp_path: Path) -> None:
    key = make_sheets(SYSTEMS, RECORDS, tmp_path / "a", SheetOptions(sample=20, seed=7))
    make_sheets(SYSTEMS, RECORDS, tmp_path / "b", SheetOptions(sample=20, seed=7))
    other = make_sheets(SYSTEMS, RECORDS, tmp_path / "c", SheetOptions(sample=20, seed=8))
    files = sorted(path.name for path in (tmp_path / "a" / "sheets").iterdir())
    assert files == ["README.txt", "annotator-1.csv", "annotator-2.csv", "annotator-3.csv"]
    for name in files:
        assert (tmp_path / "a/sheets" / name).read_bytes() == (tmp_path / "b/sheets" / name).read_bytes()
    assert [entry["id"] for entry in key["items"]] != [entry["id"] for entry in other["items"]]
    assert len({entry["id"] for entry in key["items"]}) == 20
    header, *rows = read(tmp_path / "a/sheets/annotator-1.csv")
    assert header == ["item", "summary", "document", "text", "readability", "informativeness", "comment"]
    assert [row[1] for row in rows] == ["A", "B", "C"] * 20
    assert rows[0][2] == RECORDS[key["items"][0]["index"]].document
    firsts = Counter(row[3].split("-")[0] for row in rows if row[1] == "A")
    assert set(firsts) == set(SYSTEMS)  # no letter belongs to one system
    orders = [tuple(tuple(places.values()) for places in order) for order in key["order"].values()]
    assert len(set(orders)) == 3  # each annotator has an order of their own
    for entry, places in zip(key["items"], key["order"]["annotator-1"], strict=True):
        mine = {row[1]: row[3] for row in rows if row[0] == str(entry["item"])}
        assert mine == {letter: SYSTEMS[system][entry["index"]] for letter, system in places.items()}


def test_planted_scores_come_back(filled: Path) -> None:
    """And their pairs are tested on the means of the items, with Holm's correction."""
    found = analyse(filled, "t")
    assert (found["items"], found["missing"], found["annotators"]) == (20, 0, [f"annotator-{n}" for n in (1, 2, 3)])
    scores = {
        (name, criterion): [fmean(planted(name, item, a, criterion) for a in range(3)) for item in range(1, 21)]
        for name, criterion in product(SYSTEMS, ("readability", "informativeness"))
    }
    for mean in found["means"]:
        assert mean["mean"] == pytest.approx(fmean(scores[mean["system"], mean["criterion"]]))
        assert mean["low"] <= mean["mean"] <= mean["high"]
    for name in ("readability", "informativeness"):
        family = {(pair["first"], pair["second"]): pair for pair in found["pairs"] if pair["criterion"] == name}
        adjusted = holm({pair: one["p"] for pair, one in family.items()})
        for (first, second), pair in family.items():
            assert pair["p"] == pytest.approx(paired_t_test(scores[first, name], scores[second, name]).p)
            assert pair["p_holm"] == pytest.approx(adjusted[first, second])
        assert family["alpha", "beta"]["difference"] == pytest.approx(2.0)
        assert family["alpha", "beta"]["p_holm"] < 0.01
        assert (family["beta", "gamma"]["difference"], family["beta", "gamma"]["p"]) == (0.0, 1.0)
    for levels in found["alpha"].values():
        assert 0.8 < float(levels["interval"] or 0) < 1.0
        assert 0.7 < float(levels["ordinal"] or 0) < 1.0


def test_spreadsheets_may_save_the_file_their_way(filled: Path) -> None:
    """As German Excel does; with other columns; with other lines."""
    expected = analyse(filled)
    path = filled / "sheets" / "annotator-2.csv"
    rows = read(path)
    german = [[f"{cell},0" if cell in list("12345") else cell for cell in row] for row in rows]
    lines = [list(map(str.upper, rows[0])), *sorted(rows[1:], key=itemgetter(3)), ["", ""], []]
    turned = [[*reversed(row), "", ""] for row in rows]
    for changed, separator, encoding in ((german, ";", "cp1252"), (turned, ",", "utf-8-sig"), (lines, "\t", "utf-8")):
        write(path, changed, separator, encoding)
        assert analyse(filled) == expected


def test_mistakes_name_file_row_and_column(filled: Path) -> None:
    path = filled / "sheets" / "annotator-1.csv"
    for row, column, value, said in (
        (7, 4, "six", "annotator-1.csv, row 8, column 'readability': 'six' is not a whole number from 1 to 5"),
        (1, 5, "3.5", "row 2, column 'informativeness': '3.5'"),
        (2, 0, "99", "row 3, column 'item': '99' is not the number of an item from 1 to 20"),
        (2, 1, "Q", "row 3, column 'summary': 'Q' is none of A, B, C"),
        (2, 1, "A", "row 3, column 'summary': item 1 A is there twice"),
        (0, 4, "readibility", "row 1: no column is named 'readability'"),
    ):
        rows = read(path)
        changed = [list(cells) for cells in rows]
        changed[row][column] = value
        write(path, changed)
        with pytest.raises(DataError) as error:
            analyse(filled)
        assert said in str(error.value)
        write(path, rows)


def test_the_command_from_end_to_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, out = tmp_path / "data.jsonl", tmp_path / "j"
    write_records(data, RECORDS)
    files = [
        write_lines(
            tmp_path / f"{name}.jsonl", ({"id": r.id, "summary": t} for r, t in zip(RECORDS, texts, strict=True))
        )
        for name, texts in SYSTEMS.items()
    ]
    make = ["judge", "make", *files, "--data", data, "--out"]
    assert "10 documents and 3 systems" in run(capsys, *make, out, "--sample", "10")
    refused(capsys, 2, "holds sheets already", *make, out)
    refused(capsys, 3, "has a rating yet", "judge", "analyse", out)
    refused(capsys, 2, "five", *make, tmp_path / "j2", "--scale", "five")
    fill(out)
    assert "alpha - beta" in run(capsys, "judge", "analyse", out)


def test_rated_lines_have_the_mean_of_their_ratings(
    filled: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "lines.jsonl"
    run(capsys, "judge", "analyse", filled, "--lines", out, "--json")
    lines = read_lines(out)
    assert len(lines) == 20 * 3
    items = {entry["id"]: entry for entry in json.loads((filled / "key.json").read_text())["items"]}
    for line in lines:
        item = items[line["id"]]
        assert line["summary"] == SYSTEMS[line["system"]][item["index"]]
        asked = product(range(3), ("readability", "informativeness"))
        given = [planted(line["system"], item["item"], number, name) for number, name in asked]
        assert line["rating"] == pytest.approx(fmean(given))
    rated = Ratings.read(out, accept=4)
    assert rated.of(lines[0]["id"], lines[0]["summary"].upper() + ".") == pytest.approx(lines[0]["rating"])
    assert math.isnan(rated.of(lines[0]["id"], "another line"))
    rows = [{"id": "a", "summary": "River rose", "rating": rating} for rating in (3, 2)]
    found = Ratings.read(write_lines(out, [*rows, {"id": "b", "summary": "x", "rating": 1}]))
    assert (found.of("a", "river ROSE!"), found.of("b", "x"), found.accept) == (2.5, 1.0, 2.5)
    assert Ratings.read(out, 2).accept == 2
    with pytest.raises(DataError, match="rating 1 needs an 'id'"):
        Ratings.read(write_lines(out, [{"summary": "x", "rating": 1}]))


def test_predictions_are_matched_by_id_and_those_of_another_split_refused(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    write_lines(path, ({"id": r.id, "summary": f"s {r.id}"} for r in reversed(RECORDS)))
    assert read_predictions(path, RECORDS[:2]) == ["s r0", "s r1"]
    one = [{"id": "1", "summary": "x", "references": ["s", "t"]}]
    write_lines(tmp_path / "one.jsonl", one)
    for record in (Record("d", "s", id="1"), Record("d", "z", id="1", references=("z", "t")), Record("d", "", id="1")):
        assert read_predictions(tmp_path / "one.jsonl", [record]) == ["x"]
    for lines, records, words in (
        (path.read_text(), [Record("d", "s", id="x")], "no summary for record 'x'"),
        (path.read_text(), [Record("d", "s")], "30 summaries for 1 records"),
        (json.dumps(one[0]), [Record("d", "other", id="1")], "is of other records"),
        (json.dumps(one[0]), [Record("d", "other")], "is of other records"),
        ('\n{"summary": null}', RECORDS, r"p\.jsonl:2 is no JSON object with a text as its 'summary'"),
        ("\n" + "[" * 100_000, RECORDS, r"p\.jsonl:2 is no JSON object with a text as its 'summary'"),
    ):
        path.write_text(lines)
        with pytest.raises(DataError, match=words):
            read_predictions(path, records)


# Krippendorff 2011, example C: four observers, twelve units, missing ratings.
PUBLISHED = [
    [1, 2, 3, 3, 2, 1, 4, 1, 2, None, None, None],
    [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, None, 3],
    [None, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, None],
    [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, None],
]


def test_agreement() -> None:
    """The published example and cases by hand."""
    for ratings, level, expected in (
        (PUBLISHED, "ordinal", 0.815),
        (PUBLISHED, "interval", 0.849),
        # coincidences: 1-1 twice, 2-3 and 3-2 once each, 3-3 twice; by the definitions of both distances
        ([[1, 2, 3], [1, 3, 3]], "interval", 1 - 2 / 11.6),
        ([[1, 2, 3], [1, 3, 3]], "ordinal", 1 - 8 / 36),
        ([[1, 2, 3], [1, 2, 3]], "ordinal", 1.0),
        ([[1, 2], [2, 1]], "interval", -0.5),
        ([[3, 3], [3, 3]], "interval", None),
        ([[1, None], [None, 2]], "interval", None),
    ):
        found = krippendorff_alpha(ratings, level)
        assert found == (None if expected is None else pytest.approx(expected, abs=5e-4))


def test_the_fit_is_checked_on_records_that_it_has_not_seen() -> None:
    random = np.random.default_rng(5)
    scores = random.normal(-1.0, 1.0, 1000)
    good = random.random(1000) < 1 / (1 + np.exp(-(2 * scores + 1)))
    facts = [dict.fromkeys(FACTS, 0.0) | {"mean_log_prob": float(score)} for score in scores]
    found, held_out = fit(facts, good.tolist())
    assert (found.records, held_out.base_rate) == (1000, pytest.approx(good.mean()))
    assert held_out.error < 0.05
    assert held_out.auc > 0.8
    chance = fit(facts, (random.random(1000) < 0.5).tolist())[1]
    assert abs(chance.auc - 0.5) < 0.06


def test_reliability_by_hand() -> None:
    found = reliability(np.array([0.1, 0.1, 0.9, 0.9]), np.array([0.0, 1.0, 1.0, 1.0]))
    assert found.bins == ((0.1, 0.5, 2), (0.9, 1.0, 2))
    by_hand = (0.5 * 0.4 + 0.5 * 0.1, (2 + 0.5) / 3, (0.01 + 0.81 + 0.01 + 0.01) / 4)
    assert (found.error, found.auc, found.brier) == pytest.approx(by_hand)  # of three pairs one is a tie
    assert reliability(np.array([0.5]), np.array([1.0])).auc == 0.5


def test_calibrate_believes_readers_where_they_have_rated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(calibration, "LEAST_RECORDS", 40)
    data, sheet, place = tmp_path / "pairs.jsonl", tmp_path / "ratings.jsonl", tmp_path / "model"
    write_lines(data, ({"id": f"r{n}", "document": DOCUMENTS[n % 5], "summary": "it was late"} for n in range(45)))
    save_tiny_model(place, max_source_tokens=12)
    made = Summarizer.from_pretrained(place).summarize(DOCUMENTS[:5])
    lines = [{"id": f"r{n}", "summary": made[n % 5].text.upper(), "rating": 1 + (n % 3 > 0)} for n in range(45)]
    write_lines(sheet, lines)
    arguments = ["calibrate", str(place), "--data", str(data), "--ratings", str(sheet), "--json"]
    values = json.loads(run(capsys, *arguments))
    assert (values["accepted"], values["threshold"]) == (pytest.approx(2 / 3), 0.5)
    found = Calibration.load(place)
    assert found is not None
    assert (found.records, found.accepted) == (45, "rated 2 or more by readers")
    assert json.loads(run(capsys, *arguments, "--threshold", "0.25"))["threshold"] == 0.25
    write_lines(sheet, lines[:20])
    refused(capsys, 3, "40 records or more of which readers rated the line that the model writes; here", *arguments)
    refused(capsys, 3, "no file nowhere.jsonl; `catchline judge analyse", *arguments[:5], "nowhere.jsonl")
    assert "Below a confidence of 0.25" in (place / "README.md").read_text()
    assert Summarizer.from_pretrained(place).summarize(DOCUMENTS[0], always_write=True).confidence is not None
    how = ["--data", data, "--ratings", sheet]
    refused(capsys, 2, "`catchline export oneline --out DIR` makes a copy", "calibrate", "oneline", *how)
    refused(capsys, 2, "has no confidence to calibrate", "calibrate", "lexrank", *how)
