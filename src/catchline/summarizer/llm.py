"""A prompted language model behind OpenAI's interface as a system: ``openai:MODEL@http://host/v1``.

``prompt`` and ``examples`` name files, ``shots`` says how many pairs of the examples the prompt shows; all settings can
follow the name behind a question mark. The key is the environment's ``OPENAI_API_KEY``; it is never written anywhere.
"""

from __future__ import annotations

import json
import os
import re
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from http.client import HTTPException
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qsl

from pydantic import Field

from catchline.config.base import validate
from catchline.config.schema import LengthConfig
from catchline.data.records import read_records
from catchline.errors import ConfigError, DataError, ModelError
from catchline.files import digest_of
from catchline.search.scorers import Length
from catchline.summarizer.extractive import OnText, System
from catchline.summarizer.summarize import LANGUAGE_MODEL
from catchline.types import Record, Summary

PROMPT = "Write a title for the text. Answer with the title alone, in one line, without quotation marks."
_AT_ONCE, _TRIES, _PAUSE = 4, 5, 1.0  # requests; seconds before the second try, doubled each time
_LONGEST_PAUSE = 60.0  # seconds, where the server says how long to wait
LENGTHS = LengthConfig.model_fields
_AGAIN = {408, 409, 429, 500, 502, 503, 504}
_OF_DOCUMENT = {400, 413, 422}  # too long for the model, or refused
_NOT_SHOWN = re.compile(r"<think>.*?(?:</think>|$)|[\x00-\x1f\x7f-\x9f]", re.DOTALL)  # thoughts, control characters


class LanguageModelConfig(LengthConfig):
    """``prompt`` is the file of the system prompt, `PROMPT` if not given. The bounds of the length are said there too,
    and what is too long is cut."""

    prompt: str = ""
    examples: str = ""
    shots: int = Field(0, ge=0, le=100)
    temperature: float = Field(0.0, ge=0, le=2)
    max_tokens: int = Field(64, ge=1, le=4096)
    timeout: float = Field(120.0, gt=0)


class LanguageModelSystem(System):
    """A model of a server, asked once a document."""

    batch: ClassVar[int] = 2  # every line costs: few are lost with the server

    def __init__(self, name: str, settings: Mapping[str, Any] | None = None) -> None:
        model, at, rest = name.removeprefix(LANGUAGE_MODEL).rpartition("@http")
        address, _, query = rest.partition("?")
        if not (model and at and address.partition("://")[2]):
            raise ConfigError(f"'{name}' lacks a model or server: write {LANGUAGE_MODEL}MODEL@http://host/v1.")
        self.name, self._model, self._url = name, model, f"http{address.rstrip('/')}/chat/completions"
        self._given = dict(parse_qsl(query)) | dict(settings or {})
        self.options({})  # refuses what does not fit

    def options(self, overrides: Mapping[str, Any]) -> LanguageModelConfig:
        given = {key: _plain(value) for key, value in {**self._given, **overrides}.items()}
        return validate(LanguageModelConfig, given, where="")

    def set_defaults(self, overrides: Mapping[str, Any]) -> None:
        self._given |= overrides

    def describe(self, options: LanguageModelConfig) -> dict[str, Any]:
        named = {name: Path(path) for name in ("prompt", "examples") if (path := getattr(options, name))}
        files = {name: digest_of(path) for name, path in named.items() if path.is_file()}
        return {"model": self._model, "url": self._url, **options.model_dump(), "sha256": files}

    def about(self) -> dict[str, Any]:
        in_short = "A language model of another server, which is asked by a prompt."
        most = dict.fromkeys(("parameters", "max_source_tokens"), None)
        return {"family": "llm", "in_short": in_short, "copies": False, **most, "max_summary_tokens": 4096}

    def _messages(self, config: LanguageModelConfig) -> list[dict[str, str]]:
        """The prompt and the shots. Raises ConfigError: a file is missing, or there are fewer examples than shots."""
        try:
            prompt = Path(config.prompt).read_text(encoding="utf-8").strip() if config.prompt else PROMPT
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{config.prompt} cannot be read as a prompt ({error}).") from None
        asked = [f"{value} {name}" for name in LENGTHS if (value := getattr(config, name))]
        prompt += f" The title has at most {', '.join(asked)}." if asked else ""
        messages = [{"role": "system", "content": prompt}]
        if not config.shots:
            return messages
        if not config.examples:
            raise ConfigError("shots need pairs: name a file of them as examples, or give data with a split train.")
        pairs = list(islice(read_records(config.examples), config.shots))
        if len(pairs) < config.shots:
            raise ConfigError(f"{config.examples} has {len(pairs)} pairs, but shots is {config.shots}.")
        for pair in pairs:
            messages += [{"role": "user", "content": pair.document}, {"role": "assistant", "content": pair.summary}]
        return messages

    def summarize_batch(
        self,
        records: Sequence[Record],
        *,
        explain: bool | None,
        options: LanguageModelConfig,
        on_step: Callable[[], object] | None = None,
        on_text: OnText | None = None,
    ) -> list[Summary]:
        """Ask for a line of each document. ``on_step()`` is called before each. Raises ModelError: the server cannot be
        reached, or refuses; DataError: it refuses this document."""
        summaries, prompt, length = [], self._messages(options), Length.of(options)
        for index, record in enumerate(records):
            if on_step:
                on_step()
            answer = _NOT_SHOWN.sub(" ", self._answer(prompt, record, options))
            text = " ".join(answer.split()).strip("\"'“”")
            summary = Summary(text, id=record.id, model=self.name, document=record.document)
            summaries.append(length.cut(summary) if length else summary)
            if on_text:
                on_text(index, text)
        return summaries

    def _answer(self, prompt: list[dict[str, str]], record: Record, options: LanguageModelConfig) -> str:
        body = {
            "model": self._model,
            "messages": [*prompt, {"role": "user", "content": record.document}],
            "temperature": options.temperature,
            "max_tokens": options.max_tokens,
        }
        request = urllib.request.Request(self._url, json.dumps(body).encode(), {"Content-Type": "application/json"})
        if key := os.environ.get("OPENAI_API_KEY"):
            request.add_unredirected_header("Authorization", f"Bearer {key}")
        for attempt in range(_TRIES):
            pause = _PAUSE * 2**attempt
            try:
                with urllib.request.urlopen(request, timeout=options.timeout) as response:
                    return str(json.load(response)["choices"][0]["message"]["content"] or "")
            except urllib.error.HTTPError as error:
                said = " ".join(error.read()[:300].decode(errors="replace").split())
                reason, again = f"{error.code}: {said}", error.code in _AGAIN
                if error.code in _OF_DOCUMENT:
                    where = record.id or record.origin
                    raise DataError(f"{self._model} refused document {where} ({reason}).") from None
                if (asked := error.headers.get("Retry-After", "")).isdecimal():
                    pause = min(float(asked), _LONGEST_PAUSE)
            except (OSError, HTTPException) as error:
                reason, again = str(getattr(error, "reason", error)), True
            except (ValueError, LookupError, TypeError):
                reason, again = "not an answer of OpenAI's interface", False
            if not again or attempt == _TRIES - 1:
                break
            time.sleep(pause)
        raise ModelError(f"{self._url} gave no line ({reason}).")

    def batches_at_once(self, documents: int, options: LanguageModelConfig) -> int:
        """This many requests are open at a time."""
        return min(documents, _AT_ONCE)

    def documents_at_once(self, longest: str) -> int:
        return 1


def _plain(value: Any) -> Any:
    """A number that stands in an address as text."""
    try:
        return json.loads(value) if isinstance(value, str) else value
    except ValueError:
        return value
