"""``catchline teach``: pairs to train on, from texts that have no lines and a system that writes them."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from catchline.cli.io import Skipped, check_output, count_lines, documents_of, say
from catchline.cli.options import DocumentOptions, PromptOptions
from catchline.cli.summarize import write_lines
from catchline.data.records import write_records
from catchline.metrics.faithfulness import check_support
from catchline.summarizer.bulk import lines_of
from catchline.summarizer.summarize import Request
from catchline.types import Record


def command(
    teacher: Annotated[str, Argument(help="A system, such as openai:MODEL@http://host/v1.")],
    texts: Annotated[str, Argument(help="A file of records; their lines, if any, are not read.")],
    output: Annotated[Path, Option(help="Write pairs to this file of JSON lines, continuing a partial one.")],
    words: Annotated[str | None, Option(help="Limit the words of a line: 12, or 5-12.")] = None,
    *,
    prompting: PromptOptions,
    reading: DocumentOptions,
) -> None:
    """Let a system write lines for texts, and keep the pairs to train on.

    A line that is empty, or has a name, number or date that its text lacks, is left out. Read the provider's terms
    first: many forbid training other models on their output, or sharing such a model.
    """
    check_output("--output", output, [texts])
    skipped = Skipped()
    records = partial(documents_of, texts, reading)
    settings = prompting.settings([teacher], None) | ({"words": words} if words else {})
    request = Request(teacher, overrides=settings, skip_bad=True, always_write=True)
    lines = lines_of(request, None, False, skipped)

    def keep_pairs(draft: Path, output: Path) -> None:
        answers = [json.loads(line)["summary"] or "" for line in draft.read_text(encoding="utf-8").splitlines()]
        asked = list(records(on_skip=lambda _: None))
        both = [(one, line) for one, line in zip(asked, answers, strict=True) if line]
        kept = [(one, line) for one, line in both if not check_support(line, one.document).unsupported]
        write_records(draft, [Record(one.document, line, id=one.id) for one, line in kept])
        draft.replace(output)
        say(f"{len(kept)} pairs of {len(asked)} texts; {len(both) - len(kept)} lines name what their text lacks.")

    write_lines(lines, records(on_skip=skipped), output, count_lines([texts]), keep_pairs)
    skipped.report()
