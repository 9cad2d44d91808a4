"""The files of a model folder, checked before anything is built from them: a folder may come from anybody.

`FolderDescription` says what ``config.json`` may hold, `check_sums` finds files that are not those that were written,
`build_described` builds no more than the weights can fill, `load_weights` fills it. Equal weights make equal files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import safetensors.torch
import torch
from pydantic import Field
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from catchline.config.base import ConfigBase
from catchline.config.schema import TextConfig
from catchline.errors import CatchlineError, ModelError
from catchline.files import digest_of

AGAIN = "save or copy it again"
SUMMED = ("model.safetensors", "tokenizer.json", "tokenizer_config.json")
SPARE_NUMBERS = 64_000_000  # what a model may have beside its weights: tables of positions
NUMBERS, SCALES = ".int8", ".scales"  # what the two parts of a matrix in eight bits are stored under, after its name
FAMILY = ("bart", "marian", "mbart", "pegasus")  # the model types that `catchline.models.checkpoints` opens
PLAIN = (  # those that `catchline.models.plain` opens
    *("t5", "mt5", "umt5", "longt5", "switch_transformers", "led", "pegasus_x", "bigbird_pegasus", "prophetnet"),
    *("blenderbot", "blenderbot-small", "m2m_100", "mvp", "plbart"),
)


class Written(ConfigBase, extra="ignore"):
    """Who wrote the folder; ``sha256`` has the digests of `SUMMED`."""

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
    """The SHA-256 of the files `SUMMED`."""
    return {name: digest_of(folder / name) for name in SUMMED}


def check_sums(folder: Path, expected: Mapping[str, str]) -> None:
    """Compare the files with the digests that were written."""
    for name in filter(expected.get, SUMMED):
        if not (folder / name).is_file() or digest_of(folder / name) != expected[name]:
            raise ModelError(f"{folder / name} is missing or has changed since it was saved (by its SHA-256); {AGAIN}.")


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
    """What ``make()`` builds from the settings of a folder, whose weights are in ``path``. It is built without storage
    first, so that settings that ask for more than the weights hold cost nothing. Raises ModelError: nothing can be
    built from these settings, or only something much larger than the weights."""
    folder, sizes = path.parent, _sizes(path)
    described = f"{folder / 'config.json'} describes a model that cannot be built"
    with as_model_error(lambda error: f"{described} ({type(error).__name__}: {first_line(error)}); {AGAIN}."):
        with torch.device("meta"), _NothingDrawn():
            planned = make()
        tensors = {id(tensor): tensor.numel() for tensor in (*planned.parameters(), *planned.buffers())}
        if sum(tensors.values()) > 2 * sum(sizes) + SPARE_NUMBERS:
            raise ModelError(
                f"The weights in {folder} do not fit config.json: it describes a model that is far larger; {AGAIN}."
            )
        return make()


def _sizes(path: Path) -> list[int]:
    """How many numbers each stored tensor has."""
    if not path.is_file():
        raise ModelError(f"{path.parent} has no model.safetensors; the folder is incomplete: {AGAIN}.")
    try:
        with safe_open(path, "pt") as file:
            return [torch.Size(file.get_slice(name).get_shape()).numel() for name in file.keys()]  # noqa: SIM118
    except (SafetensorError, OSError) as error:
        raise ModelError(f"{path} is damaged or truncated ({first_line(error)}); {AGAIN}.") from error


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


def load_weights(model: nn.Module, path: Path) -> None:
    """Fill ``model``; matrices that the file has in eight bits are restored. Raises ModelError: the file has not
    exactly the model's tensors, or one that is not finite."""
    weights, expected = safetensors.torch.load_file(path), model.state_dict()
    wrong = f"The weights in {path} do not fit config.json"
    try:
        for name in [name.removesuffix(NUMBERS) for name in weights if name.endswith(NUMBERS)]:
            weights[name] = weights.pop(name + NUMBERS) * weights.pop(name + SCALES)[:, None]
        missing, unexpected = model.load_state_dict(weights, strict=False)
    except (RuntimeError, ValueError, LookupError) as error:
        shapes = [line.strip() for line in str(error).splitlines() if "size mismatch" in line]
        raise ModelError(f"{wrong}: {shapes[0].rstrip('.') if shapes else first_line(error)}.") from error
    filled = {_memory_of(expected[name]) for name in weights if name in expected}
    missing = [name for name in missing if _memory_of(expected[name]) not in filled]  # but tied ones
    if missing or unexpected:
        kind, names = ("lacks", sorted(missing)) if missing else ("has unknown weights", sorted(unexpected))
        raise ModelError(f"{wrong}: it {kind} {', '.join(names[:3])}{' and more' if len(names) > 3 else ''}.")
    for name, tensor in model.named_parameters():
        if not torch.isfinite(tensor).all():
            raise ModelError(f"The weights in {path} are damaged: '{name}' has NaN or infinity; {AGAIN}.")


def quantized(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """A matrix (O, I) as int8 numbers, and a scale for each row (O,): its largest magnitude is 127 of these."""
    scales = matrix.abs().amax(dim=1) / 127
    return (matrix / scales.clamp_min(torch.finfo(scales.dtype).tiny)[:, None]).round().to(torch.int8), scales


def merged_state(model: nn.Module) -> dict[str, Tensor]:
    """The state of ``model``; matrices of LoRA are added to the weights, under the names that these have without."""
    state = model.state_dict()
    merged = {name.replace(".base_layer", ""): value for name, value in state.items() if ".lora_" not in name}
    for name, layer in model.named_modules():
        if delta := getattr(layer, "get_delta_weight", None):
            weight = merged[f"{name}.weight"]
            merged[f"{name}.weight"] = weight + delta("default").detach().to(weight.dtype)
    return merged


def save_weights(state: Mapping[str, Tensor], path: Path) -> None:
    """Write the weights of a model, tied ones once, under the first of their names."""
    distinct = {_memory_of(tensor): (name, tensor) for name, tensor in sorted(state.items(), reverse=True)}
    weights = {name: tensor.detach().to("cpu", copy=True) for name, tensor in distinct.values()}
    save_tensors(weights, path, {"format": "pt"})


def _memory_of(tensor: Tensor) -> tuple[Any, ...]:
    """What tied tensors have in common; those of a recurrent layer on a GPU lie in one piece of memory, and differ."""
    return tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype


def save_tensors(tensors: Mapping[str, Tensor], path: Path, metadata: dict[str, str] | None = None) -> None:
    """Write tensors that share no memory. The file has the rights that the umask gives, not the library's."""
    path.touch()
    mode = path.stat().st_mode
    safetensors.torch.save_file(dict(tensors), path, metadata)
    path.chmod(mode)


def first_line(error: BaseException) -> str:
    """The first line of what an error says, without full stop, cut where it is long."""
    text = str(error).strip()
    line = text.splitlines()[0].rstrip(".") if text else type(error).__name__
    return line if len(line) <= 300 else f"{line[:297]}..."
