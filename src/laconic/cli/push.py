"""``laconic push``: a model to the hub; the only command that sends anything."""

from __future__ import annotations

from typing import Annotated

import typer

from laconic.cli.options import TrustCode
from laconic.errors import ConfigError
from laconic.text.control import safe_print as print


def command(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="Model or run folder.")],
    name: Annotated[str, typer.Argument(metavar="OWNER/NAME", help="What it is called on the hub.")],
    private: Annotated[bool, typer.Option("--private", help="Nobody else shall see it.")] = False,
    trust_code: TrustCode = False,
) -> None:
    """Upload a model folder to the Hugging Face hub. It needs a token: `hf auth login`, or HF_TOKEN.

    Look at the folder's README.md before: it becomes the model's page.
    """
    from laconic.models.folder import HUB_ID
    from laconic.summarizer import Summarizer
    from laconic.systems.extractive import is_method

    if is_method(model):
        raise ConfigError(f"{model} is an extractive method: there is nothing to upload.")
    if not HUB_ID.fullmatch(name):
        raise ConfigError(f"'{name}' is no name on the hub; they are of the form owner/name.")
    print(Summarizer.from_pretrained(model).push_to_hub(name, private=private))
