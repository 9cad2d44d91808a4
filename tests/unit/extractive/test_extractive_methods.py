"""The extractive methods: what each must do, contracts of all, and independent small references."""

from __future__ import annotations

import itertools
import os
import random
import subprocess
import sys

import numpy as np
import pytest

from catchline import extractive
from catchline.config.names import EXTRACTIVE, build
from catchline.errors import ConfigError, DataError
from catchline.extractive.baselines import Oracle, greedy_oracle
from catchline.extractive.concepts import ConceptIlp, solve_coverage
from catchline.extractive.frequency import Edmundson
from catchline.extractive.similarity import Lsa, power_method, tfidf
from catchline.extractive.words import SentenceTerms, stop_words
from catchline.metrics.rouge import rouge
from catchline.text.normalization import without_invisible
from catchline.text.sentences import sentence_strings

STORY = [
    "The city council approved a new budget for public schools on Tuesday.",
    "Teachers had asked the council for more money since the spring.",
    "It rained.",
    "The budget gives schools money for teachers, books and new buildings.",
    "Several parents said the council should have approved the budget earlier.",
    "The mayor will sign the budget next week, her office said.",
    "A football match was played in the evening.",
]
PLAIN = sorted(set(EXTRACTIVE) - {"oracle"})


def make(name, **options):
    return build("extractive method", EXTRACTIVE, {"type": name, **options})


@pytest.mark.parametrize("name", PLAIN)
def test_contract(name):
    method = make(name)
    picked = method.summarize(STORY)
    assert picked == sorted(set(picked))
    assert picked
    assert all(0 <= index < len(STORY) for index in picked)
    assert method.summarize(STORY) == picked
    assert method.summarize([]) == []
    assert method.summarize(["", "  ", "\n"]) == []
    assert method.summarize(["Only one sentence here."]) == [0]
    assert method.text("") == ""
    assert make(name).text(STORY)


@pytest.mark.parametrize("name", PLAIN)
@pytest.mark.parametrize(
    "document",
    [
        ["...", "1234 5678.", "!!!", "42"],
        ["😀", "😀 😀"],
        ["The of and.", "It is.", "Of the."],
        ["Same words here."] * 5,
        ["我爱北京。", "北京是首都。", "天气很好。", "我爱首都。"],
        ["word " * 3000, "other " * 10, "word other."],
    ],
    ids=["no words", "emoji", "stop words", "duplicates", "chinese", "long"],
)
def test_odd_documents(name, document):
    picked = make(name).summarize(document)
    assert picked == sorted(set(picked))
    assert picked
    assert len({document[index] for index in picked}) == len(picked)


@pytest.mark.parametrize("name", sorted(set(PLAIN) - {"first_characters", "first_words", "concept_ilp"}))
def test_number_of_sentences(name):
    for count in (1, 2, 5, 99):
        assert len(make(name, sentences=count).summarize(STORY)) == min(count, len(STORY))


def test_no_result_depends_on_the_hash_seed():
    code = (
        "from catchline.config.names import EXTRACTIVE, build;"
        f"story = {STORY!r};"
        "print([build('m', EXTRACTIVE, {'type': n}).summarize(story) for n in sorted(EXTRACTIVE) if n != 'oracle'])"
    )
    seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"  # another than that of this process
    environment = {**os.environ, "PYTHONHASHSEED": seed}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    here = [make(name).summarize(STORY) for name in sorted(EXTRACTIVE) if name != "oracle"]
    assert done.stdout.strip() == str(here)


@pytest.mark.parametrize(
    ("method", "story", "picked"),
    [
        ("longest-1", ["雨。", "学校因为大雨关闭了。", "大家在家。"], [1]),
        ("first_words-6", ["雨。", "学校因为大雨关闭了。", "大家在家。"], [0, 1]),
        ("lead-2", ["", "a", "b", "c"], [1, 2]),
        (
            "longest-2",
            "A: hi\nB: a longer reply, this\nA: ok\nB: the longest of all the replies here\nA: mid one",
            [1, 3],
        ),
        ("edmundson-3", STORY, [0, 1, 6]),
    ],
)
def test_what_is_picked(method, story, picked):
    name, number = method.split("-")
    option = "words" if name == "first_words" else "sentences"
    assert make(name, **{option: int(number)}).summarize(story) == picked


@pytest.mark.parametrize(
    ("options", "text", "said"),
    [
        ({"words": 4}, "one two three. four five", "one two three. four"),
        ({"words": 6}, "学校C18 关闭了。大家在家。", "学校C18 关闭了"),
        ({"characters": 5}, "我 们 是 人。他们 走。", "我 们 是 人。"),
        ({"characters": 6}, "我 们 是 人。他们 走。", "我 们 是 人。他"),
        ({"characters": 99}, "我 们 是 人。他们 走。", "我 们 是 人。他们 走。"),
        ({"characters": 2}, ["", "a", "bc"], "a b"),
        ({"characters": 30}, " ", ""),
    ],
)
def test_first_words_and_characters(options, text, said):
    assert make(f"first_{next(iter(options))}", **options).text(text) == said


def test_summarize_by_name():
    assert extractive.summarize("lead", " ".join(STORY), sentences=1) == STORY[0]
    with pytest.raises(ConfigError, match="Did you mean 'lexrank'"):
        extractive.summarize("lexrnk", STORY)
    with pytest.raises(ConfigError, match="Unknown key"):
        extractive.summarize("lead", STORY, sentence=1)
    for unknown in ("klingon", "fran\u00e7ais"):
        with pytest.raises(ConfigError, match="stemmer"):
            extractive.summarize("luhn", STORY, stemmer=unknown)
    with pytest.raises(ConfigError, match="stop-word list"):
        extractive.summarize("luhn", STORY, stop_words="nosuchfile")
    with pytest.raises(DataError, match="Sentence 2"):
        extractive.summarize("lead", ["a", 3])


def test_stop_words_of_a_file_and_of_none(tmp_path):
    for name in ("x" * 300, "a\0b", ".", "../data/stop_words_english"):
        with pytest.raises(ConfigError, match=r"Unknown stop-word list .* Known: english, none\."):
            stop_words(name)
    path = tmp_path / "words.txt"
    path.write_bytes(b"\xef\xbb\xbfThe\n# no word\nof a\n")
    assert stop_words(str(path)) == {"the", "of", "a"}


def test_lsa_with_half_of_the_topics_and_one_topic_after_the_other():
    """By the definitions, from the singular vectors."""
    terms = SentenceTerms(STORY, Lsa.Config())
    _, strengths, topics = np.linalg.svd(tfidf(terms.counts), full_matrices=False)
    half = Lsa(Lsa.Config(method="steinberger")).rate(STORY)
    assert half == pytest.approx(np.sqrt(sum((strengths[k] * topics[k]) ** 2 for k in range(len(STORY) // 2))))
    taken: list[int] = []
    for topic in np.abs(topics[:3]):
        taken.append(next(place for place in np.argsort(-topic, kind="stable").tolist() if place not in taken))
    assert Lsa(Lsa.Config(method="gong_liu", sentences=3)).summarize(STORY) == sorted(taken)
    assert taken != np.argsort(-np.abs(topics[0]), kind="stable")[:3].tolist()
    first = Lsa(Lsa.Config(method="first", sentences=1)).summarize(STORY)
    assert first == Lsa(Lsa.Config(sentences=1)).summarize(STORY)
    full = Lsa(Lsa.Config(method="full", sentences=2)).summarize(STORY)
    assert full == Lsa(Lsa.Config(sentences=2)).summarize(STORY)


def test_edmundson_location_and_words():
    cued = Edmundson(Edmundson.Config(bonus_words=("budgets",), sentences=3))
    assert cued.summarize(STORY) == [0, 3, 4]
    stigma = Edmundson(Edmundson.Config(stigma_words=("council",), sentences=1))
    assert stigma.summarize(STORY) == [6]


def brute_force(weights, contains, lengths, budget):
    best = (-1.0, ())
    for size in range(len(lengths) + 1):
        for chosen in itertools.combinations(range(len(lengths)), size):
            if sum(lengths[list(chosen)]) <= budget:
                value = weights[contains[:, list(chosen)].any(axis=1)].sum() - 1e-6 * sum(chosen)
                best = max(best, (value, chosen), key=lambda item: item[0])
    return best


def test_concept_ilp_equals_brute_force():
    from scipy.sparse import csr_array

    generator = np.random.default_rng(1)
    for _ in range(15):
        contains = generator.random((12, 7)) < 0.3
        weights = generator.integers(1, 4, size=12).astype(float)
        lengths = generator.integers(3, 12, size=7).astype(float)
        occurrence = csr_array(contains.astype(float))
        chosen = solve_coverage(weights, occurrence, lengths, 20)
        value = weights[contains[:, chosen].any(axis=1)].sum() - 1e-6 * sum(chosen)
        assert value == pytest.approx(brute_force(weights, contains, lengths, 20)[0], abs=1e-5)


def test_concept_ilp_budget_and_fallbacks(monkeypatch):
    assert 0 < len(ConceptIlp(ConceptIlp.Config(max_words=25)).text(STORY).split()) <= 25
    assert ConceptIlp(ConceptIlp.Config(max_words=1)).summarize(STORY) == [2]
    monkeypatch.setattr("catchline.extractive.concepts.solve_coverage", lambda *_: [])
    assert 0 < len(ConceptIlp(ConceptIlp.Config(max_words=25)).text(STORY).split()) <= 25


@pytest.mark.parametrize("count", [1, 2, 3, 9])
def test_a_lead_cuts_out_no_more_than_it_picks(count):
    """Of identical sentences the first is picked, and what is picked is what the sentences of the whole text give."""
    text = "Oil rose. Oil rose. Shares, bonds etc. Gold fell.\n\nOil rose. It rained, Dr. Li said. Oil fell."
    every = sentence_strings(text)
    lead, distinct = make("lead", sentences=count), list(dict.fromkeys(every))
    cut = lead.sentences(text)
    assert cut == every[: len(cut)]
    assert len(set(cut)) == min(count, len(distinct))
    assert lead.text(text) == " ".join(distinct[:count])
    assert lead.summarize(text) == lead.summarize(every)


def test_oracle_is_greedy_and_never_below_lead():
    generator = random.Random(0)
    words = ["council", "budget", "school", "teacher", "money", "mayor", "week", "rain", "match"]
    for _ in range(10):
        sentences = [" ".join(generator.choices(words, k=6)) + f" s{place}" for place in range(6)]
        reference = " ".join(generator.choices(words, k=12))
        oracle = Oracle(Oracle.Config(sentences=3))
        chosen = rouge([oracle.text(sentences, references=reference)], [reference], kinds=["1", "2"]).mean
        single = [rouge([sentence], [reference], kinds=["1", "2"]).mean for sentence in sentences]
        best = max(one["1"].f + one["2"].f for one in single)
        assert chosen["1"].f + chosen["2"].f >= best - 1e-4
    assert Oracle().summarize(STORY, [STORY[3], STORY[5]]) in ([3], [5])
    with pytest.raises(DataError, match="at least one reference"):
        Oracle().summarize(STORY)
    assert greedy_oracle([[], [1, 2]], [[1, 2]], 3) == [1]
    story = ["Мост закрыт.", "Работы продлятся 9 недель.", "Мост в Туле закрыли из-за пожара."]
    assert make("oracle", sentences=1).summarize(story, ["Мост в Туле закрыли на 9 дней"]) == [2], "not 9 alone"


def test_the_power_method_ends_where_rounding_keeps_it_from_resting() -> None:
    matrix = np.random.default_rng(0).dirichlet(np.ones(5), size=5)
    assert np.isfinite(power_method(matrix, 1e-300)).all()


@pytest.mark.parametrize("name", ["luhn", "textrank", "sumbasic", "lsa", "reduction", "kl", "lexrank"])
def test_invisible_characters_change_no_pick(name: str) -> None:
    text = (
        "The council talked about many things on Tuesday. The pumping station needs a new pump, and the station "
        "gets the pump in May. There was soup in the evening. The pump for the pumping station costs two million. "
        "The weather was mild."
    )
    divided = text.replace("pumping", "pump\u00ading").replace("station", "sta\u00adtion\u2060")
    divided = divided.replace("pump ", "pu\u200dmp ").replace("two", "\ufefft\u200ewo")
    assert without_invisible(divided) == text
    first, second = (build("m", EXTRACTIVE, {"type": name, "sentences": 1}).summarize(one) for one in (text, divided))
    assert first == second
