"""A model knows when its line had better not answer: facts, confidence, domain, the sentence instead, the fit."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from catchline.config.schema import TextConfig
from catchline.errors import ModelError
from catchline.evaluation.measures import accepted, best_threshold
from catchline.metrics.confidence import (
    FACTS,
    Calibration,
    facts_of,
    mean_ratio,
    packed,
    prose_sentence,
    unpacked,
    word_ids,
)
from catchline.summarizer.confidence import english_shares, regression, with_domain
from catchline.summarizer.summarize import or_extract
from catchline.text.tokenizer import WordTokenizer
from catchline.types import Hypothesis, Record, Summary, TokenizedText

RUSSIAN = "Река поднялась на два метра. Мост закрыт."
DOCUMENT = "The river rose by two metres in the night. The bridge was closed. Nobody was hurt when the river rose."


def calibration(threshold: float = 0.5) -> Calibration:
    """The more likely the words, the surer."""
    size = len(FACTS)
    weight = tuple(1.0 if name == "mean_log_prob" else 0.0 for name in FACTS)
    return Calibration((0.0,) * size, (1.0,) * size, weight, bias=1.0, threshold=threshold)


def facts_with(**values: float) -> dict[str, float]:
    return dict.fromkeys(FACTS, 0.0) | {"source_unknown": 0.1, "word_ratio": 0.0} | values


def test_facts_of_a_summary_counted_by_hand() -> None:
    source = TokenizedText(
        ids=(4, 1, 104, 1, 9), tokens=("the", "zebra", "ran", "xylo", "."), offsets=((0, 1),) * 5, total=8
    )
    hypothesis = Hypothesis([4, 300, 301, 77], 0.0, -6.0, [-1.0, -2.0, -0.5, -2.0, -0.5], finished=True)
    ratios = np.zeros(300)
    ratios[[1, 4, 104, 9]] = 2.0, 1.25, -0.5, 3.0
    assert facts_of(hypothesis, [4, 300, 104, 301, 9], source, 1, packed(ratios)) == {
        "mean_log_prob": pytest.approx(-6.0 / 5),
        "least_log_prob": -2.0,
        "last_log_prob": -0.5,
        "new_words": pytest.approx(1 / 4),  # 77 is the only word that the source lacks
        "log_source_tokens": pytest.approx(math.log(8)),
        "source_unknown": pytest.approx(2 / 4),  # the full stop is no word
        "word_ratio": pytest.approx((1.25 - 0.5 + 2 + 2) / 4),
    }
    assert facts_of(hypothesis, [], source, 1, "")["word_ratio"] == 0.0  # a calibration without ratios


def test_confidence_is_the_logistic_of_the_standardised_facts_and_domains_are_told() -> None:
    one = replace(calibration(), most_ratio=0.1)
    scaled = replace(one, mean=(2.0, *one.mean[1:]), deviation=(0.5, *one.deviation[1:]))
    assert scaled.confidence(facts_with(mean_log_prob=3.0)) == pytest.approx(1 / (1 + math.exp(-3.0)))
    assert 0 < scaled.confidence(facts_with(mean_log_prob=-1e9)) < 1e-9
    assert one.out_of_domain(facts_with()) == ""
    assert "training texts" in one.out_of_domain(facts_with(word_ratio=0.2))
    assert "60% of its words are unknown" in one.out_of_domain(facts_with(word_ratio=0.2, source_unknown=0.6))


def drawn(words: str, count: int, seed: int) -> list[str]:
    random = np.random.default_rng(seed)
    return [" ".join(random.choice(words.split(), 30)) for _ in range(count)]


def test_texts_of_another_kind_are_out_of_domain() -> None:
    software = "library parses files the of model and parser returns a server for protocol data"
    people = "the of and she said he was yesterday a please thanks my mother you never"
    tokenizer = WordTokenizer(WordTokenizer.Config(min_frequency=1))
    own = drawn(software, 200, 1)
    tokenizer.train([*own, people])
    made = with_domain(calibration(), SimpleNamespace(tokenizer=tokenizer, text=TextConfig()), own)
    shares, ratios = english_shares(tokenizer), unpacked(made.word_ratios)
    assert shares.sum() == pytest.approx(1.0)
    assert shares[tokenizer.encode("the").ids[0]] > 10 * shares[tokenizer.encode("she").ids[0]] > 0
    kinds = (drawn(people, 20, 3), ["Вчера выпал снег и закрыли аэропорт"], drawn(software, 200, 4))
    means = [[mean_ratio(word_ids(tokenizer.encode(text)), ratios) for text in kind] for kind in kinds]
    assert min(means[0] + means[1]) > made.most_ratio
    assert np.mean(np.array(means[2]) > made.most_ratio) < 0.05


@pytest.mark.parametrize(
    ("confidence", "domain", "said"), [(0.2, "", "not sure"), (0.7, "it is in another language", "another language")]
)
def test_a_sentence_of_the_document_answers_where_the_line_had_better_not(
    confidence: float, domain: str, said: str
) -> None:
    written = Summary("river river", document=DOCUMENT, id="7", model="m", confidence=confidence, out_of_domain=domain)
    found = or_extract(written, calibration(threshold=0.5))
    assert said in found.extracted
    assert found.text == "The river rose by two metres in the night."
    assert found.alternatives[0].text == "river river"
    assert (found.id, found.model, found.confidence, found.out_of_domain) == ("7", "m", confidence, domain)
    for word in found.words:
        assert DOCUMENT[word.sources[0].start : word.sources[0].end] == word.text
    sure = replace(written, confidence=0.5, out_of_domain="")
    assert or_extract(sure, calibration(threshold=0.5)) is sure
    assert or_extract(written, None) is written


LONG = "The committee of the town that met on Monday in the old hall near the river agreed to close the bridge"


@pytest.mark.parametrize(
    ("document", "sentence"),
    [
        (DOCUMENT, "The river rose by two metres in the night."),
        # salutations, lists, attendees, bylines, speakers, quoted mail, headings
        ("Dear Anna,\n\nthe bill of the port is wrong.", "the bill of the port is wrong."),
        ("Present: Anna Smith, Bo Lee, Cy Ng\n\nThe port was closed on Monday.", "The port was closed on Monday."),
        ("By Anna Smith, Staff Writer\n\nThe port was closed on Monday.", "The port was closed on Monday."),
        ("- one of the items here\n- two\n\nThe port was closed on Monday.", "The port was closed on Monday."),
        ("> the old mail was here.\n\nThe port was closed on Monday.", "The port was closed on Monday."),
        ("#Person1#: Hi!\n#Person2#: the port was closed on Monday.", "the port was closed on Monday."),
        ("Anna B: Hello.\nBo: the port was closed on Monday.", "the port was closed on Monday."),
        ("Lost: a grey cat of the port.", "Lost: a grey cat of the port."),
        ("THE PORT\n\nThe port was closed on Monday.", "The port was closed on Monday."),
        # at a clause, or after 20 words
        (f"{LONG}, and everybody was glad.", LONG[: LONG.index(" bridge")]),
        (f"The port was closed on Monday by the town, {LONG.lower()}.", "The port was closed on Monday by the town"),
        # where there is no prose, the first
        ("Ships, ho!", "Ships, ho!"),
        ("昨天北京下了大雪。机场关闭。", "昨天北京下了大雪。"),
        ("x" * 1000, "x" * 400),
        ("大家好今天我们来谈谈明年的预算" * 5, ("大家好今天我们来谈谈明年的预算" * 5)[:40]),
        (
            "大家好，今天我们来谈谈明年的预算和新楼的计划，" + "然后看看接下来要做什么" * 3,
            "大家好，今天我们来谈谈明年的预算和新楼的计划",
        ),
    ],
)
def test_the_first_prose_sentence(document: str, sentence: str) -> None:
    start, end = prose_sentence(document)
    assert document[start:end] == sentence


def test_texts_made_to_be_slow_to_look_at_are_not() -> None:
    """One of a request that a service answers may have 200,000 characters, and nothing else runs meanwhile."""
    before = time.process_time()
    for text in (">" * 40_000, "a, " * 40_000, "A: " * 40_000, "A" * 40_000, "1." * 40_000, "[(" * 40_000):
        prose_sentence(text)
    assert time.process_time() - before < 10, "where it is quadratic, half a minute and more"


def test_a_calibration_is_stored_and_a_damaged_one_refused(tmp_path: Path) -> None:
    assert Calibration.load(tmp_path) is None
    calibration(0.25).save(tmp_path)
    assert Calibration.load(tmp_path) == calibration(0.25)
    good = (tmp_path / "calibration.json").read_text()
    nought = good.replace('"deviation": [\n    1.0', '"deviation": [\n    0.0')
    for wrong in ("{", "[]", good.replace("0.25", "2.5"), nought):
        (tmp_path / "calibration.json").write_text(wrong)
        with pytest.raises(ModelError, match=r"calibration.json is damaged .* run `catchline calibrate`"):
            Calibration.load(tmp_path)


def test_the_fit_finds_probabilities_that_come_true() -> None:
    random = np.random.default_rng(5)
    scores = random.normal(-1.0, 1.0, 3000)
    good = random.random(3000) < 1 / (1 + np.exp(-(2 * scores + 1)))
    facts = [facts_with(mean_log_prob=float(score)) for score in scores]
    found = regression(facts, good.tolist())
    for score in (-2.0, -0.5, 0.5):
        truth = 1 / (1 + math.exp(-(2 * score + 1)))
        assert found.confidence(facts_with(mean_log_prob=score)) == pytest.approx(truth, abs=0.04)
    sure = regression(facts[:200], [True] * 200)
    assert 0.99 < sure.confidence(facts_with(mean_log_prob=-1.0)) < 1.0, "all are accepted"


@pytest.mark.parametrize(
    ("good", "instead", "threshold"),
    [
        ([0, 0, 1, 1], [1, 1, 0, 0], 0.7),  # sentences below, lines above
        ([1, 1, 1, 1], [1, 1, 1, 1], 0.0),  # nothing is won by a sentence
        ([0, 0, 0, 0], [0, 1, 1, 1], 1.0),
        ([1, 0, 1, 1], [0, 0, 0, 0], 0.0),
    ],
)
def test_the_threshold_is_the_one_with_which_most_answers_are_accepted(
    good: list[int], instead: list[int], threshold: float
) -> None:
    order = [2, 0, 3, 1]
    confidence = np.array([0.1, 0.4, 0.7, 0.9])[order]
    flags = [[bool(one[place]) for place in order] for one in (good, instead)]
    assert best_threshold(confidence, *flags) == threshold


def test_what_counts_as_accepted() -> None:
    right = "River rises by two metres"
    for document, reference, text, is_right in (
        (DOCUMENT, right, right.lower(), True),
        (DOCUMENT, right, "river rises river rises by two metres", False),
        (DOCUMENT, right, "river rises by nine metres", False),
        (DOCUMENT, right, "bridge", False),
        (RUSSIAN, "Река поднялась на два метра", "Река поднялась на два метра", True),
        (RUSSIAN, "Мост закрыт", "Река поднялась на два метра", False),
    ):
        assert accepted([text], [Record(document, reference)], accept=0.4) == [is_right]
