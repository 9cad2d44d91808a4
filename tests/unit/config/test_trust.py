"""What a folder names is not imported: the walk over settings, and who may say otherwise."""

from __future__ import annotations

from pathlib import Path

import pytest

from catchline.config.names import MODELS, outside_names, parse, refuse_code, trusting
from catchline.errors import ConfigError

NAMED = {
    "model": {"type": "seq2seq", "attention": {"type": "mine:Attention"}},
    "search": {"scorers": [{"type": "mine:Scorer"}, {"type": "renormalise"}]},
    "pretraining": {"set": {"model.head.type": "mine:Head", "data.train": "hub:owner/name"}},
}


def test_only_what_is_trusted_passes() -> None:
    assert outside_names(NAMED) == {"mine:Attention", "mine:Scorer", "mine:Head"}
    with pytest.raises(ConfigError, match=r"there names .*'mine:Attention'.*--trust-code"):
        refuse_code(NAMED, Path("there"))
    with trusting({"mine:Attention", "mine:Head"}):
        with pytest.raises(ConfigError, match="'mine:Scorer'"):
            refuse_code(NAMED, "there")
        with trusting({"mine:Scorer"}):
            refuse_code(NAMED, "there")
        with trusting(True), trusting(False):
            refuse_code(NAMED, "there")
    with pytest.raises(ConfigError, match="trust_code=True"):
        refuse_code(NAMED, "there")


def test_what_is_no_component_is_not_built() -> None:
    for name in ("os:system", "catchline.config.base:validate", ":Model", "no.such.module:Model", ".names:Table"):
        with pytest.raises(ConfigError, match="The model"):
            parse("model", MODELS, {"type": name})
