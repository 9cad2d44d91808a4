"""``catchline push``: a model to the hub. It is the only command that sends anything."""

from __future__ import annotations

from typing import Annotated

from typer import Argument, Option

from catchline.cli.options import TrustCode
from catchline.errors import ConfigError
from catchline.summarizer.extractive import is_method
from catchline.text.base import read_json
from catchline.text.control import safe_print as print


def command(
    model: Annotated[str, Argument(metavar="MODEL", help="Model or run folder.")],
    name: Annotated[str, Argument(metavar="OWNER/NAME", help="The name of the model on the hub.")],
    private: Annotated[bool, Option("--private", help="Make the model private.")] = False,
    trust_code: TrustCode = False,
) -> None:
    """Upload a model folder to the Hugging Face hub. It needs a token: `hf auth login`, or HF_TOKEN.

    Check the folder's README.md first: it becomes the model's page.
    """
    from huggingface_hub import HfApi

    from catchline.models.folder import FILES, HUB_ID, find_folder, uploaded
    from catchline.runtime.folder import ENCODER, STEP
    from catchline.runtime.manifest import MANIFEST
    from catchline.summarizer import Summarizer

    if is_method(model):
        raise ConfigError(f"{model} is an extractive method: there is nothing to upload.")
    if not HUB_ID.fullmatch(name):
        raise ConfigError(f"'{name}' is not a name on the hub; write owner/name.")
    summarizer, folder = Summarizer.from_pretrained(model), find_folder(model)
    if "catchline" not in read_json(folder / "config.json"):  # another's checkpoint is written in our format
        print(summarizer.push_to_hub(name, private=private))
        return

    def send(token: str) -> str:
        api = HfApi(token=token)
        api.create_repo(name, private=private, exist_ok=True)
        return api.upload_folder(repo_id=name, folder_path=folder, allow_patterns=[*FILES, ENCODER, STEP, MANIFEST])

    print(uploaded(name, send))
