"""A wider network that writes what a narrower one does: where a larger training of the model in the box can begin.

    python scripts/widen.py MODEL OUT --hidden 512

Encoder, decoder and attention get ``--hidden`` units; the first ones keep their weights, and what the new ones say
counts nothing yet (Chen et al. 2016, Net2Net). ``laconic train`` starts from it with
``training.initial_weights=OUT`` and the new sizes under ``model``. For networks like that of recipe `oneline`:
bidirectional LSTMs, additive attention, a pointer.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import torch
from torch import Tensor

from laconic.errors import ConfigError
from laconic.models.folder import load_model_folder, save_model_folder
from laconic.models.seq2seq import Seq2Seq


def widened(model: Seq2Seq, hidden: int, seed: int = 1) -> Seq2Seq:
    """The same function with ``hidden`` units wherever there were fewer.

    Raises:
        ConfigError: another kind of network, or one that is as wide.
    """
    config = model.config
    sizes = {config.encoder_hidden, config.hidden_size, (config.attention or {}).get("size")}
    plain = config.cell == "lstm" and config.bidirectional and config.tie_output and config.input_feeding == "none"
    if not plain or len(sizes) > 1 or config.head != {"type": "pointer"} or config.hidden_size >= hidden:
        raise ConfigError(f"Only a network like that of recipe oneline, narrower than {hidden}, can be widened.")
    old, new, embedding = config.hidden_size, hidden, torch.arange(config.embedding_size)
    changes = {"encoder_hidden": new, "hidden_size": new, "attention": {**(config.attention or {}), "size": new}}
    torch.manual_seed(seed)
    ids = {name: getattr(model, name) for name in ("pad_id", "unk_id", "bos_id", "eos_id")}
    wide = Seq2Seq(config.model_copy(update=changes), vocab_size=model.vocab_size, **ids).to(model.embedding.weight)
    own = torch.arange(old)  # of the wide parts these are the narrow ones
    gates, memory = torch.cat([own + part * new for part in range(4)]), torch.cat([own, new + own])
    inputs = {
        "weight_ih": embedding,
        "weight_hh": own,
        "bridge": memory,
        "memory_projection": memory,
        "query_projection": own,
        "projection.hidden": torch.cat([own, new + memory]),
        "head.gate": torch.cat([memory, 2 * new + own, 3 * new + embedding]),
    }
    weights = wide.state_dict()
    for name, given in model.state_dict().items():
        _place(weights[name], given, name, gates if "layer." in name else own, inputs)
    wide.load_state_dict(weights)
    return wide.eval()


def _place(into: Tensor, given: Tensor, name: str, units: Tensor, inputs: dict[str, Tensor]) -> None:
    """Put the narrow weights where they belong; of the narrow units and outputs nothing comes from new ones."""
    if into.shape == given.shape:
        into.copy_(given)
    elif given.dim() == 1:
        if "score_vector" in name:
            into.zero_()  # what new units of the attention say counts nothing
        into[units] = given
    else:
        columns = next(columns for part, columns in inputs.items() if part in name)
        rows = torch.arange(len(into)) if len(into) == len(given) else units
        into[rows] = 0.0
        into[rows.unsqueeze(1), columns] = given


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("model", help="a model folder, or oneline")
    parser.add_argument("out", type=Path)
    parser.add_argument("--hidden", type=int, default=512, help="units (default: %(default)s)")
    options = parser.parse_args()
    if options.out.exists():
        parser.error(f"{options.out} exists; name another folder, or delete it")
    loaded = load_model_folder(options.model)
    model, run = widened(loaded.model, options.hidden), loaded.run
    if run is not None:
        sizes = {name: getattr(model.config, name) for name in ("encoder_hidden", "hidden_size", "attention")}
        run = run.model_copy(update={"model": {**run.model, **sizes}})
    save_model_folder(options.out, model=model, tokenizer=loaded.tokenizer, run=run)


if __name__ == "__main__":
    main()
