"""The text of a manual page, as ``man`` shows it or as its source (roff) has it: what its name stands for, and the
paragraphs of its description."""

from __future__ import annotations

import re
from collections.abc import Iterator

_SHOWN = re.compile(r"\s*(\S+ ?\(\d\w*\))[ \t].*[ \t]\1[ \t]*\n")  # LS(1)      User Commands      LS(1)
_SOURCE = re.compile(r"^\.(?:TH|Dt) (?:.*\n){1,500}?\.S[Hh]\b", re.MULTILINE)
_MACRO = re.compile(r"^\.de\b(?:.*\n){1,200}?\.\.$", re.MULTILINE)
_REQUEST = re.compile(r"[.'][ \t]*([A-Za-z]*)[ \t]*(.*)")
_ESCAPE = re.compile(r"\\(?:[fm*](?:\[\w*\]|\(..|.)|s[-+]?\d|\((..)|\[(\w+)\]|(.))")
_SIGNS = dict(zip("hy em en aq bu lq rq e ~".split(), "-\u2014\u2013'\u2022\u201c\u201d\\ ", strict=True))  # noqa: SIM905
_BREAKS = frozenset(["PP", "P", "LP", "HP", "TP", "TQ", "IP", "SS", "Pp", "Ss", "It", "sp"])
_FONTS = frozenset(["B", "I", "SM", "SB", "BR", "RB", "IR", "RI", "BI", "IB"])


def manual_text(text: str) -> str:
    """The section of the name, and the description without its options; empty where it is no manual page."""
    text = re.sub(".\b", "", text) if "\b" in text else text  # bold and underlined, as for a typewriter
    glue = "\n"
    if text.lstrip()[:2] in (".\\", "'\\", ".T", ".D") and _SOURCE.search(text):
        text, glue = "\n".join(_shown(_MACRO.sub("", text))), " "
    elif not _SHOWN.match(text):
        return ""
    text = re.sub("\u2010\n\\s*", "", text)  # a word that troff has parted
    parts = re.split(r"^(\S.*)\n", text, flags=re.MULTILINE)
    sections = [(name, body) for name, body in zip(parts[1::2], parts[2::2], strict=True) if body.strip()]
    described = [body for name, body in sections if name.startswith("DESC")] or [body for _, body in sections[1:]]
    blocks = re.split(r"\n\s*\n", "\n\n".join([*(body for _, body in sections[:1]), *described]))
    blocks = [glue.join(" ".join(line.split()) for line in block.strip().split("\n")) for block in blocks]
    return "\n\n".join(block for block in blocks if block and block[0] != "-")


def _shown(source: str) -> Iterator[str]:
    """Roughly what ``man`` makes of it: headings at the margin, all else behind a blank."""
    name = ""
    for line in source.split("\n"):
        request = _REQUEST.fullmatch(line)
        kind, said = request.groups() if request else ("", line)
        said = _ESCAPE.sub(lambda found: _sign(*found.groups("")), said)
        if kind in ("SH", "Sh"):
            yield from ("", said.strip('" '))
        elif kind in _BREAKS or not line.strip():
            yield ""
        elif kind == "Nm":
            name = name or said
            yield f" {said or name}"
        elif kind in _FONTS:
            yield " " + ("" if len(kind) > 1 else " ").join(re.findall(r'"[^"]*"|\S+', said)).replace('"', "")
        elif not request:
            yield f" {said}"
        elif kind.istitle() and len(kind) == 2:
            yield (" - " if kind == "Nd" else " ") + re.sub(r"\b[A-Z][a-z] ", "", said)


def _sign(pair: str, name: str, one: str) -> str:
    r"""What an escape stands for: ``\(em``, ``\[em]``, ``\-``."""
    return _SIGNS.get(pair or name or one, one.strip("&/,:%|^cud"))
