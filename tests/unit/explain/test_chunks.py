"""The coarse map and the words of the chunks read, against numbers worked out by hand."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from catchline.evaluation.measures import reading_measures
from catchline.explain.chunks import build_chunks, chunk_spans, coarse_map, read_attention, read_positions, read_to
from catchline.explain.html import render
from catchline.explain.provenance import build_summary
from catchline.explain.record import from_dict, to_dict
from catchline.search.decode import _note_reading
from catchline.text.tokenizer import WordTokenizer
from catchline.types import Hypothesis, Summary

DOCUMENT = "a b c d e f g h"  # three chunks of three words, the last with two
RANGES = np.array([[0, 3], [3, 6], [6, 8]])
FIGURES = {"chunks": 3, "chunks_read": 2, "words": 8, "words_read": 5}


def words() -> WordTokenizer:
    made = WordTokenizer(WordTokenizer.Config(min_frequency=1))
    made.train([DOCUMENT])
    return made


def hypothesis(**changes: Any) -> Hypothesis:
    """Two words and EOS; the first reads chunks 1 and 2, the second chunk 2 alone, EOS chunks 2 and 1."""
    details = {
        "coarse": np.array(
            [[0.25, 0.5, 0.25, 0.0], [0.0, 0.5, 0.5, 0.0], [0.0, 0.2, 0.8, 0.0]]
        ),  # one of batch padding
        "sampled": np.array([[1, 2], [2, 2], [2, 1]]),
        "shares": np.array([[0.6, 0.4], [1.0, 0.0], [0.9, 0.1]]),
        "fine": np.array(
            [
                [[0.5, 0.3, 0.2], [0.9, 0.05, 0.05]],
                [[0.2, 0.7, 0.1], [0.2, 0.7, 0.1]],
                [[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]],
            ]
        ),
    }
    made = Hypothesis(
        ids=[4, 5],
        score=-1.0,
        log_prob=-1.5,
        token_log_probs=[-0.5, -0.5, -0.5],
        finished=True,
        details=details,
        chunk_tokens=RANGES,
    )
    return replace(made, **changes)


def summary_of(made: Hypothesis, **options: Any) -> Summary:
    tokenizer = words()
    encoding = tokenizer.encode(DOCUMENT)
    return build_summary(made, document=DOCUMENT, source_encoding=encoding, tokenizer=tokenizer, **options)


def test_weights_exist_for_the_words_of_chunks_read() -> None:
    made = hypothesis()
    positions = read_positions(made)
    assert positions.tolist() == [3, 4, 5, 6, 7]
    expected = [
        [0.6 * 0.5, 0.6 * 0.3, 0.6 * 0.2, 0.4 * 0.9, 0.4 * 0.05],  # the third weight of chunk 2 is padding's
        [0.0, 0.0, 0.0, 0.2, 0.7],
        [0.0, 0.0, 0.1 * 1.0, 0.9, 0.0],
    ]
    np.testing.assert_allclose(read_attention(made, positions), expected)


def test_words_of_a_long_document_have_the_read_words_as_sources() -> None:
    summary = summary_of(hypothesis())
    assert [DOCUMENT[start:end] for start, end in summary.source_offsets] == ["d", "e", "f", "g", "h"]
    first, second = summary.words
    assert [source.text for source in first.sources] == ["g", "d", "e", "f", "h"]
    assert [source.text for source in second.sources] == ["h", "g"]
    assert [DOCUMENT[s.start : s.end] for s in first.sources] == [s.text for s in first.sources]
    assert sum(second.attention) == pytest.approx(0.9)
    assert len(first.attention) == 5


def test_dense_attention_is_kept_where_there_is_some() -> None:
    attention = np.eye(3, 8)
    summary = summary_of(hypothesis(attention=attention))
    assert len(summary.source_offsets) == len(summary.words[0].attention) == 8
    assert summary.words[1].sources[0].text == "b"
    assert len(summary.chunks) == 3


def test_chunks_and_what_each_word_made_of_them() -> None:
    summary = summary_of(hypothesis())
    assert [DOCUMENT[chunk.start : chunk.end] for chunk in summary.chunks] == ["a b c", "d e f", "g h"]
    assert [chunk.weights for chunk in summary.chunks] == [(0.25, 0.0), (0.5, 0.5), (0.25, 0.5)]
    assert [chunk.read for chunk in summary.chunks] == [(), (0,), (0, 1)]
    assert summary_of(hypothesis(), explain=False).chunks == ()
    assert chunk_spans(np.array([[0, 2], [2, 2]]), [(0, 4), (5, 9)]) == [(0, 9), (9, 9)]  # padding stands behind
    assert chunk_spans(np.array([[0, 0]]), []) == [(0, 0)]
    # a word of several tokens has their mean
    chunks = build_chunks(hypothesis(), [[0, 1]], words().encode(DOCUMENT).offsets)
    assert [chunk.weights for chunk in chunks] == [(0.125,), (0.5,), (0.375,)]
    assert [chunk.read for chunk in chunks] == [(), (0,), (0,)]


def test_soft_attention_reads_everything() -> None:
    coarse = {"coarse": hypothesis().details["coarse"]}
    summary = summary_of(hypothesis(details=coarse))
    assert {chunk.read for chunk in summary.chunks} == {None}
    assert summary.words[0].attention == ()  # weights over the words of a long document were not kept
    assert all("read" not in chunk for chunk in to_dict(summary)["chunks"])


def test_the_record_keeps_chunks_and_reading() -> None:
    made = hypothesis()
    _note_reading([[made]], [FIGURES], [RANGES])
    summary = replace(summary_of(made), truncated=True)
    values = json.loads(json.dumps(to_dict(summary)))
    assert values["reading"]["chunks_read"] == 2
    assert values["read_to"] == len(DOCUMENT) == read_to(summary)
    assert values["chunks"][1] == {"start": 6, "end": 11, "weights": [0.5, 0.5], "read": [0]}
    assert from_dict(values).chunks == summary.chunks
    assert from_dict(values).reading["chunks_chosen"] == 2
    assert "chunks" not in to_dict(summary, attention=False)
    assert "reading" in to_dict(summary, attention=False)
    assert '"chunks":[{' in render([summary])


def test_the_heaviest_chunks_are_drawn_in_order() -> None:
    summary = replace(summary_of(hypothesis()), document=DOCUMENT)
    weights, rows, columns = coarse_map(summary, 2)
    assert columns == ["2 d e f", "3 g h"]
    assert rows == [word.text for word in summary.words]
    assert weights.tolist() == [[0.5, 0.25], [0.5, 0.5]]


def test_means_over_documents_and_words() -> None:
    one = {**FIGURES, "chunks_chosen": 2, "coarse_entropy": 1.0, "steps": 3}
    two = {"chunks": 5, "chunks_read": 4, "words": 20, "words_read": 20, "coarse_entropy": 2.0, "steps": 1}
    found = reading_measures([one, {}, two])
    assert found == {"chunks_read": 3.0, "words_read": (5 / 8 + 1) / 2, "chunks_chosen": 2.0, "coarse_entropy": 1.25}
    assert reading_measures([{}, {}]) == {}
    assert "coarse_entropy" not in reading_measures([FIGURES])
