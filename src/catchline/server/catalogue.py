"""What the service can use (the trained models it was started with, and every extractive method by its name), and the
options that requests may give it, in our words or in those of the hub's summarization task."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from catchline.config.names import EXTRACTIVE
from catchline.config.schema import LengthConfig, SearchConfig
from catchline.errors import ConfigError, did_you_mean, unknown_choice
from catchline.server.schemas import ProblemError, Settings
from catchline.summarizer import Summarizer
from catchline.summarizer.extractive import ExtractiveSystem, is_method
from catchline.text.normalization import encodable

# The decoding options a client may set. Scorers and model switches are left to the operator: they can name code.
SEARCH_OPTIONS = (
    *("beam_size", "num_return", "min_length", "min_length_share", "max_length", "length_normalisation"),
    *("length_alpha", "no_repeat_ngram", "no_repeat_word", "forbid_unk", "replace_unk", "finish", "unfinished"),
    *("early_stopping", "surface", "capitals", "faultless", "long"),
)
GREEDY = {"beam_size": 1, "num_return": 1, "shrink_beam": False}
HIDDEN_SETTINGS = {"stop_words", "prompt", "examples", "shots", "timeout"}  # which may name a file of this machine
MAX_NUMBER = 1000.0  # of options that have no bound of their own
# the hub's names of our options
HUB_NAMES = {
    **{"max_new_tokens": "max_length", "min_new_tokens": "min_length", "num_beams": "beam_size"},
    **{"num_return_sequences": "num_return", "no_repeat_ngram_size": "no_repeat_ngram"},
}
HUB_WITHOUT_EFFECT = {
    *("clean_up_tokenization_spaces", "truncation", "return_text", "return_tensors", "use_cache", "generate_parameters")
}


class Served:
    """One model or method by the name that requests use."""

    def __init__(self, name: str, system: Any, settings: Settings) -> None:
        self.name, self.system, self.about = name, system, system.about()
        config, most = system.options({}), dict[str, float]()
        self.is_neural = isinstance(config, SearchConfig)
        self.kind = "neural" if self.is_neural else "prompted" if self.about["family"] == "llm" else "extractive"
        if self.is_neural:
            beams, longest = settings.max_beam_size, settings.max_summary_tokens
            if config.beam_size > beams:
                system.set_defaults({"beam_size": beams})
                config = system.options({})
            longest = min(longest, self.about["max_summary_tokens"] or longest)
            most = {"beam_size": beams, "num_return": beams, "min_length": longest, "max_length": longest}
            keys: Iterable[str] = SEARCH_OPTIONS
        else:
            config = getattr(config, "config", config)
            keys = (key for key in type(config).model_fields if key not in HIDDEN_SETTINGS)
        lengths = LengthConfig.model_json_schema()["properties"]  # which every system heeds
        schema = lengths | type(config).model_json_schema()["properties"]
        values = dict.fromkeys(lengths) | config.model_dump(mode="json")
        infos = {key: _option(schema[key], values[key], most.get(key)) for key in dict.fromkeys([*keys, *lengths])}
        self.options = {key: info for key, info in infos.items() if info}

    def parse(self, options: Mapping[str, Any], *, stream: bool = False) -> Any:
        """The system's own options. Raises ProblemError: an option that does not exist here, or a value that does not
        fit."""
        values = dict(options)
        for name, value in values.items():
            if (info := self.options.get(name)) is None:
                raise ProblemError("invalid_option", unknown_choice("option", name, self.options))
            if "minimum" in info:
                low, high = info["minimum"], info["maximum"]
                if not isinstance(value, int | float) or not low <= value <= high:
                    raise ProblemError("invalid_option", f"'{name}' takes a number from {low:g} to {high:g}.")
        if stream and self.is_neural:
            if values.get("beam_size", 1) != 1 or values.get("num_return", 1) != 1:
                raise ProblemError("invalid_option", "Streaming is greedy: leave out beam_size and num_return.")
            values |= GREEDY
        try:
            return self.system.options(values)
        except ConfigError as error:
            raise ProblemError("invalid_option", str(error)) from None

    def info(self, default: bool) -> dict[str, Any]:
        """The entry of ``GET /v1/models``."""
        here = {"name": self.name, "kind": self.kind, "streams": self.is_neural, "default": default}
        return {**self.about, **here, "options": self.options}


class Catalogue:
    """Everything by name; ``default`` answers requests that name nothing."""

    def __init__(self, models: Mapping[str, Summarizer], settings: Settings) -> None:
        if not models:
            raise ConfigError("Name at least one model or extractive method to serve.")
        self._entries = {name: Served(name, given.system, settings) for name, given in models.items()}
        for name in sorted(set(EXTRACTIVE) - set(self._entries)):
            with suppress(ConfigError):  # it needs a package that is not installed
                if not (method := ExtractiveSystem(name)).needs_reference:
                    self._entries[name] = Served(name, method, settings)
        self.default = next(iter(models))

    def __iter__(self) -> Iterator[Served]:
        return iter(self._entries.values())

    def get(self, name: str | None) -> Served:
        """The entry called ``name``, or the default. Raises ProblemError: there is none."""
        wanted = self.default if name is None else name
        if wanted not in self._entries:
            meant = did_you_mean(wanted, self._entries)
            raise ProblemError("unknown_model", f"There is no model '{wanted[:60]}'.{meant} GET /v1/models has all.")
        return self._entries[wanted]


def open_models(places: Sequence[str], device: str) -> dict[str, Summarizer]:
    """Open ``FOLDER``, ``NAME=FOLDER``, hub ids and extractive methods, by the names they are served under. Raises
    ConfigError: two have the same name; ModelError: nothing there, or damaged."""
    models: dict[str, Summarizer] = {}
    for place in places:
        given, equals, folder = place.partition("=")
        if Path(place).exists() or is_method(place) or not equals:
            given, folder = "", place
        summarizer = Summarizer.from_pretrained(folder, device=device)
        name = summarizer.name if folder == place else given
        if name in models or (name in EXTRACTIVE and summarizer.name != name) or not name or encodable(name) != name:
            raise ConfigError(f"Two models or methods have the name {name!r}; rename this one: NAME={folder}.")
        models[name] = summarizer
    return models


def _option(schema: Mapping[str, Any], value: Any, most: float | None) -> dict[str, Any]:
    """What JSON schema says of an option, whose largest value is ``most`` here; nothing of lists and other things that
    clients cannot set."""
    if "enum" in schema:
        return {"type": "string", "default": value, "choices": schema["enum"]}
    for kind in (schema, *schema.get("anyOf", ())):
        if kind.get("type") in ("boolean", "string"):
            return {"type": kind["type"], "default": value}
        if kind.get("type") in ("integer", "number"):
            low = kind.get("minimum", kind.get("exclusiveMinimum", -MAX_NUMBER))
            high = kind.get("maximum", kind.get("exclusiveMaximum", MAX_NUMBER)) if most is None else most
            return {"type": kind["type"], "default": value, "minimum": low, "maximum": high}
    return {}


def hub_options(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The options that the hub's parameters ask for; names of the model's options pass too. Raises ProblemError:
    sampling."""
    more = parameters.get("generate_parameters")
    given = {**parameters, **(more if isinstance(more, Mapping) else {})}
    if given.pop("do_sample", None):
        raise ProblemError("invalid_option", "This service does not sample; leave out do_sample.")
    named = {HUB_NAMES.get(name, name): value for name, value in given.items() if name not in HUB_WITHOUT_EFFECT}
    return {name: value for name, value in named.items() if value is not None}
