"""What a hostile page or client may not do: other names, numbers that are none, a service that complains in its log."""

from __future__ import annotations

import asyncio
import copy
import gc
import io
import logging
import socket
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from fastapi.testclient import TestClient

from catchline.errors import DataError
from catchline.server.app import create_app
from catchline.server.run import LOOPBACK_NAMES, is_loopback, log_to, trusted_names
from catchline.server.schemas import Document, Settings
from catchline.server.service import Service
from catchline.summarizer import Summarizer

TEXT = "the quick fox jumps over the lazy dog"
JSON = {"Content-Type": "application/json"}
BEYOND = "1" + "0" * 400


@pytest.mark.parametrize("literal", ["NaN", "Infinity", "-Infinity", "1e999", BEYOND, "1e308", "-1e9"])
def test_numbers_are_finite_and_bounded(client: TestClient, literal: str) -> None:
    bodies = [("/", f'{{"inputs": "{TEXT}", "parameters": {{"generate_parameters": {{"num_beams": {literal}}}}}}}')]
    for name in ("length_alpha", "diversity_strength", "beam_size", "max_length"):
        options = f'"options": {{"{name}": {literal}, "length_normalisation": "gnmt"}}'
        bodies.append(("/v1/summarize", f'{{"document": "{TEXT}", {options}}}'))
    for path, body in bodies:
        answer = client.post(path, content=body, headers=JSON)
        assert (answer.status_code, answer.json()["code"]) == (422, "invalid_option")


@pytest.fixture(scope="module")
def local(summarizer: Summarizer) -> Iterator[TestClient]:
    settings = Settings(allowed_hosts=trusted_names("127.0.0.1", None, ["summaries.example.org"]))
    with TestClient(create_app({"tiny": summarizer}, settings)) as client:
        yield client


@pytest.mark.parametrize(
    ("host", "status"),
    [
        *((name, 200) for name in ("localhost:8000", "LOCALHOST", "127.0.0.1:8000", "[::1]:8000", "page.localhost")),
        ("summaries.example.org", 200),
        *((name, 421) for name in ("evil.example.org", "localhost.evil.example", "127.0.0.1.nip.io:8000")),
        *((name, 421) for name in ("evil.example:localhost", "")),
    ],
)
def test_a_local_service_answers_to_local_names(local: TestClient, host: str, status: int) -> None:
    headers = {"Host": host}
    assert local.get("/health", headers=headers).status_code == 200, "probes know no name"
    for path in ("/", "/v1/models", "/static/app.js"):
        assert local.get(path, headers=headers).status_code == status
    answer = local.post("/v1/summarize", json={"document": TEXT, "model": "lead"}, headers=headers)
    assert answer.status_code == status
    if status != 200:
        assert answer.json()["code"] == "unknown_host"
        assert "--allowed-host" in answer.json()["error"]


@pytest.mark.parametrize(
    ("host", "token", "given", "names"),
    [
        ("::1", None, [], (*LOOPBACK_NAMES, "[::1]")),
        ("127.0.0.2", None, ["a.example"], (*LOOPBACK_NAMES, "127.0.0.2", "a.example")),
        ("127.0.0.1", "token", [], ()),  # a page of another site does not have the token
        ("0.0.0.0", None, [], ()),  # open to everybody by request
        ("0.0.0.0", "token", ["a.example"], ("a.example",)),
    ],
)
def test_which_services_ask_for_names(host: str, token: str | None, given: list[str], names: tuple[str, ...]) -> None:
    assert trusted_names(host, token, given) == names


def test_what_only_this_machine_reaches(monkeypatch: pytest.MonkeyPatch) -> None:
    names = {"home.example": "127.0.0.1", "127.evil.example": "192.0.2.7", "::1:2": "::1:2", "LOCALHOST": "127.0.0.1"}
    numbers = socket.getaddrinfo

    def resolved(host: str, port: Any) -> Any:
        if host == "nowhere.example":
            raise socket.gaierror
        return numbers(names.get(host, host), port, flags=socket.AI_NUMERICHOST)

    monkeypatch.setattr("catchline.server.run.socket.getaddrinfo", resolved)
    assert all(map(is_loopback, ("127.0.0.1", "127.9.9.9", "::1", "0:0:0:0:0:0:0:1", "::ffff:127.0.0.1", "LOCALHOST")))
    assert is_loopback("home.example")
    assert not any(map(is_loopback, ("127.evil.example", "::1:2", "0.0.0.0", "::", "192.0.2.7", "nowhere.example")))


def test_refused_connections_fill_no_log(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("catchline", "uvicorn.error", "catchline.access"):
        for field in ("level", "handlers", "propagate"):  # as they were, when the test has ended
            monkeypatch.setattr(logging.getLogger(name), field, getattr(logging.getLogger(name), field))
    monkeypatch.setattr(logging, "raiseExceptions", True)
    errors = io.StringIO()
    log_to(io.StringIO(), errors)
    logging.getLogger("uvicorn.error").warning("Exceeded concurrency limit.")
    logging.getLogger("uvicorn.error").error("a bug")
    logging.getLogger("catchline.server").warning("a note")
    assert [line.rpartition(": ")[2] for line in errors.getvalue().splitlines()] == ["a bug", "a note"]


def test_a_beam_above_the_limit_of_the_service_is_made_smaller(summarizer: Summarizer) -> None:
    system: Any = copy.copy(summarizer.system)
    system.search = system.search.model_copy(update={"beam_size": 4})
    with TestClient(create_app({"tiny": Summarizer(system)}, Settings(max_beam_size=2))) as client:
        described = client.get("/v1/models").json()["models"][0]["options"]["beam_size"]
        assert (described["default"], described["maximum"]) == (2, 2)
        answer = client.post("/v1/summarize", json={"document": TEXT})
        assert answer.status_code == 200, answer.text
        assert answer.json()["options"]["beam_size"] == 2


def alone(scenario: Coroutine[Any, Any, None]) -> None:
    with ThreadPoolExecutor(1) as pool:  # this thread may have a loop that a browser's driver left running
        pool.submit(asyncio.run, scenario).result(30)


@pytest.mark.parametrize("failed", [True, False], ids=["its document failed", "it waits still"])
def test_a_request_that_nobody_waits_for_is_not_complained_about(summarizer: Summarizer, *, failed: bool) -> None:
    complaints: list[Any] = []

    async def leave() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: complaints.append(context))
        ours = Service({"tiny": summarizer})
        jobs = ours.submit(await ours.check([Document(document=TEXT), Document(document=TEXT)]))
        waiting = asyncio.ensure_future(ours.outcome(jobs))
        await asyncio.sleep(0)
        for job in jobs if failed else ():
            job.future.set_exception(DataError("nothing to summarize"))
        waiting.cancel()
        await asyncio.wait([waiting])
        assert all(job.future.done() for job in jobs)
        del waiting
        jobs.clear()
        gc.collect()
        await asyncio.sleep(0)

    alone(leave())
    gc.collect()
    assert complaints == []


@pytest.mark.parametrize("waits", [True, False], ids=["it waits", "its batch is longer than the end's patience"])
def test_what_is_given_up_at_the_end_is_told_so(summarizer: Summarizer, *, waits: bool) -> None:
    async def end() -> None:
        app = create_app({"tiny": summarizer})
        batcher = app.state.service.batchers["neural"]
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as client:
            task = asyncio.create_task(client.post("/v1/summarize", json={"document": TEXT}))
            while not batcher.waiting:
                await asyncio.sleep(0.01)
            if waits:
                await batcher.stop()
            else:
                task.cancel()
            answer = await task
        assert (answer.status_code, answer.json()["code"]) == (503, "stopping")

    alone(end())
