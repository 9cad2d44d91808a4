"""``catchline card`` and ``catchline push``: what a model is, how it was made and how good it is; and a model to the
hub.

``push`` is the only command that sends anything.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shlex import quote
from typing import Annotated

from typer import Argument, Option

from catchline.cli.inputs import records_of, text_of
from catchline.cli.options import MaxRecords, ReadingOptions, Split, TrustCode
from catchline.cli.output import progress, say
from catchline.cli.own_data import scores
from catchline.config.schema import EvaluationConfig
from catchline.config.shipped import SHIPPED
from catchline.data.places import split_of
from catchline.errors import ConfigError
from catchline.evaluation.run import options_of
from catchline.evaluation.table import for_card
from catchline.metrics.card import ANYWHERE, FILE, README, Facts, model_card, write_card
from catchline.summarizer.extractive import is_method
from catchline.text.base import read_json
from catchline.text.control import safe_print as print

LANGUAGE = re.compile(r"[a-z]{2,3}(-[A-Za-z0-9]{2,8})*|multilingual")
OF_CATCHLINE = "\nlibrary_name: catchline\n"  # stands in every card that is made here
# what a card may lack, and the option that tells it
UNSAID = {"licence": "--license ID", "language": "--language CODE", "scores": "--data FILE"}


def command(
    model: Annotated[str, Argument(metavar="MODEL", help="Model or run folder.")],
    data: Annotated[
        str | None, Option(help="Score it on these pairs, beside the first sentence, and put the table in.")
    ] = None,
    split: Split = "validation",
    max_records: MaxRecords = None,
    licence: Annotated[
        str | None, Option("--license", metavar="ID", help="Licence of the model, such as apache-2.0.")
    ] = None,
    language: Annotated[
        list[str] | None, Option(metavar="CODE", help="Language of the texts, such as en; more than once.")
    ] = None,
    dataset: Annotated[
        list[str] | None, Option(metavar="NAME", help="Data set it was trained on; more than once.")
    ] = None,
    notes: Annotated[Path | None, Option(help="A file of Markdown about the data and the training.")] = None,
    limits: Annotated[Path | None, Option(help="A file of Markdown: what the model is not for.")] = None,
    *,
    reading: ReadingOptions,
    trust_code: TrustCode = False,
) -> None:
    """Print a model's card. With an option that says more about it, write it: README.md of the model folder.

    What was said before is kept. The card has metadata for the Hugging Face hub, with a model-index.
    """
    from catchline.models.folder import find_folder

    if is_method(model):
        raise ConfigError(f"{model} is an extractive method: it has no card.")
    for code in language or ():
        if not LANGUAGE.fullmatch(code):
            raise ConfigError(f"--language {code}: give a code such as en or pt-BR (ISO 639).")
    folder = find_folder(model)
    facts = Facts.of(folder)
    texts = {name: text_of(str(path)) for name, path in (("notes", notes), ("limits", limits)) if path}
    new = facts.changed(license=licence, language=language, datasets=dataset, **texts)
    if data is None and new == facts:
        print(model_card(folder, opened_as=model if model in SHIPPED else ANYWHERE), end="")
        return
    if model in SHIPPED or not Path(model).exists():
        raise ConfigError(f"{model} is not a folder of yours: copy it first, then write its card there.")
    if data is not None:
        path = split_of(data, split)
        records = records_of(path, reading.options(), max_records, some=True)
        with progress("Scoring", total=2 * len(records)) as bar:
            results = scores(model, records, options_of(EvaluationConfig()), bar.advance)
        new = new.with_scores(for_card(results, Path(data).name, split if path != data else ""))
    write_card(folder, new)
    print(f"{folder / README}, {folder / FILE}")
    said = {"licence": new.license, "language": new.language, "scores": new.scores}
    if missing := {what: option for what, option in UNSAID.items() if not said[what]}:
        command_line = f"catchline card {quote(model)} {' '.join(missing.values())}"
        say(f"It does not say its {' and '.join(missing)} yet: {command_line}")


@contextmanager
def card_follows(folder: Path) -> Iterator[None]:
    """The card of a model folder says what the block has changed; one that was written by hand stays."""
    path = folder / README
    text = path.read_text(encoding="utf-8") if path.is_file() else ""
    ours = OF_CATCHLINE in text  # a checkpoint of somebody else has a card of its own
    same = ours and text == model_card(folder)
    yield
    if same:
        write_card(folder)
    elif ours:
        say(f"{path} was changed by hand and stays as it is; `catchline card {quote(str(folder))}` prints the new one.")


def push(
    model: Annotated[str, Argument(metavar="MODEL", help="Model or run folder.")],
    name: Annotated[str, Argument(metavar="OWNER/NAME", help="What it is called on the hub.")],
    private: Annotated[bool, Option("--private", help="Nobody else shall see it.")] = False,
    trust_code: TrustCode = False,
) -> None:
    """Upload a model folder to the Hugging Face hub, as it is. It needs a token: `hf auth login`, or HF_TOKEN.

    Look at the folder's README.md before, which `catchline card` writes: it becomes the model's page.
    """
    from huggingface_hub import HfApi

    from catchline.models.folder import FILES, HUB_ID, find_folder, uploaded
    from catchline.runtime.folder import ENCODER, STEP
    from catchline.runtime.manifest import MANIFEST
    from catchline.summarizer import Summarizer

    if is_method(model):
        raise ConfigError(f"{model} is an extractive method: there is nothing to upload.")
    if not HUB_ID.fullmatch(name):
        raise ConfigError(f"'{name}' is no name on the hub; they are of the form owner/name.")
    summarizer, folder = Summarizer.from_pretrained(model), find_folder(model)
    if "catchline" not in read_json(folder / "config.json"):  # another's checkpoint is written in our format
        print(summarizer.push_to_hub(name, private=private))
        return

    def send(token: str) -> str:
        api = HfApi(token=token)
        api.create_repo(name, private=private, exist_ok=True)
        return api.upload_folder(repo_id=name, folder_path=folder, allow_patterns=[*FILES, ENCODER, STEP, MANIFEST])

    print(uploaded(name, send))
