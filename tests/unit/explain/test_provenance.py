"""Provenance of each word, the coarse map and the chain of copying, against numbers worked out by hand; heat maps."""

from __future__ import annotations

import io
import json
import math
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.image import imread
from rich.console import Console

from catchline.cli.explain import write_heatmap
from catchline.config.schema import SearchConfig
from catchline.errors import DataError
from catchline.evaluation.measures import reading_measures
from catchline.explain import pictures
from catchline.explain.chunks import build_chunks, chunk_spans, coarse_map, read_attention, read_positions, read_to
from catchline.explain.html import render
from catchline.explain.pictures import HeatMap, draw_png
from catchline.explain.provenance import build_summary, extractive_summary, merge_spans
from catchline.explain.record import from_dict, to_dict
from catchline.explain.terminal import show
from catchline.search.decode import _note_reading
from catchline.text.base import extended
from catchline.text.tokenizer import BpeTokenizer, Tokenizer, WordTokenizer
from catchline.types import Hypothesis, Record, Summary, SummaryWord, TokenizedText

DOCUMENT = "The old Zebrafish met  a new Zebrafish, twice."
LONG = "a b c d e f g h"  # three chunks of three words, the last with two
CAR = "a red car hit a wall"


def words(text: str = "the old met a new , twice . fish") -> WordTokenizer:
    made = WordTokenizer(WordTokenizer.Config(min_frequency=1))
    made.train([text])
    return made


def summary_of(
    tokenizer: Tokenizer,
    ids: list[int],
    probabilities: Sequence[float],
    attention: Any,
    *,
    document: str = DOCUMENT,
    encoding: TokenizedText | None = None,
    **options: Any,
) -> Summary:
    """What is made of tokens with these probabilities; arrays among the ``options`` are details."""
    encoding = encoding or tokenizer.encode(document, max_tokens=options.pop("max_tokens", None))
    _, oov_words = extended(encoding, tokenizer.vocab_size, tokenizer.unk_id)
    details = {name: np.array(options.pop(name)) for name in [*options] if isinstance(options[name], list | np.ndarray)}
    logs = [math.log(p) for p in probabilities]
    finished = len(probabilities) > len(ids)
    made = Hypothesis(ids, -0.5, sum(logs), logs, finished, attention=np.array(attention), details=details)
    own = {"document": Record(document, id="r1"), "source_encoding": encoding, "tokenizer": tokenizer}
    return build_summary(made, **own, oov_words=oov_words, **options)


#      the old zebrafish met a new zebrafish , twice .      and the padding of a longer neighbour
ROW = [0.1, 0.0, 0.3, 0.1, 0.0, 0.1, 0.2, 0.0, 0.1, 0.1, 0.0]
FLAT = [0.1] * 10 + [0.0]


def test_the_copy_share_is_the_copied_part_of_the_words_probability() -> None:
    tokenizer = words()
    zebrafish, fish = tokenizer.vocab_size, tokenizer.token_id("fish")
    made = summary_of(tokenizer, [zebrafish, fish], [0.4, 0.3, 0.9], [ROW, FLAT, FLAT], p_gen=[0.2, 0.9, 1.0])
    copied, generated = made.words
    assert (made.text, made.finished) == ("zebrafish fish", True)
    # (1 - p_gen) * (0.3 + 0.2) / P(w) = 0.8 * 0.5 / 0.4
    assert (copied.copied, copied.copy_share, copied.p_gen, copied.probability) == pytest.approx((True, 1.0, 0.2, 0.4))
    places = [(8, 17, "Zebrafish"), (29, 38, "Zebrafish")]
    assert [(span.start, span.end, span.text) for span in copied.sources] == places
    assert [span.weight for span in copied.sources] == pytest.approx([0.6, 0.4])
    assert (generated.copy_share, generated.copied) == (0.0, False)
    assert len(copied.attention) == len(made.source_offsets) == 10


def test_an_unk_is_replaced_by_the_most_attended_word_and_counts_as_copied() -> None:
    tokenizer = words()
    ids = [tokenizer.unk_id]
    assert summary_of(tokenizer, ids, [0.7], [ROW]).text == "<unk>"
    made = summary_of(tokenizer, ids, [0.7], [ROW], search=SearchConfig(surface="raw", replace_unk="words"))
    assert (made.text, made.words[0].copied) == ("zebrafish", True)
    assert [(span.start, span.weight) for span in made.words[0].sources] == [(8, 1.0)]


def test_the_source_spans_are_the_users_own_text_and_special_tokens_are_left_out() -> None:
    tokenizer = words()
    ids = [tokenizer.bos_id, tokenizer.vocab_size]
    (word,) = summary_of(tokenizer, ids, [0.9, 0.4], [FLAT, ROW], p_gen=[0.5, 0.2]).words
    assert (word.text, word.start, word.end) == ("zebrafish", 0, 9)
    assert all(DOCUMENT[span.start : span.end] == span.text for span in word.sources)


def test_a_word_is_copied_by_the_mean_of_its_pieces() -> None:
    """The first piece alone would be a copy; with pieces that were generated the word is none."""
    tokenizer = BpeTokenizer(BpeTokenizer.Config(max_vocabulary=40, min_frequency=1))
    tokenizer.train(["old new met twice Zebra fish a the"])
    encoding = tokenizer.encode(DOCUMENT)
    at = [i for i, (start, end) in enumerate(encoding.offsets) if start >= 8 and end <= 17]  # the first Zebrafish
    assert len(at) > 1
    places, ids = np.eye(len(encoding.ids))[at], [encoding.ids[i] for i in at]
    for last, copied in ((0.0, False), (0.9, True)):
        shares = [0.9, *[last] * (len(at) - 1)]
        details = {"copy_probs": 0.5 * np.array(shares)[:, None] * places, "p_gen": [0.1] * len(at)}
        (word,) = summary_of(tokenizer, ids, [0.5] * len(at), places * 0 + 0.1, **details).words
        assert word.copy_share == pytest.approx(np.mean(shares))
        assert word.copied is copied


def test_truncated_unexplained_and_empty_summaries() -> None:
    made = summary_of(words(), [4], [0.5], [[0.5, 0.5, 0.0]], max_tokens=2)
    assert (made.tokens_read, made.tokens_given, made.truncated) == (2, 10, True)
    made = summary_of(words(), [4], [0.5], [ROW], explain=False)
    assert (bool(made.text), made.words) == (True, ())
    made = summary_of(words(), [], [0.5], np.zeros((1, 11)))
    assert (made.text, made.words) == ("", ())


@pytest.mark.parametrize(
    ("text", "spans", "shown", "sources"),
    [
        ("One  two\nthree. Four five.", [(0, 15), (16, 26)], "One two three. Four five.", ["One", "two", "three."]),
        # a word divided at the end of a line is one
        ("multi-\n  rate pre-\nand post-", [(0, 28)], "multi-rate pre- and post-", ["multi-\n  rate", "pre-", "and"]),
    ],
)
def test_extractive_words_point_to_where_they_stand(text: str, spans: Any, shown: str, sources: list[str]) -> None:
    made = extractive_summary(text, spans, model_name="lead")
    assert made.text == shown
    assert [word.sources[0].text for word in made.words][:3] == sources
    for word in made.words:
        assert (made.text[word.start : word.end], word.copied) == (word.text, True)
        assert text[word.sources[0].start : word.sources[0].end] == word.sources[0].text


def test_merged_spans_join_pieces_of_one_word_only() -> None:
    offsets = [(0, 0), (0, 3), (3, 7), (7, 8), (9, 12)]
    spans = merge_spans([0.1, 0.2, 0.3, 0.1, 0.3], offsets, "fishery. too", joined=[False, False, True, False, False])
    assert [(s.start, s.end, s.text) for s in spans] == [(0, 7, "fishery"), (9, 12, "too"), (7, 8, ".")]
    assert [s.weight for s in spans] == pytest.approx([0.5, 0.3, 0.1])


# -------------------------------------------------------------------------------------- long documents in chunks

RANGES = np.array([[0, 3], [3, 6], [6, 8]])
FIGURES = {"chunks": 3, "chunks_read": 2, "words": 8, "words_read": 5}
COARSE = np.array([[0.25, 0.5, 0.25, 0.0], [0.0, 0.5, 0.5, 0.0], [0.0, 0.2, 0.8, 0.0]])  # one of batch padding
FINE = [[[0.5, 0.3, 0.2], [0.9, 0.05, 0.05]], [[0.2, 0.7, 0.1]] * 2, [[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]]
SAMPLED = {"sampled": [[1, 2], [2, 2], [2, 1]], "shares": [[0.6, 0.4], [1.0, 0.0], [0.9, 0.1]], "fine": FINE}


def chunked(**changes: Any) -> Hypothesis:
    """Two words and EOS; the first reads chunks 1 and 2, the second chunk 2 alone, EOS chunks 2 and 1."""
    details = {"coarse": COARSE, **{name: np.array(values) for name, values in SAMPLED.items()}}
    made = Hypothesis([4, 5], -1.0, -1.5, [-0.5, -0.5, -0.5], True, details=details, chunk_tokens=RANGES)
    return replace(made, **changes)


def long(**options: Any) -> Summary:
    made, explain, tokenizer = chunked(**options), options.pop("explain", True), words(LONG)
    encoding = tokenizer.encode(LONG)
    return build_summary(made, document=LONG, source_encoding=encoding, tokenizer=tokenizer, explain=explain)


def test_weights_exist_for_the_words_of_chunks_read() -> None:
    positions = read_positions(chunked())
    assert positions.tolist() == [3, 4, 5, 6, 7]
    expected = [
        [0.6 * 0.5, 0.6 * 0.3, 0.6 * 0.2, 0.4 * 0.9, 0.4 * 0.05],  # the third weight of chunk 2 is padding's
        [0.0, 0.0, 0.0, 0.2, 0.7],
        [0.0, 0.0, 0.1 * 1.0, 0.9, 0.0],
    ]
    np.testing.assert_allclose(read_attention(chunked(), positions), expected)
    summary = long()
    assert [LONG[start:end] for start, end in summary.source_offsets] == ["d", "e", "f", "g", "h"]
    first, second = summary.words
    assert [[source.text for source in word.sources] for word in summary.words] == [[*"gdefh"], [*"hg"]]
    assert [LONG[s.start : s.end] for s in first.sources] == [s.text for s in first.sources]
    assert (sum(second.attention), len(first.attention)) == pytest.approx((0.9, 5))
    dense = long(attention=np.eye(3, 8))  # is kept where there is some
    assert len(dense.source_offsets) == len(dense.words[0].attention) == 8
    assert (dense.words[1].sources[0].text, len(dense.chunks)) == ("b", 3)


def test_chunks_and_what_each_word_made_of_them() -> None:
    summary = long()
    assert [LONG[chunk.start : chunk.end] for chunk in summary.chunks] == ["a b c", "d e f", "g h"]
    assert [chunk.weights for chunk in summary.chunks] == [(0.25, 0.0), (0.5, 0.5), (0.25, 0.5)]
    assert [chunk.read for chunk in summary.chunks] == [(), (0,), (0, 1)]
    encoding = words(LONG).encode(LONG)
    bare = build_summary(chunked(), document=LONG, source_encoding=encoding, tokenizer=words(LONG), explain=False)
    assert bare.chunks == ()
    assert chunk_spans(np.array([[0, 2], [2, 2]]), [(0, 4), (5, 9)]) == [(0, 9), (9, 9)]  # padding stands behind
    assert chunk_spans(np.array([[0, 0]]), []) == [(0, 0)]
    chunks = build_chunks(chunked(), [[0, 1]], encoding.offsets)  # a word of several tokens has their mean
    assert [(chunk.weights, chunk.read) for chunk in chunks] == [((0.125,), ()), ((0.5,), (0,)), ((0.375,), (0,))]
    weights, rows, columns = coarse_map(summary, 2)  # the heaviest are drawn, in order
    assert (columns, rows) == (["2 d e f", "3 g h"], [word.text for word in summary.words])
    assert weights.tolist() == [[0.5, 0.25], [0.5, 0.5]]
    soft = long(details={"coarse": COARSE})  # soft attention reads everything
    assert {chunk.read for chunk in soft.chunks} == {None}
    assert soft.words[0].attention == ()  # weights over the words of a long document were not kept
    assert all("read" not in chunk for chunk in to_dict(soft)["chunks"])


def test_means_over_documents_and_words() -> None:
    one = {**FIGURES, "chunks_chosen": 2, "coarse_entropy": 1.0, "steps": 3}
    two = {"chunks": 5, "chunks_read": 4, "words": 20, "words_read": 20, "coarse_entropy": 2.0, "steps": 1}
    found = reading_measures([one, {}, two])
    assert found == {"chunks_read": 3.0, "words_read": (5 / 8 + 1) / 2, "chunks_chosen": 2.0, "coarse_entropy": 1.25}
    assert reading_measures([{}, {}]) == {}
    assert "coarse_entropy" not in reading_measures([FIGURES])


# ----------------------------------------------------------------------------------------- the chain of copying

ALPHA = [[0.0, 0.5, 0.3, 0.0, 0.0, 0.1, 0.1], [0.1, 0.1, 0.1, 0.1, 0.1, 0.4, 0.1]]
P_CO = [[0.0] * 7, [0.0, 0.0, 0.7, 0.2, 0.0, 0.1, 0.0]]
P_FINAL = [[0.0, 0.5, 0.3, 0.0, 0.0, 0.1, 0.1], [0.0, 0.1, 0.6, 0.1, 0.0, 0.1, 0.1]]
FACTOR = {"p_gen": [0.5, 0.25], "copy_probs": [[0.5 * w for w in P_FINAL[0]], [0.75 * w for w in P_FINAL[1]]]}
GATES = {"copy_attention_gate": [1.0, 0.2], "copy_semantic_gate": [0.3, 0.7]}
DETAILS: dict[str, Any] = {**FACTOR, "p_final": P_FINAL, "copy_correlational": P_CO, **GATES}


def copied(details: dict[str, Any], probabilities: tuple[float, float] = (0.5, 0.6)) -> Summary:
    """'red car' by a model that read the document and an END, the last of seven tokens."""
    tokenizer = words(CAR)
    read = tokenizer.encode(CAR, specials="end")
    return summary_of(tokenizer, list(read.ids[1:3]), probabilities, ALPHA, document=CAR, encoding=read, **details)


def test_each_token_has_its_gates_and_places() -> None:
    made = copied(DETAILS)
    red, car = made.words
    assert made.text == "red car"
    assert car.maps == {"p_co": pytest.approx(P_CO[1]), "p_final": pytest.approx(P_FINAL[1])}
    gates = {"copy_attention_gate": 0.2, "copy_semantic_gate": 0.7, "copied_from_specials": 0.1}
    assert car.figures == pytest.approx(gates)
    (token,) = car.tokens
    assert (token.text, token.p_gen, token.figures) == ("car", 0.25, pytest.approx(car.figures))
    places = [("car", 6, 0.6), ("red", 2, 0.1), ("hit", 10, 0.1)]
    found = [(span.text, span.start, pytest.approx(span.weight)) for span in token.sources["p_final"]]
    assert found == places
    assert [span.text for span in token.sources["attention"]] == ["wall", "a", "red"]
    assert [span.text for span in token.sources["p_co"]] == ["car", "hit", "wall"]
    assert red.tokens[0].sources["p_co"] == ()  # the first step has no history
    # what was copied of "car": (1 - 0.25) 0.6, of a probability of 0.6
    assert car.copy_share == pytest.approx(0.75 * 0.6 / 0.6)


def test_the_factor_of_copying_counts_once() -> None:
    """copy_probs are (1 - p_gen) P_final already; without them the attention is what was copied."""
    half = copied(FACTOR, (0.4, 0.6))
    assert [word.copy_share for word in half.words] == pytest.approx([0.5 * 0.5 / 0.4, 0.75 * 0.6 / 0.6])
    plain = copied({"p_gen": DETAILS["p_gen"]}, (0.4, 0.6))
    assert [word.copy_share for word in plain.words] == pytest.approx([0.5 * 0.5 / 0.4, 0.75 * 0.1 / 0.6])
    assert (plain.words[0].maps, plain.words[0].figures, plain.words[0].tokens) == ({}, {}, ())


def test_an_opponent_is_shown_too() -> None:
    opponent = {"opponent_attention": P_CO, "conventional_attention": ALPHA, "opponent_log_prob": [-1.5, -2.0]}
    found = copied(opponent).words
    assert list(found[1].maps) == ["opponent_attention", "conventional_attention"]
    assert found[1].maps["opponent_attention"] == pytest.approx(P_CO[1])
    assert [word.figures["opponent_log_prob"] for word in found] == [-1.5, -2.0]


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


# ----------------------------------------------------------------------------------------------- stored summaries


def test_a_summary_survives_json() -> None:
    made = copied(DETAILS)
    values = json.loads(json.dumps(to_dict(made)))
    again = from_dict(values)
    assert (again.text, again.id, again.document, again.source_offsets) == ("red car", "r1", CAR, made.source_offsets)
    for mine, theirs in zip(again.words, made.words, strict=True):
        assert (mine.sources, mine.copied, mine.tokens) == (theirs.sources, theirs.copied, theirs.tokens)
        assert mine.probability == pytest.approx(theirs.probability, abs=1e-4)
        assert mine.attention == pytest.approx(theirs.attention, abs=1e-4)
        assert mine.maps["p_co"] == pytest.approx(theirs.maps["p_co"])
    assert to_dict(again) == values == to_dict(made)
    assert "document" not in to_dict(made, document=False)
    bare = to_dict(made, attention=False)["words"][0]
    assert ("maps" in bare, bare["tokens"][0]["sources"]["p_final"][0]["text"]) == (False, "red")
    assert from_dict({"id": 0, "summary": "a b"}).id == "0"
    with pytest.raises(DataError, match="not a stored summary"):
        from_dict({"text": "x"})


def test_the_record_keeps_chunks_and_reading() -> None:
    made = chunked()
    _note_reading([[made]], [(FIGURES, RANGES)])
    summary = replace(long(reading=made.reading), truncated=True)
    values = json.loads(json.dumps(to_dict(summary)))
    assert values["reading"]["chunks_read"] == 2
    assert values["read_to"] == len(LONG) == read_to(summary)
    assert values["chunks"][1] == {"start": 6, "end": 11, "weights": [0.5, 0.5], "read": [0]}
    assert (from_dict(values).chunks, from_dict(values).reading["chunks_chosen"]) == (summary.chunks, 2)
    bare = to_dict(summary, attention=False)
    assert ("chunks" in bare, "reading" in bare) == (False, True)
    assert '"chunks":[{' in render([summary])


WORD = {"text": "ab", "start": 0, "end": 2, "probability": 0.5}
PLACE = {"text": "ab", "start": 0, "end": 2, "weight": 1.0}


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"reading": {"chunks": 3}}, "reading lacks chunks_read, words_read, words"),
        ({"words": [WORD | {"attention": [0.1, 0.2]}, WORD | {"attention": [0.1]}]}, "attention over other than the 2"),
        ({"words": [WORD | {"maps": {"copy": [0.1, 0.2]}}, WORD]}, "words with different maps"),
        ({"words": [WORD], "chunks": [{"start": 0, "end": 2, "weights": []}]}, "not those of the 1 words"),
        ({"words": [WORD | {"probability": 1.5}]}, "a probability that is not from 0 to 1"),
        ({"confidence": 7}, "a probability that is not from 0 to 1"),
        ({"words": [WORD | {"sources": [PLACE | {"end": 9}]}]}, "a place outside of the document's 8 characters"),
        ({"source_offsets": [[0, 2], [6, 9]]}, "a place outside of the document's 8 characters"),
        ({"words": [{"text": "ab", "start": 0}]}, "words.0.end: field required"),
        ({"terms": {"length": float("nan")}}, "nan instead of a number"),
        ({"words": [WORD | {"end": 6}]}, "a word outside of the summary's 5 characters"),
    ],
)
def test_parts_that_do_not_fit_together(values: dict, says: str) -> None:
    good = {"summary": "ab cd", "document": "ab cd ef", "source_offsets": [[0, 2], [3, 5]], "words": [WORD]}
    assert from_dict(good).words[0].attention == ()  # as extractive methods have it
    with pytest.raises(DataError, match=says):
        from_dict(good | values)


# ----------------------------------------------------------------------------------------------------- heat maps


def some_map(rows: int, columns: int) -> HeatMap:
    weights = np.random.default_rng(0).dirichlet(np.ones(columns), rows)
    names = [f"row{i}" for i in range(rows)], [f"word{i}" for i in range(columns)]
    return HeatMap("layer 2, head 4", weights, *names, "entropy 1.00 of 2.20")


def test_pictures_and_notes_of_what_they_leave_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "new" / "map.png"
    assert draw_png([some_map(4, 9)], path, title=r"a $\frac$ pair") == []
    pixels = imread(path)
    assert pixels.shape[1] < 900
    assert not list(path.parent.glob("*.partial"))
    assert len(np.unique(pixels.reshape(-1, pixels.shape[2]), axis=0)) > 20  # colours, not an empty sheet
    monkeypatch.setattr(pictures, "MAX_ROWS", 4)
    monkeypatch.setattr(pictures, "MAX_COLUMNS", 6)
    large = some_map(5, 30)
    notes = draw_png([large], path)
    share = round(100 * large.weights[:, :6].sum() / large.weights.sum())
    assert notes[0].startswith(f"The first 6 of 30 document words are drawn; they hold {share}% of the weight.")
    assert notes[1] == "The first 4 of 5 summary words are drawn."


def test_columns_of_special_tokens_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[HeatMap] = []
    monkeypatch.setattr("catchline.explain.pictures.draw_png", lambda maps, *_, **__: drawn.extend(maps) or [])
    word = SummaryWord("cat", 0, 3, 1.0, True, 1.0, None, (), (0.1, 0.5, 0.3, 0.1))
    offsets = ((0, 0), (0, 3), (4, 7), (7, 7))
    write_heatmap(tmp_path / "map.png", [Summary("cat", document="cat sat", words=(word,), source_offsets=offsets)])
    assert list(drawn[0].columns) == ["(start)", "cat", "sat", "(end)"]
