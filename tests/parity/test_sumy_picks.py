"""Picks equal sumy's at its command-line settings: the English stemmer and stop list, NLTK's word rules.

Sentences are given, so that no sentence model has to be downloaded. Where sumy's own result hangs on the hash seed
(LSA's ties) or on Czech cue words (Edmundson), our documented rule is compared instead.
"""

from __future__ import annotations

import json
import random
import warnings
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from catchline.config.names import EXTRACTIVE, build
from catchline.extractive.words import stem_english, treebank_words
from catchline.text.sentences import sentence_strings

# NLTK takes a second to import, and each worker collects this file.
pytestmark = pytest.mark.skipif(not (find_spec("sumy") and find_spec("nltk")), reason="needs sumy and NLTK")

DATA = Path(__file__).parents[3] / "shared/data"
METHODS = {  # in sumy: module and class
    "luhn": "luhn.Luhn",
    "edmundson": "edmundson.Edmundson",
    "lsa": "lsa.Lsa",
    "lexrank": "lex_rank.LexRank",
    "textrank": "text_rank.TextRank",
    "reduction": "reduction.Reduction",
    "sumbasic": "sum_basic.SumBasic",
    "kl": "kl.KL",
}


class Words:
    """sumy's tokenizer without its sentence model."""

    def __init__(self) -> None:
        from nltk.tokenize import NLTKWordTokenizer
        from sumy.nlp.tokenizers import Tokenizer

        self._cut = NLTKWordTokenizer().tokenize
        self._is_word = Tokenizer._is_word

    def to_words(self, sentence: str) -> tuple[str, ...]:
        return tuple(filter(self._is_word, self._cut(sentence)))


def sumy_summarizer(name: str) -> Any:
    from sumy.nlp.stemmers import Stemmer
    from sumy.utils import get_stop_words

    module, _, kind = METHODS[name].partition(".")
    summarizer = getattr(import_module(f"sumy.summarizers.{module}"), f"{kind}Summarizer")(Stemmer("english"))
    if name == "edmundson":
        summarizer.null_words = get_stop_words("english")
        summarizer.bonus_words = summarizer.stigma_words = ["zzbonus"]
    else:
        summarizer.stop_words = get_stop_words("english")
    return summarizer


def sumy_document(sentences: list[str]) -> Any:
    from sumy.models.dom import ObjectDocumentModel, Paragraph, Sentence

    words = Words()
    return ObjectDocumentModel([Paragraph([Sentence(sentence, words) for sentence in sentences])])


def sumy_picks(name: str, sentences: list[str]) -> list[int]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        chosen = sumy_summarizer(name)(sumy_document(sentences), 3)
    return [sentences.index(str(sentence)) for sentence in chosen]


def our_picks(name: str, sentences: list[str]) -> list[int]:
    return build("extractive method", EXTRACTIVE, {"type": name, "sentences": 3}).summarize(sentences)


def made_up_documents() -> list[list[str]]:
    """Documents of random words with inflections, stop words, punctuation, repeats and odd sentences."""
    generator = random.Random(5)
    stems = ["market", "run", "organiz", "nation", "house", "report", "polic", "govern", "trad", "light"]
    endings = ["", "s", "ing", "ed", "ation", "al", "er's", "'s"]
    small = ["the", "The", "of", "and", "a", "In", "don't", "first", "42", "3.5%", "U.S.", "--", "e-mail,", '"so"']
    documents = []
    for size in (1, 2, 4, 7, 12, 20, 40):
        sentences: list[str] = []
        while len(sentences) < size:
            words = [
                generator.choice(small)
                if generator.random() < 0.5
                else generator.choice(stems) + generator.choice(endings)
                for _ in range(generator.choice([1, 3, 8, 15, 25]))
            ]
            sentence = " ".join(words) + generator.choice([".", "!", "?", " .", '."', ""])
            if sentence not in sentences:
                sentences.append(sentence)
        documents.append(sentences)
    return documents


def real_documents(limit: int) -> list[list[str]]:
    if not DATA.is_dir():
        pytest.skip("needs ../shared/data beside the checkout")
    documents = []
    for name in ("cnndm-sample/train", "aeslc/validation", "scitldr/validation", "dialogsum/validation"):
        with (DATA / f"{name}.jsonl").open(encoding="utf-8") as lines:
            for _, line in zip(range(limit), lines, strict=False):
                sentences = list(dict.fromkeys(s.strip() for s in sentence_strings(json.loads(line)["document"])))
                documents.append(sentences[:40])
    return [document for document in documents if document]


def lsa_is_tied(sentences: list[str], ours: list[int], theirs: list[int]) -> bool:
    """True if the picks differ only among sentences that sumy's LSA rates alike up to rounding."""
    from sumy.summarizers.lsa import singular_value_decomposition

    summarizer, document = sumy_summarizer("lsa"), sumy_document(sentences)
    dictionary = summarizer._create_dictionary(document)
    matrix = summarizer._compute_term_frequency(summarizer._create_matrix(document, dictionary))
    _, sigma, v = singular_value_decomposition(matrix, full_matrices=False)
    ranks = np.array(summarizer._compute_ranks(sigma, v))
    return np.allclose(np.sort(ranks[ours]), np.sort(ranks[theirs]), rtol=1e-9)


@pytest.mark.parametrize("limit", [0, 4, pytest.param(60, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", METHODS)
def test_picks(name: str, limit: int) -> None:
    """On made-up documents, or on so many real ones of each kind."""
    differing = []
    for sentences in real_documents(limit) if limit else made_up_documents():
        ours, theirs = our_picks(name, sentences), sumy_picks(name, sentences)
        if ours != theirs and not (name == "lsa" and (not theirs or lsa_is_tied(sentences, ours, theirs))):
            differing.append((ours, theirs))
    assert not differing


def test_words_equal_nltk_on_real_documents():
    words = Words()
    for sentence in (sentence for document in real_documents(6) for sentence in document):
        assert tuple(treebank_words(sentence)) == words.to_words(sentence)


def test_stemmer_equals_nltk():
    """Also where the installed Snowball is another one; four of 116,979 words differ, misspelt ones."""
    from nltk.stem.snowball import EnglishStemmer

    stemmer = EnglishStemmer()
    words = (
        "generous communism skies gently news earring exceeded realization memoization quantization organization "
        "added adding adds egged odds international internally universities lateral pasted emergency organs "
        "meteorologists evening evenings evening's rotationally variational variationally irrationality rational "
        "stabilizers vying dying it's o'clock y'all 'tis youth sayings early agreed agreedly hopping controlling"
    )
    for word in words.split():
        assert stem_english(word) == stemmer.stem(word), word
    found = {word for document in real_documents(60) for sentence in document for word in treebank_words(sentence)}
    assert [word for word in {*map(str.lower, found)} if stem_english(word) != stemmer.stem(word)] == []
