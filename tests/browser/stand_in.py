"""A service with the interface of ours and made-up answers, so that the page can be tested in every situation.

The page's files are the real ones. What is asked decides what happens: the name of the model.
"""

from __future__ import annotations

import json
import mimetypes
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import catchline
from catchline.explain.record import to_dict
from catchline.server.app import PAGE_HEADERS as HEADERS
from catchline.summarizer import Summarizer
from catchline.text.markup import as_prose, markdown_text
from catchline.types import SourceSpan, Summary, SummaryWord

SOURCE = Path(catchline.__file__).parent
FILES = {path.name: path for path in (SOURCE / "server" / "static").iterdir()}
FILES |= {f"view/{path.name}": path for path in (SOURCE / "explain" / "view").iterdir()}
NUMBER = {"type": "integer", "minimum": 1, "maximum": 16}
DECODING = {
    "min_length": {**NUMBER, "default": 1, "maximum": 512},
    "max_length": {**NUMBER, "default": 12, "maximum": 512},
    "beam_size": {**NUMBER, "default": 4},
}
EXTRACTIVE = {"sentences": {**NUMBER, "default": 3, "maximum": 1000}}
COPIED = 0.5


def entry(name: str, kind: str = "neural") -> dict[str, Any]:
    options = DECODING if kind == "neural" else EXTRACTIVE
    known = {"name": name, "kind": kind, "in_short": f"What {name} does.", "options": options}
    return {**known, "default": name == "pointer"}


MODELS = [
    *[entry(name) for name in ("pointer", "slow", "busy", "broken", "garbled")],
    *[entry(name, "extractive") for name in ("first", "whole")],
]


class Handler(BaseHTTPRequestHandler):
    """One request; ``server.token`` and ``server.asked`` belong to the `Server`."""

    protocol_version = "HTTP/1.1"
    server: Server

    def do_GET(self) -> None:
        name = "index.html" if self.path == "/" else self.path.removeprefix("/static/")
        if name in FILES:
            media_type = mimetypes.guess_type(name)[0] or "text/html"
            self.send(200, FILES[name].read_bytes(), {**HEADERS, "Content-Type": media_type})
        elif self.path == "/v1/models" and self.allowed():
            limits = {"max_characters": 2_000_000}
            self.send_json(200, {"version": "0", "models": MODELS, "limits": limits})
        elif self.path != "/v1/models":
            self.send_json(404, {"error": "There is nothing at this address.", "code": "not_found"})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        if not self.allowed():
            return
        request = json.loads(body)
        self.server.asked.append(request)
        model, document = request["model"], request["document"]
        if model == "busy":
            problem = {"error": "Too many documents wait already (256); try again soon.", "code": "queue_full"}
            self.send_json(429, problem, {"Retry-After": "2"})
        elif model == "broken":
            problem = {"error": "An error in the service; its log has the details.", "code": "internal_error"}
            self.send_json(500, problem)
        elif model == "garbled":
            self.send(502, b"<html>Bad gateway</html>", {"Content-Type": "text/html"})
        else:
            time.sleep(1.5 if model == "slow" else 0)
            kind, said = request["format"], document
            if kind == "auto":
                kind, said = as_prose(document)
            elif kind == "markdown":
                said = markdown_text(document)
            how = {"format": kind if kind != "text" else "plain", "document": said} if said != document else {}
            self.send_json(200, {"model": model, "summaries": [record(model, said) | how]})

    def allowed(self) -> bool:
        token = self.server.token
        if token is None or self.headers.get("Authorization") == f"Bearer {token}":
            return True
        self.send_json(401, {"error": "The token is missing or wrong.", "code": "unauthorized"})
        return False

    def send_json(self, status: int, value: Any, headers: dict[str, str] | None = None) -> None:
        self.send(status, json.dumps(value).encode(), {"Content-Type": "application/json", **(headers or {})})

    def send(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        pass


class Server(ThreadingHTTPServer):
    """Listens on a free port of this machine."""

    daemon_threads = True
    request_queue_size = 64  # a page asks for many files at once; five may wait otherwise
    token: str | None

    def __init__(self, token: str | None = None) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.token = token
        self.asked: list[dict[str, Any]] = []

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that went away is none of our business."""

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/"


@contextmanager
def serving(token: str | None = None) -> Iterator[Server]:
    server = Server(token)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


# ------------------------------------------------------------------------------------------- answers


def record(model: str, document: str) -> dict[str, Any]:
    """What the service says of one document; positions count code points."""
    if model in ("first", "whole"):
        made = Summarizer.from_pretrained("lead-2" if model == "first" else "lead-1000").explain(document)
        return to_dict(made, document=False) | {"id": "1", "model": model}
    tokens = [found.span() for found in re.finditer(r"\w+|[^\w\s]", document)]
    read = tokens[:400]
    words = [places for places in read if places[1] - places[0] > 3] or read
    made, text = list[SummaryWord](), ""
    for index in range(6):
        start, end = place = words[index * len(words) // 6]
        copied = index % 3 != 2
        shown = document[start:end] if copied else ("<unk>" if index == 5 else "about")
        text += " " if text else ""
        weights, at = [0.001] * len(read), read.index(place)
        weights[at] = 0.7
        looked = ((place, 0.7), (read[(at + 2) % len(read)], 0.2))
        sources = tuple(SourceSpan(a, b, document[a:b], weight) for (a, b), weight in looked)
        share, gate = (0.9, 0.1) if copied else (0.1, 0.8)
        where = (len(text), len(text) + len(shown))
        made.append(SummaryWord(shown, *where, 0.6, copied, share, gate, sources, tuple(weights)))
        text += shown
    text += " in 1999 with Zelda"
    tokens_read = {"tokens_read": len(read), "tokens_given": len(tokens), "truncated": len(read) < len(tokens)}
    known = {"id": "1", "model": model, "document": document, "words": tuple(made), "source_offsets": tuple(read)}
    support = {
        "checked": {"number": 1, "date": 0, "name": 1},
        "unsupported": [missing(text, "number", "1999"), missing(text, "name", "Zelda")],
        "new_words": [missing(text, "word", "with")],
        "supported": [],
        "rate": 0.0,
    }
    return to_dict(Summary(text, -1.25, -6.5, **known, **tokens_read)) | {"support": support}


def missing(text: str, kind: str, what: str) -> dict[str, Any]:
    return {"kind": kind, "text": what, "start": text.index(what), "end": text.index(what) + len(what)}
