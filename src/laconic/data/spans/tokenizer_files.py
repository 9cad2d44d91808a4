"""Where a tokenizer's file lies: in a folder, or on the hub."""

from __future__ import annotations

import hashlib
import logging
import re
from contextlib import suppress
from pathlib import Path

from huggingface_hub import hf_hub_download

from laconic.data.spans.settings import WORDS
from laconic.data.spans.units import WORD
from laconic.errors import ConfigError
from laconic.text.base import TOKENIZER_FILE

_HUB_ID = re.compile(r"[\w.\-]+/[\w.\-]+")


def find_tokenizer(name: str) -> Path | None:
    """The ``tokenizer.json`` of a folder (a model, a run, a tokenizer), a file or a hub id; None for ``words``.

    Raises:
        ConfigError: there is none.
    """
    if name == WORDS:
        return None
    place = Path(name).expanduser()
    if place.is_file():
        return place
    for folder in (place, place / "tokenizer", place / "model"):
        if (folder / TOKENIZER_FILE).is_file():
            return folder / TOKENIZER_FILE
    if place.is_dir() or not _HUB_ID.fullmatch(name):
        raise ConfigError(
            f"--tokenizer '{name}' is neither words, nor a folder with a {TOKENIZER_FILE}, nor a hub id (owner/name)."
        )
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)
    with suppress(Exception):  # what is here already is used as it is
        return Path(hf_hub_download(name, TOKENIZER_FILE, local_files_only=True))
    try:
        return Path(hf_hub_download(name, TOKENIZER_FILE))
    except Exception as error:  # the hub client's errors, httpx's and OSError have no common base
        reason = str(error).strip().split("\n")[0].split(". ")[0]
        raise ConfigError(
            f"The tokenizer {name} could not be loaded from the hub ({reason}); give a folder that holds it, or use "
            "--tokenizer words."
        ) from None


def fingerprint(path: Path | None) -> str:
    """Of the file's content; of the rule for words."""
    content = WORD.pattern.encode() if path is None else path.read_bytes()
    return hashlib.sha256(content).hexdigest()
