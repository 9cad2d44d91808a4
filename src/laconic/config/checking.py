"""Is a resolved run sound, its components included? Builds every component's configuration, no component."""

from __future__ import annotations

from laconic.config.names import MODELS, OBJECTIVES, SCORERS, TOKENIZERS, parse
from laconic.config.schema import RunConfig
from laconic.config.section import Section


def check_run(run: RunConfig) -> dict[str, list[Section]]:
    """The validated ``Config`` of the model, tokenizer, objectives and scorers that ``run`` names.

    Raises:
        ConfigError: a component is unknown, or one of its options is.
    """
    return {
        "model": [parse("model", MODELS, run.model)[1]],
        "tokenizer": [parse("tokenizer", TOKENIZERS, run.text.tokenizer)[1]],
        "objectives": [parse("objective", OBJECTIVES, spec)[1] for spec in run.objectives],
        "scorers": [parse("scorer", SCORERS, spec)[1] for spec in run.search.scorers],
    }
