"""Control characters of texts: none of them may reach a terminal, which would obey them."""

from __future__ import annotations

import sys
from typing import IO, Any

_CONTROL = {code: 0xFFFD for code in (*range(32), *range(127, 160)) if chr(code) not in "\n\t"}


def harmless(text: str) -> str:
    """``text`` with each control character replaced by one character: places in it stay true."""
    return text.translate(_CONTROL)


def safe_print(*values: Any, sep: str = " ", end: str = "\n", file: IO[str] | None = None, flush: bool = False) -> None:
    """``print`` for texts of any origin. Pipes and files get them as they are, terminals and stderr harmless; what the
    stream cannot encode (half characters) becomes a question mark.
    """
    stream = sys.stdout if file is None else file
    text = sep.join(map(str, values)) + end
    if stream is sys.stderr or stream.isatty():
        text = harmless(text)
    encoding = getattr(stream, "encoding", None) or "utf-8"
    stream.write(text.encode(encoding, "replace").decode(encoding))
    if flush:
        stream.flush()
