"""ROUGE against a plain reference written from the definitions, and the properties every profile must have."""

from __future__ import annotations

import random
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catchline.errors import ConfigError, DataError
from catchline.metrics import overlap, rouge_text
from catchline.metrics.overlap import lcs_length, lcs_positions, union_hits, weighted_hits, weighted_positions
from catchline.metrics.rouge import Score, rouge
from catchline.metrics.rouge_engine import limit_bytes, limit_words
from catchline.metrics.rouge_text import stem_nltk, stem_rouge155

SMALL = st.lists(st.integers(0, 5), max_size=25)


def table_positions(reference, hypothesis):
    """The LCS by the textbook table, read out with the tool's preference."""
    rows, columns = len(reference), len(hypothesis)
    table = [[0] * (columns + 1) for _ in range(rows + 1)]
    for i in range(rows):
        for j in range(columns):
            same = reference[i] == hypothesis[j]
            table[i + 1][j + 1] = table[i][j] + 1 if same else max(table[i][j + 1], table[i + 1][j])
    found, i, j = [], rows, columns
    while i and j:
        if reference[i - 1] == hypothesis[j - 1]:
            i, j = i - 1, j - 1
            found.append(i)
        elif table[i - 1][j] >= table[i][j - 1]:
            i -= 1
        else:
            j -= 1
    return sorted(found)


def bits(number):
    return [place for place in range(number.bit_length()) if number >> place & 1]


@given(SMALL, SMALL)
@settings(max_examples=80)
def test_lcs_positions_are_those_of_the_table(reference, hypothesis):
    """As a whole and, as of long texts, in blocks."""
    expected = table_positions(reference, hypothesis)
    assert lcs_length(reference, hypothesis) == len(expected)
    for kept in (overlap._KEPT_BITS, 1):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(overlap, "_KEPT_BITS", kept)
            assert bits(lcs_positions(reference, hypothesis)) == expected


def test_weight_one_is_the_plain_lcs():
    generator = random.Random(1)
    for _ in range(50):
        left, right = generator.choices("abcd", k=12), generator.choices("abcd", k=9)
        assert weighted_positions(left, right, 1.0) == table_positions(left, right)


def test_weighted_lcs_counts_runs_of_the_reference():
    # Lin 2004's example. The tool marks reference words only, so what breaks the run in the hypothesis does not show;
    # a gap in the reference does.
    reference = list("ABCDEFG")
    assert weighted_positions(reference, list("ABCDHIK"), 1.2) == [0, 1, 2, 3]
    score = rouge(["A B C D H I K", "A H B K C I D"], ["A B C D E F G"] * 2, kinds=["L", "W"], stem=False)
    first, second = score.per_document["W"]
    assert first.f == second.f
    gap = rouge(["A B C D H I K"], ["A H B K C I D"], kinds=["W"], stem=False).mean["W"]
    assert gap.f < first.f
    assert score.per_document["L"][0] == score.per_document["L"][1]


def slow_weighted_hits(references, hypotheses, counts, weight):
    """By the words' states: kept, clipped or unmarked. A run ends with a kept word that an unmarked one follows."""
    left, right = Counter(counts[0]), Counter(counts[1])
    total = 0.0
    for sentence in references:
        marked = {place for hypothesis in hypotheses for place in weighted_positions(sentence, hypothesis, weight)}
        states = ""
        for place, word in enumerate(sentence):
            kept = place in marked and min(left[word], right[word]) > 0
            left[word] -= kept
            right[word] -= kept
            states += "k" if kept else "c" if place in marked else "u"
        total += sum(run.count("k") ** weight for run in re.split("(?<=k)(?=u|$)", states) if run.endswith("k"))
    return total


def test_weighted_hits_against_a_slow_reference():
    generator = random.Random(5)
    for _ in range(100):
        left, right = ([generator.choices("abc", k=generator.randint(0, 6)) for _ in range(2)] for _ in range(2))
        counts = tuple(Counter(word for sentence in side for word in sentence) for side in (left, right))
        expected = slow_weighted_hits(left, right, counts, 1.5)
        assert weighted_hits(left, right, counts, 1.5) == pytest.approx(expected)


def test_union_lcs_of_lins_example():
    # Lin 2004, section 3.2: r = w1 w2 w3 w4 w5, c1 = w1 w2 w6 w7 w8, c2 = w1 w3 w8 w9 w5: union w1 w2 w3 w5.
    reference = [[1, 2, 3, 4, 5]]
    candidates = [[1, 2, 6, 7, 8], [1, 3, 8, 9, 5]]
    counts = Counter(word for sentence in candidates for word in sentence)
    assert union_hits(reference, candidates, Counter(reference[0]), counts) == 4


@pytest.mark.parametrize("length", [30, 900])  # below and above the length where counting changes its method
@pytest.mark.parametrize("order", [1, 2, 3, 4])
def test_clipped_ngrams_against_plain_counting(order, length):
    generator = random.Random(order)
    for _ in range(20):
        left = generator.choices("abcdefgh", k=generator.randint(0, length))
        right = generator.choices("abcdefgh", k=generator.randint(0, length))
        grams = [Counter(tuple(s[i : i + order]) for i in range(len(s) - order + 1)) for s in (left, right)]
        hits = sum((grams[0] & grams[1]).values())
        totals = [sum(counter.values()) for counter in grams]
        score = rouge([" ".join(left)], [" ".join(right)], kinds=[str(order)], profile="google", stem=False)
        assert score.mean[str(order)].precision == pytest.approx(hits / totals[0] if totals[0] else 0.0)
        assert score.mean[str(order)].recall == pytest.approx(hits / totals[1] if totals[1] else 0.0)


def test_skip_bigrams_of_lins_example():
    # Lin 2004, section 5: "police killed the gunman" against three candidates, S without limit.
    references = ["police killed the gunman"] * 3
    candidates = ["police kill the gunman", "the gunman kill police", "the gunman police killed"]
    score = rouge(candidates, references, kinds=["S*"], stem=False)
    assert [round(one.f, 3) for one in score.per_document["S*"]] == [0.5, 0.167, 0.333]


def test_skip_bigram_unigrams_leave_out_the_last_word():
    # Two words: one pair and one window-opening word, as the tool counts; the last word alone is not counted.
    score = rouge(["a z"], ["b z"], kinds=["SU4"], stem=False)
    assert score.mean["SU4"].f == 0.0
    assert rouge(["a z"], ["a y"], kinds=["SU4"], stem=False).mean["SU4"].f == 0.5


@pytest.mark.parametrize(("better", "well", "good"), [("well", 1.0, 0.0), ("good", 0.0, 1.0)])
def test_better_is_well_or_good(better, well, good):
    for word in ("better", "best"):
        found = [rouge([word], [base], kinds=["1"], better=better).mean["1"].f for base in ("well", "good")]
        assert found == [well, good]
    assert rouge(["better"], ["good"], kinds=["1"], better=better, exceptions=False).mean["1"].f == 0.0
    signature = rouge(["a"], ["a"], better=better).signature
    assert ("|stem:porter+wordnet2.0|" in signature) == (better == "well")
    assert ("wordnet2.0.good" in signature) == (better == "good")
    with pytest.raises(ConfigError, match="better"):
        rouge(["a"], ["a"], better="best")


def test_stemming_after_the_exception_lists():
    both = rouge(["men went better"], ["man go well"], kinds=["1"]).mean["1"].f
    plain = rouge(["men went better"], ["man go well"], kinds=["1"], exceptions=False).mean["1"].f
    # "men" has three letters and is left alone; "went" and "better" are in the lists.
    assert (both, plain) == (pytest.approx(2 / 3, abs=1e-5), 0.0)
    assert stem_rouge155("fundamental") == "fundam"


def test_bytes_cut_both_sides_and_characters_in_two():
    assert limit_bytes(["été ici"], 3) == (["ét"], ["ét"])
    assert limit_bytes(["abcde", "fghij"], 7) == (["abcde", "fg"], ["abcde", "fghij"])  # the tool's LCS slip
    assert limit_words(["a b c", "d e f"], 4) == ["a b c", "d"]
    assert limit_words([" a b c"], 2) == [" a"]  # a leading blank is an empty word
    assert limit_words(["a b ", "c d"], 4) == ["a b ", "c d"]  # one behind is none
    score = rouge(["alpha beta gamma"], ["alpha beta gamma"], kinds=["1"], max_bytes=8, stem=False)
    assert score.mean["1"] == (1.0, 1.0, 1.0)
    assert rouge(["alpha beta"], ["alpha bex"], kinds=["1"], max_bytes=8, stem=False).mean["1"].f == 1.0


def test_several_references():
    hypotheses, references = ["a b c d"], [["a b", "a b c x y z"]]

    def words(models: list, multi: str) -> Score:
        return rouge(hypotheses, models, multi=multi, kinds=["1"], stem=False).mean["1"]

    assert words(references, "average") == (0.625, 0.625, 0.625)
    assert words(references, "best") == (0.5, 1.0, pytest.approx(2 / 3, abs=1e-5))
    assert words(references, "max").f == pytest.approx(2 / 3, abs=1e-5)
    assert words(references, "jackknife").recall == 0.75
    for kind, best in (("S", 0), ("SU", 0), ("L", 0), ("Lsum", 0), ("W", 0), ("2", 0), ("3", 1)):  # by recall, not hits
        found, alone = (rouge(hypotheses, r, kinds=[kind], multi="best") for r in (references, [references[0][best]]))
        assert found.mean == alone.mean
    three = [[*references[0], "a"]]
    assert words(three, "jackknife").recall == 1.0
    assert words(three, "jackknife-average").recall == 0.73214  # of 5/8, 4/7 and 3/3, rounded
    assert words(["a b"], "jackknife") == words(["a b"], "best")


def test_stop_words_and_alpha():
    assert rouge(["the cat"], ["cat"], kinds=["1"], remove_stop_words=True).mean["1"].f == 1.0
    precise = rouge(["a b"], ["a x y z"], kinds=["1"], stem=False, alpha=1.0).mean["1"]
    assert precise.f == precise.precision == 0.5


def test_sentences_matter_to_lsum_only():
    hypothesis, reference = "c d\na b", "a b\nc d"
    score = rouge([hypothesis], [reference], kinds=["L", "Lsum", "1"], stem=False)
    assert (score.mean["L"].f, score.mean["Lsum"].f, score.mean["1"].f) == (0.5, 1.0, 1.0)


def test_plain_profile_is_case_sensitive_and_keeps_punctuation():
    score = rouge(["The cat ."], ["the cat ."], kinds=["1"], profile="plain")
    assert score.mean["1"] == (0.66667, 0.66667, 0.66667)


def test_unicode_profile_reads_any_script():
    pairs = [("Привет, мир!", "привет мир"), ("我爱北京", "我爱上海"), ("हिन्दी भाषा", "हिन्दी"), ("ＡＢＣ", "abc")]
    score = rouge([p[0] for p in pairs], [p[1] for p in pairs], kinds=["1"], profile="unicode")
    assert [round(one.f, 3) for one in score.per_document["1"]] == [1.0, 0.5, 0.667, 1.0]
    latin = rouge([p[0] for p in pairs[:2]], [p[1] for p in pairs[:2]], kinds=["1"])
    assert latin.mean["1"].f == 0.0
    assert (latin.counts.wordless_hypotheses, latin.counts.wordless_references) == (2, 2)


@pytest.mark.parametrize("text", ["のため9週間", "基于LSTM的", "รีต 33 ส", "ກABC"])
def test_what_follows_a_character_of_an_unspaced_script_is_a_word_of_its_own(text: str):
    """As if blanks stood around each run of Latin letters and digits; the nine of ``のため9週間`` was part of め."""
    apart = re.sub(r"[A-Za-z0-9]+", r" \g<0> ", text)
    assert rouge([text], [apart], kinds=["2"], profile="unicode").mean["2"].f == 1.0
    alone = re.search("[A-Za-z0-9]+", text)
    assert alone
    assert rouge([alone[0]], [text], kinds=["1"], profile="unicode").mean["1"].precision == 1.0


@pytest.mark.parametrize(
    ("profile", "text", "other", "same"),
    [
        ("unicode", "he runs", "he running", True),
        ("unicode", "бегут", "бегущих", False),
        ("unicode", "бегут", "БЕГУТ", True),
        ("plain", "runs", "running", False),
        ("plain", "runs", "runs", True),
        ("characters", "<unk> 北", "北 <unk>", True),
    ],
)
def test_stemming_is_of_english_and_of_profiles_that_stem(profile: str, text: str, other: str, same: bool) -> None:
    assert rouge([text], [other], kinds=["1"], profile=profile, stem=True).mean["1"].f == same


@pytest.mark.parametrize("profile", ["rouge155", "google", "plain", "unicode"])
def test_empty_texts_score_zero_and_are_counted(profile):
    kinds = ["1", "2", "L", "Lsum", "W", "S", "SU"]
    score = rouge(["", "a b", " \n ", "a"], ["a b", "", "x", "a"], kinds=kinds, profile=profile)
    assert score.counts.empty_hypotheses == 2
    assert score.counts.empty_references == 1
    for kind in kinds:
        assert score.per_document[kind][:3] == [(0.0, 0.0, 0.0)] * 3
    assert score.per_document["1"][3].f == 1.0
    # half a character is a gap or itself
    assert rouge(["a \ud800 b"], ["a \ud800 b"], kinds=["1"], profile=profile).mean["1"].f == 1.0


@given(st.text(max_size=60), st.text(max_size=60))
@settings(max_examples=40)
def test_scores_are_between_zero_and_one_and_symmetric(left, right):
    for profile in ("rouge155", "google", "unicode"):
        one = rouge([left], [right], kinds=["1", "2", "L", "Lsum", "S4"], profile=profile).mean
        two = rouge([right], [left], kinds=["1", "2", "L", "Lsum", "S4"], profile=profile).mean
        for kind in ("1", "2", "L", "S4"):
            assert all(0.0 <= value <= 1.0 for value in one[kind])
            assert one[kind].precision == two[kind].recall
        assert one["L"].recall <= one["1"].recall + 1e-9
        assert one["Lsum"].recall <= one["1"].recall + 1e-9


def perls_random_numbers(seed: int, count: int) -> list[float]:
    state, found = (seed << 16) + 0x330E, []
    for _ in range(count):
        state = (state * 0x5DEECE66D + 0xB) % 2**48
        found.append(state / 2**48)
    return found


def test_the_interval_is_the_tools(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sample i is drawn with seed i from the documents in the order of their numbers as text: 1, 10, 11, 12, 2, ..."""
    generator = random.Random(6)
    texts = [" ".join(generator.choices("abcdefgh", k=generator.randint(2, 9))) for _ in range(12)]
    options = {"kinds": ["1", "L"], "interval": True, "samples": 30}
    found = rouge(texts, texts[::-1], **options)
    order = sorted(range(12), key=lambda place: str(place + 1))
    for kind, scores in found.per_document.items():
        for field in Score._fields:
            values = [getattr(scores[place], field) for place in order]
            drawn = ([values[int(number * 12)] for number in perls_random_numbers(seed, 12)] for seed in range(30))
            means = sorted(sum(sample) / 12 for sample in drawn)
            # 2.5% of 30 is 0.75: both ends lie a quarter of the way from one mean to the next
            ends = [means[place] + (means[place + 1] - means[place]) / 4 for place in (0, 28)]
            got = [getattr(getattr(found.interval[kind], part), field) for part in ("low", "high", "mean")]
            assert got == pytest.approx([*ends, sum(means) / 30], abs=1e-5), (kind, field)
            assert got == [round(value, 5) for value in got]  # as it prints them
    monkeypatch.setattr("catchline.metrics.rouge._FEW", 1)
    assert rouge(texts, texts[::-1], processes=2, **options) == found
    assert rouge(texts, texts[::-1], **options | {"samples": 2, "confidence": 20.0}).interval["1"].low.f > 0


def test_signature_pins_what_matters():
    base = rouge(["a"], ["a"]).signature
    assert base == "rouge:rouge155|n:1|stem:porter+wordnet2.0|stop:kept|limit:no|refs:average|alpha:0.5|catchline.r1"
    more = rouge(["a"], ["a"], kinds=["1", "W", "S", "SU*"], interval=True, max_bytes=75).signature
    more = more.removeprefix("rouge:rouge155|n:1|stem:porter+wordnet2.0|")
    assert more == "stop:kept|limit:b75|refs:average|alpha:0.5|W:1.2|S:4|SU*:*|ci:95%r1000|catchline.r1"
    changes = {"stem": False, "exceptions": False, "remove_stop_words": True, "max_bytes": 75, "max_words": 10}
    changes |= {"multi": "best", "alpha": 0.3, "interval": True, "profile": "google", "kinds": ["W"]}
    signatures = {rouge(["a"], ["a"], **{name: value}).signature for name, value in changes.items()}
    signatures |= {base, rouge(["a"], ["a"], kinds=["S2"]).signature}
    assert len(signatures) == len(changes) + 2


@pytest.mark.parametrize(
    ("hypotheses", "references", "says"),
    [
        (["a"], [], "1 hypotheses but 0 references"),
        ([], [], "nothing to score"),
        ("a", ["a"], "wrap a single text"),
        (["a"], [[]], "Document 1 has no reference"),
        ([None], ["a"], "must be texts, not NoneType"),
        (["a"], [float("nan")], "must be texts, not float"),
        (["a"], [None], "must be texts, not NoneType"),
        (["a"], [["b", None]], "must be texts, not NoneType"),
    ],
)
def test_wrong_input_is_explained(hypotheses, references, says):
    with pytest.raises(DataError, match=says):
        rouge(hypotheses, references)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"kinds": ["0"]}, "Unknown ROUGE kind"),
        ({"profile": "rogue155"}, "Did you mean 'rouge155'"),
        ({"stemm": True}, "Did you mean 'stem'"),
        ({"max_bytes": 5, "max_words": 5}, "not both"),
        ({"alpha": 2.0}, "less than or equal to 1 "),
        ({"multi": "mean"}, "multi"),
        ({"weight": 0.5}, "(given: 0.5)"),
        ({"weight": 5.5}, "'weight': input should be less than or equal to 5 "),
        ({"alpha": -0.1}, "(given: -0.1)"),
        ({"confidence": 0.0}, "(given: 0.0)"),
        ({"confidence": 100.0}, "(given: 100.0)"),
        ({"max_bytes": 0}, "'max_bytes': input should be greater than or equal to 1 "),
        ({"max_words": 10**9 + 1}, "(given: 1000000001)"),
        ({"samples": 1}, "'samples': input should be greater than or equal to 2 "),
        ({"processes": 257}, "'processes': input should be less than or equal to 256 "),
        ({"skip_distance": -(10**9) - 1}, "'skip_distance'"),
        ({"stem": 1}, "'stem': input should be a valid boolean"),
        ({"kinds": ["L2"]}, "takes no number; write L"),
        ({"kinds": ["W0.5"]}, "'W0.5': the weight must be from 1 to 5"),
        ({"kinds": ["W5.1"]}, "the weight must be from 1 to 5"),
        ({"kinds": ["S4.7"]}, "'S4.7': the distance must be a whole number, at most 1,000,000,000, or *"),
        ({"kinds": ["SU9999999999"]}, "the distance must be a whole number"),
        ({"kinds": ["S" + "9" * 5000]}, "the distance must be a whole number"),
        ({"kinds": []}, "name a ROUGE kind at least"),
        ({"kinds": [], "interval": True}, "name a ROUGE kind at least"),
    ],
)
def test_options_out_of_bounds_are_refused(options: dict, says: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(says)):
        rouge(["a b"], ["a b"], **options)


def test_the_bounds_themselves_are_good() -> None:
    for options in ({"weight": 5.0}, {"weight": 1.0}, {"alpha": 0.0}, {"alpha": 1.0}, {"max_bytes": 1},
                    {"max_words": 10**9}, {"samples": 2, "interval": True}, {"confidence": 0.5},
                    {"skip_distance": -(10**9)}):  # fmt: skip
        assert rouge(["a b"], ["a b"], kinds=["W", "L"], **options).mean["L"] == (1.0, 1.0, 1.0)


def test_a_word_is_normalised_once_until_too_many_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    memory = rouge_text._Memory(lambda word: seen.append(word) or word[:1])
    assert [memory[word] for word in ("ab", b"ac", "b", "ab")] == [0, 0, 1, 0]
    assert seen == ["ab", "ac", "b"]
    for limit, left in ((3, 3), (2, 0)):
        monkeypatch.setattr(rouge_text, "_MEMORY_LIMIT", limit)
        memory.trim()
        assert len(memory) == left
    assert memory["b"] == 0
    monkeypatch.setattr(rouge_text, "_MEMORY_LIMIT", 0)
    rouge(["one two", "three"], ["one", "three"])  # forgotten between documents
    assert list(rouge_text.shared_text("rouge155", stem=True, exceptions=True).memory) == [b"three"]


def test_import_stays_light():
    code = (
        "import sys, catchline.metrics.rouge as r; r.rouge(['a'], ['a']);"
        "print([m for m in ('torch', 'transformers', 'nltk', 'sacrebleu', 'scipy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# Porter's own examples (Program 14, 1980), and words whose condition *o looks at w, x and y.
PORTER = (
    "caresses caress, ponies poni, cats cat, feed feed, agreed agre, plastered plaster, motoring motor, "
    "sing sing, conflated conflat, troubled troubl, sized size, hopping hop, tanned tan, falling fall, "
    "hissing hiss, fizzed fizz, failing fail, filing file, happy happi, sky sky, relational relat, "
    "conditional condit, rational ration, digitizer digit, vietnamization vietnam, predication predic, "
    "feudalism feudal, decisiveness decis, hopefulness hope, triplicate triplic, formative form, "
    "formalize formal, electrical electr, hopeful hope, goodness good, revival reviv, allowance allow, "
    "inference infer, airliner airlin, adjustable adjust, defensible defens, replacement replac, "
    "adjustment adjust, dependent depend, adoption adopt, activate activ, effective effect, "
    "bowdlerize bowdler, probate probat, rate rate, cease ceas, controlling control, roll roll, snowing snow, "
    "boxing box, swiping swipe, gas ga, as as, enrolment enrol"
)


@pytest.mark.parametrize("stem", [stem_rouge155, stem_nltk])
def test_porters_examples(stem: Callable[[str], str]) -> None:
    pairs = [pair.split() for pair in PORTER.split(", ")]
    assert [(word, stem(word)) for word, _ in pairs] == [(word, expected) for word, expected in pairs]
