"""The service below a path of a plain reverse proxy: the page, its files, the addresses, the stream."""

from __future__ import annotations

import http.client
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import urljoin

import httpx
import pytest

from serving import running
from tiny_models import DOCUMENTS, save_tiny_model

PREFIX = "/tools/summaries/"


class Proxy(BaseHTTPRequestHandler):
    """Takes the prefix off and hands everything on as it comes, as ``proxy_pass http://127.0.0.1:PORT/`` does."""

    protocol_version = "HTTP/1.1"
    port = 0

    def do_GET(self) -> None:
        if not self.path.startswith(PREFIX):
            self.send_error(404)
            return
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        behind = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        headers = {name: value for name, value in self.headers.items() if name.lower() not in ("host", "connection")}
        behind.request(self.command, "/" + self.path.removeprefix(PREFIX), body or None, headers)
        answer = behind.getresponse()
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("transfer-encoding", "connection", "content-length"):
                self.send_header(name, value)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        while chunk := answer.read1(4096):
            self.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
        self.wfile.write(b"0\r\n\r\n")
        behind.close()

    def do_POST(self) -> None:
        self.do_GET()

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    folder: Path = tmp_path_factory.mktemp("served")
    model = save_tiny_model(folder / "tiny")
    with running(folder / "server", f"tiny={model}") as server:
        handler = type("Handler", (Proxy,), {"port": server.port})
        with ThreadingHTTPServer(("127.0.0.1", 0), handler) as proxy:
            threading.Thread(target=proxy.serve_forever, daemon=True).start()
            try:
                with httpx.Client(base_url=f"http://127.0.0.1:{proxy.server_port}{PREFIX}", timeout=60) as client:
                    yield client
            finally:
                proxy.shutdown()
        assert server.stop() == 0
        assert "Traceback" not in server.errors()
        assert "never retrieved" not in server.errors()


def test_the_page_and_every_file_that_it_names(client: httpx.Client) -> None:
    base = str(client.base_url)
    waiting, seen = [base], set()
    while waiting:
        address = waiting.pop()
        if address in seen:
            continue
        seen.add(address)
        answer = client.get(address)
        assert answer.status_code == 200, address
        assert address.startswith(base), address
        named = re.findall(r'(?:src|href)="([^"#]+)"|from "([^"]+)"', answer.text)
        waiting += [urljoin(address, found) for pair in named for found in pair if found and "://" not in found]
    assert sum(address.endswith(".js") for address in seen) > 5
    assert any(address.endswith(".css") for address in seen)


def test_the_addresses(client: httpx.Client) -> None:
    assert client.get("health").json() == {"status": "ok"}
    assert client.get("v1/models").json()["models"][0]["name"] == "tiny"
    answer = client.post("v1/summarize", json={"document": DOCUMENTS[0], "explain": True}).json()
    assert answer["summaries"][0]["words"]
    assert client.post("", json={"inputs": DOCUMENTS[0]}).json()[0]["summary_text"]
    assert client.post("models/lexrank", json={"inputs": DOCUMENTS[0]}).json()[0]["summary_text"]
    assert client.get("nowhere").json()["code"] == "not_found"


def test_the_stream_comes_in_pieces(client: httpx.Client) -> None:
    with client.stream("POST", "v1/summarize/stream", json={"document": DOCUMENTS[0]}) as answer:
        events = [line.removeprefix("event: ") for line in answer.iter_lines() if line.startswith("event: ")]
    assert events[0] == "start"
    assert events.count("text") > 1
    assert events[-1] == "summary"
