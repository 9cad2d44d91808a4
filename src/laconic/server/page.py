"""The page's files, ready to be sent: those of ``static/`` and, as ``view/...``, the components shared with reports.

This module knows no web framework. The application answers ``GET /`` with ``assets()["index.html"]`` and
``GET /static/NAME`` with ``assets()[NAME]``; the page finds everything by addresses relative to its own, so it
also works below a prefix.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from laconic.explain.html import view_files
from laconic.files import sha256

MEDIA_TYPES = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
}
# Nothing inline, nothing from elsewhere: what a model wrote can never run, and the page asks only its own server.
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Cache-Control": "no-cache",
}


@dataclass(frozen=True, slots=True)
class Asset:
    """One file of the page; ``etag`` is the strong validator of its bytes, quotes included."""

    body: bytes
    media_type: str
    etag: str


@cache
def assets() -> Mapping[str, Asset]:
    """Every file by its name below ``/static/``: ``index.html``, ``app.js``, ``view/panel.js``, ..."""
    own = {file.name: file.read_text(encoding="utf-8") for file in (files("laconic.server") / "static").iterdir()}
    shared = {f"view/{name}": text for name, text in view_files().items()}
    bodies = {name: text.encode() for name, text in (own | shared).items()}
    return {
        name: Asset(body, MEDIA_TYPES[name.rpartition(".")[2]], f'"{sha256(body)[:24]}"')
        for name, body in bodies.items()
    }
