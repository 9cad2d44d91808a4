"""Self-contained HTML pages: where each word came from, and reports made of tables, curves and samples.

A page requests nothing from anywhere: style and script are inline. Every text of a
user is escaped by the template engine; the JSON for the script has ``<``, ``>`` and ``&`` as escapes, so a
document that holds ``</script>`` stays text. Summaries and documents are in the page as plain text too, so it reads
without its script, which puts linked panels in their place.

Script and style are the files in ``view/``, plain ES modules and one style sheet that the served page loads one by one;
nothing is compiled. For a report `bundle` puts the modules behind each other, imported ones first, into one function:
``import`` lines and documentation fall away, ``export`` is taken off. That asks three things of the modules, to which
a test holds them: imports have the form ``import { a, b } from "./file.js";`` without renaming, exports stand before a
declaration, and no two modules declare the same name at top level.

The parts (`Table`, `Curves`, `Samples`, `Prose`) are rendered by the templates in ``templates/components``.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib.resources import files
from itertools import groupby
from typing import Any, ClassVar

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from catchline.explain.chunks import read_to
from catchline.explain.record import chunks_to_list, support_of, support_to_dict, to_dict
from catchline.types import Summary

UNREAD_SHOWN = 4000  # characters of the unread end of a document that are shown
MAX_HEAT_CELLS = 400_000  # larger heat maps would make the page heavy
_FRAME = 'style="width: 100%; height: 34em; border: 1px solid #8886; border-radius: 8px"'
References = Sequence[str | Sequence[str] | None]
Points = Sequence[tuple[float, float]]
WIDTH, HEIGHT = 640, 260  # of a chart
LEFT, RIGHT, TOP, BOTTOM = 52, 16, 14, 40
MAX_POINTS = 400  # of a line
_IMPORT = re.compile(r'^import \{(?:(?! as )[^}])*\} from "\./([\w.-]+)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:function|const|class)\b)", re.MULTILINE)
_COMMENT = re.compile(r"^[ \t]*/\*\*.*?\*/\n", re.MULTILINE | re.DOTALL)  # of a module or a declaration


# ------------------------------------------------------------------------------------- the line charts


def line_chart(series: Mapping[str, Points], *, x_label: str = "", y_label: str = "", title: str = "") -> Markup:
    """An SVG with one line a series (x, y); points that are not finite are left out."""
    lines = {name: _thin([p for p in points if all(map(math.isfinite, p))]) for name, points in series.items()}
    lines = {name: points for name, points in lines.items() if points}
    if not lines:
        return Markup('<p class="quiet">No points to draw.</p>')
    xs = [x for points in lines.values() for x, _ in points]
    ys = [y for points in lines.values() for _, y in points]
    x_ticks, y_ticks = ticks(min(xs), max(xs)), ticks(min(ys), max(ys))
    x_range, y_range = (min(xs), max(xs)), (min(*ys, y_ticks[0]), max(*ys, y_ticks[-1]))
    across = partial(_place, limits=x_range, start=LEFT, end=WIDTH - RIGHT)
    up = partial(_place, limits=y_range, start=HEIGHT - BOTTOM, end=TOP)
    out = [f'<svg class="chart" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escape(title or y_label)}">']
    for tick in y_ticks:
        y = up(tick)
        out.append(f'<line class="grid" x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}"/>')
        out.append(f'<text class="tick" x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{label(tick)}</text>')
    for tick in x_ticks:
        if x_range[0] <= tick <= x_range[1]:
            at = f'x="{across(tick):.1f}" y="{HEIGHT - BOTTOM + 16}"'
            out.append(f'<text class="tick" {at} text-anchor="middle">{label(tick)}</text>')
    for index, points in enumerate(lines.values()):
        path = " ".join(f"{across(x):.1f},{up(y):.1f}" for x, y in points)
        colour = f"s{index % 6}"
        out.append(f'<polyline class="line {colour}" points="{path}"/>')
        if len(points) < 30:
            dots = (pair.split(",") for pair in path.split())
            out += [f'<circle class="dot {colour}" cx="{x}" cy="{y}" r="2.5"/>' for x, y in dots]
    middle = (LEFT + WIDTH - RIGHT) / 2
    out.append(f'<text class="axis" x="{middle}" y="{HEIGHT - 6}" text-anchor="middle">{escape(x_label)}</text>')
    out.append(
        f'<text class="axis" transform="translate(12 {HEIGHT / 2}) rotate(-90)" text-anchor="middle">'
        f"{escape(y_label)}</text></svg>"
    )
    names = "".join(
        f'<span class="key"><i class="s{index % 6}"></i>{escape(name)}</span>' for index, name in enumerate(lines)
    )
    return Markup("".join(out) + (f'<p class="keys">{names}</p>' if len(lines) > 1 else ""))


def ticks(low: float, high: float, count: int = 5) -> list[float]:
    """About ``count`` round numbers from at or below ``low`` to at or above ``high``."""
    if high <= low:
        pad = abs(low) * 0.1 or 1.0
        low, high = low - pad, high + pad
    rough = (high - low) / count
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= rough * 0.999)
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return [round(i * step, 12) for i in range(first, last + 1)]


def label(value: float) -> str:
    """A tick's number: short, with thousands marked."""
    return f"{value / 1000:g}k" if abs(value) >= 10000 else f"{value:g}"


def _place(value: float, limits: tuple[float, float], start: float, end: float) -> float:
    low, high = limits
    return start + (end - start) * (0.5 if high <= low else (value - low) / (high - low))


def _thin(points: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Keep at most `MAX_POINTS` points, first and last among them."""
    if len(points) <= MAX_POINTS:
        return points
    step = (len(points) - 1) / (MAX_POINTS - 1)
    return [points[round(i * step)] for i in range(MAX_POINTS)]


# ------------------------------------------------------------------------------------- the sections


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of texts under column names; all columns but the first stand right."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""
    template: ClassVar[str] = "components/table.html"


@dataclass(frozen=True, slots=True)
class Curves:
    """Lines in the page's colours, which read well in light and dark: ``series`` maps a name to (x, y) points."""

    title: str
    series: Mapping[str, Points]
    x_label: str = ""
    y_label: str = ""
    note: str = ""
    template: ClassVar[str] = "components/curves.html"

    @property
    def svg(self) -> Markup:
        return line_chart(self.series, x_label=self.x_label, y_label=self.y_label, title=self.title)


@dataclass(frozen=True, slots=True)
class Prose:
    """Paragraphs, and lines of a command or a signature in ``code``."""

    title: str
    paragraphs: Sequence[str] = ()
    code: str = ""
    template: ClassVar[str] = "components/prose.html"


@dataclass(frozen=True, slots=True)
class Samples:
    """Summaries with their provenance; neighbours of the same document (several systems, or several hypotheses) share
    one panel. ``references[i]`` is the reference (or references) of ``summaries[i]``."""

    title: str
    summaries: Sequence[Summary]
    references: References | None = None
    note: str = ""
    template: ClassVar[str] = "components/samples.html"

    @property
    def groups(self) -> list[dict[str, Any]]:
        """The summaries by document, neighbours with the same document and id together; one without its document
        stands alone.

        Raises:
            ValueError: not as many references as summaries.
        """
        given: References = self.references if self.references is not None else [None] * len(self.summaries)
        if len(given) != len(self.summaries):
            raise ValueError(f"{len(given)} references for {len(self.summaries)} summaries")
        pairs = zip(self.summaries, given, strict=True)
        alike = groupby(pairs, lambda pair: (pair[0].document, pair[0].id) if pair[0].document else object())
        return [_group(list(members)) for _, members in alike]


Section = Table | Curves | Prose | Samples


# ------------------------------------------------------------------------------- one document's panel


def _data(group: Mapping[str, Any], charts_open: bool) -> Markup:
    """What the script needs, as JSON that cannot end the script element."""
    records = [_record(summary) for summary in group["summaries"]]
    return embed_json({"records": records, "more": group["left_out"], "charts_open": charts_open})


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


# ------------------------------------------------------------------------------------------ the pages


def render(
    summaries: Sequence[Summary], *, title: str = "Where the words came from", references: References | None = None
) -> str:
    """One page of these `Samples`: hover or focus a word and its sources light up, and the reverse."""
    return render_report(title, [Samples("", summaries, references)])


def render_report(title: str, sections: Sequence[Section], *, subtitle: str = "") -> str:
    """One page with these sections in order."""
    return _environment().get_template("page.html").render(title=title, subtitle=subtitle, sections=sections)


def notebook_view(summary: Summary) -> str:
    """One summary for a notebook: its page in a frame of its own, so that neither's style or script meets the other's.

    A summary without explanation is its text, and a word on how to get one.
    """
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
    """Text whose characters a browser keeps one for one: positions in it stay true.

    A parser of HTML reads a carriage return as a line feed (two characters as one, before a line feed) and drops
    the null character.
    """
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
    """Few characters in a page: four digits, and 0 for what they cannot show."""
    return [round(float(value), 4) or 0 for value in values]


# ------------------------------------------------------------------------------------ script and style


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
