"""The one place that chooses between a paper's equation as it stands and the same made fast.

``CATCHLINE_KERNELS=off`` in the environment, read once when this file is imported, takes the equations of
`catchline.papers` and plain autograd: slower and larger, for readers, debuggers and other back ends.
`tests/contract/test_kernels.py` holds each pair equal, values and gradients. ``CATCHLINE_KERNELS=graph`` is how models
are exported: plain, but for what `catchline.kernels.graph` says in a way that makes a small and fast graph.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from torch import Tensor, nn

from catchline.errors import refuse_unknown
from catchline.kernels import attention, packed, recurrences, vocabulary
from catchline.kernels.packed import Map
from catchline.kernels.vocabulary import Derivative
from catchline.papers import coarse_to_fine, coconet, distraction, pointer_generator

CHOICES = ("on", "off", "graph")
CHOICE = os.environ.get("CATCHLINE_KERNELS") or "on"
refuse_unknown("value of CATCHLINE_KERNELS", CHOICE, CHOICES)
ENABLED, IN_GRAPHS = CHOICE == "on", CHOICE == "graph"


def _plain_gold(
    features: Tensor, weight: Tensor, bias: Tensor, gold: Tensor, derivative: Derivative | None = None
) -> Tensor:
    return pointer_generator.gold_log_probs(features, weight, bias, gold)


def _plain_distribution(
    logits: Tensor, gate: Tensor, copy_probs: Tensor, ids: Tensor, size: int, first: Tensor | None = None
) -> Tensor:
    return pointer_generator.final_distribution(logits, gate, copy_probs, ids, size)


# the pointer-generator
attention_scores = attention.attention_scores if ENABLED else pointer_generator.attention_scores
gold_log_probs = vocabulary.gold_log_probs if ENABLED else _plain_gold
final_distribution = vocabulary.final_distribution if ENABLED else _plain_distribution
# distraction
distracted_scores = attention.distracted_scores if ENABLED else distraction.attention_scores
gru = recurrences.paper_gru if ENABLED else distraction.gru
# coarse to fine
max_over_windows = attention.max_over_windows if ENABLED else coarse_to_fine.max_over_windows
# CoCoNet
mean_attention = attention.mean_attention if ENABLED else coconet.mean_attention
copying_history = recurrences.copying_history if ENABLED else None  # all steps at once (none: one after the other)
# what no paper says: weights packed for search, torch's GRU on a CPU (none: torch's own)
linear: Callable[..., Tensor] = packed.linear if ENABLED else nn.functional.linear
PackableLinear = packed.PackableLinear if ENABLED else nn.Linear
packed_output: Callable[..., Map | None] = packed.packed_output if ENABLED else lambda *layer: None
torch_gru = recurrences.gru_sequence if ENABLED else None
# an exported graph's
first_positions = vocabulary.first_positions
recurrence: Callable[..., tuple[Tensor, tuple[Tensor, ...]]] | None = None  # over real tokens (none: the layers' own)
if IN_GRAPHS:
    from catchline.kernels import graph

    attention_scores = graph.attention_scores
    distracted_scores = attention.distracted(graph.attention_scores)
    final_distribution, first_positions = graph.final_distribution, graph.first_positions
    recurrence = graph.recurrence
