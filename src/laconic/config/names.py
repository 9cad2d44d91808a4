"""The tables of names: what a recipe may ask for, and the class that answers.

A table maps a name to ``"module:Class"``; classes are imported when asked for, so this file costs
nothing to import. Nothing else in the toolkit compares names. A class from outside needs no entry:
``type: my_package.module:MyAttention``.

Every class named here has a nested ``Config`` (a ``Section``) that refuses unknown keys, and a
constructor ``Class(config, **context)`` with what only the caller knows (sizes, a tokenizer).
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from laconic.config.section import Section, validate
from laconic.errors import ConfigError, unknown_choice

Table = Mapping[str, str]

MODELS: Table = {
    "bart": "laconic.models.bart:BartSummarizer",
    "coarse_to_fine": "laconic.models.coarse_to_fine:CoarseToFine",
    "distraction": "laconic.models.distraction:Distraction",
    "seq2seq": "laconic.models.seq2seq:Seq2Seq",
    "transformer": "laconic.models.transformer:Transformer",
}
ATTENTIONS: Table = {
    "additive": "laconic.layers.attention.additive:AdditiveAttention",
    "distraction": "laconic.layers.attention.distraction:DistractionAttention",
}
CHUNK_ATTENTIONS: Table = {
    "coarse_to_fine": "laconic.layers.attention.chunked:CoarseToFineAttention",
    "hierarchical": "laconic.layers.attention.chunked:HierarchicalAttention",
    "standard": "laconic.layers.attention.chunked:StandardAttention",
}
COARSE_ENCODERS: Table = {
    "bag_of_words": "laconic.layers.coarse:BagOfWords",
    "convolution": "laconic.layers.coarse:Convolution",
}
COPY_HEADS: Table = {
    "attentional": "laconic.layers.copying.attentional:AttentionalHead",
    "correlational": "laconic.layers.copying.correlational:CorrelationalHead",
    "guided": "laconic.layers.copying.guided:GuidedHead",
    "pointer": "laconic.layers.copying.pointer:PointerHead",
    "vocabulary": "laconic.layers.copying.vocabulary:VocabularyHead",
}
EXTRACTIVE: Table = {
    "concept_ilp": "laconic.extractive.concepts:ConceptIlp",
    "edmundson": "laconic.extractive.frequency:Edmundson",
    "first": "laconic.extractive.baselines:First",
    "first_characters": "laconic.extractive.baselines:FirstCharacters",
    "first_words": "laconic.extractive.baselines:FirstWords",
    "kl": "laconic.extractive.frequency:KlSum",
    "lead": "laconic.extractive.baselines:Lead",
    "lexrank": "laconic.extractive.similarity:LexRank",
    "longest": "laconic.extractive.baselines:Longest",
    "lsa": "laconic.extractive.similarity:Lsa",
    "lsa_first": "laconic.extractive.similarity:LsaFirst",
    "luhn": "laconic.extractive.frequency:Luhn",
    "oracle": "laconic.extractive.baselines:Oracle",
    "reduction": "laconic.extractive.similarity:Reduction",
    "sumbasic": "laconic.extractive.frequency:SumBasic",
    "textrank": "laconic.extractive.similarity:TextRank",
}
OBJECTIVES: Table = {
    "coarse_entropy": "laconic.objectives.reinforce:CoarseEntropy",
    "coverage": "laconic.objectives.coverage:CoverageLoss",
    "guidance": "laconic.objectives.guidance:Guidance",
    "minimum_risk": "laconic.objectives.risk:MinimumRisk",
    "minus_softmax": "laconic.objectives.opponent:MinusSoftmax",
    "nll": "laconic.objectives.nll:NegativeLogLikelihood",
    "opponent": "laconic.objectives.opponent:OpponentLikelihood",
    "r_drop": "laconic.objectives.rdrop:RDrop",
    "reinforce": "laconic.objectives.reinforce:Reinforce",
    "self_critical": "laconic.objectives.risk:SelfCritical",
}
OPPONENTS: Table = {
    "dynamic": "laconic.layers.opponent:MaskDynamic",
    "inverse": "laconic.layers.opponent:Inverse",
    "max": "laconic.layers.opponent:MaskMaximum",
    "none": "laconic.layers.opponent:Unmasked",
    "one_minus": "laconic.layers.opponent:OneMinus",
    "topk": "laconic.layers.opponent:MaskTopK",
}
SCORERS: Table = {
    "coverage_penalty": "laconic.search.scorers:CoveragePenalty",
    "distraction": "laconic.search.distraction:DistractionScorer",
    "diverse_groups": "laconic.search.scorers:DiverseGroups",
    "forbid_tokens": "laconic.search.scorers:ForbidTokens",
    "forced_prefix": "laconic.search.scorers:ForcedPrefix",
    "length_bounds": "laconic.search.scorers:LengthBounds",
    "length_normalisation": "laconic.search.scorers:LengthNormalisation",
    "ngram_blocking": "laconic.search.scorers:NgramBlocking",
    "renormalise": "laconic.search.scorers:Renormalise",
    "repetition_penalty": "laconic.search.scorers:RepetitionPenalty",
    "word_blocking": "laconic.search.scorers:WordBlocking",
}
SCORINGS: Table = {
    "rouge": "laconic.metrics.scoring:RunScoring",
}
TOKENIZERS: Table = {
    "bpe": "laconic.text.tokenizer:BpeTokenizer",
    "character": "laconic.text.tokenizer:CharacterTokenizer",
    "pretrained": "laconic.text.tokenizer:PretrainedTokenizer",
    "word": "laconic.text.tokenizer:WordTokenizer",
}


def resolve(kind: str, table: Table, name: str) -> type[Any]:
    """Return the class behind ``name``; ``package.module:Class`` names one outside the tables.

    What a folder names comes here only through `laconic.config.trust.refuse_code`.

    Raises:
        ConfigError: the name is in no table, the module cannot be imported, or it has no such component.
    """
    target = table.get(name, name)
    if ":" not in target:
        raise ConfigError(unknown_choice(kind, name, table))
    module_name, class_name = target.split(":", 1)
    try:
        found = getattr(importlib.import_module(module_name), class_name)
    except Exception as error:  # a module from outside can raise anything
        raise ConfigError(f"The {kind} '{name}' could not be loaded: {error}.") from error
    if name not in table and not (isinstance(found, type) and hasattr(found, "Config")):
        raise ConfigError(f"The {kind} '{name}' is no class with a nested Config, as components are.")
    return found


def parse(kind: str, table: Table, spec: Mapping[str, Any]) -> tuple[type[Any], Section]:
    """Split ``{"type": name, **options}`` into the class and its validated ``Config``."""
    options = dict(spec)
    name = options.pop("type", None)
    if not isinstance(name, str):
        raise ConfigError(f"A {kind} needs a 'type'; known: {', '.join(sorted(table))}.")
    cls = resolve(kind, table, name)
    return cls, validate(cls.Config, options, where=kind)


def build(kind: str, table: Table, spec: Mapping[str, Any], **context: Any) -> Any:
    """Construct the component that ``spec`` describes: ``Class(Class.Config(**options), **context)``."""
    cls, config = parse(kind, table, spec)
    return cls(config, **context)
