"""``catchline check``: which names, numbers and dates of a summary its document lacks."""

from __future__ import annotations

from typing import Annotated, Any

from typer import Argument

from catchline.cli.io import aligned, documents_of, read_once, stream_records
from catchline.cli.options import AsJson, DocumentOptions, ReadingOptions
from catchline.errors import ConfigError
from catchline.explain.record import support_to_dict
from catchline.metrics.faithfulness import SupportReport, check_support
from catchline.text.control import json_line
from catchline.text.control import safe_print as print
from catchline.types import Record


def command(
    summary: Annotated[
        str, Argument(metavar="SUMMARY|PAIRS", help="The text to check (- is stdin), or a data set of pairs.")
    ],
    document: Annotated[str | None, Argument(help="The document to check it against.")] = None,
    *,
    reading: ReadingOptions,
    as_json: AsJson = False,
) -> None:
    """Find the names, numbers and dates of a summary that its document lacks, whoever wrote it.

    Each claim has its place in both texts. What the document lacks may still be right.
    """
    if document is not None:
        read_once([summary, document])
        [written], [read] = (documents_of(name, DocumentOptions()) for name in (summary, document))
        report = check_support(written.document, read.document)
        pair = Record(read.document, written.document, id=written.id)
        print(_line(pair, report) if as_json else _of_one(read.document, report))
        return
    if summary == "-":
        raise ConfigError("Standard input is the text to check; name its document too: catchline check - DOCUMENT.")
    lacking = pairs = claims = missing = 0
    for number, record in enumerate(stream_records(summary, reading.options()), 1):
        report = check_support(record.summary, record.document)
        pairs, claims = pairs + 1, claims + sum(claim.kind != "word" for claim in report.claims)
        lacking, missing = lacking + bool(report.unsupported), missing + len(report.unsupported)
        if as_json:
            print(_line(record, report))
        elif report.unsupported:
            names = ", ".join(f"{claim.text} ({claim.kind})" for claim in report.unsupported)
            print(f"{record.id or number}: {names}")
    if not as_json:
        counted = f"{missing:,} of {claims:,} names, numbers and dates"
        print(f"{lacking:,} of {pairs:,} summaries lack support for {counted}.")


def _line(record: Record, report: SupportReport) -> str:
    values: dict[str, Any] = {"id": record.id} if record.id else {}
    return json_line({**values, "summary": record.summary, **support_to_dict(report)})


def _of_one(document: str, report: SupportReport) -> str:
    """A table of the claims, with what the document has in the place of each and where, and the verdict."""
    rows, claims = [], sum(claim.kind != "word" for claim in report.claims)
    for claim in report.claims:
        if claim.source is None:
            rows.append([claim.text, claim.kind, "no", "", ""])
        elif claim.kind != "word":
            found = " ".join(document[slice(*claim.source)].split())
            rows.append([claim.text, claim.kind, "yes", found, f"{claim.source[0]}-{claim.source[1]}"])
    if not rows:
        return "The summary has no name, number or date, and every word of it is in the document."
    verdict = f"{len(report.unsupported):,} of {claims:,} names, numbers and dates are not in the document."
    return f"{aligned(['summary', 'kind', 'in the document', 'as', 'at'], rows)}\n{verdict}"
