"""Write the run's model with the weighted mean of several sets of weights (files of weights, or model folders).

python study/research/lines_mean.py RUN_MODEL INTO SHARE=FILE_OR_FOLDER ...
"""

import sys

from safetensors.torch import load_file

from catchline.models.folder import load_model_folder


def main(model: str, into: str, *parts: str) -> None:
    """Read the weights, take their mean and save."""
    loaded = load_model_folder(model)
    mean = dict.fromkeys(dict(loaded.model.named_parameters()), 0.0)
    total = sum(float(part.partition("=")[0]) for part in parts)
    for part in parts:
        share, _, place = part.partition("=")
        file = place.endswith(".safetensors")
        weights = load_file(place) if file else dict(load_model_folder(place).model.named_parameters())
        mean = {name: value + weights[name].detach() * (float(share) / total) for name, value in mean.items()}
    loaded.model.load_state_dict(mean, strict=False)
    loaded.save_pretrained(into)


if __name__ == "__main__":
    main(*sys.argv[1:])
