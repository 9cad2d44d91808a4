"""A real server process on the loopback address: load, bad clients, limits in time, an orderly end."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from catchline import Summarizer
from commands import Capture, refused
from serving import Server, running
from tiny_models import DOCUMENTS, save_tiny_model


def written(tokens: int, **options: Any) -> dict[str, Any]:
    """The options of a summary of so many tokens."""
    return {"min_length": tokens, "min_length_share": 1000.0, "max_length": tokens, **options}


LONG = written(500, beam_size=16)  # seconds of work for the tiny model
TOKEN = "a-token-of-this-test"
RUNNING = 'catchline_running_documents{worker="neural"}'


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_model(tmp_path_factory.mktemp("models") / "tiny")


@pytest.fixture(scope="module")
def server(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server for the tests that do not stop it; times are short."""
    limits = ["max_body_bytes=100000", "request_timeout=120", "max_queue=64"]
    options = [part for limit in limits for part in ("--set", limit)]
    with running(tmp_path_factory.mktemp("server"), f"tiny={model}", *options, CATCHLINE_TOKEN=TOKEN) as server:
        yield server
        assert server.stop() == 0
        assert "Traceback" not in server.errors()
        assert "never retrieved" not in server.errors()


@pytest.fixture
def client(server: Server) -> Iterator[httpx.Client]:
    with server.client(headers={"Authorization": f"Bearer {TOKEN}"}) as client:
        yield client


def metric(client: httpx.Client, start: str) -> float:
    lines = client.get("/metrics").text.splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(start))


def until(condition: Callable[[], bool], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "did not happen"
        time.sleep(0.02)


def raw_request(body: bytes, length: int) -> bytes:
    head = (
        "POST /v1/summarize HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Authorization: Bearer {TOKEN}\r\nContent-Length: {length}\r\n\r\n"
    )
    return head.encode() + body


def answer_of(connection: socket.socket) -> bytes:
    """Everything until the server closes, or half a second of silence."""
    connection.settimeout(0.5)
    answer = b""
    with suppress(TimeoutError, ConnectionResetError, BrokenPipeError):
        while chunk := connection.recv(65536):
            answer += chunk
    return answer


# ------------------------------------------------------------------------------------------------ load


@pytest.mark.slow
def test_under_load_every_answer_is_right_and_memory_stays(server: Server, client: httpx.Client, model: Path) -> None:
    texts = [*DOCUMENTS, *(" ".join(DOCUMENTS * n) for n in (1, 2))]
    summarizer = Summarizer.from_pretrained(model)
    plans = [{}, {"beam_size": 1}, {"max_length": 5}]
    expected = {(t, p): summarizer.summarize(texts[t], **plans[p]).text for t in range(len(texts)) for p in range(3)}

    def ask(number: int) -> None:
        text, plan = number % len(texts), number % len(plans)
        body = {"document": texts[text], "options": plans[plan], "explain": number % 4 == 0}
        response = client.post("/v1/summarize", json=body, headers={"X-Request-ID": f"load-{number}"})
        assert (response.status_code, response.headers["x-request-id"]) == (200, f"load-{number}")
        assert response.json()["summaries"][0]["summary"] == expected[text, plan]

    def burst(numbers: range) -> tuple[int, float]:
        """The memory and the batches in the end. A batch is counted when its answers are on their way already."""
        wanted = metric(client, "catchline_batch_documents_sum") + len(numbers)
        with ThreadPoolExecutor(12) as pool:
            list(pool.map(ask, numbers))
        until(lambda: metric(client, "catchline_batch_documents_sum") == wanted)
        return server.memory(), metric(client, "catchline_batch_documents_count")

    (memory, batches), (memory_then, batches_then) = burst(range(60)), burst(range(60, 210))
    assert memory_then - memory < 30e6
    assert batches_then - batches < 120, "concurrent requests share batches"


# ----------------------------------------------------------------------------------------- bad clients


def test_bodies_that_are_refused_are_not_kept(server: Server, client: httpx.Client) -> None:
    before, address = server.memory(), "/v1/summarize"
    for _ in range(3):
        for content in (b"x" * 10_000_000, (b"x" * 100_000 for _ in range(100))):
            answer = client.post(address, content=content, headers={"Content-Type": "application/json"})
            assert (answer.status_code, answer.json()["code"]) == (413, "body_too_large")
    assert server.memory() - before < 20e6
    assert client.post(address, json={"document": "a"}, headers={"Authorization": "Bearer x"}).status_code == 401


CHUNKED = b"POST /v1/summarize HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n{}\r\n0\r\n\r\n"
NONSENSE = [b"\x16\x03\x01\x02\x00hello", b"GET / HTTP/9.9\r\n\r\n", b"GET /\r\n\r\n", b"A" * 100_000, CHUNKED]
NONSENSE += [CHUNKED.replace(b"/v1/summarize", b"/nowhere"), CHUNKED.replace(b"Transfer-Encoding: chunked", b"a b: c")]


@pytest.mark.parametrize("sent", NONSENSE, ids=range(len(NONSENSE)))
def test_nonsense_on_the_wire(sent: bytes, server: Server, client: httpx.Client) -> None:
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        with suppress(ConnectionResetError, BrokenPipeError):
            connection.sendall(sent)
        answer = answer_of(connection)
    head, _, body = answer.partition(b"\r\n\r\n")
    if answer and not answer.startswith(b"HTTP/1.1 200"):
        assert head.startswith(b"HTTP/1.1 400")
        assert json.loads(body)["code"] == "invalid_http"
        assert json.loads(body)["request_id"].encode() in head
    assert "Traceback" not in server.errors()
    assert client.get("/health").status_code == 200


def test_a_client_that_leaves_ends_its_work(server: Server, client: httpx.Client) -> None:
    abandoned = 'catchline_documents_total{model="tiny",outcome="abandoned"}'
    before = metric(client, abandoned)
    body = json.dumps({"document": DOCUMENTS[0], "options": LONG}).encode()
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(raw_request(body, len(body)))
        until(lambda: metric(client, RUNNING) == 1)
    until(lambda: metric(client, abandoned) == before + 1)
    until(lambda: metric(client, RUNNING) == 0)
    assert '"status": 499' in server.log()
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(raw_request(b'{"document"', 400))  # leaves in the middle of its body
    assert client.post("/v1/summarize", json={"document": DOCUMENTS[0]}).status_code == 200


def test_a_stream_arrives_while_it_is_made_and_ends_with_its_client(server: Server, client: httpx.Client) -> None:
    def pieces(tokens: int) -> Iterator[float]:
        """The times at which a text arrives."""
        body = {"document": " ".join(DOCUMENTS), "stream": True, "options": written(tokens)}
        with client.stream("POST", "/v1/summarize", json=body) as response:
            yield from (time.monotonic() for line in response.iter_lines() if line == "event: text")

    began, times = time.monotonic(), list(pieces(120))
    assert len(times) > 50
    assert times[0] - began < (times[-1] - began) / 2
    before = metric(client, "catchline_documents_total")
    leaving = pieces(500)
    next(leaving)
    leaving.close()
    until(lambda: metric(client, "catchline_documents_total") == before + 1)
    until(lambda: metric(client, RUNNING) == 0)


def test_the_hubs_own_client_can_use_it(server: Server, model: Path) -> None:
    from huggingface_hub import InferenceClient

    expected = Summarizer.from_pretrained(model).summarize(DOCUMENTS[0]).text
    hub = InferenceClient(model=server.url, token=TOKEN)
    assert hub.summarization(DOCUMENTS[0]).summary_text == expected


@pytest.mark.parametrize("library", ["huggingface_hub", "openai"])
def test_clients_of_openais_interface(library: str, server: Server) -> None:
    kind = {"huggingface_hub": "InferenceClient", "openai": "OpenAI"}[library]
    client = getattr(pytest.importorskip(library), kind)(base_url=f"{server.url.rstrip('/')}/v1", api_key=TOKEN)
    asked: Any = {"model": "tiny", "messages": [{"role": "user", "content": DOCUMENTS[0]}], "temperature": 0.3}
    answer = client.chat.completions.create(**asked)
    assert answer.usage.total_tokens > answer.usage.completion_tokens > 0
    parts = [part.choices[0].delta.content or "" for part in client.chat.completions.create(**asked, stream=True)]
    assert "".join(parts) == answer.choices[0].message.content
    with pytest.raises(Exception, match="GET /v1/models has all"):
        client.chat.completions.create(**asked | {"model": "gpt-9"})


# ------------------------------------------------------------------------------------------ time, and the end


def test_an_answer_that_takes_too_long_is_given_up(model: Path, tmp_path: Path) -> None:
    with running(tmp_path, f"tiny={model}", "--set", "request_timeout=0.05") as hasty, hasty.client() as client:
        body = {"document": DOCUMENTS[0], "options": LONG}
        late = client.post("/v1/summarize", json=body)
        assert (late.status_code, late.json()["code"]) == (504, "timeout")
        until(lambda: metric(client, RUNNING) == 0)
        streamed = client.post("/v1/summarize", json={**body, "stream": True, "options": {**LONG, "beam_size": 1}})
        assert streamed.text.rstrip().splitlines()[-2] == "event: error"
        assert '"timeout"' in streamed.text
        assert client.get("/health").status_code == 200


@pytest.mark.slow
def test_sigterm_under_load_answers_what_was_accepted(model: Path, tmp_path: Path) -> None:
    answered, stop = list[tuple[float, httpx.Response]](), threading.Event()
    with running(tmp_path, f"tiny={model}", "--set", "max_batch=4") as server, ThreadPoolExecutor(10) as pool:

        def keep_asking(number: int) -> None:
            body = {"document": DOCUMENTS[number % 5], "options": written(60)}
            with server.client() as client, suppress(httpx.TransportError):
                while not stop.is_set():
                    began = time.monotonic()
                    answered.append((began, client.post("/v1/summarize", json=body)))

        for number in range(10):
            pool.submit(keep_asking, number)
        until(lambda: len(answered) > 20)
        signalled = time.monotonic()
        code = server.stop()
        stop.set()
    lines = [json.loads(line) for line in server.log().splitlines()]
    assert code == 0, server.errors()
    statuses = Counter(answer.status_code for _, answer in answered)
    assert statuses.keys() <= {200, 503}
    assert all(answer.json()["code"] == "stopping" for _, answer in answered if answer.status_code == 503)
    assert any(began < signalled - 0.3 for began, _ in answered)
    assert all(answer.status_code == 200 for began, answer in answered if began < signalled - 0.3)
    # every accepted request reached its client
    assert Counter(line["status"] for line in lines) == statuses


def test_what_cannot_be_served_is_one_sentence(model: Path, tmp_path: Path, server: Server, capsys: Capture) -> None:
    (tmp_path / "empty").write_text("\n")
    for code, said, *arguments in (
        (2, "in use", model, "--port", server.port),
        (4, "nothing", tmp_path / "nothing"),
        (2, "Two models or methods have the name 'tiny'", model, f"tiny={model}"),
        (2, "Two models", f"lexrank={model}"),
        (2, "max_queue", model, "--set", "max_quee=3"),
        (2, "no usable token", model, "--token-file", tmp_path / "empty"),
        (3, "none", model, "--token-file", tmp_path / "none"),
    ):
        refused(capsys, code, said, "serve", *arguments)
