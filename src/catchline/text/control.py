"""Control characters of texts: none of them may reach a terminal, which would obey them."""

from __future__ import annotations

import json
import sys
from typing import IO, Any

_DIRECTIONS = (*range(0x202A, 0x202F), *range(0x2066, 0x206A))
_CONTROL = {code: 0xFFFD for code in (*range(32), *range(127, 160), *_DIRECTIONS) if chr(code) not in "\n\t"}
_LINE_ENDS = {code: f"\\u{code:04x}" for code in (0x85, 0x2028, 0x2029)}


def harmless(text: str) -> str:
    """``text`` for a terminal: control characters and marks of direction, which it would obey, replaced one by one."""
    return text.translate(_CONTROL)


def json_line(values: Any) -> str:
    """``values`` as JSON on one line for every reader: marks that some take for line ends are escaped."""
    return json.dumps(values, ensure_ascii=False).translate(_LINE_ENDS)


def safe_print(*values: Any, sep: str = " ", end: str = "\n", file: IO[str] | None = None, flush: bool = False) -> None:
    """``print``, with texts `harmless` on terminals and stderr; what the stream cannot encode is a question mark."""
    stream = sys.stdout if file is None else file
    text = sep.join(map(str, values)) + end
    if stream is sys.stderr or stream.isatty():
        text = harmless(text)
    encoding = getattr(stream, "encoding", None) or "utf-8"
    print(text.encode(encoding, "replace").decode(encoding), end="", file=stream, flush=flush)
