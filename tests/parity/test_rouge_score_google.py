"""The profile ``google`` equals rouge-score, with and without stemming, one and several references."""

from __future__ import annotations

import random
from importlib.util import find_spec

import pytest

from catchline.metrics.rouge import rouge
from catchline.metrics.rouge_text import stem_nltk

# NLTK takes a second to import, and each worker collects this file.
pytestmark = pytest.mark.skipif(not (find_spec("rouge_score") and find_spec("nltk")), reason="needs rouge-score")

WORDS = [
    "The", "a", "of", "running", "runs", "policies", "fundamentally", "1990s", "3.5%", "twenty-one", "won't",
    "skies", "dying", "News", "innings", "generously", "analogies", "happily", "fully", "Agreed", "agreement",
    "cats", "cat", "dogs", "analyses", "e-mail", "Café", "İstanbul", "Kelvin", "日本", "😀", "<unk>", ",", ".",
    "-",
]  # fmt: skip


def make_text(generator: random.Random, sentences: int) -> str:
    lines = [" ".join(generator.choices(WORDS, k=generator.choice([0, 1, 3, 8, 20]))) for _ in range(sentences)]
    return "\n".join(lines)


@pytest.mark.parametrize("stem", [True, False])
@pytest.mark.parametrize("references", [1, 3])
def test_equals_rouge_score(stem, references):
    from rouge_score import rouge_scorer

    generator = random.Random(references)
    kinds = ["rouge1", "rouge2", "rouge4", "rougeL", "rougeLsum"]
    scorer = rouge_scorer.RougeScorer(kinds, use_stemmer=stem)
    hypotheses = [make_text(generator, generator.randint(1, 4)) for _ in range(30)]
    models = [[make_text(generator, generator.randint(1, 4)) for _ in range(references)] for _ in hypotheses]
    ours = rouge(hypotheses, models, kinds=kinds, profile="google", stem=stem)
    for place, (hypothesis, model) in enumerate(zip(hypotheses, models, strict=True)):
        theirs = scorer.score_multi(model, hypothesis)
        for kind in kinds:
            score = ours.per_document[kind][place]
            assert tuple(score) == pytest.approx(tuple(theirs[kind]), abs=1e-12), (kind, hypothesis, model)


def test_stemmer_equals_nltk():
    from nltk.stem import porter

    generator = random.Random(0)
    stemmer = porter.PorterStemmer()
    endings = [
        "al", "ance", "er", "able", "ement", "ment", "ent", "ism", "ate", "iti", "ous", "ive", "ize", "ational",
        "tional", "izer", "bli", "alli", "ousli", "ization",
    ]  # fmt: skip
    endings += [
        "ation", "ator", "alism", "fulness", "aliti", "biliti", "logi", "fulli", "s", "es", "ies", "ied", "ed",
        "eed", "ing", "y", "e", "ll", "icate", "ful", "ness", "tion",
    ]  # fmt: skip
    letters = "abcdeghilmnorstuvxyz1"
    for _ in range(3000):
        word = "".join(generator.choices(letters, k=generator.randint(1, 6)))
        word += "".join(generator.choices(endings, k=generator.randint(1, 3)))
        assert stem_nltk(word) == stemmer.stem(word)
