"""The headline paper's three printed BLEU values, and sentence BLEU against NLTK."""

from __future__ import annotations

import math
import random

import pytest

from catchline.errors import DataError
from catchline.metrics.bleu import bleu_paper, bleu_sentence, corpus_bleu, sentence_bleu

# The figure's hypotheses with as many unknown words as the typesetting lost; any ten-word reference with exactly the
# matches of the printed words gives the printed value.
FIGURE_6 = [
    ("a1 a2 a3 a4 a5 a6 a7", 2, "r1 r2 r3 r4 r5 r6 r7 r8 r9 r10", 0.0204689180374571),
    ("confidential document x twitter to to", 5, "confidential document y1 y2 y3 y4 y5 y6 y7 y8", 0.08263103182212594),
    (
        "confidential document $ peter thiel z w",
        1,
        "confidential document peter thiel p q r s t u",
        0.11255157994168306,
    ),
]


@pytest.mark.parametrize(("hypothesis", "lost", "reference", "printed"), FIGURE_6)
def test_the_printed_values(hypothesis, lost, reference, printed):
    tokens = hypothesis.split() + [f"<unk{place}>" for place in range(lost)]
    assert bleu_paper([tokens], [[reference.split()]]) == pytest.approx(printed, abs=1e-15)


def test_sentence_bleu_equals_nltk():
    bleu_score = pytest.importorskip("nltk.translate.bleu_score")
    smoothing = bleu_score.SmoothingFunction().method1
    generator = random.Random(4)
    for _ in range(100):
        hypothesis = generator.choices("abcde", k=generator.randint(1, 14))
        references = [generator.choices("abcdef", k=generator.randint(1, 14)) for _ in range(generator.randint(1, 3))]
        expected = bleu_score.sentence_bleu(references, hypothesis, smoothing_function=smoothing)
        assert sentence_bleu(hypothesis, references) == pytest.approx(expected, abs=1e-12)


def test_nothing_in_common_scores_the_markers_only():
    reference = [[f"r{place}" for place in range(10)]]
    assert bleu_paper([["x"] * 10], [reference]) == pytest.approx(0.0203, abs=1e-4)
    assert bleu_sentence([["x"] * 10], [reference]) == 0.0
    unended = math.exp(1 - 12 / 11) * (1 / 11 * 0.1 / 10 * 0.1 / 9 * 0.1 / 8) ** 0.25  # the start marker alone matches
    assert bleu_paper([["x"] * 10], [reference], finished=[False]) == pytest.approx(unended)
    assert bleu_sentence([[]], [reference]) == 0.0


def test_corpus_bleu_is_sacrebleu():
    found, signature = corpus_bleu(["the cat sat on the mat"], [["the cat sat on the mat", "a cat"]])
    assert found == pytest.approx(100.0)
    assert "tok:13a" in signature
    ragged, _ = corpus_bleu(["a b c d e", "x y z w v"], [["a b c d e", "q"], "x y z w v"])
    assert ragged == pytest.approx(100.0)
    with pytest.raises(DataError, match="not 1 and 0"):
        corpus_bleu(["a"], [])
    with pytest.raises(DataError, match="not 0 and 0"):
        corpus_bleu([], [])
