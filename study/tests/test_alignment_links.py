"""Word links, their files (what is read, what is refused and where), sheets, and the error rates of heads."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from catchline.errors import DataError
from catchline.types import Record
from catchline_study.links import (
    head_counts,
    head_error_rates,
    lexical_links,
    parse_links,
    read_links,
    word_attention,
    word_pairs,
    write_sheet,
)

RECORDS = [
    Record("The cat, which didn't sleep, sat on the mat.", "Cat sat on mat.", id="a"),
    Record("北京今天天气很好。", "北京天气"),
    Record("Rain fell.", "rain", id="c"),
]
PAIRS = word_pairs(RECORDS)


def test_lexical_links() -> None:
    # "the" is twice in the document, the full stop is no word, "cat" differs in case only
    assert lexical_links(PAIRS[0]).sure == {(0, 1), (1, 8), (2, 9), (3, 11)}
    assert lexical_links(PAIRS[1]).sure == {(0, 0), (1, 1), (3, 5)}  # 天 is twice in the document
    assert lexical_links(PAIRS[2]).possible == {(0, 0)}
    twice = word_pairs([Record("day by day it rains", "day after day")])[0]
    assert not lexical_links(twice).sure


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("1-0 8~1", r"f\.txt:3: '8~1' is not a link; write i-j"),
        ("13-0", "links document word 13; the last one is 12"),
        ("0-5", "links summary word 5; the last one is 4"),
    ],
)
def test_parse_says_what_is_wrong(text: str, said: str) -> None:
    with pytest.raises(DataError, match=said):
        parse_links(text, "f.txt:3", PAIRS[0])


def test_lines_and_json_lines(tmp_path: Path) -> None:
    path = tmp_path / "links.txt"
    path.write_text("1-0 8-1\n\n0?0\n")
    found = read_links(path, PAIRS)
    assert sorted(found) == [0, 2]
    assert found[2].sure == frozenset()
    path = tmp_path / "links.jsonl"
    path.write_text('{"id": "c", "links": "0-0"}\n\n{"id": "a", "links": ["1-0", "8?1"]}\n')
    found = read_links(path, PAIRS)
    assert found[2].sure == {(0, 0)}
    assert found[0].possible == {(0, 1), (1, 8)}


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("x.txt", "1-0\n0-0\n0-0\n0-0\n", "has 4 lines, the data 3 pairs"),
        ("x.txt", "1-0\n0-9\n", r"x\.txt:2: '0-9' links summary word 9"),
        ("x.txt", "\n\n", "holds no link"),
        ("x.txt", "\xff\xfe", "cannot be read as a file of links"),
        ("x.jsonl", '{"id": "z", "links": "0-0"}\n', r"x\.jsonl:1 is not of the form"),
        ("x.jsonl", '{"id": ' + "[" * 3000 + "\n", r"x\.jsonl:1 is not of the form"),
    ],
    ids=lambda value: value[:12],
)
def test_files_of_links_that_are_refused(name: str, content: str, said: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(content, encoding="latin-1")
    with pytest.raises(DataError, match=said):
        read_links(tmp_path / name, PAIRS)
    with pytest.raises(DataError, match="cannot be read as a file of links"):
        read_links(tmp_path / "absent", PAIRS)


def test_sheet_goes_round(tmp_path: Path) -> None:
    odd = "a b\x1cc\x1fd\x85e\u2028f"  # signs that Python takes for blanks or line ends
    pairs = word_pairs([*RECORDS, Record(odd, odd, id="odd")])
    assert pairs[3].source_words == list("abcdef")
    path = tmp_path / "new" / "sheet.jsonl"
    assert write_sheet(path, pairs) == 4
    with pytest.raises(DataError, match="holds no link"):
        read_links(path, pairs)
    lines = [json.loads(line) for line in path.read_text().split("\n")[:-1]]
    for line, links in zip(lines, ("1-0 4?2", "", "none", "5-5"), strict=True):
        line["links"] = links
    path.write_text("\n".join(map(json.dumps, lines)))
    found = read_links(path, pairs[::-1])  # found by label, not by place
    assert sorted(found) == [0, 1, 3]
    assert found[3].possible == {(0, 1), (2, 4)}
    assert found[0].sure == {(5, 5)}
    changed = word_pairs([Record("The dog sat.", "Cat sat on mat.", id="a"), *RECORDS[1:], Record(odd, id="odd")])
    with pytest.raises(DataError, match=r"sheet\.jsonl:1 is not of the form"):
        read_links(path, changed)
    with pytest.raises(DataError, match=r"sheet\.jsonl:1 is not of the form"):
        read_links(path, pairs[1:])


# ------------------------------------------------------------------------------ error rates of heads

# S = {(0, 0), (1, 1)}, P = S and (1, 2), A = {(0, 0), (1, 2)}, all as (summary word, document word).
SURE, POSSIBLE = {(0, 0), (1, 1)}, {(1, 2)}


def test_an_example_by_hand() -> None:
    one_head = np.array([[[[0.6, 0.3, 0.1], [0.2, 0.3, 0.5]]]])  # (1, 1, 2, 3)
    assert head_error_rates(head_counts(one_head, SURE, POSSIBLE)) == pytest.approx(np.array([[0.25]]))


def test_words_without_links_and_empty_rows_are_dropped() -> None:
    maps = np.array([[[0.9, 0.1], [0.5, 0.5], [0.0, 0.0]]])
    counts = head_counts(maps, {(1, 0), (2, 1)})
    # word 0 is in no link; word 1 chooses the left of equals, which is right; word 2 has no attention at all
    assert counts.tolist() == [[2], [3]]


def test_subwords_become_words() -> None:
    # tokens of the document: cat ##s | sat | END; of the summary: feli ##nes | END
    weights = np.array([[0.1, 0.2, 0.3, 0.4], [0.3, 0.4, 0.2, 0.1], [0.0, 0.0, 0.0, 1.0]])
    merged = word_attention(weights, [0, 0, -1], [0, 0, 1, -1], (1, 2))
    np.testing.assert_allclose(merged, [[0.5, 0.25]])
    batch = np.stack([weights, weights[::-1]])
    np.testing.assert_allclose(word_attention(batch, [0, 0, -1], [0, 0, 1, -1], (1, 2))[0], merged)
