"""Alignment error rates of heads: the specification's example, cases by hand, and a plain loop over pairs."""

from __future__ import annotations

import numpy as np
import pytest

from laconic.errors import DataError
from laconic.metrics.alignment import (
    alignment_error_rate,
    hard_alignment,
    head_counts,
    head_error_rates,
    word_attention,
)

# S = {(0, 0), (1, 1)}, P = S and (1, 2), A = {(0, 0), (1, 2)}, all as (summary word, document word).
SURE, POSSIBLE, CHOSEN = {(0, 0), (1, 1)}, {(1, 2)}, {(0, 0), (1, 2)}


def test_example_of_the_specification() -> None:
    assert alignment_error_rate([CHOSEN], [SURE], [POSSIBLE]) == pytest.approx(0.25)
    one_head = np.array([[[[0.6, 0.3, 0.1], [0.2, 0.3, 0.5]]]])  # (1, 1, 2, 3)
    assert head_error_rates(head_counts(one_head, SURE, POSSIBLE)) == pytest.approx(np.array([[0.25]]))


def test_counts_are_summed_over_pairs_before_dividing() -> None:
    # first pair: one sure link, found; second: three sure links, none found. 1 - 2/8, not the mean of 0 and 1
    found = head_counts(np.array([[[1.0, 0.0]]]), {(0, 0)})
    lost = head_counts(np.tile([0.0, 1.0], (1, 3, 1)), {(0, 0), (1, 0), (2, 0)})
    assert head_error_rates(found + lost) == pytest.approx(np.array([0.75]))


def test_words_without_links_and_empty_rows_are_dropped() -> None:
    maps = np.array([[[0.9, 0.1], [0.5, 0.5], [0.0, 0.0]]])
    counts = head_counts(maps, {(1, 0), (2, 1)})
    # word 0 is in no link; word 1 chooses the left of equals, which is right; word 2 has no attention at all
    assert counts.tolist() == [[2], [3]]


def test_a_possible_link_alone_costs_nothing_and_gains_half() -> None:
    assert head_counts(np.array([[[0.0, 1.0]]]), set(), {(0, 1)}).tolist() == [[1], [1]]
    assert head_counts(np.array([[[1.0, 0.0]]]), set(), {(0, 1)}).tolist() == [[0], [1]]


def test_the_whole_table_equals_a_loop() -> None:
    generator = np.random.default_rng(3)
    pairs = []
    for _ in range(6):
        shape = tuple(int(n) for n in generator.integers(2, 7, size=2))
        maps = generator.random((3, 4, *shape))
        links = {(t, s) for t in range(shape[0]) for s in range(shape[1]) if generator.random() < 0.2}
        more = {(t, s) for t in range(shape[0]) for s in range(shape[1]) if generator.random() < 0.2}
        pairs.append((maps, links, more))
    rates = head_error_rates(sum(head_counts(*pair) for pair in pairs))
    for layer in range(3):
        for head in range(4):
            chosen = []
            for maps, links, more in pairs:
                linked = {t for t, _ in links | more}
                chosen.append({link for link in hard_alignment(maps[layer, head]) if link[0] in linked})
            expected = alignment_error_rate(chosen, [p[1] for p in pairs], [p[2] for p in pairs])
            assert rates[layer, head] == pytest.approx(expected, abs=1e-12)


def test_nothing_to_compare() -> None:
    with pytest.raises(DataError, match="not defined"):
        head_error_rates(np.zeros((2, 1, 1)))


def test_subwords_become_words() -> None:
    # tokens of the document: cat ##s | sat | END; of the summary: feli ##nes | END
    weights = np.array([[0.1, 0.2, 0.3, 0.4], [0.3, 0.4, 0.2, 0.1], [0.0, 0.0, 0.0, 1.0]])
    merged = word_attention(weights, [0, 0, -1], [0, 0, 1, -1], (1, 2))
    np.testing.assert_allclose(merged, [[0.5, 0.25]])
    batch = np.stack([weights, weights[::-1]])
    np.testing.assert_allclose(word_attention(batch, [0, 0, -1], [0, 0, 1, -1], (1, 2))[0], merged)


def test_words_that_the_model_did_not_read_have_no_weight() -> None:
    merged = word_attention(np.array([[0.5, 0.5]]), [0], [0, 1], (2, 3))
    np.testing.assert_allclose(merged, [[0.5, 0.5, 0.0], [0.0, 0.0, 0.0]])
