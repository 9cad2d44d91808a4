"""The model folder: what a trained summarizer is on disk and on the hub (no pickle anywhere).

`FILES` says what it holds. A folder is written beside its final place and renamed. While an older folder is being
replaced it waits as ``.NAME.previous``; whoever opens NAME after a crash finds it there and puts it back.
"""

from __future__ import annotations

import logging
import os
import platform
from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path
from pkgutil import resolve_name
from shutil import copyfile
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Any

from huggingface_hub import ModelHubMixin, get_token, hf_hub_download, snapshot_download

from catchline.config.base import validate
from catchline.config.generation import search_from
from catchline.config.loading import dump_run, load_run
from catchline.config.names import (
    EXTRACTIVE,
    MODELS,
    SCORERS,
    SHIPPED,
    build,
    name_of,
    parse,
    place_of,
    refuse_code,
    resolve,
    trusting,
)
from catchline.config.schema import RunConfig, SearchConfig, TextConfig
from catchline.errors import CatchlineError, ModelError, did_you_mean
from catchline.files import put_back, refuse_other, replacing_folder, write_json
from catchline.metrics import confidence
from catchline.metrics.confidence import Calibration
from catchline.metrics.scoring import Scoring, scoring
from catchline.models import stored
from catchline.models.base import SummarizationModel
from catchline.models.card import DEFAULTS, HUB_ID, Card, write_card
from catchline.models.card import FILE as CARD
from catchline.models.stored import AGAIN, FAMILY, FolderDescription, first_line
from catchline.text.base import read_json
from catchline.text.tokenizer import Tokenizer

FORMAT = 1
SLOW_TOKENIZERS = ("vocab.json", "vocab.txt", "spiece.model", "sentencepiece.bpe.model", "prophetnet.tokenizer")
FILES = (
    "config.json",  # architecture, format version, model and text sections, special ids, switches
    "model.safetensors",
    "tokenizer.json",
    "tokenizer_config.json",
    "casing.json",  # how the training texts write their words, of models trained here
    "generation_config.json",  # the decoding defaults (SearchConfig)
    "README.md",  # the model card, made by `catchline.models.card`
    CARD,  # what only a person can say of the model, and its scores beside other systems
    "recipe.yaml",  # the resolved run that made it
    "metrics.json",  # which data and how many updates made it, and the validation then
    "environment.json",  # versions, seed, platform
    confidence.FILE,  # how confident it may be, where `catchline calibrate` has found out
)
PLACES = {  # by section the keys that may hold a path; of the data section all
    "text": ("tokenizer", "pretrained_embeddings"),
    "training": ("initial_weights",),
    "pretraining": ("data", "set"),
}
PACKAGES = ("torch", "transformers", "tokenizers", "safetensors", "numpy")
HUB_OPTIONS = ("revision", "token", "cache_dir", "force_download", "local_files_only")


class LoadedModel(ModelHubMixin, library_name="catchline", pipeline_tag="summarization", tags=["summarization"]):
    """A model with all it needs to be used: tokenizer, text limits, decoding defaults, its run.
    ``save_pretrained(folder)``, ``push_to_hub("owner/name")`` and ``from_pretrained(...)`` are those of
    huggingface_hub's model mixin."""

    def __init__(
        self,
        model: SummarizationModel,
        tokenizer: Tokenizer,
        *,
        run: RunConfig | None = None,
        text: TextConfig | None = None,
        search: SearchConfig | None = None,
        metrics: Mapping[str, Any] | None = None,
        name: str = "",
    ) -> None:
        self.model, self.tokenizer, self.run = model, tokenizer, run
        tokenizer.widen(model.vocab_size)
        self.text = text or (run.text if run else TextConfig())
        self.search = search or (run.search if run else SearchConfig())
        self.metrics, self.card = dict(metrics or {}), Card()
        self.calibration: Calibration | None = None
        parts = (run.name, run.row, run.size) if run else ()
        self.name = name or "-".join(part for part in parts if part)

    @property
    def scoring(self) -> Scoring:
        """How the run that made it counts ROUGE."""
        return scoring(self.run.evaluation.profile, self.run.evaluation.rouge) if self.run else Scoring()

    def save_pretrained(self, save_directory: str | Path, **options: Any) -> str | None:
        """Write the folder as a whole (beside and renamed); with ``push_to_hub=True`` upload it too. Raises
        ConfigError: something else than a model is in the folder, which would be lost."""
        refuse_other(Path(save_directory), "model.safetensors", "model folder")
        self._save_pretrained(Path(save_directory))
        if not options.pop("push_to_hub", False):
            return None
        return self.push_to_hub(options.pop("repo_id", None) or Path(save_directory).name, **options)

    def _save_pretrained(self, save_directory: Path) -> None:
        with replacing_folder(save_directory) as folder:
            _write(folder, self)

    @classmethod
    def _from_pretrained(cls, *, model_id: str, **options: Any) -> LoadedModel:
        with trusting(bool(options.get("trust_code"))):
            return load_model_folder(model_id, **{name: options[name] for name in HUB_OPTIONS if options.get(name)})


def save_model_folder(
    folder: str | Path,
    *,
    model: SummarizationModel,
    tokenizer: Tokenizer,
    run: RunConfig | None = None,
    metrics: Mapping[str, Any] | None = None,
) -> Path:
    """Write ``folder`` (replaced when it exists) and return its path."""
    LoadedModel(model, tokenizer, run=run, metrics=metrics).save_pretrained(folder)
    return Path(folder)


def load_model_folder(folder_or_hub_id: str | Path, device: Any = "cpu", **hub_options: Any) -> LoadedModel:
    """Open a model folder, a run folder, a BART-family folder, the hub id of either, or a model of the package. The
    network is used only for an id of the form ``owner/name`` that is no local folder. Raises ModelError: nothing there,
    a file missing or damaged, a newer format, or weights that do not fit."""
    folder, path = find_folder(folder_or_hub_id, hub_options), Path(folder_or_hub_id).resolve()
    config, name = read_json(folder / "config.json"), str(folder_or_hub_id)
    if path.is_dir():
        name = path.parent.name if path.name == "model" else path.name
    ours, known = "catchline" in config, (*FAMILY, *stored.PLAIN)
    if not ours and config.get("model_type") not in known:
        raise ModelError(
            f"{folder_or_hub_id} has a model of type '{str(config.get('model_type', 'unknown'))[:60]}'; catchline"
            f" opens its own model folders and checkpoints of {', '.join(known)}."
        )
    try:
        with stored.as_model_error(lambda error: f"{folder} cannot be used: {first_line(error)}."):
            loaded = _load_own(folder, config, name) if ours else _load_checkpoint(folder, config, name)
            loaded.metrics, loaded.card = read_json(folder / "metrics.json", optional=True), Card.of(folder)
            loaded.calibration = Calibration.load(folder)
    except ModelError:
        raise
    except CatchlineError as error:
        raise ModelError(f"{folder} cannot be opened: {error}") from None
    loaded.model.to(device).eval()
    return loaded


# --------------------------------------------------------------------------------------------- finding


def find_folder(name: str | Path, hub_options: Mapping[str, Any] = MappingProxyType({})) -> Path:
    """The folder that holds a model's files: itself, that of a run, one of the package, or a copy of the hub's. Raises
    ModelError: there is none."""
    text = str(name)
    if not text.strip():
        raise ModelError("The name of the model is empty; give a folder made by `catchline train`, or a model's name.")
    folder = place_of(name).expanduser()
    for candidate in (folder, folder / "model"):
        put_back(candidate)
        if (candidate / "config.json").is_file():
            return candidate
    if folder.is_dir():
        raise ModelError(f"{name} has no config.json: it is neither a model folder nor a finished run folder.")
    if folder.exists():
        raise ModelError(f"{name} is a file; name a model folder, such as one from `catchline train`.")
    if text in EXTRACTIVE:
        raise ModelError(f"{name} is an extractive method, which has no weights; name a model such as oneline.")
    if HUB_ID.fullmatch(text) and not folder.parent.is_dir():
        return _download(text, hub_options)
    beside = [str(entry) for entry in folder.parent.iterdir() if entry.is_dir()] if folder.parent.is_dir() else []
    raise ModelError(
        f"There is no model folder {name}; give a folder made by `catchline train`, a hub id of the form owner/name,"
        f" or an extractive method such as lead or lexrank." + did_you_mean(text, [*SHIPPED, *EXTRACTIVE, *beside])
    )


def _download(hub_id: str, options: Mapping[str, Any]) -> Path:
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)  # one sentence at the end, not one a retry
    with stored.as_model_error(
        lambda error: (
            f"There is no local folder {hub_id}, and it could not be fetched from the hub "
            f"({first_line(error).split('. ')[0]}); check the name, the connection, and HF_HUB_OFFLINE."
        )
    ):
        config = hf_hub_download(hub_id, "config.json", **options)
        own = "catchline" in read_json(Path(config))
        patterns = [*FILES] if own else ["*.json", "*.safetensors", "*.txt", "*.model", "*.spm"]
        folder = Path(snapshot_download(hub_id, allow_patterns=patterns, **options))
        if not own and not list(folder.glob("*.safetensors")):
            snapshot_download(hub_id, allow_patterns=["pytorch_model*.bin*"], **options)
        return folder


# --------------------------------------------------------------------------------------------- loading


def _load_own(folder: Path, config: dict[str, Any], name: str) -> LoadedModel:
    """A folder of ours. The digests come last: damage that shows otherwise has a sentence that says more."""
    path, weights, written = folder / "config.json", folder / "model.safetensors", config["catchline"]
    version = written.get("format") if isinstance(written, dict) else None
    if not isinstance(version, int) or version > FORMAT:
        raise ModelError(
            f"{folder} was written in model format {version}; this version of catchline reads up to {FORMAT}:"
            " upgrade catchline."
        )
    refuse_code(config, path)
    described = validate(FolderDescription, config, where="")
    tokenizer = _load_tokenizer(folder)
    if described.special_ids != tokenizer.ids or tokenizer.vocab_size > described.vocab_size:
        raise ModelError(
            f"{path}: special_ids {described.special_ids!r:.100} and vocab_size {described.vocab_size} are not those of"
            f" the tokenizer, {tokenizer.ids!r:.100} and {tokenizer.vocab_size}; the folder is damaged: {AGAIN}."
        )
    settings = {key: value for key, value in described.model.items() if (key, value) != ("pretrained", None)}
    if "pretrained" in settings:  # the weights are here, so no other place is named
        raise ModelError(f"{path}: model.pretrained is {settings['pretrained']!r:.100}, and must be null here.")
    search = _stored_search(folder / "generation_config.json")
    run = _stored_run(folder)
    context = {"vocab_size": described.vocab_size, **described.special_ids}
    model = stored.build_described(lambda: build("model", MODELS, settings, **context), weights)
    stored.load_weights(model, weights)
    stored.check_sums(folder, described.catchline.sha256)
    model.switch(described.switches)
    before = model.switches()
    model.switch(search.model if search else {})  # decoding does so: the model has to have them
    model.switch(before)
    return LoadedModel(model, tokenizer, run=run, text=described.text, search=search, name=described.name or name)


def _stored_run(folder: Path) -> RunConfig | None:
    return load_run(folder / "recipe.yaml") if (folder / "recipe.yaml").is_file() else None


def _stored_search(path: Path) -> SearchConfig | None:
    """The decoding defaults; every component that they name is known."""
    if not path.is_file():
        return None
    settings = read_json(path)
    refuse_code(settings, path)
    search = validate(SearchConfig, settings, where="search")
    for spec in search.scorers:
        parse("scorer", SCORERS, spec)
    return search


def _load_checkpoint(folder: Path, config: dict[str, Any], name: str) -> LoadedModel:
    """A checkpoint of transformers. Its own decoding settings, and those for summarization, become the defaults; one
    that was trained here has a run too."""
    cls = resolve("model", MODELS, "bart" if config["model_type"] in FAMILY else "plain")
    tokenizer, model = _load_tokenizer(folder), cls(cls.Config(pretrained=str(folder)))
    model.unk_id = tokenizer.unk_id
    tasks = config.get("task_specific_params")
    task = dict((tasks.get("summarization") if isinstance(tasks, dict) else None) or {})
    if prefix := task.pop("prefix", None) or config.get("prefix"):
        tokenizer.use_prefix(str(prefix))
    usual = min(tokenizer.most_tokens or 512, model.max_source_tokens or 1 << 30)
    limit = usual if name_of(MODELS, cls) == "plain" else model.max_source_tokens or 1024
    asked = {**model.network.generation_config.to_dict(), **task}
    search, refused = search_from(asked, eos_id=tokenizer.eos_id, limit=model.max_target_tokens or limit)
    if refused:
        logging.getLogger(__name__).warning(
            "%s asks for %s in generation_config.json, which catchline does not follow: summaries may differ from those"
            " of transformers' generate.",
            name,
            ", ".join(refused),
        )
    limits = {"max_source_tokens": limit, "max_target_tokens": min(limit, 256)}
    text = TextConfig(tokenizer={"type": "pretrained"}, source_specials=True, oov_copy="unk", **limits)
    run = None
    if defaults := config.get(DEFAULTS):
        refuse_code(defaults, folder / "config.json")
        text = validate(TextConfig, defaults["text"], where="text")
        search = validate(SearchConfig, defaults["search"], where="search")
        run = _stored_run(folder)
    return LoadedModel(model, tokenizer, run=run, text=text, search=search, name=name)


def _load_tokenizer(folder: Path) -> Tokenizer:
    if not (folder / "tokenizer.json").is_file() and any((folder / name).is_file() for name in SLOW_TOKENIZERS):
        with TemporaryDirectory() as place:
            why = f"The tokenizer in {folder} cannot be converted; pip install sentencepiece may help"
            with stored.as_model_error(lambda error: f"{why} ({first_line(error)})."):
                reader = resolve_name("transformers:AutoTokenizer")  # which takes half a second to import
                reader.from_pretrained(folder, trust_remote_code=False).save_pretrained(place)
            copyfile(folder / "config.json", Path(place) / "config.json")
            return Tokenizer.load(place)
    if not (folder / "tokenizer.json").is_file():
        raise ModelError(
            f"{folder} has no tokenizer.json; copy it from where the model was trained, or save the checkpoint's"
            " fast tokenizer there."
        )
    try:
        return Tokenizer.load(folder)
    except Exception as error:  # the tokenizers library raises plain Exception
        raise ModelError(f"The tokenizer in {folder} cannot be read: {first_line(error)}.") from error


# --------------------------------------------------------------------------------------------- writing


def uploaded(repo_id: str, send: Callable[[str], object], token: str | None = None) -> str:
    """The address that ``send`` gives for the token with which ``repo_id`` is uploaded. Raises ModelError: there is no
    token, or the hub refuses."""
    token = token or get_token()
    if not token:
        raise ModelError(
            f"{repo_id} was not uploaded: there is no token for the Hugging Face hub. Make one with write access"
            " at https://huggingface.co/settings/tokens, then run `hf auth login` or set HF_TOKEN."
        )
    with stored.as_model_error(lambda error: f"{repo_id} was not uploaded to the hub: {first_line(error)}."):
        return str(send(token))


def _write(folder: Path, loaded: LoadedModel) -> None:
    model, run = loaded.model, _without_places(loaded.run) if loaded.run else None
    text = _cut_paths((run.text if run else loaded.text).model_dump(mode="json"))
    search, seed = loaded.search.model_dump(mode="json"), loaded.run.training.seed if loaded.run else None
    files: dict[str, Any] = {"metrics": loaded.metrics, "environment": environment(seed)}
    if isinstance(model, resolve("model", MODELS, "plain")):
        defaults = {"version": _version("catchline"), "text": text, "search": search}
        loaded.tokenizer.save(folder)
        model.save_checkpoint(folder, stored.merged_state(model))
        files["config"] = {**read_json(folder / "config.json"), DEFAULTS: defaults}
    else:
        stored.save_weights(stored.merged_state(model), folder / "model.safetensors")
        loaded.tokenizer.save(folder)
        files |= {"config": _described(loaded, text), "generation_config": search}
        files["config"]["catchline"]["sha256"] = stored.digests(folder)
    for name, values in files.items():
        write_json(folder / f"{name}.json", values, indent=2)
    if loaded.calibration:
        loaded.calibration.save(folder)
    if run is not None:
        (folder / "recipe.yaml").write_text(dump_run(run), encoding="utf-8")
    write_card(folder, loaded.card)


def _described(loaded: LoadedModel, text: Mapping[str, Any]) -> dict[str, Any]:
    """``config.json`` of a model of ours, without the digests."""
    model = loaded.model
    return {
        "architectures": [type(model).__name__],
        "model_type": "catchline",
        "catchline": {"format": FORMAT, "version": _version("catchline")},
        "name": loaded.name,
        "vocab_size": model.vocab_size,
        "special_ids": loaded.tokenizer.ids,
        "switches": model.switches(),
        "model": {"type": name_of(MODELS, type(model)), **model.config.model_dump(mode="json")},
        "text": text,
    }


def environment(seed: int | None = None) -> dict[str, Any]:
    """Versions, seed and platform; no paths and no names of people or machines."""
    versions = {"python": platform.python_version()} | {name: _version(name) for name in ("catchline", *PACKAGES)}
    return versions | {"platform": f"{platform.system()} {platform.machine()}", "seed": seed}


def _without_places(run: RunConfig) -> RunConfig:
    """The run with absolute paths cut to their last part: a folder that travels names no machine."""
    values, sections = _cut_paths(run.model_dump(mode="json")), {}
    for name, keys in {"data": tuple(values["data"]), **PLACES}.items():
        sections[name] = getattr(run, name).model_copy(update={key: values[name][key] for key in keys})
    return run.model_copy(update=sections)


def _cut_paths(values: Any) -> Any:
    if isinstance(values, dict):
        return {key: _cut_paths(value) for key, value in values.items()}
    return Path(values).name if isinstance(values, str) and os.path.isabs(values) else values


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "unknown"
