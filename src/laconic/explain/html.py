"""Self-contained HTML pages: where each word came from, and reports made of tables, curves and samples.

A page requests nothing from anywhere: style and script are inline, figures are data URIs. Every text of a
user is escaped by the template engine; the JSON for the script has ``<``, ``>`` and ``&`` as escapes, so a
document that holds ``</script>`` stays text.

The parts (`Table`, `Figure`, `Curves`, `Samples`, `Prose`) are rendered by the templates in
``templates/components`` and may be combined freely by `render_report`.
"""

from __future__ import annotations

import base64
import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, ClassVar

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from laconic.explain.charts import Points, gate_curve, line_chart
from laconic.explain.terminal import is_unknown
from laconic.types import Summary

UNREAD_SHOWN = 4000  # characters of the unread end of a document that are shown
MAX_HEAT_CELLS = 400_000  # larger heat maps would make the page heavy
References = Sequence[str | Sequence[str] | None]


# ------------------------------------------------------------------------------------- the sections


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under column names; numbers stand right, floats with two digits.

    In the columns that ``best`` names the largest number is marked.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    note: str = ""
    best: Sequence[str] = ()
    template: ClassVar[str] = "components/table.html"


@dataclass(frozen=True, slots=True)
class Figure:
    """A picture made elsewhere: SVG text or PNG bytes."""

    title: str
    image: str | bytes
    note: str = ""
    template: ClassVar[str] = "components/figure.html"

    @property
    def uri(self) -> str:
        """The picture as a data URI; scripts inside an SVG do not run there."""
        raw = self.image.encode() if isinstance(self.image, str) else self.image
        kind = "image/png" if raw.startswith(b"\x89PNG") else "image/svg+xml"
        return f"data:{kind};base64,{base64.b64encode(raw).decode()}"


@dataclass(frozen=True, slots=True)
class Curves:
    """Lines drawn by us in the page's colours: ``series`` maps a name to (x, y) points."""

    title: str
    series: Mapping[str, Points]
    x_label: str = ""
    y_label: str = ""
    note: str = ""
    template: ClassVar[str] = "components/curves.html"

    @property
    def svg(self) -> Markup:
        """The chart."""
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
    """Summaries with their provenance; neighbours of the same document share one panel.

    ``references[i]`` is the reference (or references) of ``summaries[i]``.
    """

    title: str
    summaries: Sequence[Summary]
    references: References | None = None
    note: str = ""
    template: ClassVar[str] = "components/samples.html"

    @property
    def groups(self) -> list[Group]:
        """The summaries by document."""
        return group_summaries(self.summaries, self.references)


Section = Table | Figure | Curves | Prose | Samples


# ------------------------------------------------------------------------------- one document's panel


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of the document; ``index`` is None where nothing can point."""

    text: str
    index: int | None


@dataclass(frozen=True, slots=True)
class Group:
    """A document, and the summaries that were made of it."""

    document_id: str
    pieces: Sequence[Piece]
    unread: str
    unread_more: int
    summaries: Sequence[Summary]
    references: Sequence[str]
    starts: Sequence[int] = field(default=())  # first character of each piece that has an index

    @property
    def data(self) -> Markup:
        """What the script needs, as JSON that cannot end the script element."""
        return embed_json([self._summary_data(summary) for summary in self.summaries])

    def _summary_data(self, summary: Summary) -> dict[str, Any]:
        cells = len(summary.words) * len(summary.source_offsets)
        with_attention = 0 < cells <= MAX_HEAT_CELLS and all(word.attention for word in summary.words)
        words = []
        for word in summary.words:
            values: dict[str, Any] = {
                "t": word.text,
                "p": _short(word.probability),
                "g": None if word.p_gen is None else _short(word.p_gen),
                "c": _short(word.copy_share),
                "k": "unknown" if is_unknown(word) else "copied" if word.copied else "generated",
                "s": [[self._touched(s.start, s.end), s.text[:80], _short(s.weight)] for s in word.sources],
            }
            if with_attention:
                values["a"] = [_short(weight) for weight in word.attention]
            words.append(values)
        offsets = summary.source_offsets if with_attention else ()
        return {"words": words, "columns": [self._touched(start, end)[:1] for start, end in offsets]}

    def _touched(self, start: int, end: int) -> list[int]:
        """The indices of the pieces within [start, end)."""
        return [i for i, at in _between(self.starts, start, end)]

    def words(self, summary: Summary) -> list[dict[str, Any]]:
        """The summary's text in order: words with their kind, and what stands between them."""
        parts: list[dict[str, Any]] = []
        position = 0
        for index, word in enumerate(summary.words):
            if word.start < position:
                continue
            parts.append({"text": summary.text[position : word.start], "kind": None})
            kind = "unknown" if is_unknown(word) else "copied" if word.copied else "generated"
            parts.append({"text": summary.text[word.start : word.end], "kind": kind, "index": index})
            position = word.end
        parts.append({"text": summary.text[position:], "kind": None})
        return [part for part in parts if part["text"]]

    def has_heat_map(self, summary: Summary) -> bool:
        """Are there weights to draw?"""
        cells = len(summary.words) * len(summary.source_offsets)
        return 0 < cells <= MAX_HEAT_CELLS and all(word.attention for word in summary.words)

    def gate(self, summary: Summary) -> Markup:
        """The p_gen curve, empty for models without copying."""
        return gate_curve(summary)


def group_summaries(summaries: Sequence[Summary], references: References | None = None) -> list[Group]:
    """Neighbours with the same document and id share a group.

    Raises:
        ValueError: not as many references as summaries.
    """
    given: References = references if references is not None else [None] * len(summaries)
    if len(given) != len(summaries):
        raise ValueError(f"{len(given)} references for {len(summaries)} summaries")
    groups: list[list[tuple[Summary, str | Sequence[str] | None]]] = []
    for summary, reference in zip(summaries, given, strict=True):
        same = groups and (groups[-1][0][0].document, groups[-1][0][0].id) == (summary.document, summary.id)
        if same and summary.document:
            groups[-1].append((summary, reference))
        else:
            groups.append([(summary, reference)])
    return [_group(members) for members in groups]


def _group(members: Sequence[tuple[Summary, str | Sequence[str] | None]]) -> Group:
    summaries = [summary for summary, _ in members]
    document = summaries[0].document
    spans = {span for summary in summaries for span in summary.source_offsets if span[1] > span[0]}
    spans |= {(source.start, source.end) for summary in summaries for word in summary.words for source in word.sources}
    pieces, starts, end = _pieces(document, spans)
    read_to = end if spans and all(summary.truncated for summary in summaries) else len(document)
    rest = document[end:read_to]
    unread = document[read_to:]
    texts: list[str] = []
    for _, reference in members:
        found = [reference] if isinstance(reference, str) else list(reference or ())
        texts += [text for text in found if text and text not in texts]
    return Group(
        document_id=summaries[0].id,
        pieces=[*pieces, Piece(rest, None)] if rest else pieces,
        unread=unread[:UNREAD_SHOWN],
        unread_more=max(0, len(unread) - UNREAD_SHOWN),
        summaries=summaries,
        references=texts,
        starts=starts,
    )


def _pieces(document: str, spans: set[tuple[int, int]]) -> tuple[list[Piece], list[int], int]:
    """Cut the document at every end of a span; pieces inside some span get an index."""
    edges = sorted({edge for span in spans for edge in span if 0 <= edge <= len(document)})
    covered_to, position = 0, 0
    pending = sorted(spans)
    pieces: list[Piece] = []
    starts: list[int] = []
    cursor = 0
    for start, end in itertools.pairwise(edges):
        while cursor < len(pending) and pending[cursor][0] <= start:
            covered_to = max(covered_to, pending[cursor][1])
            cursor += 1
        if covered_to < end:
            continue
        if position < start:
            pieces.append(Piece(document[position:start], None))
        pieces.append(Piece(document[start:end], len(starts)))
        starts.append(start)
        position = end
    return pieces, starts, position


def _between(starts: Sequence[int], low: int, high: int) -> list[tuple[int, int]]:
    from_index = _first_at_least(starts, low)
    found = []
    for index in range(from_index, len(starts)):
        if starts[index] >= high:
            break
        found.append((index, starts[index]))
    return found


def _first_at_least(values: Sequence[int], wanted: int) -> int:
    low, high = 0, len(values)
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if values[middle] < wanted else (low, middle)
    return low


# ------------------------------------------------------------------------------------------ the pages


def render(
    summaries: Sequence[Summary], *, title: str = "Where the words came from", references: References | None = None
) -> str:
    """One page for these summaries: hover or focus a word and its sources light up, and the reverse.

    Summaries of the same document that follow each other (several systems, or several hypotheses) share one
    panel. ``references[i]`` is shown beside ``summaries[i]``.
    """
    return render_report(title, [Samples("", summaries, references)])


def render_report(title: str, sections: Sequence[Section], *, subtitle: str = "") -> str:
    """One page with these sections in order."""
    return _environment().get_template("page.html").render(title=title, subtitle=subtitle, sections=sections)


def embed_json(value: Any) -> Markup:
    """JSON for a ``<script type="application/json">`` element: no character in it can end the element."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("laconic.explain"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["cell"] = _cell
    environment.filters["maxima"] = _maxima
    return environment


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:.2f}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _maxima(table: Table) -> dict[int, float]:
    """The largest number of each column that ``best`` names."""
    found: dict[int, float] = {}
    for index, column in enumerate(table.columns):
        numbers = [row[index] for row in table.rows if isinstance(row[index], (int, float))]
        if column in table.best and len(numbers) > 1:
            found[index] = max(numbers)
    return found


def _short(value: float) -> float:
    return round(float(value), 4)
