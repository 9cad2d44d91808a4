"""The mean of several models' weights, such as of fine-tunings of one model with other seeds ("model soups", Wortsman
et al. 2022): often better than each, and as fast as one.

    python scripts/mean.py OUT MODEL MODEL ...

A model is a run or model folder. What a calibration says of the first one does not hold for the mean, so it has none;
``catchline calibrate OUT --data DIR`` makes one.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import torch

from catchline.errors import CatchlineError, ConfigError
from catchline.evaluation.systems import model_folder
from catchline.models.folder import LoadedModel, load_model_folder, save_model_folder


def mean(models: Sequence[LoadedModel]) -> LoadedModel:
    """The first model with the mean of all weights, in float64 while it is taken.

    Raises:
        ConfigError: they have other tokenizers or other shapes.
    """
    first, weights = models[0], [one.model.state_dict() for one in models]
    shapes = [{name: value.shape for name, value in one.items()} for one in weights]
    vocabularies = [one.tokenizer.tokens_of(range(one.tokenizer.vocab_size)) for one in models]
    if any(one != shapes[0] for one in shapes) or any(one != vocabularies[0] for one in vocabularies):
        raise ConfigError("Only models with the same sizes and the same tokenizer have a mean.")
    with torch.no_grad():
        for name, into in weights[0].items():
            if into.is_floating_point():
                into.copy_(sum(one[name].double() for one in weights) / len(weights))
    return first


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("out", type=Path, help="a new folder")
    parser.add_argument("models", nargs="+", help="run or model folders")
    options = parser.parse_args()
    if options.out.exists():
        parser.error(f"{options.out} is there already; the mean needs a new folder")
    try:
        found = mean([load_model_folder(model_folder(name)) for name in options.models])
    except CatchlineError as error:
        parser.error(str(error))
    save_model_folder(options.out, model=found.model, tokenizer=found.tokenizer, run=found.run)


if __name__ == "__main__":
    main()
