"""What a run will read of its data, before it starts: how much is cut, limits that fit the data, and how many processes
fit the machine."""

from __future__ import annotations

from collections.abc import Sequence, Set
from pathlib import Path
from typing import Any

import numpy as np
import torch

from catchline.config.names import check_run
from catchline.config.schema import RunConfig
from catchline.data.dataset import EncodedDataset
from catchline.data.subset import counter_of_run
from catchline.jobs import copies, threads_each
from catchline.training.processes import launched
from catchline.types import Record

PERCENTILE = 95
MOST_LIKELY = 4 * 2**30  # bytes that are free where nothing tells
SAMPLE = 5000  # documents whose tokens are counted for the limits
MUCH = 0.1  # a share of texts that is worth a word when it is cut
_SHARE_OF_MEMORY = 0.5
_STATES = 40  # numbers of a model's width kept for backward, a token
# Processes that are started unasked (more have not been measured), pairs an update for each, and bytes of each: its
# own, and for each parameter those of weight, gradient, the optimizer's two and what is summed over the processes
MOST_UNASKED, LEAST_PAIRS = 4, 4
_PROCESS, _PARAMETER = 300 * 2**20, 5 * 4


def reading_table(sets: dict[str, EncodedDataset], left_out: dict[str, int]) -> list[str]:
    """Lines of a table of what is read and cut, a line a split; ``left_out`` counts pairs by split.

    A last line says how to read more, where much is cut.
    """
    first = next(iter(sets.values()))
    limits = (first.max_source_tokens, first.max_target_tokens)
    header = ["", "pairs", "left out", f"documents over {limits[0]} tokens", f"summaries over {limits[1]}"]
    rows, most = [header], 0.0
    for name, data in sets.items():
        cut = data.cut_shares()
        most = max(most, *cut)
        rows.append([name, f"{len(data):,}", f"{left_out.get(name, 0):,}", *(f"{share:.0%}" for share in cut)])
    widths = [max(len(row[column]) for row in rows) for column in range(len(header))]
    lines = ["  ".join(text.rjust(width) for text, width in zip(row, widths, strict=True)) for row in rows]
    if most > MUCH:
        wanted = [first.percentile(side, PERCENTILE) for side in ("source", "target")]
        lines.append(
            f"What is longer is cut. {PERCENTILE}% of the documents have at most {wanted[0]:,} tokens, "
            f"{PERCENTILE}% of the summaries {wanted[1]:,}: set text.max_source_tokens={wanted[0]} and "
            f"text.max_target_tokens={wanted[1]}, or take `catchline train --size auto`, which does."
        )
    return lines


def fitting_limits(run: RunConfig, records: Sequence[Record], asked: Set[str]) -> tuple[dict[str, Any], str]:
    """Changes of ``run`` by which it reads most texts whole within the memory at hand, and a line that says so.

    The limits are the 95th percentile of the lengths, rounded up to tens, as far as the model has positions; no summary
    need be longer than the shortest twentieth of them. Where a batch would need too much memory, it is made in parts
    (``training.accumulation``), which changes no result; where single documents would, the limits fall. Those that are
    ``asked`` for are the run's own, and then none falls.
    """
    count = counter_of_run(run)
    sampled = records[:: max(1, len(records) // SAMPLE)]
    lengths = np.array([count(record) for record in sampled])
    source, target = (_tens(float(np.percentile(side, PERCENTILE)) + 1) for side in lengths.T)
    model = check_run(run)
    architecture = getattr(model, "architecture", None) or {}
    positions = getattr(model, "max_positions", None) or architecture.get("max_position_embeddings")
    if positions is not None:  # a search writes an end besides
        source, target = min(source, positions), min(target, positions - 1)
    least = min(run.search.min_length, max(1, int(np.percentile(lengths[:, 1], 100 - PERCENTILE))))  # of short titles
    limits = {"max_source_tokens": source, "max_target_tokens": target}
    source, target = (getattr(run.text, name) if name in asked else limit for name, limit in limits.items())
    kind = "batch_tokens" if run.training.batch_tokens else "batch_size"
    size, parts = getattr(run.training, kind), run.training.accumulation
    room = _SHARE_OF_MEMORY * _free_memory()
    while True:
        batch = max(1, size // (source + target)) if run.training.batch_tokens else size
        needed = _bytes(run, model, batch, source, target)
        divisor = next((number for number in range(2, size + 1) if size % number == 0), 1)
        if needed <= room or (batch <= 4 and (source <= 100 or asked)):
            break
        if batch > 4 and divisor > 1:
            size, parts = size // divisor, parts * divisor
        else:
            source, target = _tens(0.8 * source), max(10, _tens(0.9 * target))
    changes = {
        "text": {"max_source_tokens": source, "max_target_tokens": target},
        "training": {kind: size, "accumulation": parts},
        "search": {"max_length": max(target, least), "min_length": least},
    }
    whole = f"batches of {size}{' tokens' * (kind == 'batch_tokens')}" + (f" x {parts}" if parts > 1 else "")
    share = f"{PERCENTILE}% of the data" + (", but for --set" if asked else "")
    return changes, (
        f"Size auto: documents up to {source:,} tokens and summaries up to {target:,} ({share}), "
        f"{whole}; an update needs about {needed / 2**30:.1f} GB of {_free_memory() / 2**30:.1f} GB that are free."
    )


def with_processes(run: RunConfig) -> RunConfig:
    """The run on several processes of this machine, where nobody said how many: one a core that has enough to do, as
    far as memory reaches."""
    training = run.training
    if "processes" in training.model_fields_set or launched() > 1 or not copies() or torch.accelerator.is_available():
        return run
    pairs = training.batch_size if training.batch_tokens is None else LEAST_PAIRS * MOST_UNASKED
    number = min(threads_each(1), pairs // LEAST_PAIRS, MOST_UNASKED)
    if number > 1:
        each = _PROCESS + _PARAMETER * _parameters(run, check_run(run))
        number = min(number, int(_SHARE_OF_MEMORY * _free_memory() / each))
    return run.model_copy(update={"training": training.model_copy(update={"processes": max(1, number)})})


def _parameters(run: RunConfig, model: Any) -> float:
    """Roughly, rather too many: two tables of words, and layers of a Transformer."""
    usual: dict[str, Any] = getattr(model, "architecture", None) or {}
    width: int = usual.get("d_model", 0) or getattr(model, "hidden_size", 512)
    sides = (usual.get(name, 0) or getattr(model, name, 1) for name in ("encoder_layers", "decoder_layers"))
    return 2.0 * _vocabulary(run) * width + 16.0 * sum(sides) * width**2


def _tens(value: float) -> int:
    return max(10, -(-int(np.ceil(value)) // 10) * 10)


def _free_memory() -> int:
    """Bytes of the device that training takes: the first GPU's, else the machine's."""
    if torch.cuda.is_available():
        return int(torch.cuda.mem_get_info()[0])
    try:
        facts = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
        return 1024 * int(facts["MemAvailable"].split()[0])
    except (OSError, KeyError, ValueError):  # no Linux
        return MOST_LIKELY


def _bytes(run: RunConfig, model: Any, batch: int, source: int, target: int) -> float:
    """A rough bound of what one batch keeps: logits with their gradients, states and energies."""
    width = getattr(model, "hidden_size", 512)
    layers = getattr(model, "encoder_layers", 1) + getattr(model, "decoder_layers", 1)
    states = _STATES * width * (source + target) * layers / 2
    energies = 8 * layers * (source * target + (source**2 if layers > 2 else 0))
    return 4.0 * batch * (3 * target * _vocabulary(run) + states + energies)


def _vocabulary(run: RunConfig) -> int:
    """How many words it may have."""
    tokenizer = run.text.tokenizer
    return int(tokenizer.get("max_vocabulary") or tokenizer.get("vocab_size") or 50_000)
