"""A summary in the terminal: copied words in colour, the unknown word marked, a legend, and the sources.

Without colour (a pipe, or ``NO_COLOR``) a copied word stands in [brackets] and an unknown word in {braces}.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text
from rich.theme import Theme

from catchline.explain.chunks import read_to
from catchline.explain.provenance import GATES, ON_SPECIALS, SUMS, SYMBOLS, UNKNOWN
from catchline.explain.record import support_of
from catchline.text.control import harmless
from catchline.types import Summary, SummaryWord

STYLES = {"copied": "bold green", "unknown": "bold red reverse", "source": "cyan", "heading": "bold", "quiet": "dim"}
BRACKETS = {"copied": ("[", "]"), "unknown": ("{", "}")}  # where there is no colour
MAX_QUOTE = 30


def show(summary: Summary, console: Console, *, words: bool = False, document: bool = False) -> None:
    """Print the summary with its provenance; ``words`` lists every word with its sources, ``document`` prints the
    document with the copied-from places marked."""
    summary = _harmless(summary)
    colour = console.is_terminal and not console.no_color and console.color_system is not None
    parts: list[Any] = []
    if summary.model or summary.id:
        parts.append(Text(" · ".join(part for part in (summary.model, summary.id) if part), style="heading"))
    parts.append(marked_summary(summary, colour))
    parts += [Text(line, style="quiet") for line in (facts(summary), *support_lines(summary))]
    if summary.words:
        copied, unknown = (_marked("word", kind, colour) for kind in BRACKETS)
        between = (" copied from the document   word generated   ", "quiet")
        parts.append(Text.assemble(copied, between, unknown, (" not in the vocabulary", "quiet")))
    if document and summary.document:
        parts += ["", marked_document(summary, colour)]
    if summary.extracted:
        parts.append(Text(f"extracted from the document, because {summary.extracted}"))
    if words and summary.words and not summary.extracted:  # of which every word is its own source
        parts += ["", word_table(summary)]
    if words and any(word.tokens for word in summary.words):
        parts += ["", token_table(summary)]
    with console.use_theme(Theme(STYLES if colour else dict.fromkeys(STYLES, ""))):
        for part in parts:
            console.print(part)


def _kind(word: SummaryWord) -> str:
    return "unknown" if word.text in UNKNOWN else "copied" if word.copied else ""


def _marked(text: str, kind: str, colour: bool) -> Text:
    before, after = ("", "") if colour else BRACKETS.get(kind, ("", ""))
    return Text(f"{before}{text}{after}", style=kind)


def marked_summary(summary: Summary, colour: bool) -> Text:
    """The text of the summary, each word marked by where it came from."""
    text, position = Text(), 0
    for word in summary.words:
        text.append(summary.text[position : word.start])
        text.append(_marked(summary.text[word.start : word.end], _kind(word), colour))
        position = word.end
    return text.append(summary.text[position:])


def marked_document(summary: Summary, colour: bool) -> Text:
    """The document with the places that copied words came from marked, and the unread end dimmed."""
    spans = sorted({(span.start, span.end) for word in summary.words if word.copied for span in word.sources[:1]})
    text, position = Text(), 0
    for start, end in spans:
        if start < position:
            continue
        text.append(summary.document[position:start])
        text.append(_marked(summary.document[start:end], "copied", colour))
        position = end
    read = max(read_to(summary) or len(summary.document), position) if summary.truncated else len(summary.document)
    text.append(summary.document[position:read])
    if read < len(summary.document):
        text.append(f" ... ({len(summary.document) - read:,} more characters were not read)", style="dim")
    return text


def facts(summary: Summary) -> str:
    """One line: share of copied words, score, how much of the document was read."""
    parts = []
    if summary.words:
        copied = sum(word.copied for word in summary.words)
        parts.append(f"{copied} of {len(summary.words)} words copied")
    if summary.confidence is not None:
        parts.append(f"confidence {summary.confidence:.2f}")
    if summary.score or summary.log_prob:
        parts.append(f"score {summary.score:.3f}")
        parts.append(f"log-probability {summary.log_prob:.2f}")
    if summary.reading:
        parts.append(_chunks_read(summary.reading))
    if summary.tokens_given and (summary.truncated or not summary.reading):
        verb = "given" if summary.reading else "read"
        parts.append(f"{verb} {summary.tokens_read:,} of {summary.tokens_given:,} tokens")
    if not summary.finished:
        parts.append("cut at the longest length allowed")
    return ", ".join(parts)


def support_lines(summary: Summary) -> list[str]:
    """How many of the names, numbers and dates the document has, what it lacks, and the other words that it lacks."""
    report = support_of(summary)
    if report is None or not report.claims:
        return []
    lacking = "; ".join(f"{claim.text} ({claim.kind})" for claim in report.unsupported)
    total = sum(claim.kind != "word" for claim in report.claims)
    lines = ["no names, numbers or dates to compare with the document"]
    if total:
        lines = [f"{total - len(report.unsupported)} of {total} names, numbers and dates are in the document"]
        lines[0] += f"; not in it: {lacking}" if lacking else ""
    words = ", ".join(
        dict.fromkeys(claim.text for claim in report.claims if claim.source is None and claim.kind == "word")
    )
    return [*lines, *([f"other words that are not there: {words}"] if words else [])]


def _chunks_read(reading: Mapping[str, float]) -> str:
    """``read 6 of 250 chunks (240 of 10,000 words; 4 chunks for this summary)``."""
    chunks, there, words, given = (int(reading[n]) for n in ("chunks_read", "chunks", "words_read", "words"))
    own = int(reading.get("chunks_chosen", chunks))
    chosen = "" if own == chunks else f"; {own:,} chunk{'s' if own != 1 else ''} for this summary"
    return f"read {chunks:,} of {there:,} chunk{'s' if there != 1 else ''} ({words:,} of {given:,} words{chosen})"


def word_table(summary: Summary) -> Table:
    """A row a word: probability, p_gen, share copied, and where it was copied from, or what the model attended to;
    characters count from 1."""
    with_gate = any(word.p_gen is not None for word in summary.words)
    headings = ("P", *["p_gen"] * with_gate, "copied")
    table = _table("word", headings, ["from where: text @ its characters (weight)"])
    for word in summary.words:
        quotes = [_quote(span.text, span.start, span.end, span.weight) for span in word.sources]
        sources = Text("  ".join([*([] if word.copied or not quotes else ["attended to:"]), *quotes]))
        sources.stylize("source")
        gate = ["" if word.p_gen is None else f"{word.p_gen:.2f}"] * with_gate
        figures = _figure(word.probability), *gate, f"{word.copy_share:.0%}"
        table.add_row(Text(word.text, style=_kind(word)), *map(Text, figures), sources)
    return table


def token_table(summary: Summary) -> Table:
    """A row a token of a model that copies in several steps: gates, and the heaviest places of each distribution."""
    tokens = [token for word in summary.words for token in word.tokens]
    gates = [name for name in (*GATES, ON_SPECIALS, *SUMS) if any(name in token.figures for token in tokens)]
    maps = list(dict.fromkeys(name for token in tokens for name in token.sources))
    with_gate = any(token.p_gen is not None for token in tokens)
    headings = ("P", *["λ"] * with_gate, *(SYMBOLS[name] for name in gates))
    table = _table("token", headings, [Text(SYMBOLS.get(name, name)) for name in maps])
    for token in tokens:
        values = token.probability, *[token.p_gen] * with_gate, *map(token.figures.get, gates)
        places = [
            Text(
                "  ".join(f"{' '.join(span.text.split())} ({span.weight:.2f})" for span in token.sources.get(name, ()))
            )
            for name in maps
        ]
        style = "copied" if token.copy_share > 0.5 else ""
        table.add_row(Text(token.text, style=style), *(Text(_figure(value)) for value in values), *places)
    return table


def _table(first: str, figures: Iterable[str], texts: Iterable[str | Text]) -> Table:
    """A table without rows: figures stand right, texts may take several lines."""
    table = Table(box=None, pad_edge=False, header_style="heading", show_edge=False)
    table.add_column(first, overflow="fold")
    for heading in figures:
        table.add_column(heading, justify="right")
    for text in texts:
        table.add_column(text, overflow="fold")
    return table


def _figure(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:.2f}" if abs(value) >= 0.005 or value == 0 else f"{value:.0e}"


def _flat(text: str) -> str:
    return " ".join(text.split())


def _harmless(value: Any) -> Any:
    """The same record without control characters (each is replaced by one character: spans stay true)."""
    if isinstance(value, str):
        return harmless(value)
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{one.name: _harmless(getattr(value, one.name)) for one in fields(value)})
    if isinstance(value, Mapping):
        return {harmless(name): _harmless(part) for name, part in value.items()}
    if isinstance(value, tuple) and not isinstance(next(iter(value), 0), int | float):
        return tuple(map(_harmless, value))
    return value


def _quote(text: str, start: int, end: int, weight: float) -> str:
    flat = _flat(text)
    flat = flat if len(flat) <= MAX_QUOTE else flat[: MAX_QUOTE - 1] + "…"
    return f"{flat} @ {start + 1}-{end} ({weight:.2f})"
