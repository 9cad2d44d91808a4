"""The scorers that a search configuration asks for."""

from __future__ import annotations

from laconic.config.names import SCORERS, build
from laconic.config.schema import SearchConfig, Spec
from laconic.errors import ConfigError
from laconic.search.scorers.base import Scorer, SpecialIds


def build_scorers(config: SearchConfig, specials: SpecialIds) -> list[Scorer]:
    """The scorers of the plain options of ``config``, then ``config.scorers`` in their order.

    Raises:
        ConfigError: an unknown scorer or option, or a number of groups that does not divide the beam.
    """
    kept = not config.forbid_specials
    specs: list[Spec] = [{"type": "forbid_tokens", "unk": config.forbid_unk, "pad": not kept, "bos": not kept}]
    longest = config.max_length if config.num_steps > config.max_length else None
    if config.min_length or longest:
        bounds = {"min_length": config.min_length, "share": config.min_length_share, "max_length": longest}
        specs.append({"type": "length_bounds", **bounds})
    if config.no_repeat_ngram:  # where the start token may come again it begins the first n-gram
        specs.append({"type": "ngram_blocking", "size": config.no_repeat_ngram, "start": kept})
    if config.diverse_groups > 1:
        strength = config.diversity_strength
        specs.append({"type": "diverse_groups", "groups": config.diverse_groups, "strength": strength})
    if config.distraction is not None and config.distraction.active:  # before what divides by the length
        specs.append({"type": "distraction", **config.distraction.model_dump()})
    if config.length_normalisation != "none":
        kind, alpha = config.length_normalisation, config.length_alpha
        specs.append({"type": "length_normalisation", "kind": kind, "alpha": alpha})
    if config.coverage_penalty != "none":
        specs.append({"type": "coverage_penalty", "kind": config.coverage_penalty, "beta": config.coverage_beta})
    scorers = [build("scorer", SCORERS, spec, specials=specials) for spec in [*specs, *config.scorers]]
    grouped = [scorer.num_groups for scorer in scorers if scorer.num_groups > 1]
    if len(grouped) > 1 or any(config.beam_size % groups for groups in grouped):
        raise ConfigError(
            f"search.beam_size {config.beam_size} cannot be split into groups {grouped}: "
            "use one diverse_groups whose number of groups divides the beam size."
        )
    if grouped and config.shrink_beam:
        raise ConfigError("search.shrink_beam cannot be combined with groups of beams: use one of them.")
    return scorers
