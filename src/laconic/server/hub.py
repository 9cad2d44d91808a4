"""The hub's summarization task: its body and its names of parameters, in ours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from laconic.config.generation import length_options
from laconic.server.catalogue import Served
from laconic.server.problems import ProblemError
from laconic.server.schemas import HubParameters

_NAMES = {
    "max_length": "max_length",
    "max_new_tokens": "max_length",
    "min_length": "min_length",
    "min_new_tokens": "min_length",
    "num_beams": "beam_size",
    "num_return_sequences": "num_return",
    "no_repeat_ngram_size": "no_repeat_ngram",
    "early_stopping": "early_stopping",
}
_WITHOUT_EFFECT = {"clean_up_tokenization_spaces", "truncation", "return_text", "return_tensors", "use_cache"}


def options_of(parameters: HubParameters | None, served: Served) -> dict[str, Any]:
    """The options that the hub's parameters ask for. Names that are options of the model itself pass too.

    Raises:
        ProblemError: sampling, or a parameter without counterpart.
    """
    given = {} if parameters is None else parameters.model_dump(exclude_none=True)
    nested = given.pop("generate_parameters", {})
    options: dict[str, Any] = {}
    for name, value in {**given, **nested}.items():
        if value is None or name in _WITHOUT_EFFECT:
            continue
        options |= _option(name, value, served.options)
    return options


def _option(name: str, value: Any, known: Mapping[str, Any]) -> dict[str, Any]:
    if name == "do_sample":
        if value is False:
            return {}
        raise ProblemError("invalid_option", "This service does not sample; leave out do_sample.")
    if name == "length_penalty":
        if isinstance(value, int | float) and not isinstance(value, bool):
            return length_options(value)
        raise ProblemError("invalid_option", "length_penalty is a number.")
    ours = _NAMES.get(name, name)
    if not isinstance(value, bool | int | float | str):
        raise ProblemError("invalid_option", f"{name[:60]} is a number, a text, true or false.")
    if ours not in known and name in _NAMES:
        raise ProblemError("invalid_option", f"{name} has no meaning for an extractive method.")
    return {ours: value}
