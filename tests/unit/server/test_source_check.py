"""A source check of anybody's text: by the command, the service and in Python."""

from __future__ import annotations

import json
from pathlib import Path

from fastapi.testclient import TestClient

import catchline
from catchline.explain.record import support_to_dict
from commands import Capture, run

DOCUMENT = "The ferry to Graz left on Monday with 40 cars. Anna Kowalczyk paid 12 euros."
SUMMARY = "Anna Kowalczyk paid 15 euros for the ferry to Linz on Monday."


def test_all_ways_give_the_same(client: TestClient, tmp_path: Path, capsys: Capture) -> None:
    expected = support_to_dict(catchline.check_support(SUMMARY, DOCUMENT))
    assert [claim["text"] for claim in expected["unsupported"]] == ["15", "Linz"]
    assert client.post("/v1/check", json={"summary": SUMMARY, "document": DOCUMENT}).json() == expected
    files = [tmp_path / "line.txt", tmp_path / "text.txt"]
    for file, text in zip(files, (SUMMARY, DOCUMENT), strict=True):
        file.write_text(text, encoding="utf-8")
    assert json.loads(run(capsys, "check", *files, "--json")) == {"id": "line.txt", "summary": SUMMARY, **expected}
    rows = [line.split() for line in run(capsys, "check", *files).splitlines()]  # a table of what the document has
    assert ["15", "number", "no"] in rows
    assert ["Monday", "date", "yes", "Monday"] in [row[:4] for row in rows]
    pairs = tmp_path / "pairs.csv"
    pairs.write_text(f"summary,document\n{SUMMARY},{DOCUMENT}\nThe ferry left.,{DOCUMENT}\n", encoding="utf-8")
    first, second = map(json.loads, run(capsys, "check", pairs, "--json").splitlines())
    assert first["unsupported"] == expected["unsupported"]
    assert second["unsupported"] == []
    assert "1 of 2 summaries lack support for 2 of 4 names" in run(capsys, "check", pairs)
