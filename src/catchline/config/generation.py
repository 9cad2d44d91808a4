"""The generation settings of transformers in our words: a checkpoint is to decode as ``generate`` does.

| transformers | here |
| --- | --- |
| ``num_beams``, ``num_return_sequences``, ``no_repeat_ngram_size``, ``early_stopping`` | the same |
| ``max_length`` m, which counts the start and the end token; ``max_new_tokens`` m - 1 | ``max_length`` m - 1 |
| ``min_length`` m, which counts the start token; ``min_new_tokens`` m - 1 | ``min_length`` m - 1 |
| ``length_penalty`` p: the sum over the number of generated tokens to the power p | ``predicted``, ``length_alpha`` p |
| of 2K candidates those end that are among the first K; what is cut competes | ``within_beam``, ``compete`` |
| ``forced_eos_token_id``: the last token is the end, which costs nothing | ``free_end``, ``max_length`` m - 2 |
| ``suppress_tokens``, ``bad_words_ids`` of one token | the scorer ``forbid_tokens`` |
| ``repetition_penalty``, ``renormalize_logits`` | the scorers ``repetition_penalty``, ``renormalise`` |
| nothing else is forbidden, and all documents are alike | ``forbid_unk: false`` and so on |

The model itself honours ``decoder_start_token_id`` and ``forced_bos_token_id``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from catchline.config.base import validate
from catchline.config.schema import SearchConfig

NEW_TOKENS = 20  # what ``generate`` writes where neither the checkpoint nor the caller names a length
_OFF = (  # settings that change the tokens, unless they are off, and those that do unless they are 1
    "do_sample constraints force_words_ids encoder_no_repeat_ngram_size exponential_decay_length_penalty max_time "
    "begin_suppress_tokens sequence_bias watermarking_config stop_strings penalty_alpha dola_layers"
)
_ONE = ("num_beam_groups", "encoder_repetition_penalty", "guidance_scale")


def search_from(settings: Mapping[str, Any], *, eos_id: int, limit: int) -> tuple[SearchConfig, list[str]]:
    """The search that ``settings`` (a generation configuration as a dictionary) ask for, and what it cannot honour, as
    ``name (value)``. Values that are missing or ``None`` are transformers' own defaults; ``eos_id`` is the tokenizer's
    end token, ``limit`` the most tokens that the model writes."""
    given = {name: value for name, value in settings.items() if value is not None}
    beams = int(given.get("num_beams", 1))
    refused = [name for name in _OFF.split() if given.get(name)] + [name for name in _ONE if given.get(name, 1) != 1]
    if _ids(given.get("eos_token_id", eos_id)) != [eos_id]:
        refused.append("eos_token_id")
    longest = given.get("max_new_tokens", given.get("max_length", NEW_TOKENS + 1) - 1)
    forced = _ids(given.get("forced_eos_token_id", []))
    ends_free = forced == [eos_id]
    if forced and not ends_free:
        refused.append("forced_eos_token_id")
    longest = max(min(int(longest), limit) - ends_free, 1)
    penalty = given.get("length_penalty", 1.0)
    shortest = given.get("min_new_tokens", max(given.get("min_length", 0) - 1, 0))
    asked = {
        "beam_size": beams,
        "num_return": min(int(given.get("num_return_sequences", 1)), beams),
        "min_length": min(int(shortest), longest),
        "min_length_share": None,
        "max_length": longest,
        "no_repeat_ngram": int(given.get("no_repeat_ngram_size", 0)),
        "finish": "within_beam",
        "unfinished": "free_end" if ends_free else "compete",
        "early_stopping": given.get("early_stopping", False),
        "forbid_unk": False,
        "forbid_specials": False,
        "scorers": tuple(_scorers(given, beams, eos_id, refused)),
        "length_normalisation": "predicted" if penalty else "none",
        "length_alpha": float(penalty or 1.0),
    }
    search = validate(SearchConfig, asked, where="search")
    return search, [f"{name} ({given[name]})" for name in refused]


def _scorers(given: Mapping[str, Any], beams: int, eos_id: int, refused: list[str]) -> list[dict[str, Any]]:
    scorers: list[dict[str, Any]] = []
    words = [_ids(word) for word in given.get("bad_words_ids", ())]
    forbidden = {*_ids(given.get("suppress_tokens", [])), *(word[0] for word in words if word not in ([eos_id], []))}
    if any(len(word) > 1 for word in words):
        forbidden -= {word[0] for word in words if len(word) > 1}
        refused.append("bad_words_ids")
    if eos_id in forbidden:
        refused.append("suppress_tokens")
    if forbidden:
        scorers.append({"type": "forbid_tokens", "ids": sorted(forbidden)})
    penalty = given.get("repetition_penalty", 1.0)
    if penalty != 1.0 and beams == 1:  # greedy decoding of transformers applies it before the softmax
        refused.append("repetition_penalty")
    elif penalty != 1.0:
        scorers.append({"type": "repetition_penalty", "penalty": penalty})
    if given.get("renormalize_logits") and beams > 1:  # without effect on the best token
        scorers.append({"type": "renormalise"})
    return scorers


def _ids(value: Any) -> list[int]:
    return [int(id_) for id_ in value] if isinstance(value, list | tuple) else [int(value)]
