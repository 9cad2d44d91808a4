"""A prompted language model as a system, against a server that answers as OpenAI's does."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

import pytest
from fastapi.testclient import TestClient

import catchline
from catchline import Record, Summarizer
from catchline.cli.main import main
from catchline.data.records import write_records
from catchline.errors import ConfigError, DataError, ModelError
from catchline.server.app import create_app
from catchline.summarizer import llm
from commands import refused, run


class Answers(BaseHTTPRequestHandler):
    """The first three words of the document; ``statuses`` are the failures before. After ``most`` requests the server
    is dead."""

    seen: ClassVar[list[dict[str, Any]]] = []
    statuses: ClassVar[list[int]] = []
    most: ClassVar[int] = 1000
    at_once: ClassVar[list[int]] = [0]  # requests that are open, at each request

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.at_once.append(self.at_once[-1] + 1)
        time.sleep(0.01)
        self.at_once.append(self.at_once[-1] - 1)
        self.seen.append(body | {"key": self.headers.get("Authorization"), "path": self.path})
        if len(self.seen) > self.most:
            return
        document = body["messages"][-1]["content"]
        self.send_response(400 if "unspeakable" in document else self.statuses.pop() if self.statuses else 200)
        self.end_headers()
        content = '<think>A "title"?\nYes.</think>\x1b"' + " ".join(document.split()[:3]) + '"\n'
        self.wfile.write(json.dumps({"choices": [{"message": {"content": content}}]}).encode())

    def log_message(self, *given: Any) -> None:
        """Say nothing."""


@pytest.fixture
def name(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    Answers.seen, Answers.statuses, Answers.most, Answers.at_once = [], [], 1000, [0]
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


def test_bounds_are_asked_for_and_hold(name: str) -> None:
    assert Summarizer.from_pretrained(name).summarize(PAIRS[0], words="1-2").text == "Ferry number"
    assert Answers.seen[0]["messages"][0]["content"].endswith("The title has at most 1-2 words.")


def test_a_busy_server_is_asked_again_and_a_refused_document_is_its_own(name: str) -> None:
    system = Summarizer.from_pretrained(name)
    Answers.statuses = [503, 429]
    assert system.summarize("One two three four.").text == "One two three"
    Answers.statuses = [401]
    with pytest.raises(ModelError, match="gave no line"):
        system.summarize(["One two three four."], on_error="skip")
    with pytest.raises(DataError, match="refused document 2"):
        system.summarize(["One two.", "An unspeakable text."])
    assert [one and one.text for one in system.summarize(["Unspeakable unspeakable", "A b."], on_error="skip")] == [
        None,
        "A b.",
    ]


@pytest.mark.parametrize("command", ["evaluate", "compare"])
def test_a_server_that_dies_half_way(
    command: str, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same command asks for the rest; the prompt and the shots are those of its options. No file has the key."""
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    data, prompt = tmp_path / "data", tmp_path / "prompt.txt"
    data.mkdir()
    pairs = [Record(f"Ferry number {n} stays in the harbour.", f"Ferry {n} stays", id=str(n)) for n in range(60)]
    write_records(data / "validation.jsonl", pairs)
    write_records(data / "train.jsonl", pairs[:3])
    prompt.write_text("Be short.")
    output = ["--output" if command == "evaluate" else "--out", tmp_path / "out"]
    asked = [command, name, "lead-1", "--data", data, "--prompt", prompt, "--shots", "2", *output]
    Answers.most = 40
    assert main(["--quiet", *map(str, asked)]) != 0
    said = capsys.readouterr()
    assert "gave no line" in said.err + said.out
    assert 1 < max(Answers.at_once) <= 4
    answered, Answers.most = len(Answers.seen), 1000
    table = run(capsys, *asked)
    assert len(Answers.seen) - answered == 60 - 32, "whole windows of 16 are kept"
    assert "seconds" in table
    shown = [message["content"] for message in Answers.seen[-1]["messages"][:-1]]
    assert shown == ["Be short.", pairs[0].document, "Ferry 0 stays", pairs[1].document, "Ferry 1 stays"]
    written = [path.read_text() for path in (tmp_path / "out").rglob("*") if path.is_file()]
    assert written
    assert "secret" not in "".join(written)
    refused(capsys, 2, "none is named", command, "lead-1", "--data", data, "--shots", "2", *output)


def test_it_is_served(name: str) -> None:
    """Files of the machine cannot be named; what the other server says is for the log."""
    app = create_app({"lead": Summarizer.from_pretrained("lead-1"), "gpt": Summarizer.from_pretrained(name)})
    with TestClient(app) as client:
        asked: dict[str, Any] = {"model": "gpt", "document": "Ferry number one stays in."}
        assert client.post("/v1/summarize", json=asked).json()["summaries"][0]["summary"] == "Ferry number one"
        body = {"model": "gpt", "messages": [{"role": "user", "content": asked["document"]}]}
        title = client.post("/v1/chat/completions", json=body).json()["choices"][0]["message"]["content"]
        assert title == "Ferry number one"
        short = client.post("/v1/summarize", json=asked | {"options": {"words": "2"}}).json()
        assert short["summaries"][0]["summary"] == "Ferry number"
        assert client.post("/v1/summarize", json=asked | {"options": {"prompt": "/etc/passwd"}}).status_code == 422
        Answers.most = 0
        refusal = client.post("/v1/summarize", json=asked)
        assert (refusal.status_code, refusal.json()["code"]) == (503, "unavailable")
        assert "127.0.0.1" not in refusal.text


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("openai:tiny", "write openai:MODEL@http://host/v1"),
        ("openai:tiny@http://h/v1?shot=2", "Did you mean 'shots'"),
        ("openai:tiny@http://h/v1?shots=2", "shots need pairs"),
        ("openai:Tiny:8b", "write openai:MODEL@http://host/v1"),
        ("openai:tiny@http://h/v1?prompt=/no/such", "cannot be read as a prompt"),
    ],
)
def test_mistakes_are_one_sentence(given: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        Summarizer.from_pretrained(given).summarize("a b")
