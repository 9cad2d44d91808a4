"""A prompted language model as a system, against a server that answers as OpenAI's does."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest

import catchline
from catchline import Record, Summarizer
from catchline.errors import ConfigError, ModelError
from catchline.summarizer import llm
from commands import run


class Answers(BaseHTTPRequestHandler):
    """The first three words of the document; ``statuses`` are the failures before."""

    seen: ClassVar[list[dict[str, Any]]] = []
    statuses: ClassVar[list[int]] = []

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.seen.append(body | {"key": self.headers.get("Authorization"), "path": self.path})
        self.send_response(self.statuses.pop() if self.statuses else 200)
        self.end_headers()
        content = '"' + " ".join(body["messages"][-1]["content"].split()[:3]) + '"\n'
        self.wfile.write(json.dumps({"choices": [{"message": {"content": content}}]}).encode())

    def log_message(self, *given: Any) -> None:
        """Say nothing."""


@pytest.fixture
def name(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    Answers.seen, Answers.statuses = [], []
    monkeypatch.setattr(llm, "_PAUSE", 0.0)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Answers)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"openai:tiny@http://127.0.0.1:{server.server_port}/v1"
    server.shutdown()


PAIRS = [Record(f"Ferry number {n} stays in the harbour.", f"Ferry {n} stays", id=str(n)) for n in range(6)]


def test_it_is_a_system_like_others(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "prompt.txt").write_text("Be short.", encoding="utf-8")
    shots = tmp_path / "train.jsonl"
    shots.write_text("".join(json.dumps({"document": f"d{n}", "summary": f"s{n}"}) + "\n" for n in range(4)))
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    full = f"{name}?shots=2&examples={shots}&prompt={tmp_path / 'prompt.txt'}"
    scores = catchline.evaluate([full, "lead-1"], PAIRS)
    assert 0.5 < scores[full].rouge["1"].f < 1
    assert len(Answers.seen) == len(PAIRS)
    asked = Answers.seen[0]
    assert [message["content"] for message in asked["messages"][:-1]] == ["Be short.", "d0", "s0", "d1", "s1"]
    assert (asked["key"], asked["path"], asked["model"]) == ("Bearer secret", "/v1/chat/completions", "tiny")
    summarizer = Summarizer.from_pretrained(full, max_tokens=9)
    assert "secret" not in json.dumps(summarizer.decoding())
    texts = [summary.text for summary in summarizer.summarize([pair.document for pair in PAIRS])]
    assert texts == [f"Ferry number {n}" for n in range(6)]
    assert Answers.seen[-1]["max_tokens"] == 9
    summarizer.summarize("One two three.", shots=1)
    assert len(Answers.seen[-1]["messages"]) == 4


def test_it_teaches(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Lines of texts that have none become pairs; bounds are asked for, and hold."""
    (tmp_path / "texts.csv").write_text("".join(["text,no\n", *(f'"{one.document}",{one.id}\n' for one in PAIRS)]))
    run(capsys, "summarize", name, tmp_path / "texts.csv", "--words", "1-2", "--output", tmp_path / "pairs.csv")
    pairs = list(catchline.read_records(tmp_path / "pairs.csv"))
    assert [(pair.document, pair.summary) for pair in pairs] == [(one.document, "Ferry number") for one in PAIRS]
    assert Answers.seen[0]["messages"][0]["content"].endswith("The title has at most 1-2 words.")


def test_a_busy_server_is_asked_again(name: str) -> None:
    Answers.statuses = [503, 429]
    assert Summarizer.from_pretrained(name).summarize("One two three four.").text == "One two three"
    Answers.statuses = [401]
    with pytest.raises(ModelError, match="gave no line"):
        Summarizer.from_pretrained(name).summarize("One two three four.")


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("openai:tiny", "write openai:MODEL@http://host/v1"),
        ("openai:tiny@http://h/v1?shot=2", "Did you mean 'shots'"),
        ("openai:tiny@http://h/v1?shots=2", "name it with examples"),
        ("openai:tiny@http://h/v1?prompt=/no/such", "cannot be read as a prompt"),
    ],
)
def test_mistakes_are_one_sentence(given: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        Summarizer.from_pretrained(given).summarize("a b")
