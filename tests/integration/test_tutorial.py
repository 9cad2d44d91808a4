"""The commands of docs/tutorial.md, in their order, on a small file of made-up tickets."""

from __future__ import annotations

import csv
import random
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from catchline.cli.main import main
from serving import running

PAGE = Path(__file__).parent.parent.parent / "docs" / "tutorial.md"
SETTINGS = ("max_updates=2", "batch_size=4", "validation.decode_records=2")
QUICK = [word for setting in SETTINGS for word in ("--set", f"training.{setting}")]
THINGS, PLACES = ("printer", "heating", "lift", "door", "lamp", "phone"), ("kitchen", "hall", "office", "cellar", "lab")


def lines() -> list[str]:
    blocks = re.findall(r"^```(\w*)\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return [line for kind, block in blocks if not kind for line in block.splitlines()]


def tickets(count: int) -> Iterator[tuple[str, str]]:
    draw = random.Random(3)
    for number in range(count):
        thing, place = draw.choice(THINGS), draw.choice(PLACES)
        extra = " ".join(draw.sample(["noise", "smell", "light", "water", "smoke", "dust", "heat", "wind"], 4))
        text = f"Since day {number} the {thing} in the {place} is broken. There was {extra}, and nobody could use it."
        yield text, f"{thing} in the {place} is broken"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, count in (("tickets.csv", 220), ("new_tickets.csv", 3)):
        with (tmp_path / name).open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([("text", "title"), *tickets(count)])
    (tmp_path / "ticket.txt").write_text(next(tickets(1))[0])
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_commands_of_the_tutorial_run(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    commands = [shlex.split(line)[1:] for line in lines() if line.startswith("catchline ")]
    assert len(commands) > 8
    served = [arguments for arguments in commands if arguments[0] == "serve"]
    for arguments in (one for one in commands if one not in served):
        extra = QUICK if arguments[0] == "train" else ["--max-records", "4"] if arguments[0] == "evaluate" else []
        assert main([*arguments, *extra]) == 0, (arguments, capsys.readouterr().err)
    for name in ("scores/scores.tex", "scores/scores.csv", "curves.png", "why.html", "titles.jsonl"):
        assert (place / name).stat().st_size, name
    card = (place / "runs/tickets/model/README.md").read_text()
    assert "base_model: oneline" in card
    assert "| the model |" in card
    ((_, *arguments),) = served
    (request,) = [shlex.split(line) for line in lines() if line.startswith("curl ")]
    with running(place, *arguments) as server, server.client() as client:
        headers = {"Content-Type": "application/json"}
        answer = client.post(request[1].split("8000")[1], content=request[-1], headers=headers)
    assert answer.status_code == 200
    assert answer.json()["summaries"][0]["summary"]
