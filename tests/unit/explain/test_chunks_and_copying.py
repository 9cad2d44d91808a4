"""The coarse map and the chain of copying, token by token, against numbers worked out by hand."""

from __future__ import annotations

import io
import json
import math
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from catchline.evaluation.measures import reading_measures
from catchline.explain.chunks import build_chunks, chunk_spans, coarse_map, read_attention, read_positions, read_to
from catchline.explain.html import render
from catchline.explain.provenance import build_summary
from catchline.explain.record import from_dict, to_dict
from catchline.explain.terminal import show
from catchline.search.decode import _note_reading
from catchline.text.tokenizer import WordTokenizer
from catchline.types import Hypothesis, Summary, TokenizedText

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


CAR = "a red car hit a wall"
ALPHA = [[0.0, 0.5, 0.3, 0.0, 0.0, 0.1, 0.1], [0.1, 0.1, 0.1, 0.1, 0.1, 0.4, 0.1]]
P_CO = [[0.0] * 7, [0.0, 0.0, 0.7, 0.2, 0.0, 0.1, 0.0]]
P_FINAL = [[0.0, 0.5, 0.3, 0.0, 0.0, 0.1, 0.1], [0.0, 0.1, 0.6, 0.1, 0.0, 0.1, 0.1]]
DETAILS: dict[str, Any] = {
    "p_gen": [0.5, 0.25],
    "copy_probs": [[0.5 * w for w in P_FINAL[0]], [0.75 * w for w in P_FINAL[1]]],
    "p_final": P_FINAL,
    "copy_correlational": P_CO,
    "copy_attention_gate": [1.0, 0.2],
    "copy_semantic_gate": [0.3, 0.7],
}


def copied(details: dict[str, Any], probabilities: tuple[float, float] = (0.5, 0.6)) -> Summary:
    """'red car' by a model that read the document and an END, the last of seven tokens."""
    tokenizer = WordTokenizer(WordTokenizer.Config(min_frequency=1))
    tokenizer.train([CAR])
    encoding = tokenizer.encode(CAR)
    read = TokenizedText(
        ids=(*encoding.ids, tokenizer.eos_id),
        tokens=(*encoding.tokens, tokenizer.token(tokenizer.eos_id)),
        offsets=(*encoding.offsets, (len(CAR), len(CAR))),
        total=encoding.total,
        truncated=False,
    )
    ids = [encoding.ids[1], encoding.ids[2]]
    hypothesis = Hypothesis(
        ids=ids,
        score=-1.0,
        log_prob=-1.0,
        token_log_probs=[math.log(p) for p in probabilities],
        finished=False,
        attention=np.array(ALPHA),
        details={name: np.array(values) for name, values in details.items()},
    )
    return build_summary(hypothesis, document=CAR, source_encoding=read, tokenizer=tokenizer, model_name="m")


def test_each_token_has_its_gates_and_places() -> None:
    made = copied(DETAILS)
    red, car = made.words
    assert made.text == "red car"
    assert car.maps == {"p_co": pytest.approx(P_CO[1]), "p_final": pytest.approx(P_FINAL[1])}
    assert car.figures == pytest.approx(
        {"copy_attention_gate": 0.2, "copy_semantic_gate": 0.7, "copied_from_specials": 0.1}
    )
    (token,) = car.tokens
    assert (token.text, token.p_gen, token.figures) == ("car", 0.25, pytest.approx(car.figures))
    assert [(span.text, span.start, span.weight) for span in token.sources["p_final"]] == [
        ("car", 6, pytest.approx(0.6)),
        ("red", 2, pytest.approx(0.1)),
        ("hit", 10, pytest.approx(0.1)),
    ]
    assert [span.text for span in token.sources["attention"]] == ["wall", "a", "red"]
    assert [span.text for span in token.sources["p_co"]] == ["car", "hit", "wall"]
    assert red.tokens[0].sources["p_co"] == ()  # the first step has no history
    # what was copied of "car": (1 - 0.25) 0.6, of a probability of 0.6
    assert car.copy_share == pytest.approx(0.75 * 0.6 / 0.6)


def test_the_factor_of_copying_counts_once() -> None:
    """copy_probs are (1 - p_gen) P_final already; without them the attention is what was copied."""
    half = copied({"p_gen": DETAILS["p_gen"], "copy_probs": DETAILS["copy_probs"]}, (0.4, 0.6))
    assert [word.copy_share for word in half.words] == pytest.approx([0.5 * 0.5 / 0.4, 0.75 * 0.6 / 0.6])
    plain = copied({"p_gen": DETAILS["p_gen"]}, (0.4, 0.6))
    assert [word.copy_share for word in plain.words] == pytest.approx([0.5 * 0.5 / 0.4, 0.75 * 0.1 / 0.6])
    assert (plain.words[0].maps, plain.words[0].figures, plain.words[0].tokens) == ({}, {}, ())


def test_an_opponent_is_shown_too() -> None:
    opponent = {"opponent_attention": P_CO, "conventional_attention": ALPHA, "opponent_log_prob": [-1.5, -2.0]}
    words = copied(opponent).words
    assert list(words[1].maps) == ["opponent_attention", "conventional_attention"]
    assert words[1].maps["opponent_attention"] == pytest.approx(P_CO[1])
    assert [word.figures["opponent_log_prob"] for word in words] == [-1.5, -2.0]


def test_it_survives_being_stored() -> None:
    made = copied(DETAILS)
    stored = json.loads(json.dumps(to_dict(made)))
    again = from_dict(stored)
    assert again.words[1].maps["p_co"] == pytest.approx(P_CO[1])
    assert again.words[1].tokens == made.words[1].tokens
    bare = to_dict(made, attention=False)
    assert "maps" not in bare["words"][0]
    assert bare["words"][0]["tokens"][0]["sources"]["p_final"][0]["text"] == "red"


def test_the_table_of_tokens() -> None:
    out = io.StringIO()
    console = Console(file=out, width=200, color_system=None)
    show(copied(DETAILS), console, words=True)
    lines = out.getvalue().splitlines()
    header = next(line for line in lines if line.startswith("token"))
    assert header.split() == ["token", "P", "λ", "g", "u", "specials", "alpha", "P_co", "P_final"]
    row = next(line for line in reversed(lines) if line.startswith("car"))
    assert row.split()[1:6] == ["0.60", "0.25", "0.20", "0.70", "0.10"]
    assert re.search(r"wall \(0\.40\).*car \(0\.70\).*car \(0\.60\)", row)
    out.truncate(0)
    show(copied({}), console, words=True)
    assert "token  " not in out.getvalue()
