"""How often do lower-cased summaries come back as people wrote them?

    python benchmarks/restored_text.py CORPORA/arxiv CORPORA/debian CORPORA/aeslc

For each validation pair the person's own line, lower-cased and split into tokens, represents what a model wrote. Words
that the document has count as copied, from any of their places with equal weight: nothing tells the step which one was
meant. The tokenizer and what it knows of case are learnt from the training pairs. Printed, in percent:

    in document    of the line's words that the document has, those written exactly as the person wrote them
    lower case     the same where nothing is restored
    not in it      the same of the line's other words
    lines          whole lines that come out exactly, blanks included
    changed        lines of which `clean` drops something that the person wrote
"""

from __future__ import annotations

import argparse
from collections import Counter
from itertools import islice
from pathlib import Path

import numpy as np

from catchline.config.schema import SearchConfig
from catchline.data.records import read_records, splits_in
from catchline.explain.provenance import build_summary
from catchline.text.base import extended
from catchline.text.tokenizer import WordTokenizer
from catchline.text.truecase import learn_casing
from catchline.types import Hypothesis, Record, Summary, TokenizedText


def learnt(pairs: list[Record], vocabulary: int) -> WordTokenizer:
    """A lower-casing tokenizer with what the pairs say of case."""
    made = WordTokenizer(WordTokenizer.Config(max_vocabulary=vocabulary))
    documents, summaries = [pair.document for pair in pairs], [pair.summary for pair in pairs]
    made.train([*documents, *summaries])
    made.casing = learn_casing(documents, summaries)
    return made


def as_written(tokenizer: WordTokenizer, pair: Record, gold: TokenizedText, search: SearchConfig, most: int) -> Summary:
    """The pair's own line as if a model had copied it, word by word, from all places of each word alike."""
    encoding = tokenizer.encode(pair.document, max_tokens=most)
    source, own = extended(encoding, tokenizer.vocab_size, tokenizer.unk_id)
    new = [token for token in dict.fromkeys(gold.tokens) if tokenizer.token_id(token) is None]
    oov_words = [*own, *(token for token in new if token not in own)]  # the line's own words are written too
    ids, _ = extended(gold, tokenizer.vocab_size, tokenizer.unk_id, oov_words)
    holds = (source[None, :] == ids[:, None]).astype(float)
    copying = holds / np.maximum(holds.sum(1, keepdims=True), 1.0)
    copied = copying.sum(1) > 0
    hypothesis = Hypothesis(
        ids.tolist(), 0.0, 0.0, [0.0] * len(ids), False, copying, {"p_gen": 1.0 - copied, "copy_probs": copying}
    )
    return build_summary(
        hypothesis, document=pair, source_encoding=encoding, tokenizer=tokenizer, oov_words=oov_words, search=search
    )


def measure(tokenizer: WordTokenizer, pairs: list[Record], capitals: str, most: int, show: int) -> Counter[str]:
    """The counts behind the percentages; prints ``show`` words that came out wrong."""
    counts: Counter[str] = Counter()
    wrong: Counter[tuple[str, str]] = Counter()
    for pair in pairs:
        gold = tokenizer.encode(pair.summary)
        if not gold.ids:
            continue
        cased, clean = (
            as_written(tokenizer, pair, gold, SearchConfig(surface=level, capitals=capitals), most)
            for level in ("cased", "clean")
        )
        counts["lines"] += 1
        counts["lines exact"] += cased.text == " ".join(pair.summary.split())
        counts["lines changed"] += len(clean.words) < len(cased.words)
        for word, (start, end) in zip(cased.words, gold.offsets, strict=True):
            theirs = pair.summary[start:end]
            if not any(map(str.isalpha, theirs)):
                continue
            where = "in" if word.copied else "new"
            counts[where] += 1
            counts[f"{where} exact"] += word.text == theirs
            counts[f"{where} lower"] += theirs == theirs.lower()
            if word.copied and word.text != theirs:
                wrong[word.text, theirs] += 1
    for (ours, theirs), count in wrong.most_common(show):
        print(f"    {count:4} {ours!r} for {theirs!r}")
    return counts


def main() -> None:
    """Print a line a corpus."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--train-pairs", type=int, default=30_000)
    parser.add_argument("--pairs", type=int, default=1_000)
    parser.add_argument("--vocabulary", type=int, default=20_000)
    parser.add_argument("--max-source-tokens", type=int, default=400)
    parser.add_argument("--capitals", default="learnt")
    parser.add_argument("--show", type=int, default=0, help="print the most frequent wrong words")
    given = parser.parse_args()
    print("corpus   style     in document  lower case  not in it  lower case  lines  changed")
    for folder in given.folders:
        splits = splits_in(folder)
        train = list(islice(read_records(splits["train"]), given.train_pairs))
        pairs = list(islice(read_records(splits["validation"]), given.pairs))
        tokenizer = learnt(train, given.vocabulary)
        counts = measure(tokenizer, pairs, given.capitals, given.max_source_tokens, given.show)
        cells = [("in exact", "in"), ("in lower", "in"), ("new exact", "new"), ("new lower", "new")]
        cells += [("lines exact", "lines"), ("lines changed", "lines")]
        style = tokenizer.casing.capitals if given.capitals == "learnt" else given.capitals
        figures = "  ".join(f"{100 * counts[top] / max(1, counts[of]):8.1f}" for top, of in cells)
        print(f"{folder.name:8} {style:8} {figures}", flush=True)


if __name__ == "__main__":
    main()
