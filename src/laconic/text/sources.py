"""What a Python file and an e-mail say in sentences."""

from __future__ import annotations

import ast
import re
from contextlib import suppress
from email import message_from_bytes, policy
from typing import Any
from warnings import catch_warnings

_MAIL = re.compile(r"(?:From .*\n)?(?=(?:\S.*\n|[ \t].*\n)*?From:)(?:[A-Z][\w-]*:.*\n(?:[ \t]+\S.*\n)*){2,}[ \t]*\n")
_OTHERS = re.compile(  # what others said, that they did, and what stands behind the mail itself
    r"^(?:[>|].*|On\b.{0,200}(?:\n.{0,80})?\bwrote:[ \t]*|(?:-- ?|[-_ ]{3,}(?:Original|Forwarded).*)\n[\s\S]*)$",
    re.MULTILINE,
)


class _Headers(policy.EmailPolicy):
    """Of a long one its beginning: what it takes to parse it goes with the square of its length."""

    def header_fetch_parse(self, name: str, value: str) -> Any:
        return super().header_fetch_parse(name, value[:2000])


def said_in(text: str, suffix: str) -> str:
    """The prose of a text that is one of these, by its name or how it begins; empty where it is none, or has none."""
    text = text.replace("\r\n", "\n")
    if suffix == ".py":
        with suppress(SyntaxError, ValueError, RecursionError, MemoryError), catch_warnings(action="ignore"):
            return ast.get_docstring(ast.parse(text)) or ""
    elif _MAIL.match(text):
        said = _said_in_mail(text)
        return _OTHERS.sub("", said).strip() or said
    return ""


def _said_in_mail(text: str) -> str:
    """Its plain text, if it has any."""
    with suppress(LookupError, ValueError, TypeError, AttributeError, RecursionError):  # of damaged ones
        mail: Any = message_from_bytes(text.encode(), policy=_Headers())
        part = mail.get_body(("plain",))
        raw = part.get_payload(decode=True)
        with suppress(UnicodeDecodeError):
            return str(raw, "utf-8")
        return str(raw, part.get_content_charset("latin-1"), "replace")
    return ""
