"""Attention as word alignment: words and links, heads against a plain loop, planted heads, and ``catchline align``."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from catchline.config.names import MODELS, build
from catchline.config.schema import RunConfig, TextConfig, TrainingConfig
from catchline.data.records import write_records
from catchline.errors import DataError
from catchline.models.folder import LoadedModel, save_model_folder
from catchline.summarizer.torch_backend import NeuralSystem
from catchline.text.tokenizer import BpeTokenizer
from catchline.types import Record, TrainingBatch
from catchline_study.align import ForcedPair, MapChoice, _word_of, attention_maps, forced_pairs, head_rates, sharpness
from catchline_study.links import (
    Links,
    WordPair,
    head_counts,
    head_error_rates,
    lexical_links,
    read_links,
    word_attention,
    word_pairs,
    write_sheet,
)
from commands import run
from json_lines import write_lines
from samples import IDS, TRANSFORMER

Link = tuple[int, int]  # (summary word, document word)


def alignment_error_rate(chosen: Iterable[set[Link]], links: Iterable[Links]) -> float:
    """1 - (|A & S| + |A & P|) / (|A| + |S|), sums over documents; P includes S (Och and Ney 2003)."""
    triples = [(a, set(one.sure), set(one.possible) | set(one.sure)) for a, one in zip(chosen, links, strict=True)]
    hits = sum(len(a & s) + len(a & p) for a, s, p in triples)
    return 1.0 - hits / sum(len(a) + len(s) for a, s, _ in triples)


RECORDS = [
    Record("The quick brown foxes jumped over the lazy dogs near Amsterdam.", "Foxes jumped over dogs", id="foxes"),
    Record("Rain fell.", "rain fell", id="rain"),
    Record("A parliament in Amsterdam voted against lazy foxes, quickly.", "Parliament voted against foxes", id="vote"),
]
PAIRS = word_pairs(RECORDS)
THREE_LAYERS = {**TRANSFORMER, "encoder_layers": 1, "decoder_layers": 3, "hidden_size": 16, "num_heads": 4}
SPECS: dict[str, dict[str, Any]] = {
    "transformer": THREE_LAYERS,
    "contrastive": {**THREE_LAYERS, "opponent": {"type": "max", "layer": 1, "head": 2}},
    "seq2seq": {"type": "seq2seq", "embedding_size": 8, "encoder_hidden": 8, "hidden_size": 8},
}


TEXT = TextConfig(source_specials=True, oov_copy="unk")


def made(kind: str, std: float = 0.7) -> tuple[Any, BpeTokenizer]:
    torch.manual_seed(4)
    tokenizer = BpeTokenizer(BpeTokenizer.Config(max_vocabulary=60, min_frequency=1))
    tokenizer.train([text for record in RECORDS for text in (record.document, record.summary)])
    model = build("model", MODELS, SPECS[kind], vocab_size=tokenizer.vocab_size, **IDS)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=std)
    return model, tokenizer


def system_of(kind: str) -> NeuralSystem:
    return NeuralSystem(LoadedModel(*made(kind), text=TEXT, name=kind))


def test_words_of_tokens_by_hand() -> None:
    words = [(0, 3), (4, 9), (9, 10)]
    # a special, a word, two pieces of a word, one over an edge (more of it in the second word), a special
    assert _word_of([(0, 0), (0, 3), (4, 6), (6, 9), (10, 10)], words) == [-1, 0, 1, 1, -1]
    assert _word_of([(0, 5), (5, 10)], words) == [0, 1]
    assert _word_of([(3, 4), (8, 10), (8, 10)], words) == [-1, 1, 1]  # equal shares: the first
    assert _word_of([], words) == []
    assert _word_of([(0, 3)], []) == [-1]


def by_hand(system: NeuralSystem, pair: WordPair, *, shift: bool = False) -> np.ndarray:
    """The heads' attention between the words of one pair, with loops and a batch of one: (L, H, words, words)."""
    forced = forced_pairs(system, [pair])[0]
    source, target = forced.example.source_extended_ids, forced.example.target_extended_ids
    assert target is not None
    ids = torch.tensor(source.tolist())[None].clamp(max=system.tokenizer.vocab_size - 1)
    gold = torch.tensor(target.tolist())[None]
    start = torch.full((1, 1), system.tokenizer.bos_id)
    batch = TrainingBatch(
        source_ids=ids,
        source_extended_ids=ids,
        source_mask=torch.ones_like(ids, dtype=torch.bool),
        extended_vocab_size=system.tokenizer.vocab_size,
        target_input_ids=torch.cat([start, gold[:, :-1]], 1),
        target_ids=gold,
        target_mask=torch.ones_like(gold, dtype=torch.bool),
    )
    with torch.no_grad():
        alpha = system.model.cross_attentions(batch)[:, :, 0].double()
    found = np.zeros((*alpha.shape[:2], len(pair.target), len(pair.source)))
    for word, (begin, end) in enumerate(pair.target):
        spans = system.tokenizer.encode(pair.summary).offsets
        rows = [t for t, (a, b) in enumerate(spans) if begin <= a < b <= end]
        rows = [t + 1 for t in rows] if shift else rows
        for column, (left, right) in enumerate(pair.source):
            places = system.tokenizer.encode(pair.document, specials=True).offsets
            inside = [s for s, (a, b) in enumerate(places) if left <= a < b <= right]
            total = sum(alpha[:, :, t, s] for t in rows for s in inside)
            found[:, :, word, column] = total.numpy() / len(rows)
    return found


@pytest.mark.parametrize(
    ("kind", "shift"), [("transformer", False), ("contrastive", True), ("seq2seq", False), ("seq2seq", True)]
)
def test_error_rates_equal_a_loop_over_single_pairs(kind: str, shift: bool) -> None:
    system = system_of(kind)
    links = [lexical_links(pair) for pair in PAIRS]
    links[0] = Links(links[0].sure, links[0].possible | {(0, 2), (3, 8)})
    rates = head_rates(system, PAIRS, links, shift=shift, batch_size=2)
    maps = [by_hand(system, pair, shift=shift) for pair in PAIRS]
    assert rates.shape == maps[0].shape[:2] == ((1, 1) if kind == "seq2seq" else (3, 4))
    for layer, head in np.ndindex(rates.shape):
        columns = [alpha[layer, head].argmax(1) for alpha in maps]  # the first of equals
        chosen = [{(t, int(row[t])) for t in one.targets} for row, one in zip(columns, links, strict=True)]
        assert rates[layer, head] == pytest.approx(alignment_error_rate(chosen, links), abs=1e-12)


def test_the_opponents_map_is_that_of_its_head_without_the_maximum() -> None:
    """Section h, test 8: softmax over what is left of alpha_c, probabilities and not logits."""
    system = system_of("contrastive")
    forced = forced_pairs(system, PAIRS)
    choices = [MapChoice.parse("opponent"), MapChoice.parse("1:2")]
    for _, (opponent, conventional) in attention_maps(system, forced, choices, batch_size=2):
        for alpha_o, alpha_c in zip(opponent, conventional.astype(np.float64), strict=True):
            left = np.where(alpha_c == alpha_c.max(), 0.0, np.exp(alpha_c))
            np.testing.assert_allclose(alpha_o, left / left.sum(), atol=1e-6)
    alone = dict(attention_maps(system, forced, choices[:1]))
    both = dict(attention_maps(system, forced, choices))
    np.testing.assert_allclose(alone[0][0], both[0][0], atol=1e-6)
    for index, maps in both.items():
        flat = sharpness(forced[index], maps[0])
        assert flat["entropy"] > 0.9 * flat["uniform"]


def test_sharpness_by_hand() -> None:
    pair = WordPair("x", "a b", "c d", ((0, 1), (2, 3)), ((0, 1), (2, 3)))
    forced = ForcedPair(pair, None, (0, 1, -1), (0, 1, -1))  # type: ignore[arg-type]
    weights = np.array([[1.0, 0.0, 0.0], [0.25, 0.25, 0.5], [0.0, 0.0, 1.0]])
    found = sharpness(forced, weights)
    assert found["entropy"] == pytest.approx((0 + 0.5 * math.log(4) + 0.5 * math.log(2)) / 2)
    assert (found["maximum"], found["outside"], found["steps"]) == (0.75, 0.25, 2)
    assert found["uniform"] == pytest.approx(math.log(3))
    assert sharpness(forced, np.full((3, 3), 1 / 3))["entropy"] == pytest.approx(math.log(3))
    assert sharpness(forced, np.zeros((3, 3)))["steps"] == 0, "rows of zeros are no attention"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pairs, and models with an opponent and without."""
    folder = tmp_path_factory.mktemp("place")
    write_records(folder / "pairs.jsonl", RECORDS)
    for kind in ("transformer", "contrastive"):
        model, tokenizer = made(kind, 1.0)
        run = RunConfig(name=kind, model=SPECS[kind], training=TrainingConfig(max_updates=1), text=TEXT)
        save_model_folder(folder / kind, model=model, tokenizer=tokenizer, run=run)
    return folder


def values(capsys: pytest.CaptureFixture[str], *arguments: object) -> Any:
    return json.loads(run(capsys, "align", *arguments, "--json"))


def test_table(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = (place / "transformer", "--data", place / "pairs.jsonl")
    found = values(capsys, *asked)
    assert (found["pairs"], found["linked_words"], [len(row) for row in found["aer"]]) == (3, 10, [4, 4, 4])
    best = found["best"]
    assert best["aer"] == min(min(row) for row in found["aer"]) == found["aer"][best["layer"]][best["head"]]
    assert found["worst"]["aer"] == max(max(row) for row in found["aer"])
    assert best["set"] in run(capsys, "align", *asked)
    printed = run(capsys, "align", *asked, "--set-head")
    assert printed == f"--set model.opponent.layer={best['layer']} --set model.opponent.head={best['head']}\n"
    assert len({rate for row in found["aer"] for rate in row}) > 1, "the toy heads should not be all alike"
    shifted = values(capsys, *asked, "--shift")
    assert shifted["shift"]
    assert shifted["aer"] != found["aer"]


def test_maps_of_a_pair(place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    png = tmp_path / "new" / "map.png"
    maps = [item for name in ("1:2", "layer-mean:1", "opponent", "mean") for item in ("--heatmap", name)]
    asked = [place / "contrastive", "--data", place / "pairs.jsonl", "--pair-id", "#3", *maps]
    assert "opponent: entropy" in run(capsys, "align", *asked, "--png", png)
    assert png.read_bytes().startswith(b"\x89PNG")
    found = values(capsys, *asked)
    assert found["summary_words"] == ["Parliament", "voted", "against", "foxes"]
    by_name = {one["map"]: one for one in found["maps"]}
    assert by_name["opponent"]["entropy"] > by_name["1:2"]["entropy"]
    assert 0.85 * by_name["opponent"]["uniform"] < by_name["opponent"]["entropy"] <= by_name["opponent"]["uniform"]
    assert run(capsys, "align", *asked).startswith("summary: Parliament voted against foxes\n")


ARTICLES = [
    Record("The cat, which didn't sleep, sat on the mat.", "Cat sat on mat.", id="a"),
    Record("北京今天天气很好。", "北京天气"),
    Record("Rain fell.", "rain", id="c"),
]
LINKED = word_pairs(ARTICLES)


def test_lexical_links() -> None:
    # "the" is twice in the document, the full stop is no word, "cat" differs in case only
    assert lexical_links(LINKED[0]).sure == {(0, 1), (1, 8), (2, 9), (3, 11)}
    assert lexical_links(LINKED[1]).sure == {(0, 0), (1, 1), (3, 5)}  # 天 is twice in the document
    assert lexical_links(LINKED[2]).possible == {(0, 0)}
    assert not lexical_links(word_pairs([Record("day by day it rains", "day after day")])[0]).sure


def test_lines_and_json_lines(tmp_path: Path) -> None:
    path = tmp_path / "links.txt"
    path.write_text("1-0 8-1\n\n0?0\n")
    found = read_links(path, LINKED)
    assert (sorted(found), found[2].sure) == ([0, 2], frozenset())
    path = write_lines(tmp_path / "links.jsonl", [{"id": "c", "links": "0-0"}, {"id": "a", "links": ["1-0", "8?1"]}])
    found = read_links(path, LINKED)
    assert (found[2].sure, found[0].possible) == ({(0, 0)}, {(0, 1), (1, 8)})


def test_sheet_goes_round(tmp_path: Path) -> None:
    odd = "a b\x1cc\x1fd\x85e\u2028f"  # signs that Python takes for blanks or line ends
    pairs = word_pairs([*ARTICLES, Record(odd, odd, id="odd")])
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
    changed = word_pairs([Record("The dog sat.", "Cat sat on mat.", id="a"), *ARTICLES[1:], Record(odd, id="odd")])
    for other in (changed, pairs[1:]):
        with pytest.raises(DataError, match=r"sheet\.jsonl:1 is not of the form"):
            read_links(path, other)


# S = {(0, 0), (1, 1)}, P = S and (1, 2), A = {(0, 0), (1, 2)}, all as (summary word, document word).
SURE, POSSIBLE = {(0, 0), (1, 1)}, {(1, 2)}


def test_rates_and_words_by_hand() -> None:
    one_head = np.array([[[[0.6, 0.3, 0.1], [0.2, 0.3, 0.5]]]])  # (1, 1, 2, 3)
    assert head_error_rates(head_counts(one_head, SURE, POSSIBLE)) == pytest.approx(np.array([[0.25]]))
    # word 0 is in no link; word 1 chooses the left of equals, which is right; word 2 has no attention at all
    maps = np.array([[[0.9, 0.1], [0.5, 0.5], [0.0, 0.0]]])
    assert head_counts(maps, {(1, 0), (2, 1)}).tolist() == [[2], [3]]
    # tokens of the document: cat ##s | sat | END; of the summary: feli ##nes | END
    weights = np.array([[0.1, 0.2, 0.3, 0.4], [0.3, 0.4, 0.2, 0.1], [0.0, 0.0, 0.0, 1.0]])
    np.testing.assert_allclose(word_attention(weights, [0, 0, -1], [0, 0, 1, -1], (1, 2)), [[0.5, 0.25]])
