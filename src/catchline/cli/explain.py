"""``catchline explain``: where each word of a summary came from, in the terminal, as HTML or as JSON."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from catchline.cli.io import (
    Skipped,
    check_output,
    documents_of,
    is_records,
    model_and_inputs,
    print_json,
    say,
    show_summaries,
)
from catchline.cli.options import DecodingOptions, Device, DocumentOptions, TrustCode, check_picture
from catchline.data.lines import BadRecordError, check_text, raw_lines, text_lines
from catchline.errors import ConfigError, DataError
from catchline.explain.record import from_dict, support_of, support_to_dict, to_dict
from catchline.files import write_text
from catchline.summarizer import Summarizer
from catchline.summarizer.extractive import is_method
from catchline.types import Record, Summary

STORED = "stored"


def command(
    model: Annotated[
        str | None,
        Argument(
            metavar="[MODEL_OR_METHOD]",
            help="Model or run folder, hub id, extractive method; 'stored': show the file's own summaries; the bundled "
            "model (oneline) if left out.",
        ),
    ] = None,
    source: Annotated[
        str | None, Argument(metavar="[FILE|-]", help="A text, a file of records, or results of summarize; -: stdin.")
    ] = None,
    html: Annotated[Path | None, Option(help="Write a self-contained page.")] = None,
    heatmap: Annotated[
        Path | None, Option(help="Draw the first summary's attention, over chunks if it has any (PNG).")
    ] = None,
    as_json: Annotated[bool, Option("--json", help="Print JSON lines.")] = False,
    document: Annotated[bool, Option("--document", help="Print the document with the copied words marked.")] = False,
    also: Annotated[list[str] | None, Option("--with", metavar="MODEL", help="Add another system.")] = None,
    *,
    decoding: DecodingOptions,
    max_records: Annotated[int, Option(min=1, help="Explain at most this many records of a file.")] = 20,
    reading: DocumentOptions,
    device: Device = "cpu",
    trust_code: TrustCode = False,
) -> None:
    """Show where each word of a summary came from.

    `catchline summarize MODEL data.jsonl --explain --output out.jsonl` stores explanations, and
    `catchline explain stored out.jsonl --html page.html` shows them again without the model.
    """
    model, inputs = model_and_inputs([name for name in (model, source) if name is not None])
    if len(inputs) > 1:
        raise ConfigError(f"{inputs[0]} and {inputs[1]} are both inputs; explain shows one.")
    source = inputs[0] if inputs else "-"
    check_output("--html", html, [source])
    if heatmap is not None:
        check_picture(heatmap, [".png"])
        check_output("--heatmap", heatmap, [])
    if model == STORED:
        if also or decoding != DecodingOptions():
            raise ConfigError("'stored' shows a file's summaries without decoding; leave out --with and similar.")
        summaries = _first(stored(source, max_records + 1), max_records)
        references: list[Any] = [None] * len(summaries)
    else:
        names = [model, *(also or [])]
        systems = [(name, {} if is_method(name) and also else decoding.settings(name)) for name in names]
        skipped = Skipped()
        records = list(islice(documents_of(source, reading, on_skip=skipped), max_records + 1))
        skipped.report()
        summaries, references = explained(_first(records, max_records), systems, device, decoding.always_write)
    if html is not None:
        write_page(html, summaries, references)
    if heatmap is not None:
        write_heatmap(heatmap, summaries)
    if as_json:
        for summary in summaries:
            report = support_of(summary)
            support = {} if report is None else {"support": support_to_dict(report)}
            print_json(to_dict(summary) | support, indent=None)
    elif html is None and heatmap is None:
        show_summaries(summaries, document=document)


def _first(found: list[Any], most: int) -> list[Any]:
    if len(found) > most:
        say(f"showing the first {most} records; --max-records shows more.")
    return found[:most]


def explained(
    records: list[Record], systems: list[tuple[str, dict[str, Any]]], device: str, always_write: bool
) -> tuple[list[Summary], list[Any]]:
    """The summaries of each record by each system with its settings, record by record; and the references beside."""
    columns: list[list[Summary]] = []
    for name, settings in systems:
        summarizer = Summarizer.from_pretrained(name, device=device)
        columns.append(summarizer.summarize(records, explain=True, always_write=always_write, **settings))
    summaries = [summary for row in zip(*columns, strict=True) for summary in row]
    given = [record.references or ((record.summary,) if record.summary else ()) for record in records]
    return summaries, [references for references in given for _ in systems]


def stored(source: str, max_records: int) -> list[Summary]:
    """Summaries that `catchline summarize --explain` wrote."""
    if not is_records(source):
        raise ConfigError("'stored' needs a .jsonl file that `catchline summarize --explain` wrote.")
    summaries: list[Summary] = []
    for number, line in text_lines(raw_lines(Path(source))):
        if len(summaries) == max_records:
            break
        if not line.strip():
            continue
        try:
            values = json.loads(line)
            check_text(f"{source}:{number}", json.dumps(values, ensure_ascii=False))
            if values.get("summary", "") is not None:  # null: a record that was skipped
                summaries.append(from_dict(values))
        except BadRecordError:
            raise
        except (ValueError, AttributeError, RecursionError):
            raise DataError(f"{source}:{number} is not a stored summary.") from None
        except DataError as error:
            raise DataError(f"{source}:{number}: {error}") from None
    return summaries


def write_page(path: Path, summaries: list[Summary], references: list[Any]) -> None:
    """Write the page beside and rename it."""
    from catchline.explain.html import render

    names = list(dict.fromkeys(summary.model for summary in summaries if summary.model))
    title = f"Where the words came from: {', '.join(names)}" if names else "Where the words came from"
    write_text(path, render(summaries, title=title, references=references))
    say(f"{path} shows {len(summaries)} summar{'y' if len(summaries) == 1 else 'ies'}.")


def write_heatmap(path: Path, summaries: list[Summary]) -> None:
    """Draw the first summary: its words by the chunks of the document, or by its words where it has no chunks."""
    import numpy as np

    from catchline.explain.chunks import coarse_map
    from catchline.explain.pictures import MAX_COLUMNS, HeatMap, draw_png

    first = summaries[0] if summaries else None
    if first and first.extracted and first.alternatives[0].words:
        say(f"the picture shows the model's line; the answer is extracted, because {first.extracted}.")
        first = first.alternatives[0]
    if first is None or not first.words:
        hint = "; `catchline summarize --explain` stores them" if first and first.text else ""
        raise DataError(f"The first summary has no words, so there is nothing to draw{hint}.")
    if not (first.chunks or first.words[0].attention):
        raise DataError("There is no attention to draw: this system has none.")
    if first.chunks:
        weights, rows, columns = coarse_map(first, MAX_COLUMNS)
        title = f"Coarse attention, {len(columns)} of {len(first.chunks)} chunks"
        entropy = first.reading.get("coarse_entropy")
        numbers = "" if entropy is None else f"coarse entropy {entropy:.2f} nats a token"
        maps = [HeatMap(title, weights, rows, columns, numbers)]
    else:
        rows = [word.text for word in first.words]
        marks = ["(start)", *["(end)"] * len(first.source_offsets)]  # special tokens have no characters
        columns = [first.document[a:b] or mark for (a, b), mark in zip(first.source_offsets, marks, strict=False)]
        named = {"attention": [word.attention for word in first.words]}
        named |= {name: [word.maps[name] for word in first.words] for name in first.words[0].maps}
        maps = [HeatMap(name, np.array(values), rows, columns) for name, values in named.items()]
    for remark in draw_png(maps, path):
        say(remark)
    say(f"{path} shows the first summary.")
