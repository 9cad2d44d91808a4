"""Which configurations of transformers `laconic.models.bart` opens (a file of its own: quick to import)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

FAMILY = ("bart", "marian", "mbart", "pegasus")


def is_bart_family(config: Mapping[str, Any]) -> bool:
    """Does this ``config.json`` describe a checkpoint of the family (and not a model folder of ours)?"""
    return config.get("model_type") in FAMILY and "laconic" not in config
