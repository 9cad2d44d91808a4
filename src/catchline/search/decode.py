"""From a model and a batch to hypotheses: encode, start, search. Nothing here knows torch.

A model that `decode` can drive, by whatever it computes, offers:

* ``encode(batch) -> Memory``: search and scorers read its arrays ``mask`` (B, S) and ``extended_ids`` (B, S);
  ``states``, ``final`` and ``extra`` are the model's own;
* ``start(memory) -> state``: one row a document. A nested structure of arrays with the rows in front and, in `Shared`,
  of arrays with the documents in front; or an object with ``select(rows)`` and ``select_documents(documents, beams)``
  (`catchline.search.hypotheses`);
* ``step(last_ids, state) -> (StepOutput, state)``: ``last_ids`` (N,) int64 are not changed; the arrays of the output
  are new in every step, ``scores`` (N, X) in 32 or 64 bits and writable;
* ``read_figures(memory)``: an empty list of models that do not read in chunks;
* ``switches()`` and ``switch(options)``: only where `SearchConfig.model` names switches.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from threading import RLock
from typing import Any

import numpy as np

from catchline.config.schema import SearchConfig
from catchline.search.beam import StepFunction, beam_search
from catchline.search.scorers import SpecialIds, build_scorers
from catchline.types import Batch, Hypothesis

KEEP, DROP = -1, -2


def decode(
    model: Any, batch: Batch, config: SearchConfig, step: StepFunction | None = None, **ids: Any
) -> list[list[Hypothesis]]:
    """The best hypotheses of each document of ``batch``, best first.

    Args:
        model: see above; `catchline.search.torch_bridge.TorchModel` of a torch model.
        batch: as the model's ``encode`` takes it.
        config: the search. With ``beam_size`` 1 it is greedy.
        step: what is called for a step instead of the model's, if anything.
        ids: the fields of `SpecialIds`.

    Raises:
        ConfigError: an unknown scorer, or one that the model cannot serve.
        ModelError: the model gave scores that are not numbers.
    """
    specials = SpecialIds(**ids)
    with switched(model, config.model) if config.model else nullcontext():
        memory = model.encode(batch)
        if memory.extended_vocab_size == batch.extended_vocab_size:
            memory.oov_words = batch.oov_words
        scorers, state = build_scorers(config, specials), model.start(memory)
        step = step or model.step
        results = beam_search(step, state, memory=memory, config=config, specials=specials, scorers=scorers)
    if figures := model.read_figures(memory):
        _note_reading(results, figures)
    if config.replace_unk:
        for source, hypotheses in zip(memory.extended_ids, results, strict=True):
            hypotheses[:] = [without_unk(hypothesis, source, specials, config.replace_unk) for hypothesis in hypotheses]
    return results


_SWITCHING = RLock()


@contextmanager
def switched(model: Any, options: Mapping[str, Any]) -> Iterator[None]:
    """The model with the switches ``options``, inside only; one thread at a time, since all share the model."""
    with _SWITCHING:
        before = dict(model.switches())
        model.switch(options)
        try:
            yield
        finally:
            model.switch({name: before[name] for name in options})


def _note_reading(
    results: Sequence[Sequence[Hypothesis]], figures: Sequence[tuple[Mapping[str, float], np.ndarray]]
) -> None:
    """Add to each hypothesis what was read of its document, and what its own path chose: how many distinct chunks, and
    the mean entropy of its coarse attention, in nats, over its tokens."""
    for hypotheses, (found, ranges) in zip(results, figures, strict=True):
        for hypothesis in hypotheses:
            details, steps = hypothesis.details, len(hypothesis.ids)
            hypothesis.chunk_tokens, hypothesis.reading = ranges, dict(found)
            if "sampled" in details:
                hypothesis.reading["chunks_chosen"] = len(np.unique(details["sampled"][details["shares"] > 0]))
            if "coarse" in details and steps:
                weights = details["coarse"][:steps].astype(np.float64)
                logs = np.log(weights, out=np.zeros_like(weights), where=weights > 0)
                hypothesis.reading |= {"coarse_entropy": float(-(weights * logs).sum() / steps), "steps": steps}


def without_unk(hypothesis: Hypothesis, source_extended_ids: np.ndarray, specials: SpecialIds, mode: str) -> Hypothesis:
    """The hypothesis with each UNK replaced by a source token (S,), as ``mode`` says, or dropped with its step. An
    ordinary word of the source is itself, one outside the vocabulary is its extended id; BOS, EOS, PAD and UNK are no
    words. Without attention, or with nothing to put there, UNK stays."""
    unknown = [t for t, id_ in enumerate(hypothesis.ids) if id_ == specials.unk_id]
    if hypothesis.attention is None or not unknown:
        return hypothesis
    nothing = [specials.unk_id, specials.bos_id, specials.eos_id, specials.pad_id]
    words = ~np.isin(source_extended_ids, nothing)
    attention, separator = hypothesis.attention[unknown], specials.separator_id
    found = replacing(mode, attention, source_extended_ids, words, separator).tolist()
    put = {t: int(source_extended_ids[place]) for t, place in zip(unknown, found, strict=True) if place >= 0}
    dropped = {t for t, place in zip(unknown, found, strict=True) if place == DROP}
    replaced = replace(hypothesis, ids=[put.get(t, id_) for t, id_ in enumerate(hypothesis.ids) if t not in dropped])
    if not dropped:
        return replaced
    kept = [t for t in range(len(hypothesis.attention)) if t not in dropped]
    return replace(
        replaced,
        token_log_probs=[hypothesis.token_log_probs[t] for t in kept],
        attention=hypothesis.attention[kept],
        details={name: value[kept] for name, value in hypothesis.details.items()},
    )


def replacing(
    mode: str, attention: np.ndarray, ids: np.ndarray, words: np.ndarray, separator_id: int | None
) -> np.ndarray:
    """For each step (T,) int64 the source position that replaces UNK, or `KEEP` or `DROP`: by ``mode`` ``words`` the
    most attended word; by ``argmax`` (Chen et al. 2016, released code) whatever is most attended: a sentence separator
    makes UNK disappear, anything else that is no word leaves it.
    ``attention`` (T, S) has the weights of the steps that wrote UNK, ``ids`` (S,) are the source's, among which the
    separators are found, ``words`` (S,) is true at words, which can replace UNK."""
    if not attention.size:
        return np.full(len(attention), KEEP, dtype=np.int64)
    separators = ids == separator_id
    words = words & ~separators
    if mode == "words":
        chosen = np.where(words.any(), np.where(words, attention, -1.0).argmax(1), KEEP)
    else:
        best = attention.argmax(1)
        chosen = np.where(separators[best], DROP, np.where(words[best], best, KEEP))
    return np.where(attention.max(1) > 0, chosen, KEEP)
