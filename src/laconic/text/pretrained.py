"""A tokenizer that somebody else trained: the ``tokenizer.json`` of a hub checkpoint."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from laconic.config.section import Section
from laconic.errors import ConfigError, ModelError
from laconic.text.base import CONFIG_FILE, TOKENIZER_FILE, Tokenizer, read_backend, read_json
from laconic.text.detokenize import Detokenized, groups_by_mark, join_with

_PROBE = "a"
_NAMES = {  # our role: (key of config.json, key of tokenizer_config.json, usual strings)
    "pad": ("pad_token_id", "pad_token", ("<pad>", "[PAD]")),
    "unk": ("unk_token_id", "unk_token", ("<unk>", "[UNK]")),
    "bos": ("bos_token_id", "bos_token", ("<s>", "[CLS]")),
    "eos": ("eos_token_id", "eos_token", ("</s>", "[SEP]")),
}


class PretrainedTokenizer(Tokenizer):
    """The ids, special tokens and templates of a checkpoint, with our offsets and word groups.

    ``path`` is a folder with a ``tokenizer.json`` (and the ``config.json`` or ``tokenizer_config.json`` that
    say which ids are special) or the file itself.
    """

    class Config(Section):
        """``decoder_start_id`` overrides what the checkpoint's ``config.json`` says."""

        path: str
        decoder_start_id: int | None = None

    name = "pretrained"
    config: Config

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        path = Path(config.path)
        folder = path if path.is_dir() else path.parent
        self._set_backend(read_backend(folder / TOKENIZER_FILE if path.is_dir() else path))
        model = _optional_json(folder / "config.json")
        described = _optional_json(folder / CONFIG_FILE)
        special = _optional_json(folder / "special_tokens_map.json")
        self._described = {key: value for key, value in (special | described).items() if key != "laconic"}
        ids = {role: self._special_id(role, model) for role in _NAMES}
        if ids["eos"] is None:
            raise ModelError(f"{path}: neither the files beside it nor its vocabulary say which token ends a text.")
        self.eos_id = ids["eos"]
        self.bos_id = self.eos_id if ids["bos"] is None else ids["bos"]
        self.pad_id = self.eos_id if ids["pad"] is None else ids["pad"]
        self.unk_id = self.pad_id if ids["unk"] is None else ids["unk"]
        stored = (described.get("laconic") or {}).get("decoder_start_id")
        start = (config.decoder_start_id, model.get("decoder_start_token_id"), stored, self.bos_id)
        self._decoder_start_id = int(next(value for value in start if value is not None))

    def _special_id(self, role: str, model: dict[str, Any]) -> int | None:
        id_key, token_key, usual = _NAMES[role]
        named = self._described.get(token_key)
        named = named.get("content") if isinstance(named, dict) else named
        for token in (named, *usual):
            if isinstance(token, str) and (found := self.token_id(token)) is not None:
                return found
        value = model.get(id_key)
        return value if isinstance(value, int) else None

    @property
    def decoder_start_id(self) -> int:
        return self._decoder_start_id

    @property
    def special_ids(self) -> frozenset[int]:
        return super().special_ids | {self._decoder_start_id}

    @cached_property
    def _template(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        plain = self.backend.encode(_PROBE, add_special_tokens=False).ids
        full = self.backend.encode(_PROBE, add_special_tokens=True).ids
        for start in range(len(full) - len(plain) + 1):
            if full[start : start + len(plain)] == plain:
                return tuple(full[:start]), tuple(full[start + len(plain) :])
        return (), (self.eos_id,)

    @property
    def prefix_ids(self) -> tuple[int, ...]:
        return self._template[0]

    @property
    def suffix_ids(self) -> tuple[int, ...]:
        return self._template[1]

    @property
    def target_prefix_ids(self) -> tuple[int, ...]:
        return self._template[0]

    def train(self, texts: Iterable[str]) -> None:
        """Refuse: the vocabulary belongs to the checkpoint."""
        raise ConfigError("A pretrained tokenizer is not trained; choose type word, bpe or character instead.")

    def _finish(self, text: str, ids: list[int], tokens: list[str], offsets: list[tuple[int, int]]) -> None:
        for index, (start, end) in enumerate(offsets):
            if start < end and (text[start].isspace() or text[end - 1].isspace()):
                while start < end and text[start].isspace():
                    start += 1
                while end > start and text[end - 1].isspace():
                    end -= 1
                offsets[index] = (start, end)

    def _join(self, tokens: Sequence[str]) -> Detokenized:
        decoder = self.backend.decoder
        if decoder is None:
            return join_with(lambda some: " ".join(some), tokens)
        return join_with(lambda some: decoder.decode(some).strip(), tokens)

    def word_groups(self, tokens: Sequence[str]) -> list[list[int]]:
        pieces = any(token.startswith("##") for token in self._tokens)
        return groups_by_mark(tokens, _piece_starts_word if pieces else _marked_starts_word)

    def word_key(self, tokens: Sequence[str], written: str) -> str:
        return written.strip().lower()

    def _hub_config(self) -> dict[str, Any]:
        return {"tokenizer_class": "PreTrainedTokenizerFast"} | self._described

    def save(self, folder: str | Path) -> None:
        """Write the tokenizer; the decoder's first token is stored with it."""
        super().save(folder)
        path = Path(folder) / CONFIG_FILE
        config = read_json(path)
        described = {"type": self.name, "path": ".", "decoder_start_id": self._decoder_start_id}
        config["laconic"] = self._described_config() | described
        path.write_text(json.dumps(config, ensure_ascii=False, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def _optional_json(path: Path) -> dict[str, Any]:
    return read_json(path) if path.is_file() else {}


def _marked_starts_word(previous: str, token: str) -> bool:
    """Byte-level (``Ġ``) and sentence-piece (``▁``) vocabularies mark the first piece of a word."""
    if token.startswith(("Ġ", "▁", "Ċ")):
        return True
    return not (_wordlike(previous[-1:]) and _wordlike(token[:1]))


def _wordlike(character: str) -> bool:
    return character.isalnum() or character in "ĠĊ" or character >= "\x80"


def _piece_starts_word(previous: str, token: str) -> bool:
    return not token.startswith("##")
