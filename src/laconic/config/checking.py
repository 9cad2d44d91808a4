"""Is a resolved run sound, its components included? Builds every component's configuration, no component."""

from __future__ import annotations

from collections.abc import Mapping

from laconic.config.names import (
    ATTENTIONS,
    COPY_HEADS,
    MODELS,
    OBJECTIVES,
    OPPONENTS,
    SCORERS,
    SCORINGS,
    TOKENIZERS,
    Table,
    parse,
)
from laconic.config.schema import RunConfig
from laconic.config.section import Section, validate
from laconic.errors import ConfigError, unknown_choice

# The keys of a model's options that hold components themselves, and the tables these are named in, as far as a model
# does not name others in its `parts`.
PARTS = {"attention": ("attention", ATTENTIONS), "head": ("copy head", COPY_HEADS), "opponent": ("opponent", OPPONENTS)}


def check_run(run: RunConfig) -> dict[str, list[Section]]:
    """The validated ``Config`` of the model, its parts, the tokenizer, objectives and scorers ``run`` names.

    Raises:
        ConfigError: a component or a way of scoring is unknown, or one of its options is; an objective would never
            have anything to act on.
    """
    model, config = parse("model", MODELS, run.model)
    objectives = [parse("objective", OBJECTIVES, spec) for spec in run.objectives]
    _check_phases(run, {cls.name: config for cls, config in objectives})
    scoring = {"type": "rouge", "profile": run.evaluation.profile, "rouge": run.evaluation.rouge}
    parts: dict[str, tuple[str, Table]] = {**PARTS, **model.parts}
    named = {key: value for key in parts if isinstance(value := getattr(config, key, None), dict) and "type" in value}
    found: dict[str, list[Section]] = {
        "model": [config],
        "parts": [parse(*parts[key], value)[1] for key, value in named.items()],
        "tokenizer": [parse("tokenizer", TOKENIZERS, run.text.tokenizer)[1]],
        "objectives": [config for _, config in objectives],
        "scorers": [parse("scorer", SCORERS, spec)[1] for spec in run.search.scorers],
        "scoring": [parse("scoring", SCORINGS, scoring)[1]],
    }
    _check_objectives(run, found)
    return found


def _check_objectives(run: RunConfig, found: dict[str, list[Section]]) -> None:
    """Is there what each objective ``needs``? Models and their parts say what they feed; a phase may switch it on."""
    fed = {name for section in found["model"] + found["parts"] for name in getattr(section, "feeds", ())}
    fed |= {name for phase in run.training.phases for name, value in phase.model.items() if value is True}
    for spec, section in zip(run.objectives, found["objectives"], strict=True):
        needs = getattr(section, "needs", "")
        if needs and needs not in fed:
            raise ConfigError(
                f"The objective '{spec['type']}' needs {getattr(section, 'remedy', needs)}, or leave the objective out."
            )


def _check_phases(run: RunConfig, objectives: Mapping[str, Section]) -> None:
    """A phase's weights are of objectives of the run, each within that objective's own bounds."""
    for phase in run.training.phases:
        for name, weight in phase.objective_weights.items():
            if name not in objectives:
                raise ConfigError(unknown_choice("objective in objective_weights", name, objectives))
            config = objectives[name]
            validate(type(config), config.model_dump() | {"weight": weight}, where=f"phase {phase.name}: {name}")
