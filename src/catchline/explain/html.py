"""Self-contained HTML pages: where each word came from. They request nothing from anywhere.

Every text of a user is escaped by the template engine; JSON for the script has ``<``, ``>`` and ``&`` as escapes, so a
document that holds ``</script>`` stays text. A page reads without its script, which puts linked panels in.

Script and style are the files in ``view/``, plain ES modules and a style sheet that the served page loads one by one.
For a report `bundle` puts the modules behind each other, imported ones first, into one function. So imports have the
form ``import { a, b } from "./file.js";``, exports stand before a declaration, and no two modules declare the same name
at top level; a test checks that.

"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from itertools import groupby
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from catchline.explain.chunks import read_to
from catchline.explain.record import chunks_to_list, support_of, support_to_dict, to_dict
from catchline.types import Summary

UNREAD_SHOWN = 4000  # characters of the unread end of a document that are shown
MAX_HEAT_CELLS = 400_000  # larger heat maps would make the page heavy
_FRAME = 'style="width: 100%; height: 34em; border: 1px solid #8886; border-radius: 8px"'
References = Sequence[str | Sequence[str] | None]
_IMPORT = re.compile(r'^import \{(?:(?! as )[^}])*\} from "\./([\w.-]+)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:function|const|class)\b)", re.MULTILINE)
_COMMENT = re.compile(r"^[ \t]*/\*\*.*?\*/\n", re.MULTILINE | re.DOTALL)  # of a module or a declaration


def _data(group: Mapping[str, Any]) -> Markup:
    """What the script needs, as JSON that cannot end the script element."""
    records = [_record(summary) for summary in group["summaries"]]
    return embed_json({"records": records, "more": group["left_out"]})


def _record(summary: Summary) -> dict[str, Any]:
    """The record as the service gives it, its attention in fewer digits, and what its document does not support."""
    maps = 1 + max((len(word.maps) for word in summary.words), default=0)
    cells = len(summary.words) * len(summary.source_offsets) * maps
    with_attention = 0 < cells <= MAX_HEAT_CELLS and all(word.attention for word in summary.words)
    record = to_dict(summary, document=False, attention=with_attention)
    if summary.truncated and not with_attention:  # without the offsets nothing else says where reading ended
        record["read_to"] = read_to(summary)
    record.pop("chunks", None)
    if 0 < len(summary.words) * len(summary.chunks) <= MAX_HEAT_CELLS:
        record["chunks"] = chunks_to_list(summary.chunks)
        for chunk in record["chunks"]:
            chunk["weights"] = _short(chunk["weights"])
    for word in record.get("words", ()):
        if "attention" in word:
            word["attention"] = _short(word["attention"])
        if "maps" in word:
            word["maps"] = {name: _short(weights) for name, weights in word["maps"].items()}
        word.pop("tokens", None)  # the page shows words
    if (report := support_of(summary)) is not None:
        record["support"] = support_to_dict(report)
    return record


def _group(members: Sequence[tuple[Summary, str | Sequence[str] | None]]) -> dict[str, Any]:
    """A document, and the summaries that were made of it; ``left_out`` characters of its unread end are not shown."""
    summaries = [summary for summary, _ in members]
    document = summaries[0].document
    ends = [read_to(summary) if summary.truncated else 0 for summary in summaries]
    shown = max(ends) + UNREAD_SHOWN if all(ends) else len(document)
    texts: list[str] = []
    for _, reference in members:
        found = [reference] if isinstance(reference, str) else list(reference or ())
        texts += [text for text in found if text and text not in texts]
    return {
        "document_id": summaries[0].id,
        "document": document[:shown],
        "left_out": max(0, len(document) - shown),
        "summaries": summaries,
        "references": texts,
    }


def render(
    summaries: Sequence[Summary], *, title: str = "Where the words came from", references: References | None = None
) -> str:
    """One page: hover or focus a word and its sources light up, and the reverse. Summaries of the same document share a
    panel; ``references[i]`` is the reference, or references, of ``summaries[i]``."""
    given: References = references if references is not None else [None] * len(summaries)
    if len(given) != len(summaries):
        raise ValueError(f"{len(given)} references for {len(summaries)} summaries")
    pairs = zip(summaries, given, strict=True)
    alike = groupby(pairs, lambda pair: (pair[0].document, pair[0].id) if pair[0].document else object())
    groups = [_group(list(members)) for _, members in alike]
    return _environment().get_template("page.html").render(title=title, groups=groups)


def notebook_view(summary: Summary) -> str:
    """One summary for a notebook: its page in a frame, so that neither's style or script meets the other's."""
    if not summary.words:
        return (
            f"<blockquote>{escape(summary.text)}</blockquote>"
            "<p><small><code>summarizer.explain(text)</code> shows where each word came from.</small></p>"
        )
    page = render([summary], title=summary.model or "Summary")
    return f'<iframe title="A summary, and where its words came from" srcdoc="{escape(page)}" {_FRAME}></iframe>'


@cache
def policy() -> str:
    """What a browser may do with a page: run our one script, style it, show its pictures, ask nobody for anything."""
    digest = base64.b64encode(hashlib.sha256(f"\n{report_script()}\n".encode()).digest()).decode()
    return (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def exact(text: str) -> Markup:
    """Text whose characters a browser keeps one for one, carriage returns and the null character too."""
    return Markup(str(escape(text)).replace("\r", "&#13;").replace("\0", "\ufffd"))


def embed_json(value: Any) -> Markup:
    """JSON for a ``<script type="application/json">`` element: no character in it can end the element."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("catchline.explain"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(data=_data, exact=exact)
    environment.globals.update(style=view_files()["view.css"], script=report_script, policy=policy)
    return environment


def _short(values: Sequence[float]) -> list[float]:
    return [round(float(value), 4) or 0 for value in values]


@cache
def view_files() -> Mapping[str, str]:
    """Name and text of each shared file."""
    folder = files("catchline.explain") / "view"
    return {file.name: file.read_text(encoding="utf-8") for file in folder.iterdir() if file.is_file()}


@cache
def report_script() -> str:
    return bundle("report.js", view_files())


def bundle(entry: str, modules: Mapping[str, str]) -> str:
    """``entry`` and all it imports as one script that leaves no global name behind."""
    texts = (_COMMENT.sub("", modules[name]) for name in _in_order(entry, modules, []))
    joined = "\n\n".join(_EXPORT.sub("", _IMPORT.sub("", text)).strip() for text in texts)
    return f'(() => {{\n"use strict";\n{joined}\n}})();'


def _in_order(name: str, modules: Mapping[str, str], order: list[str]) -> list[str]:
    """The modules that ``name`` needs, each before those that import it."""
    for target in _IMPORT.findall(modules[name]):
        _in_order(target, modules, order)
    if name not in order:
        order.append(name)
    return order
