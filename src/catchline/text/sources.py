"""Texts of lines in which hardly anybody says anything."""

from __future__ import annotations

import re

from catchline.text.sentences import bounds

_ERROR = (
    r"^(?![ \t]|File ).*(?:Error|Exception|ERROR|FATAL|CRITICAL"
    r"|panicked|[Ff]ailed|Out of memory|\" 5\d\d|\"error)\b.*"
)
_REMARK = r"(?:\#+|//[/!]?|--|;+|/?\*+!?)[ \t]+"  # its sign
_COMMENT = rf"^(?: ?{_REMARK}|[ \t]*\"\"\")(?!.*(?:opyright|icen[cs]e))([A-Z].*\w\.)(?:\"\"\"| \*/)?$"
_SETTING = r"[a-z_-][\w-]*:(?: [\w/:.\"-]+)?$|\"[^\"]+\": |[ \t]+(?:- )?[a-z][\w-]*: \S.*"  # as YAML and JSON have it
_VALUE = r"[^\n\"'{}\[\]]*"
_ABOUT = [  # what settings are of, by what they say themselves
    re.compile(rf"(?m)^{begins}[ \t]*[:=][ \t]*[\"']?([^\W\d_]{_VALUE}[ ]{_VALUE}[^\s\"',|>]).*$")
    for begins in (r" {0,4}[\"']?description[\"']?", r" {0,4}[\"']?title[\"']?", r"(?:- )?name")
] + [re.compile(r"(?m)^ {0,2}\"name\": \"([^\"\n]+)")]
_WHAT_IT_SAYS = "a recipe", "a list of questions", "a log"  # may have sentences in it
_LINES = {  # what it is: what it has for certain, how most of its lines look, and which tells most
    "a recipe": (
        r"\A(?:.*\n){1,30}?\W*(?i:ingredients)\W*\n"
        r"(?:.*\n){2,60}?\W*(?i:method|directions|instructions|preparation)\W*\n",
        "",
        r"\A\s*(\S.*)",
    ),
    "a list of questions": (  # with answers or without
        r"\A\W*(?:(?i:.{0,40}\b(?:FAQs?|frequently asked questions|questions and answers|Q ?& ?A)\b).*\n"
        r"|[Q\d]{1,2}[:.)] [A-Z][^\n]{8,200}\?[ \t]*\n)(?:(?:.*\n){0,12}?.*\?[ \t]*(?:\n|\Z)){2}",
        "",
        r"\A\W*(?:[Q\d]{1,2}[:.)] )?(.*)",
    ),
    "a list of references": (
        r"^@\w+\{",
        r"@\w+\{|\s*[\w-]+ *= *|\}+,?$",
        r"^\s*title *= *[{\"]+([^{}\"\n]+)",
    ),
    "a stack trace": (r"^Traceback \(most|^[ \t]+at [\w.$<>]+ ?\(|^stack back", r"\s+\S|Traceback |Caused by:", _ERROR),
    "a log": (  # of a program, not of what people wrote: "18:22 - Anna: are you there?"
        r"\d:\d\d:\d\d",
        r"(?=.{0,60}\d\d:\d\d:\d\d)(?!\W?[\d/. -]*,? ?[\d:]+(?: [AP]M)?\]? (?:- )?(?![A-Z]{4,}\b)[^\W\d][\w ]*: )",
        _ERROR,
    ),
    "a change of code": (r"\Adiff -{2}git |\A--- \S.*\n\+\+\+ \S", r"[-+@ ]|diff |index ", r"(?<=^\+\+\+ ).*"),
    "a table": (
        r" {2}|[|\t]",
        r"\s*(?:\|.*\||\+[-=+]+\+)\s*$|.*?\S(?:(?: {3,}|\t\s*)\S+(?: \S+)*){2,}\s*$"
        r"|.*(?:\s{2,}[-+$\u20ac]?\d[\d.,%]*){2,}\s*$",
        r"^.*[^\W\d_]{2}.*",
    ),
    "settings or data": (
        r"^[ \t]*[\"a-z][\w.\"-]*[ \t]*[:=]|^\w+=",
        rf"\s*(?:{_SETTING}|[\w.-]+ ?= ?[^;({{]*$|\[.*\]$|- [\w-]*[^\w\s]\S*$|[\[\]{{}}]+,?$)",
        rf"^(?:{_REMARK}(?=[^\W\d_].* ))?(?!\W*(?:api)?[Vv]ersion|.*(?:opyright|icen[cs]e)|[^\w\s\[\"])"
        r"(kind: .*\nmetadata:\n +name: .*|.*[a-z]{2}(?:.*(?<=:)\n)*.*)",
    ),
    "program code": (
        r"[(:={;]",
        rf"\s*(?:\#(?:include|define|!)|/\*|\*/|//|{_SETTING}|[\w.]+\(.*\)$"
        r"|(?:import|from|package|using|def|class|return|if|SELECT|FROM|JOIN|WHERE|GROUP|HAVING|ORDER)\b.*[^.!?]$"
        r"|(?![*\u2022-] ).*(?:[;{}]|\):|[\w\])] = .+)$)",
        _COMMENT,
    ),
}
_LIKE = {kind: [re.compile(one, re.MULTILINE) for one in patterns] for kind, patterns in _LINES.items()}
_FIRST = re.compile(
    rf"(?m)^(?![^\w\n]*(?:import|from|include|use|package|copyright|SPDX)\b|\#!)(?:{_REMARK})?((?i:.*[a-z]{{2}}).*)"
)
_LATEX = re.compile(r"^\\(?:documentclass|begin)\b", re.MULTILINE)
_MOST = 0.6  # of the lines, at least
_LOOKED_AT = 400, 160  # lines, characters of each
_BEGINNING = 2000  # characters in which settings say what they are of


def lines_of(text: str) -> tuple[str, tuple[int, int]] | None:
    """Of a text whose lines are those of a log, a table, code and the like, not of prose: what it is, and where the
    line stands that tells most of it (an error, the names of columns, a comment; else the first)."""
    most, longest = _LOOKED_AT
    whole = [line.rstrip() for line in text.split("\n", most)[:most] if line.strip()]
    lines = [line[:longest] for line in whole]
    cells = [{line.count(sign) for line in lines} for sign in ",;\t"] if len(lines) > 2 else []
    said = any(line[0].isupper() and line[-1] in ".:!?" and line.count(" ") > 6 for line in whole)
    # the same commas in every line are columns, but for those of prose
    separated = any(len(counts) == 1 and min(counts) > 1 for counts in cells[", " in text :])
    for kind, (certain, like, telling) in _LIKE.items() if cells and not _LATEX.search(text) else ():
        if said and kind not in _WHAT_IT_SAYS:
            continue
        share = sum(bool(like.match(line)) for line in lines) / len(lines)
        if (separated and kind == "a table") or (share >= _MOST and certain.search(text)):
            about = (one.search(text, 0, _BEGINNING) for one in (_ABOUT if kind == "settings or data" else ()))
            found = next(filter(None, about), None) or telling.search(text) or _FIRST.search(text)
            return kind, bounds(text, *(found.span(found.re.groups) if found else (0, len(text))))
    return None
