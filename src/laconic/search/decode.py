"""From a model and a batch to hypotheses: encode, start, search."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from laconic.config.schema import SearchConfig
from laconic.search.beam import beam_search
from laconic.search.greedy import greedy_search
from laconic.search.scorers.base import SpecialIds
from laconic.search.scorers.build import build_scorers
from laconic.types import Batch, Hypothesis


@torch.inference_mode()
def decode(
    model: Any, batch: Batch, config: SearchConfig, *, unk_id: int, bos_id: int, eos_id: int, pad_id: int
) -> list[list[Hypothesis]]:
    """The best hypotheses of each document of ``batch``, best first.

    Args:
        model: anything with ``encode(batch)``, ``start(memory)`` and ``step(last_ids, state)``; put it in
            evaluation mode before. With ``beam_size`` 1 the search is greedy.
        batch: on the model's device.
        config: the search.
        unk_id, bos_id, eos_id, pad_id: ``bos_id`` is what the decoder reads first.

    Raises:
        ConfigError: an unknown scorer, or one that the model cannot serve.
        ModelError: the model gave scores that are not numbers.
    """
    specials = SpecialIds(unk_id=unk_id, bos_id=bos_id, eos_id=eos_id, pad_id=pad_id)
    with switched(model, config.model):
        memory = model.encode(batch)
        search = greedy_search if config.beam_size == 1 else beam_search
        results = search(
            model.step,
            model.start(memory),
            memory=memory,
            config=config,
            specials=specials,
            scorers=build_scorers(config, specials),
        )
    if config.replace_unk:
        source_ids = batch.source_extended_ids.tolist()
        for source, hypotheses in zip(source_ids, results, strict=True):
            for hypothesis in hypotheses:
                hypothesis.ids = replaced_unk(hypothesis, source, specials)
    return results


@contextmanager
def switched(model: Any, options: Mapping[str, Any]) -> Iterator[None]:
    """The model with the switches ``options``, inside only."""
    if not options:
        yield
        return
    before = dict(model.switches())
    model.switch(options)
    try:
        yield
    finally:
        model.switch({name: before[name] for name in options})


def replaced_unk(hypothesis: Hypothesis, source_extended_ids: list[int], specials: SpecialIds) -> list[int]:
    """The ids with each UNK replaced by the source token its step attended to most.

    An ordinary word of the source stands for itself, one outside the vocabulary is its extended id;
    BOS, EOS, PAD and UNK are passed over. Without attention, or with nothing to put there, UNK stays.
    """
    if hypothesis.attention is None or specials.unk_id not in hypothesis.ids:
        return hypothesis.ids
    passed_over = {specials.unk_id, specials.bos_id, specials.eos_id, specials.pad_id}
    positions = [i for i, id_ in enumerate(source_extended_ids) if id_ not in passed_over]
    if not positions:
        return hypothesis.ids
    best = hypothesis.attention[: len(hypothesis.ids)][:, positions].argmax(1).tolist()
    return [
        source_extended_ids[positions[best[t]]] if id_ == specials.unk_id else id_
        for t, id_ in enumerate(hypothesis.ids)
    ]
