"""Is a resolved run sound, its components included? Builds every component's configuration, no component."""

from __future__ import annotations

from laconic.config.names import (
    ATTENTIONS,
    COPY_HEADS,
    MODELS,
    OBJECTIVES,
    OPPONENTS,
    SCORERS,
    TOKENIZERS,
    Table,
    parse,
)
from laconic.config.schema import RunConfig
from laconic.config.section import Section

# The keys of a model's options that hold components themselves, and the tables these are named in, as far as a model
# does not name others in its `parts`.
PARTS = {"attention": ("attention", ATTENTIONS), "head": ("copy head", COPY_HEADS), "opponent": ("opponent", OPPONENTS)}


def check_run(run: RunConfig) -> dict[str, list[Section]]:
    """The validated ``Config`` of the model, its parts, the tokenizer, objectives and scorers ``run`` names.

    Raises:
        ConfigError: a component is unknown, or one of its options is.
    """
    model, config = parse("model", MODELS, run.model)
    parts: dict[str, tuple[str, Table]] = {**PARTS, **model.parts}
    return {
        "model": [config],
        "parts": [
            parse(*parts[key], value)[1]
            for key, value in run.model.items()
            if key in parts and isinstance(value, dict) and "type" in value
        ],
        "tokenizer": [parse("tokenizer", TOKENIZERS, run.text.tokenizer)[1]],
        "objectives": [parse("objective", OBJECTIVES, spec)[1] for spec in run.objectives],
        "scorers": [parse("scorer", SCORERS, spec)[1] for spec in run.search.scorers],
    }
