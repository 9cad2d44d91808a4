"""What the files of a model folder say, checked before anything is built from it. A folder may come from anybody.

`FolderDescription` says what ``config.json`` may hold, `check_sums` finds files that are not the ones that
were written, `build_described` builds no more than the weights can fill, `load_weights` fills it. Weights are written
here too: equal content makes equal bytes, and the file has the rights of its neighbours.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import safetensors.torch
import torch
from pydantic import Field
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn
from torch.nn.modules.module import register_module_parameter_registration_hook
from torch.overrides import TorchFunctionMode

from catchline.config.base import ConfigBase, validate
from catchline.config.names import MODELS, SCORERS, build, parse, refuse_code
from catchline.config.schema import SearchConfig, TextConfig
from catchline.errors import CatchlineError, ModelError
from catchline.files import digest_of
from catchline.models.base import SummarizationModel
from catchline.text.base import read_json
from catchline.text.tokenizer import Tokenizer

AGAIN = "save or copy it again"
SUMMED = ("model.safetensors", "tokenizer.json", "tokenizer_config.json")
SPARE_TENSORS, SPARE_NUMBERS = 64, 64_000_000  # what a model may have beside its weights: tables of positions
NUMBERS, SCALES = ".int8", ".scales"  # what the two parts of a matrix in eight bits are stored under, after its name
FAMILY = ("bart", "marian", "mbart", "pegasus")  # the model types that `catchline.models.checkpoints` opens


class Written(ConfigBase, extra="ignore"):
    """Who wrote the folder. ``sha256`` has the digests of `SUMMED`; folders of earlier versions have none."""

    format: int
    version: str = ""
    sha256: dict[str, str] = Field(default_factory=dict)


class FolderDescription(ConfigBase, extra="ignore"):
    """``config.json``. Keys that only other programs read are left alone."""

    catchline: Written
    name: str = ""
    vocab_size: int = Field(ge=1)
    special_ids: dict[str, int]
    switches: dict[str, Any] = Field(default_factory=dict)
    model: dict[str, Any]
    text: TextConfig


def digests(folder: Path) -> dict[str, str]:
    return {name: digest_of(folder / name) for name in SUMMED}


def check_sums(folder: Path, expected: Mapping[str, str]) -> None:
    """Are the files those that were written?

    Raises:
        ModelError: a file is another one.
    """
    for name in SUMMED:
        if name in expected and not (folder / name).is_file():
            raise ModelError(f"{folder} has no {name}; {AGAIN}.")
        if name in expected and digest_of(folder / name) != expected[name]:
            raise ModelError(f"{folder / name} is not the file that was saved (its SHA-256 is another); {AGAIN}.")


def check_ids(description: FolderDescription, tokenizer: Tokenizer, folder: Path) -> None:
    """Do the ids in ``config.json`` fit the tokenizer?

    Raises:
        ModelError: they do not.
    """
    given, ours = description.special_ids, tokenizer.ids
    if given != ours:
        raise ModelError(
            f"{folder / 'config.json'}: special_ids are {shown(given)}, the tokenizer's are {shown(ours)}; "
            f"the folder is damaged: {AGAIN}."
        )
    if tokenizer.vocab_size > description.vocab_size:
        raise ModelError(
            f"{folder / 'config.json'}: vocab_size is {description.vocab_size}, and the tokenizer has "
            f"{tokenizer.vocab_size} tokens; the folder is damaged: {AGAIN}."
        )


def built(described: FolderDescription) -> SummarizationModel:
    """The model, untrained. Its weights are in the folder, so it names no other place that has some."""
    settings = {key: value for key, value in described.model.items() if (key, value) != ("pretrained", None)}
    if "pretrained" in settings:
        raise ModelError(f"config.json: model.pretrained is {shown(settings['pretrained'])}, and must be null here.")
    return build("model", MODELS, settings, vocab_size=described.vocab_size, **described.special_ids)


def stored_search(path: Path) -> SearchConfig | None:
    """The decoding defaults; every component that they name is known."""
    if not path.is_file():
        return None
    settings = read_json(path)
    refuse_code(settings, path)
    search = validate(SearchConfig, settings, where="search")
    for spec in search.scorers:
        parse("scorer", SCORERS, spec)
    return search


class _NothingDrawn(TorchFunctionMode):
    """Parameters without storage have no values; to draw and scale some would import torch's compiler, for a second."""

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        given = dict(kwargs or {})
        if getattr(func, "__name__", "") in {"normal_", "uniform_", "mul", "mul_"}:
            return args[0] if args else given["tensor"]
        return func(*args, **given)


def build_described(make: Callable[[], nn.Module], path: Path) -> Any:
    """What ``make()`` builds from the settings of a folder, whose weights are in ``path``.

    It is built without storage first, so that settings that ask for more than the weights hold cost nothing.

    Raises:
        ModelError: nothing can be built from these settings, or only something much larger than the weights.
    """
    sizes = _sizes(path)
    with as_model_error(  # settings of the right types can still be impossible in any way
        lambda error: (
            f"{path.parent / 'config.json'} describes a model that cannot be built ({type(error).__name__}: "
            f"{first_line(error)}); the folder is damaged: {AGAIN}."
        )
    ):
        with at_most(2 * len(sizes) + SPARE_TENSORS, path.parent), torch.device("meta"), _NothingDrawn():
            planned = make()
        tensors = {id(tensor): tensor.numel() for tensor in (*planned.parameters(), *planned.buffers())}
        if sum(tensors.values()) > 2 * sum(sizes.values()) + SPARE_NUMBERS:
            raise _too_large(path.parent)
        return make()


@contextmanager
def as_model_error(sentence: Callable[[Exception], str]) -> Iterator[None]:
    """Errors in the block that are not ours as a `ModelError` with this ``sentence``: those of transformers, of
    safetensors and of the hub's client have no common base."""
    try:
        yield
    except CatchlineError:
        raise
    except Exception as error:
        raise ModelError(sentence(error)) from error


@contextmanager
def at_most(tensors: int, folder: Path) -> Iterator[None]:
    """Within the block no more than so many parameters come into being.

    Raises:
        ModelError: there were about to be more.
    """
    count = 0

    def registered(module: nn.Module, name: str, parameter: nn.Parameter) -> None:
        nonlocal count
        count += 1
        if count > tensors:
            raise _too_large(folder)

    handle = register_module_parameter_registration_hook(registered)
    try:
        yield
    finally:
        handle.remove()


def load_weights(model: nn.Module, path: Path) -> None:
    """Fill ``model``.

    Raises:
        ModelError: the file is damaged, or has not exactly the model's tensors.
    """
    try:
        missing, unexpected = _filled(model, path)
    except SafetensorError as error:
        raise _damaged(path, error) from error
    except (RuntimeError, ValueError, LookupError) as error:
        shapes = [line.strip() for line in str(error).splitlines() if "size mismatch" in line]
        detail = shapes[0].rstrip(".") if shapes else first_line(error)
        raise ModelError(f"The weights in {path} do not fit config.json: {detail}.") from error
    if missing or unexpected:
        kind, names = ("lacks", sorted(missing)) if missing else ("has unknown weights", sorted(unexpected))
        raise ModelError(
            f"The weights in {path} do not fit config.json: it {kind} {', '.join(names[:3])}"
            f"{' and more' if len(names) > 3 else ''}."
        )
    for name, tensor in model.named_parameters():
        if not torch.isfinite(tensor).all():
            raise ModelError(f"The weights in {path} are no numbers: '{name}' holds NaN or infinity; {AGAIN}.")


def _filled(model: nn.Module, path: Path) -> tuple[Collection[str], list[str]]:
    """What the file lacks and what it has too many, as `safetensors.torch.load_model` says it; matrices that it has in
    eight bits are restored."""
    with safe_open(path, "pt") as file:
        matrices = [name.removesuffix(NUMBERS) for name in file.keys() if name.endswith(NUMBERS)]  # noqa: SIM118
    if not matrices:
        return safetensors.torch.load_model(model, path, strict=False)
    found, held = safetensors.torch.load_file(path), model.state_dict()
    for name in matrices:
        found[name] = found.pop(name + NUMBERS) * found.pop(name + SCALES)[:, None]
    missing, unexpected = model.load_state_dict(found, strict=False)
    there = {held[name].data_ptr() for name in found if name in held}
    return {name for name in missing if held[name].data_ptr() not in there}, unexpected


def quantized(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """A matrix (O, I) as int8 numbers, and a scale for each row (O,): its largest magnitude is 127 of these."""
    scales = matrix.abs().amax(dim=1) / 127
    return (matrix / scales.clamp_min(torch.finfo(scales.dtype).tiny)[:, None]).round().to(torch.int8), scales


def save_weights(model: nn.Module, path: Path) -> None:
    """The weights of ``model``; the header says which names of shared tensors were left out."""
    source: Any = _here(model) if any(p.device.type != "cpu" for p in model.parameters()) else model
    _save(path, lambda: safetensors.torch.save_model(source, str(path), metadata={"format": "pt"}))
    _sort_metadata(path)


def _here(model: nn.Module) -> Any:
    """The weights of a model on another device, on the CPU, as the library asks for them. On a GPU those of a recurrent
    layer lie in one piece of memory, which it would take for shared tensors; what is one tensor is one here too."""
    moved: dict[tuple[Any, ...], Tensor] = {}
    held = model.state_dict()
    for tensor in held.values():
        moved.setdefault(_place_of(tensor), tensor.detach().to("cpu", copy=True))
    weights = {name: moved[_place_of(tensor)] for name, tensor in held.items()}
    return SimpleNamespace(state_dict=lambda: weights)


def _place_of(tensor: Tensor) -> tuple[Any, ...]:
    return tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype


def save_tensors(tensors: Mapping[str, Tensor], path: Path) -> None:
    """Tensors that share no memory, without metadata."""
    _save(path, lambda: safetensors.torch.save_file(dict(tensors), path))


def _save(path: Path, write: Callable[[], None]) -> None:
    """The library makes files that only their owner may read; the umask is the rule."""
    path.touch()
    mode = path.stat().st_mode
    write()
    path.chmod(mode)


def _sort_metadata(path: Path) -> None:
    """Put the metadata of the header in order, in place: the library writes it in another one each time."""
    with path.open("r+b") as file:
        size = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(size))
        header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
        text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode("utf-8").ljust(size)
        assert len(text) == size, "the same content has the same length"
        file.seek(8)
        file.write(text)


def first_line(error: BaseException) -> str:
    """The first line of what an error says, without full stop, cut where it is long."""
    text = str(error).strip()
    line = text.splitlines()[0].rstrip(".") if text else type(error).__name__
    return line if len(line) <= 300 else f"{line[:297]}..."


def shown(value: Any) -> str:
    """A value in a message, cut where it is long."""
    text = repr(value)
    return text if len(text) <= 100 else text[:97] + "..."


def _sizes(path: Path) -> dict[str, int]:
    """How many numbers each stored tensor has."""
    if not path.is_file():
        raise ModelError(f"{path.parent} has no model.safetensors; the folder is incomplete: {AGAIN}.")
    try:
        with safe_open(path, "pt") as file:
            return {name: torch.Size(file.get_slice(name).get_shape()).numel() for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise _damaged(path, error) from error


def _damaged(path: Path, error: Exception) -> ModelError:
    return ModelError(f"{path} is damaged or truncated ({first_line(error)}); {AGAIN}.")


def _too_large(folder: Path) -> ModelError:
    return ModelError(
        f"The weights in {folder} do not fit config.json: it describes a model that is far larger; {AGAIN}."
    )
