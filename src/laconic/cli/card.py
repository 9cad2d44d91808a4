"""``laconic card``: what a model is, how it was made and how good it is, as the hub shows it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from laconic.cli.inputs import records_of, split_of
from laconic.cli.options import MaxRecords, ReadingOptions, Split, TrustCode, with_groups
from laconic.cli.output import note, progress
from laconic.config.schema import EvaluationConfig
from laconic.config.shipped import SHIPPED
from laconic.errors import ConfigError
from laconic.text.control import safe_print as print


@with_groups
def command(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="Model or run folder.")],
    data: Annotated[
        str | None, typer.Option(help="Score it on these pairs, beside the first sentence, and put the table in.")
    ] = None,
    split: Split = "validation",
    max_records: MaxRecords = None,
    licence: Annotated[
        str | None, typer.Option("--license", metavar="ID", help="Licence of the model, such as apache-2.0.")
    ] = None,
    language: Annotated[
        list[str] | None, typer.Option(metavar="CODE", help="Language of the texts, such as en; more than once.")
    ] = None,
    dataset: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="Data set it was trained on; more than once.")
    ] = None,
    notes: Annotated[Path | None, typer.Option(help="A file of Markdown about the data and the training.")] = None,
    limits: Annotated[Path | None, typer.Option(help="A file of Markdown: what the model is not for.")] = None,
    *,
    reading: ReadingOptions,
    trust_code: TrustCode = False,
) -> None:
    """Print a model's card. With an option that says more about it, write it: README.md of the model folder.

    What was said before is kept. The card has metadata for the Hugging Face hub, with a model-index.
    """
    from laconic.metrics.card import ANYWHERE, FILE, README, Facts, model_card, write_card
    from laconic.models.folder import find_folder
    from laconic.systems.extractive import is_method

    if is_method(model):
        raise ConfigError(f"{model} is an extractive method: it has no card.")
    folder = find_folder(model)
    facts = Facts.of(folder)
    texts = {name: _text(path) for name, path in (("notes", notes), ("limits", limits)) if path}
    new = facts.changed(license=licence, language=language, datasets=dataset, **texts)
    if data is None and new == facts:
        print(model_card(folder, opened_as=model if model in SHIPPED else ANYWHERE), end="")
        return
    if model in SHIPPED or not Path(model).exists():
        raise ConfigError(f"{model} is not a folder of yours: copy it first, then write its card there.")
    if data is not None:
        from laconic.evaluation.run import options_of
        from laconic.study.tables import for_card
        from laconic.study.verdict import scores

        path = split_of(data, split)
        records = records_of(path, reading.options(), max_records, some=True)
        with progress("Scoring", total=2 * len(records)) as bar:
            results = scores(model, records, options_of(EvaluationConfig()), bar.advance)
        new = new.with_scores(for_card(results, Path(data).name, split if path != data else ""))
    write_card(folder, new)
    print(f"{folder / README}, {folder / FILE}")
    if missing := new.missing():
        note(f"It does not say everything yet: {', '.join(missing)}.", always=True)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise ConfigError(f"{path} is not UTF-8 text.") from None
