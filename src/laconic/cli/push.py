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
    """Upload a model folder to the Hugging Face hub, as it is. It needs a token: `hf auth login`, or HF_TOKEN.

    Look at the folder's README.md before, which `laconic card` writes: it becomes the model's page.
    """
    from huggingface_hub import HfApi

    from laconic.models.folder import FILES, HUB_ID, find_folder, uploaded
    from laconic.runtime.folder import ENCODER, STEP
    from laconic.runtime.manifest import MANIFEST
    from laconic.summarizer import Summarizer
    from laconic.systems.extractive import is_method
    from laconic.text.base import read_json

    if is_method(model):
        raise ConfigError(f"{model} is an extractive method: there is nothing to upload.")
    if not HUB_ID.fullmatch(name):
        raise ConfigError(f"'{name}' is no name on the hub; they are of the form owner/name.")
    summarizer, folder = Summarizer.from_pretrained(model), find_folder(model)
    if "laconic" not in read_json(folder / "config.json"):  # another's checkpoint is written in our format
        print(summarizer.push_to_hub(name, private=private))
        return

    def send(token: str) -> str:
        api = HfApi(token=token)
        api.create_repo(name, private=private, exist_ok=True)
        return api.upload_folder(repo_id=name, folder_path=folder, allow_patterns=[*FILES, ENCODER, STEP, MANIFEST])

    print(uploaded(name, send))
