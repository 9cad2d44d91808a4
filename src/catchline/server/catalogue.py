"""What the service can use (the trained models it was started with, and every extractive method by its name), and the
options that requests may give it, in our words or in those of the hub's summarization task."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, StrictBool, StrictFloat, StrictInt, StrictStr, create_model

from catchline.config.base import ConfigBase, validate
from catchline.config.generation import length_options
from catchline.config.names import EXTRACTIVE
from catchline.config.schema import LengthConfig, SearchConfig
from catchline.errors import ConfigError, did_you_mean
from catchline.server.schemas import ModelInfo, OptionInfo, ProblemError
from catchline.server.settings import Settings
from catchline.summarizer import Summarizer
from catchline.summarizer.extractive import ExtractiveSystem, is_method
from catchline.text.normalization import encodable

# The decoding options a client may set. Scorers and model switches are left to the operator: they can name code.
SEARCH_OPTIONS = (
    *("beam_size", "num_return", "min_length", "max_length", "length_normalisation", "length_alpha"),
    *("no_repeat_ngram", "forbid_unk", "replace_unk"),
    *("finish", "unfinished", "early_stopping", "surface", "capitals"),
    *("min_length_share", "no_repeat_word", "faultless"),
    *LengthConfig.model_fields,
)
GREEDY = {"beam_size": 1, "num_return": 1, "shrink_beam": False}
HIDDEN_SETTINGS = {"stop_words"}  # may name a file of this machine
MAX_NUMBER = 1000.0  # of options that have no bound of their own
MAX_TEXT = 1000
# the hub's names of our options
HUB_NAMES = {
    **dict.fromkeys(("max_length", "max_new_tokens"), "max_length"),
    **dict.fromkeys(("min_length", "min_new_tokens"), "min_length"),
    "num_beams": "beam_size",
    "num_return_sequences": "num_return",
    "no_repeat_ngram_size": "no_repeat_ngram",
    "early_stopping": "early_stopping",
}
HUB_WITHOUT_EFFECT = {
    *("clean_up_tokenization_spaces", "truncation", "return_text", "return_tensors", "use_cache", "generate_parameters")
}


class Served:
    """One model or method by the name that requests use."""

    def __init__(self, name: str, system: Any, settings: Settings) -> None:
        self.name, self.system, self.about = name, system, system.about()
        defaults = system.options({})
        self.is_neural = isinstance(defaults, SearchConfig)
        self.kind = "neural" if self.is_neural else "extractive"
        if self.is_neural:
            beams, longest = settings.max_beam_size, settings.max_summary_tokens
            if defaults.beam_size > beams:
                system.set_defaults({"beam_size": beams})
            config: Any = system.options({})
            most: dict[str, float] = dict.fromkeys(("beam_size", "num_return"), beams)
            most |= dict.fromkeys(
                ("min_length", "max_length"), min(longest, self.about["max_summary_tokens"] or longest)
            )
            keys = list(SEARCH_OPTIONS)
        else:
            config, most = defaults.config, {}
            keys = [key for key in type(config).model_fields if key not in HIDDEN_SETTINGS]
        bounds = LengthConfig.model_json_schema()["properties"] if self.kind == "extractive" else {}
        schema = bounds | type(config).model_json_schema()["properties"]
        values = dict.fromkeys(bounds) | config.model_dump(mode="json")
        found = {key: _option(schema[key], values[key], most.get(key)) for key in (*keys, *(bounds.keys() - keys))}
        self.options = {key: info for key, info in found.items() if info is not None}
        self.accepts = _accepting(self.options)

    def parse(self, options: Mapping[str, Any], *, stream: bool = False) -> Any:
        """The system's own options.

        Raises:
            ProblemError: an option that does not exist here, or a value that does not fit.
        """
        values = {_short(name): value for name, value in options.items()}
        try:
            validate(self.accepts, values, where="")
            if stream and self.is_neural:
                if values.get("beam_size", 1) != 1 or values.get("num_return", 1) != 1:
                    raise ProblemError("invalid_option", "Streaming is greedy: leave out beam_size and num_return.")
                values |= GREEDY
            return self.system.options(values)
        except ConfigError as error:
            raise ProblemError("invalid_option", str(error)) from None

    def info(self, default: bool) -> ModelInfo:
        """The entry of ``GET /v1/models``."""
        here = {"name": self.name, "kind": self.kind, "streams": self.is_neural, "default": default}
        return ModelInfo.model_validate({**self.about, **here, "options": self.options})


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
        """The entry called ``name``, or the default.

        Raises:
            ProblemError: there is none.
        """
        wanted = self.default if name is None else name
        if wanted not in self._entries:
            meant = did_you_mean(wanted, self._entries)
            raise ProblemError("unknown_model", f"There is no model '{_short(wanted)}'.{meant} GET /v1/models has all.")
        return self._entries[wanted]


def open_models(places: Sequence[str], device: str) -> dict[str, Summarizer]:
    """Open ``FOLDER``, ``NAME=FOLDER``, hub ids and extractive methods, by the names they are served under.

    Raises:
        ConfigError: two have the same name.
        ModelError: nothing there, or damaged.
    """
    models: dict[str, Summarizer] = {}
    for place in places:
        given, equals, folder = place.partition("=")
        if Path(place).exists() or is_method(place) or not equals:
            given, folder = "", place
        summarizer = Summarizer.from_pretrained(folder, device=device)
        name = summarizer.name if folder == place else given
        problem = "Two models are called" if name in models else ""
        if name in EXTRACTIVE and summarizer.name != name:
            problem = "An extractive method is called"
        if not name or encodable(name) != name:
            problem = "A model cannot be called"
        if problem:
            raise ConfigError(f"{problem} {name!r}; give this model another name: NAME={folder}.")
        models[name] = summarizer
    return models


def _option(schema: Mapping[str, Any], value: Any, most: float | None) -> OptionInfo | None:
    """What JSON schema says of an option, whose largest value is ``most`` here; ``None`` for lists and other things
    that clients cannot set."""
    if "enum" in schema:
        return OptionInfo(type="string", default=value, choices=schema["enum"])
    kinds = [schema, *schema.get("anyOf", ())]
    described = next((kind for kind in kinds if kind.get("type") in ("integer", "number", "boolean", "string")), None)
    if described is None:
        return None
    kind = described["type"]
    low = described.get("minimum", described.get("exclusiveMinimum"))
    high = described.get("maximum", described.get("exclusiveMaximum")) if most is None else most
    if kind in ("integer", "number"):
        low, high = -MAX_NUMBER if low is None else low, MAX_NUMBER if high is None else high
    return OptionInfo(type=kind, default=value, minimum=low, maximum=high)


_TYPES: dict[str, Any] = {"integer": StrictInt, "number": StrictFloat, "boolean": StrictBool, "string": StrictStr}


def _accepting(options: Mapping[str, OptionInfo]) -> type[ConfigBase]:
    """What a request's options are checked with. Nothing is converted, so that bounds hold for what is used."""
    fields: dict[str, Any] = {}
    for name, info in options.items():
        kind = Literal[tuple(info.choices)] if info.choices else _TYPES[info.type]
        longest = MAX_TEXT if info.type == "string" and not info.choices else None
        fields[name] = (kind, Field(info.default, ge=info.minimum, le=info.maximum, max_length=longest))
    return create_model("Options", __base__=ConfigBase, __cls_kwargs__={"validate_default": False}, **fields)


def hub_options(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The options that the hub's parameters ask for; names of the model's options pass too.

    Raises:
        ProblemError: sampling, or a length penalty that is not a number.
    """
    more = parameters.get("generate_parameters") or {}
    given = {**parameters, **more} if isinstance(more, Mapping) else dict(parameters)
    if given.pop("do_sample", None) not in (None, False):
        raise ProblemError("invalid_option", "This service does not sample; leave out do_sample.")
    penalty, options = given.pop("length_penalty", None), dict[str, Any]()
    if penalty is not None:
        try:
            options = length_options(penalty)
        except (OverflowError, TypeError, ValueError):
            raise ProblemError("invalid_option", "length_penalty is no number, or one that is too large.") from None
    named = {HUB_NAMES.get(name, name): value for name, value in given.items() if name not in HUB_WITHOUT_EFFECT}
    return options | {name: value for name, value in named.items() if value is not None}


def _short(name: str) -> str:
    return name if len(name) <= 60 else name[:57] + "..."
