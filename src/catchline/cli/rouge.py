"""``catchline rouge``: score a file of summaries against one or several files of references."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from typer import Argument, Option

from catchline.cli.io import aligned, print_result, read_once, say, text_of
from catchline.cli.options import AsJson
from catchline.errors import DataError
from catchline.metrics.rouge import RougeResult, rouge

_NEWLINES = re.compile("\r\n|\r|\n")
_HYPOTHESIS_KEYS = ("hypothesis", "prediction", "summary", "text")
_REFERENCE_KEYS = ("references", "reference", "target", "summary", "text")
_PAIRED_HYPOTHESIS_KEYS = ("hypothesis", "prediction", "summary")
_PAIRED_REFERENCE_KEYS = ("references", "reference", "target")


@dataclass(frozen=True)
class ScoringOptions:
    """The options of `catchline.metrics.rouge.rouge`."""

    profile: Annotated[str, Option(help="Use rouge155, google, plain, unicode or characters.")] = "rouge155"
    stem: Annotated[bool | None, Option("--stem/--no-stem", help="Use Porter stemming (the tool's -m).")] = None
    exceptions: Annotated[
        bool | None, Option("--exceptions/--no-exceptions", help="Apply WordNet's irregular forms before stemming.")
    ] = None
    remove_stop_words: Annotated[bool, Option("--remove-stop-words", "-s", help="Drop SMART stop words.")] = False
    max_bytes: Annotated[int | None, Option("--bytes", "-b", help="Cut both sides at this number of bytes.")] = None
    multi: Annotated[str | None, Option("--multi", "-f", help="Combine references: average (A), best (B) or max.")] = (
        None
    )
    alpha: Annotated[float, Option("--alpha", "-p", help="Set the weight of precision in F.")] = 0.5
    interval: Annotated[bool, Option("--interval", help="Add the 95% bootstrap interval.")] = False


def command(
    hypotheses: Annotated[str, Argument(help="Summaries, one document per line, or JSON lines; - is stdin.")],
    references: Annotated[
        list[str] | None, Argument(help="References in the same form, one file each; JSON lines may have both sides.")
    ] = None,
    kinds: Annotated[str, Option(help="Choose kinds: 1 to 9, L, Lsum, separated by commas.")] = "1,2,L",
    *,
    scoring: ScoringOptions,
    separator: Annotated[str, Option(help="Set the sentence separator of a line for Lsum, such as <n>.")] = "",
    per_document: Annotated[bool, Option("--per-document", "-d", help="Print each document too.")] = False,
    as_json: AsJson = False,
) -> None:
    """Compute ROUGE without Perl: precision, recall and F, the flags of ROUGE-1.5.5, and a signature."""
    systems, models = read_both(hypotheses, references or [])
    if separator:
        systems = [text.replace(separator, "\n") for text in systems]
        models = [[text.replace(separator, "\n") for text in texts] for texts in models]
    wanted = [kind.strip() for kind in kinds.split(",") if kind.strip()]
    multi = {"A": "average", "B": "best"}.get(scoring.multi or "", scoring.multi)
    result = rouge(systems, models, kinds=wanted, **vars(scoring) | {"multi": multi})
    counts = result.counts
    if without := counts.wordless_hypotheses:
        say(f"{without} of {counts.documents} hypotheses have no word that this profile counts.")
    if counts.uncounted:
        say(counts.uncounted)
    print_result(as_json, result.as_dict(per_document), table(result, per_document))


def read_both(hypotheses: str, references: Sequence[str]) -> tuple[list[str], list[list[str]]]:
    """The texts of both sides, one entry a document."""
    read_once([hypotheses, *references])
    entries = _entries(hypotheses)
    if not references and not isinstance(entries[0], dict):
        raise DataError(f"There is nothing to compare {hypotheses} with: name a file of references as well.")
    written = _texts(hypotheses, entries, _HYPOTHESIS_KEYS if references else _PAIRED_HYPOTHESIS_KEYS)
    for number, texts in enumerate(written, 1):
        if len(texts) > 1:
            told = f"a system writes one text, not a list of {len(texts)}; join them."
            raise DataError(f"{hypotheses}, line {number}: {told}")
    systems = [text for (text,) in written]
    if not references:
        return systems, _texts(hypotheses, entries, _PAIRED_REFERENCE_KEYS)
    models: list[list[str]] = [[] for _ in systems]
    for name in references:
        others = _texts(name, _entries(name), _REFERENCE_KEYS)
        if len(others) != len(systems):
            raise DataError(
                f"{hypotheses} has {len(systems)} lines but {name} has {len(others)}; line n of each belongs to "
                "document n, so the numbers must be equal (sentences of one document go on one line)."
            )
        for own, texts in zip(models, others, strict=True):
            own.extend(texts)
    return systems, models


def _entries(name: str) -> list[Any]:
    """What each line holds: the line itself or, by the file's name or where the first line is an object, its JSON."""
    lines, entries = _NEWLINES.split(text_of(name).removesuffix("\n")), list[Any]()
    if lines == [""]:
        raise DataError(f"{name} is empty; it must have one document a line.")
    of_json = name.endswith((".jsonl", ".ndjson"))
    for number, line in enumerate(lines, 1):
        try:
            entries.append(json.loads(line))
        except (ValueError, RecursionError) as error:
            if not of_json:
                return lines
            raise DataError(f"{name}, line {number}: this is not JSON ({error}).") from None
        of_json = of_json or isinstance(entries[0], dict)
        if not of_json:
            return lines
    return entries


def _texts(name: str, entries: Sequence[Any], keys: Sequence[str]) -> list[list[str]]:
    """Of each entry the first of ``keys`` that it has, as a list of texts; a bare text is itself."""
    found = []
    for number, value in enumerate(entries, 1):
        where = f"{name}, line {number}"
        if isinstance(value, dict):
            key = next((key for key in keys if key in value), None)
            if key is None:
                raise DataError(f"{where}: there is no field {' or '.join(keys)}; it has {', '.join(value)}.")
            value = value[key]
        texts = [value] if isinstance(value, str) else value
        if not isinstance(texts, list) or not texts or not all(isinstance(text, str) for text in texts):
            raise DataError(f"{where}: a text or a list of texts is needed, not {json.dumps(value)[:60]}.")
        found.append(texts)
    return found


def table(result: RougeResult, per_document: bool) -> str:
    """Scores in percent, the interval of F where there is one, and the signature."""
    header = ["ROUGE", "P", "R", "F"]
    rows = [[kind, *(f"{100 * value:.2f}" for value in score)] for kind, score in result.mean.items()]
    if result.interval:
        header += ["F low", "F high"]
        for row, ends in zip(rows, result.interval.values(), strict=True):
            row.extend(f"{100 * end.f:.2f}" for end in ends)
    parts = [aligned(header, rows)]
    if per_document:
        kinds = list(result.per_document)
        titles = ["document", *(f"{kind}-{letter}" for kind in kinds for letter in "PRF")]
        lines = [
            [str(number), *(f"{value:.5f}" for score in scores for value in score)]
            for number, scores in enumerate(zip(*result.per_document.values(), strict=True), 1)
        ]
        parts.append(aligned(titles, lines))
    return "\n\n".join([*parts, result.signature])
