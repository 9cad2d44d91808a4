"""The page's files, ready to be sent: those of ``static/`` and, as ``view/...``, the components shared with reports.

This module knows no web framework. The page finds everything by addresses relative to its own, so it also works below
a prefix.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from catchline.explain.html import view_files

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


@cache
def assets() -> dict[str, tuple[bytes, str]]:
    """Every file with its media type by its name below ``/static/``: ``index.html``, ``view/panel.js``, ..."""
    own = {file.name: file.read_text(encoding="utf-8") for file in (files("catchline.server") / "static").iterdir()}
    shared = {f"view/{name}": text for name, text in view_files().items()}
    return {name: (text.encode(), MEDIA_TYPES[name.rpartition(".")[2]]) for name, text in (own | shared).items()}
