"""Extractive methods against sumy: milliseconds a document and the ratio, one core.

    python benchmarks/extractive_speed.py [--documents 5]

Both get the same sentences and work at sumy's command-line settings (English stemmer and stop list, three sentences);
sumy cuts words with NLTK's tokenizer, ours with its own. Seven methods on documents of 40 sentences of about 28
words, and KL also at 160. ``cold`` clears our memory of stems and words before every document.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
import warnings

from catchline.config.names import EXTRACTIVE, build
from catchline.extractive import words
from paired import zipf_words

METHODS = ("luhn", "edmundson", "lsa", "lexrank", "textrank", "sumbasic", "kl")


def make_document(sentences: int, seed: int) -> list[str]:
    """Sentences of a Zipf vocabulary with inflections and stop words."""
    generator = random.Random(seed)
    stems, weights = zipf_words(3000)
    small = ["the", "of", "and", "a", "to", "in", "is", "that", "it", "was"]
    document = []
    for _ in range(sentences):
        text = [
            stem + generator.choice(["", "s", "ed", "ing"])
            for stem in generator.choices(stems, cum_weights=weights, k=16)
        ]
        text += generator.choices(small, k=12)
        generator.shuffle(text)
        document.append(" ".join(text).capitalize() + ".")
    return document


def sumy_runner(name: str):
    """A function that summarizes a list of sentences with sumy."""
    from nltk.tokenize import NLTKWordTokenizer
    from sumy.models.dom import ObjectDocumentModel, Paragraph, Sentence
    from sumy.nlp.stemmers import Stemmer
    from sumy.nlp.tokenizers import Tokenizer
    from sumy.summarizers import edmundson, kl, lex_rank, lsa, luhn, sum_basic, text_rank
    from sumy.utils import get_stop_words

    classes = {
        "luhn": luhn.LuhnSummarizer,
        "edmundson": edmundson.EdmundsonSummarizer,
        "lsa": lsa.LsaSummarizer,
        "lexrank": lex_rank.LexRankSummarizer,
        "textrank": text_rank.TextRankSummarizer,
        "sumbasic": sum_basic.SumBasicSummarizer,
        "kl": kl.KLSummarizer,
    }
    summarizer = classes[name](Stemmer("english"))
    if name == "edmundson":
        summarizer.null_words = get_stop_words("english")
        summarizer.bonus_words = summarizer.stigma_words = ["zzbonus"]
    else:
        summarizer.stop_words = get_stop_words("english")
    cut = NLTKWordTokenizer().tokenize

    class Words:
        def to_words(self, sentence):
            return tuple(filter(Tokenizer._is_word, cut(sentence)))

    def run(sentences: list[str]):
        tokenizer = Words()
        document = ObjectDocumentModel([Paragraph([Sentence(sentence, tokenizer) for sentence in sentences])])
        return summarizer(document, 3)

    return run


def forget() -> None:
    """Clear what our words and stems remember."""
    words._chunk_words.cache_clear()
    words.stemmer.cache_clear()


def milliseconds(run, documents: list[list[str]], before=lambda: None) -> float:
    """The median time a document."""
    times = []
    for document in documents:
        before()
        start = time.process_time()
        run(document)
        times.append(time.process_time() - start)
    return 1000 * statistics.median(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=5)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    for size, methods in ((40, METHODS), (160, ("kl",))):
        documents = [make_document(size, seed) for seed in range(options.documents)]
        totals = [0.0, 0.0, 0.0]
        print(f"{size} sentences{'sumy ms':>14}{'cold ms':>10}{'warm ms':>10}{'cold x':>9}{'warm x':>9}")
        for name in methods:
            theirs = milliseconds(sumy_runner(name), documents)
            cues = {"bonus_words": ["zzbonus"], "stigma_words": ["zzbonus"]} if name == "edmundson" else {}
            method = build("extractive method", EXTRACTIVE, {"type": name, **cues})
            method.summarize(documents[0])
            cold = milliseconds(method.summarize, documents, forget)
            warm = milliseconds(method.summarize, documents)
            print(f"  {name:<12}{theirs:12.1f}{cold:10.2f}{warm:10.2f}{theirs / cold:9.1f}{theirs / warm:9.1f}")
            totals = [total + part for total, part in zip(totals, (theirs, cold, warm), strict=True)]
        theirs, cold, warm = totals
        print(f"  {'together':<12}{theirs:12.1f}{cold:10.2f}{warm:10.2f}{theirs / cold:9.1f}{theirs / warm:9.1f}")


if __name__ == "__main__":
    main()
