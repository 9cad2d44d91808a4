"""A source check of anybody's text: by the command, the service and in Python."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

import catchline
from catchline.cli.main import main
from catchline.explain.record import support_to_dict

DOCUMENT = "The ferry to Graz left on Monday with 40 cars. Anna Kowalczyk paid 12 euros."
SUMMARY = "Anna Kowalczyk paid 15 euros for the ferry to Linz on Monday."


def test_all_ways_give_the_same(client: TestClient, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    expected = support_to_dict(catchline.check_support(SUMMARY, DOCUMENT))
    assert [claim["text"] for claim in expected["unsupported"]] == ["15", "Linz"]
    answer = client.post("/v1/check", json={"summary": SUMMARY, "document": DOCUMENT})
    assert answer.json() == {**expected}
    for name, text in (("line.txt", SUMMARY), ("text.txt", DOCUMENT)):
        (tmp_path / name).write_text(text, encoding="utf-8")
    assert main(["check", str(tmp_path / "line.txt"), str(tmp_path / "text.txt"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"id": "line.txt", "summary": SUMMARY, **expected}
    pairs = tmp_path / "pairs.csv"
    pairs.write_text(f"summary,document\n{SUMMARY},{DOCUMENT}\nThe ferry left.,{DOCUMENT}\n", encoding="utf-8")
    assert main(["check", str(pairs), "--json"]) == 0
    first, second = map(json.loads, capsys.readouterr().out.splitlines())
    assert first["unsupported"] == expected["unsupported"]
    assert second["unsupported"] == []
    assert main(["check", str(pairs)]) == 0
    assert "1 of 2 summaries lack support for 2 of 4 names" in capsys.readouterr().out


def test_a_table_shows_what_the_document_has(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = [tmp_path / "line.txt", tmp_path / "text.txt"]
    for file, text in zip(files, ("To Graz, paid fifteen euros.", DOCUMENT), strict=True):
        file.write_text(text, encoding="utf-8")
    assert main(["check", *map(str, files)]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["fifteen", "number", "no"] in rows
    assert ["Graz", "name", "yes", "Graz", "13-17"] in rows
    assert rows[-1][:3] == ["1", "of", "2"]


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"summary": " ", "document": "a"}, "empty_document"),
        ({"summary": "a", "document": "a " * 1500}, "document_too_long"),
        ({"summary": "a", "text": "b"}, "invalid_request"),
    ],
)
def test_bad_requests(client: TestClient, body: dict[str, str], code: str) -> None:
    assert client.post("/v1/check", json=body).json()["code"] == code
