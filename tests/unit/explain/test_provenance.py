"""Provenance of each word, against numbers worked out by hand; heat maps."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.image import imread

from catchline.cli.explain import write_heatmap
from catchline.config.schema import SearchConfig
from catchline.errors import DataError
from catchline.explain import pictures
from catchline.explain.pictures import HeatMap, draw_png
from catchline.explain.provenance import build_summary, extractive_summary, merge_spans
from catchline.explain.record import from_dict, to_dict
from catchline.text.base import extended
from catchline.text.tokenizer import BpeTokenizer, Tokenizer, WordTokenizer
from catchline.types import Hypothesis, Record, Summary, SummaryWord

DOCUMENT = "The old Zebrafish met  a new Zebrafish, twice."


def words() -> WordTokenizer:
    made = WordTokenizer(WordTokenizer.Config(min_frequency=1))
    made.train(["the old met a new , twice . fish"])
    return made


def id_of(word: str) -> int:
    found = words().token_id(word)
    assert found is not None
    return found


def summary_of(
    tokenizer: Tokenizer, ids: list[int], probabilities: list[float], attention: Any, **options: Any
) -> Summary:
    encoding = tokenizer.encode(DOCUMENT, max_tokens=options.pop("max_tokens", None))
    _, oov_words = extended(encoding, tokenizer.vocab_size, tokenizer.unk_id)
    details = {name: np.array(options.pop(name)) for name in ("p_gen", "copy_probs") if name in options}
    hypothesis = Hypothesis(
        ids=ids,
        score=-0.5,
        log_prob=sum(map(math.log, probabilities)),
        token_log_probs=[math.log(p) for p in probabilities],
        finished=len(probabilities) > len(ids),
        attention=np.array(attention),
        details=details,
    )
    return build_summary(
        hypothesis,
        document=Record(DOCUMENT, id="r1"),
        source_encoding=encoding,
        tokenizer=tokenizer,
        oov_words=oov_words,
        **options,
    )


#      the old zebrafish met a new zebrafish , twice .      and the padding of a longer neighbour
ROW = [0.1, 0.0, 0.3, 0.1, 0.0, 0.1, 0.2, 0.0, 0.1, 0.1, 0.0]
FLAT = [0.1] * 10 + [0.0]


def test_the_copy_share_is_the_copied_part_of_the_words_probability() -> None:
    tokenizer = words()
    zebrafish, fish = tokenizer.vocab_size, id_of("fish")
    made = summary_of(tokenizer, [zebrafish, fish], [0.4, 0.3, 0.9], [ROW, FLAT, FLAT], p_gen=[0.2, 0.9, 1.0])
    copied, generated = made.words
    assert made.text == "zebrafish fish"
    # (1 - p_gen) * (0.3 + 0.2) / P(w) = 0.8 * 0.5 / 0.4
    assert copied.copy_share == pytest.approx(1.0)
    assert copied.copied
    assert copied.p_gen == pytest.approx(0.2)
    assert copied.probability == pytest.approx(0.4)
    assert [(span.start, span.end, span.text) for span in copied.sources] == [
        (8, 17, "Zebrafish"),
        (29, 38, "Zebrafish"),
    ]
    assert [span.weight for span in copied.sources] == pytest.approx([0.6, 0.4])
    assert generated.copy_share == 0.0
    assert not generated.copied
    assert made.finished
    assert len(copied.attention) == len(made.source_offsets) == 10


def test_an_unk_is_replaced_by_the_most_attended_word_and_counts_as_copied() -> None:
    tokenizer = words()
    ids = [tokenizer.unk_id]
    assert summary_of(tokenizer, ids, [0.7], [ROW]).text == "<unk>"
    made = summary_of(tokenizer, ids, [0.7], [ROW], search=SearchConfig(surface="raw", replace_unk="words"))
    assert made.text == "zebrafish"
    assert made.words[0].copied
    assert [(span.start, span.weight) for span in made.words[0].sources] == [(8, 1.0)]


def test_the_source_spans_are_the_users_own_text_and_special_tokens_are_left_out() -> None:
    tokenizer = words()
    ids = [tokenizer.bos_id, tokenizer.vocab_size]
    made = summary_of(tokenizer, ids, [0.9, 0.4], [FLAT, ROW], p_gen=[0.5, 0.2])
    assert [word.text for word in made.words] == ["zebrafish"]
    for word in made.words:
        assert made.text[word.start : word.end] == word.text
        assert all(DOCUMENT[span.start : span.end] == span.text for span in word.sources)


def zebrafish_in_pieces() -> tuple[Tokenizer, list[int], np.ndarray]:
    """A tokenizer of subwords, the ids of the document's first Zebrafish, and where each stands: ones (pieces, S)."""
    tokenizer = BpeTokenizer(BpeTokenizer.Config(max_vocabulary=40, min_frequency=1))
    tokenizer.train(["old new met twice Zebra fish a the"])
    encoding = tokenizer.encode(DOCUMENT)
    pieces = [i for i, (start, end) in enumerate(encoding.offsets) if start >= 8 and end <= 17]
    assert len(pieces) > 1
    return tokenizer, [encoding.ids[i] for i in pieces], np.eye(len(encoding.ids))[pieces]


def test_a_word_is_copied_by_the_mean_of_its_pieces() -> None:
    """The first piece alone would be a copy; with pieces that were generated the word is none."""
    tokenizer, pieces, places = zebrafish_in_pieces()
    half, flat = [0.5] * len(pieces), np.full(places.shape, 1 / places.shape[1])
    for last, copied in ((0.0, False), (0.9, True)):
        shares = [0.9, *[last] * (len(pieces) - 1)]
        details = {"copy_probs": 0.5 * np.array(shares)[:, None] * places, "p_gen": [0.1] * len(pieces)}
        (word,) = summary_of(tokenizer, pieces, half, flat, **details).words
        assert word.copy_share == pytest.approx(np.mean(shares))
        assert word.copied is copied


def test_truncated_unexplained_and_empty_summaries() -> None:
    made = summary_of(words(), [4], [0.5], [[0.5, 0.5, 0.0]], max_tokens=2)
    assert (made.tokens_read, made.tokens_given, made.truncated) == (2, 10, True)
    made = summary_of(words(), [4], [0.5], [ROW], explain=False)
    assert (bool(made.text), made.words) == (True, ())
    made = summary_of(words(), [], [0.5], np.zeros((1, 11)))
    assert (made.text, made.words) == ("", ())


def test_extractive_words_point_to_where_they_stand() -> None:
    text = "One  two\nthree. Four five."
    made = extractive_summary(text, [(0, 15), (16, 26)], model_name="lead")
    assert made.text == "One two three. Four five."
    for word in made.words:
        assert made.text[word.start : word.end] == word.text
        assert word.copied
        assert text[word.sources[0].start : word.sources[0].end] == word.text


def test_a_word_divided_at_the_end_of_a_line_is_one() -> None:
    text = "multi-\n  rate pre-\nand post- processing"
    summary = extractive_summary(text, [(0, len(text))], model_name="lead")
    assert summary.text == "multi-rate pre- and post- processing"
    assert [word.sources[0].text for word in summary.words][:2] == ["multi-\n  rate", "pre-"]
    assert all(summary.text[word.start : word.end] == word.text for word in summary.words)


def test_merged_spans_join_pieces_of_one_word_only() -> None:
    offsets = [(0, 0), (0, 3), (3, 7), (7, 8), (9, 12)]
    spans = merge_spans([0.1, 0.2, 0.3, 0.1, 0.3], offsets, "fishery. too", joined=[False, False, True, False, False])
    assert [(s.start, s.end, s.text) for s in spans] == [(0, 7, "fishery"), (9, 12, "too"), (7, 8, ".")]
    assert [s.weight for s in spans] == pytest.approx([0.5, 0.3, 0.1])


def test_a_summary_survives_json() -> None:
    tokenizer = words()
    made = summary_of(tokenizer, [tokenizer.vocab_size, 4], [0.4, 0.25], [ROW, FLAT], p_gen=[0.25, 0.5])
    again = from_dict(to_dict(made))
    assert again.text == made.text
    assert again.id == "r1"
    assert again.document == DOCUMENT
    assert again.source_offsets == made.source_offsets
    for mine, theirs in zip(again.words, made.words, strict=True):
        assert mine.sources[0].text == theirs.sources[0].text
        assert mine.copied == theirs.copied
        assert mine.probability == pytest.approx(theirs.probability, abs=1e-4)
        assert mine.attention == pytest.approx(theirs.attention, abs=1e-4)
    assert to_dict(again) == to_dict(made)
    assert "document" not in to_dict(made, document=False)
    assert from_dict({"id": 0, "summary": "a b"}).id == "0"
    with pytest.raises(DataError, match="not a stored summary"):
        from_dict({"text": "x"})


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


def some_map(rows: int = 4, columns: int = 9, title: str = "layer 2, head 4", seed: int = 0) -> HeatMap:
    weights = np.random.default_rng(seed).random((rows, columns))
    weights /= weights.sum(1, keepdims=True)
    return HeatMap(
        title, weights, [f"row{i}" for i in range(rows)], [f"word{i}" for i in range(columns)], "entropy 1.00 of 2.20"
    )


def test_picture(tmp_path: Path) -> None:
    path = tmp_path / "new" / "map.png"
    assert draw_png([some_map()], path, title=r"a $\frac$ pair") == []
    pixels = imread(path)
    assert pixels.shape[1] < 900
    assert not list(path.parent.glob("*.partial"))
    assert len(np.unique(pixels.reshape(-1, pixels.shape[2]), axis=0)) > 20  # colours, not an empty sheet


def test_long_documents_and_summaries_are_cut_with_a_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pictures, "MAX_ROWS", 4)
    monkeypatch.setattr(pictures, "MAX_COLUMNS", 6)
    long = some_map(rows=5, columns=30)
    notes = draw_png([long], tmp_path / "map.png")
    share = round(100 * long.weights[:, :6].sum() / long.weights.sum())
    assert notes[0].startswith(f"The first 6 of 30 document words are drawn; they hold {share}% of the weight.")
    assert notes[1] == "The first 4 of 5 summary words are drawn."


def test_columns_of_special_tokens_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[HeatMap] = []
    monkeypatch.setattr("catchline.explain.pictures.draw_png", lambda maps, *_, **__: drawn.extend(maps) or [])
    weights = (0.1, 0.5, 0.3, 0.1)
    word = SummaryWord("cat", 0, 3, 1.0, copied=True, copy_share=1.0, p_gen=None, sources=(), attention=weights)
    offsets = ((0, 0), (0, 3), (4, 7), (7, 7))
    write_heatmap(tmp_path / "map.png", [Summary("cat", document="cat sat", words=(word,), source_offsets=offsets)])
    assert list(drawn[0].columns) == ["(start)", "cat", "sat", "(end)"]
