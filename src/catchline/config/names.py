"""The tables of names: what a recipe may ask for, the class that answers, and whether it may be asked; the models that
come with the package.

A table maps a name to ``"module:Class"``; classes are imported when asked for. One from outside needs no entry:
``type: my_package.module:MyAttention``. Every class has a nested ``Config`` (a ``ConfigBase``) that refuses unknown
keys, and a constructor ``Class(config, **context)`` with what only the caller knows (sizes, a tokenizer).

**Trust.** Folders are data. A class from outside the tables in the user's own recipe, option or Python argument is a
request; in a folder, which may come from anybody, it is refused (`refuse_code`) before anything is built.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from catchline.config.base import ConfigBase, validate
from catchline.config.schema import RunConfig
from catchline.errors import ConfigError, ModelError, missing_package, unknown_choice

Table = Mapping[str, str]

MODELS: Table = {
    "bart": "catchline.models.checkpoints:BartSummarizer",
    "coarse_to_fine": "catchline.models.coarse_to_fine:CoarseToFine",
    "distraction": "catchline.models.distraction:Distraction",
    "plain": "catchline.models.plain:PlainSummarizer",
    "seq2seq": "catchline.models.seq2seq:Seq2Seq",
    "transformer": "catchline.models.transformer:Transformer",
}
ATTENTIONS: Table = {
    "additive": "catchline.layers.attention.additive:AdditiveAttention",
    "distraction": "catchline.layers.attention.additive:DistractionAttention",
}
CHUNK_ATTENTIONS: Table = {
    "coarse_to_fine": "catchline.layers.attention.chunked:CoarseToFineAttention",
    "hierarchical": "catchline.layers.attention.chunked:HierarchicalAttention",
    "standard": "catchline.layers.attention.chunked:StandardAttention",
}
COARSE_ENCODERS: Table = {
    "bag_of_words": "catchline.layers.chunks:BagOfWords",
    "convolution": "catchline.layers.chunks:Convolution",
}
COPY_HEADS: Table = {
    "attentional": "catchline.layers.copying.captured:AttentionalHead",
    "correlational": "catchline.layers.copying.correlational:CorrelationalHead",
    "guided": "catchline.layers.copying.captured:GuidedHead",
    "pointer": "catchline.layers.copying.pointer:PointerHead",
    "vocabulary": "catchline.layers.copying.pointer:VocabularyHead",
}
EXTRACTIVE: Table = {
    "concept_ilp": "catchline.extractive.concepts:ConceptIlp",
    "edmundson": "catchline.extractive.frequency:Edmundson",
    "first_characters": "catchline.extractive.baselines:FirstCharacters",
    "first_words": "catchline.extractive.baselines:FirstWords",
    "kl": "catchline.extractive.frequency:KlSum",
    "lead": "catchline.extractive.baselines:Lead",
    "lexrank": "catchline.extractive.similarity:LexRank",
    "longest": "catchline.extractive.baselines:Longest",
    "lsa": "catchline.extractive.similarity:Lsa",
    "luhn": "catchline.extractive.frequency:Luhn",
    "oracle": "catchline.extractive.baselines:Oracle",
    "reduction": "catchline.extractive.similarity:Reduction",
    "sumbasic": "catchline.extractive.frequency:SumBasic",
    "textrank": "catchline.extractive.similarity:TextRank",
}
OBJECTIVES: Table = {
    "coverage": "catchline.objectives.losses:CoverageLoss",
    "guidance": "catchline.objectives.losses:Guidance",
    "minus_softmax": "catchline.objectives.losses:MinusSoftmax",
    "nll": "catchline.objectives.losses:NegativeLogLikelihood",
    "opponent": "catchline.objectives.losses:OpponentLikelihood",
    "reinforce": "catchline.objectives.reinforce:Reinforce",
}
OPPONENTS: Table = {
    "dynamic": "catchline.layers.opponent:MaskDynamic",
    "inverse": "catchline.layers.opponent:Inverse",
    "max": "catchline.layers.opponent:MaskMaximum",
    "one_minus": "catchline.layers.opponent:OneMinus",
    "topk": "catchline.layers.opponent:MaskTopK",
}
SCORERS: Table = {
    "distraction": "catchline.search.distraction:DistractionScorer",
    "forbid_tokens": "catchline.search.scorers:ForbidTokens",
    "renormalise": "catchline.search.scorers:Renormalise",
    "repetition_penalty": "catchline.search.scorers:RepetitionPenalty",
}
TOKENIZERS: Table = {
    "bpe": "catchline.text.tokenizer:BpeTokenizer",
    "character": "catchline.text.tokenizer:CharacterTokenizer",
    "pretrained": "catchline.text.tokenizer:PretrainedTokenizer",
    "word": "catchline.text.tokenizer:WordTokenizer",
}

# The keys of a model's options that hold components themselves, and the tables these are named in, as far as a model
# does not name others in its `parts`.
PARTS = (("attention", "attention", ATTENTIONS), ("head", "copy head", COPY_HEADS), ("opponent", "opponent", OPPONENTS))
ROOT = Path(__file__).parent.parent  # beside the code, a folder a model that comes with the package
DEFAULT = "oneline"  # which answers when no model is named
SHIPPED = (DEFAULT,)
outside_run: set[str] = set()  # classes from outside the tables that this process has used
_trusted: ContextVar[frozenset[str] | None] = ContextVar("trusted", default=frozenset())  # None: whatever it is


def place_of(name: str | os.PathLike[str]) -> Path:
    """The folder of a model that is named: that of a shipped one, else the path itself, whether it exists or not."""
    if os.fspath(name) not in SHIPPED:
        return Path(name)
    folder = ROOT / os.fspath(name)
    if not (folder / "config.json").is_file():
        raise ModelError(f"The model {name} is not in this installation: install Catchline again, or name another.")
    return folder


def resolve(kind: str, table: Table, name: str) -> type[Any]:
    """The class behind ``name``; ``package.module:Class`` names one outside the tables, which may lie in the working
    directory. What a folder names comes here only through `refuse_code`."""
    target = table.get(name, name)
    if ":" not in target:
        raise ConfigError(unknown_choice(kind, name, table))
    module_name, class_name = target.split(":", 1)
    if name not in table and os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # last: a module in the working directory hides no other
    try:
        found = getattr(importlib.import_module(module_name), class_name)
    except Exception as error:  # a module from outside can raise anything
        problem = f"The {kind} '{name}' could not be loaded: {error}. CATCHLINE_TRACEBACK=1 shows where."
        raise ConfigError(missing_package(error) or problem) from error
    if name not in table and not (isinstance(found, type) and hasattr(found, "Config")):
        raise ConfigError(f"The {kind} '{name}' is not a class with a nested Config, as components need.")
    if name not in table:
        outside_run.add(name)
    return found


def parse(kind: str, table: Table, spec: Mapping[str, Any]) -> tuple[type[Any], ConfigBase]:
    """Split ``{"type": name, **options}`` into the class and its validated ``Config``."""
    options = dict(spec)
    name = options.pop("type", None)
    if not isinstance(name, str):
        article = "An" if kind[0] in "aeio" else "A"
        raise ConfigError(f"{article} {kind} needs a 'type'; known: {', '.join(sorted(table))}.")
    cls = resolve(kind, table, name)
    return cls, validate(cls.Config, options, where=kind)


def build(kind: str, table: Table, spec: Mapping[str, Any], **context: Any) -> Any:
    """Construct the component that ``spec`` describes: ``Class(Class.Config(**options), **context)``."""
    cls, config = parse(kind, table, spec)
    return cls(config, **context)


def name_of(table: Table, cls: type) -> str:
    """The name that `resolve` finds the class by: that of the table, or ``module:Class``."""
    target = f"{cls.__module__}:{cls.__qualname__}"
    return next((name for name, entry in table.items() if entry == target), target)


def component_settings(run: Mapping[str, Any]) -> dict[str, type[ConfigBase]]:
    """By dotted key, the ``Config`` of the components that a run's settings name, sound or not."""
    named = {"model": (MODELS, run), "text.tokenizer": (TOKENIZERS, run.get("text"))}
    named |= {f"model.{key}": (table, run.get("model")) for key, _, table in PARTS}
    found = {}
    for key, (table, section) in named.items():
        spec = section.get(key.rpartition(".")[2]) if isinstance(section, Mapping) else None
        name = spec.get("type") if isinstance(spec, Mapping) else None
        if isinstance(name, str) and name in table:
            found[key] = resolve(key, table, name).Config
    return found


# ----------------------------------------------------------------------------------- is a run sound?


def check_run(run: RunConfig) -> ConfigBase:
    """Check every component that ``run`` names, and its options; gives the model's ``Config``. Nothing is built."""
    model, config = parse("model", MODELS, run.model)
    objectives = [parse("objective", OBJECTIVES, spec) for spec in run.objectives]
    parts: dict[str, tuple[str, Table]] = {key: (kind, table) for key, kind, table in PARTS} | model.parts
    named = {key: value for key in parts if isinstance(value := getattr(config, key, None), dict)}
    sections = [config, *(parse(*parts[key], value)[1] for key, value in named.items())]
    parse("tokenizer", TOKENIZERS, run.text.tokenizer)
    for spec in run.search.scorers:
        parse("scorer", SCORERS, spec)
    scoring = importlib.import_module("catchline.metrics.scoring")
    scoring.check_scoring(run.evaluation.profile, run.evaluation.rouge)
    _check_objectives(run, sections, [config for _, config in objectives])
    return config


def _check_objectives(run: RunConfig, sections: Sequence[ConfigBase], objectives: Sequence[ConfigBase]) -> None:
    """Is there what each objective ``needs``? Models and their parts say what they feed; a phase may switch it on."""
    fed = {name for section in sections for name in getattr(section, "feeds", ())}
    fed |= {name for phase in run.training.phases for name, value in phase.model.items() if value is True}
    for spec, section in zip(run.objectives, objectives, strict=True):
        needs = getattr(section, "needs", "")
        if needs and needs not in fed:
            raise ConfigError(
                f"The objective '{spec['type']}' needs {getattr(section, 'remedy', needs)}, or leave the objective out."
            )


# ------------------------------------------------------------------------------------ code that folders name


@contextmanager
def trusting(names: bool | Iterable[str]) -> Iterator[None]:
    """Within the block folders may name these classes (``True``: any), beside those that they might before."""
    before = _trusted.get()
    now = None if names is True or before is None else before | frozenset(names or ())
    token = _trusted.set(now)
    try:
        yield
    finally:
        _trusted.reset(token)


def outside_names(settings: Any) -> set[str]:
    """The classes from outside the tables that nested settings name; keys may be dotted (``model.type``)."""
    if isinstance(settings, Mapping):
        found = set().union(*map(outside_names, settings.values()))
        return found | {
            value
            for key, value in settings.items()
            if str(key).rpartition(".")[2] == "type" and isinstance(value, str) and ":" in value
        }
    if isinstance(settings, list | tuple):
        return set().union(*map(outside_names, settings))
    return set()


def sources_of(settings: Any) -> list[Path]:
    """The files of the modules that `outside_names` are in, where there are such. Packages around them are imported:
    what a folder names comes here only through `refuse_code`."""
    files = []
    for module in sorted({name.partition(":")[0] for name in outside_names(settings)}):
        if os.getcwd() not in sys.path:
            sys.path.append(os.getcwd())
        with suppress(Exception):  # a package from outside can raise anything, and does so again when it is used
            spec = importlib.util.find_spec(module)
            files += [Path(spec.origin)] if spec and spec.has_location and spec.origin else []
    return files


def refuse_code(settings: Any, where: object) -> None:
    """Refuse settings of a folder that name a class which is not ours, unless somebody said that this folder may."""
    trusted = _trusted.get()
    if trusted is not None and (unknown := sorted(outside_names(settings) - trusted)):
        raise ConfigError(
            f"{where} names Python code that is not catchline's ('{unknown[0][:100]}'); opening the folder would run "
            "it. If you trust its author, allow it: --trust-code, or trust_code=True in Python."
        )
