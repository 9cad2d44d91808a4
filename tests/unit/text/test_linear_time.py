"""No text from outside takes more time than its length asks: patterns, readers, sentence splitters, tokenizers, words.

Each sees hostile texts of 20,000 and of 200,000 characters; the second may take 25 times the processor time of the
first.
"""

from __future__ import annotations

import ast
import gc
import importlib
import inspect
import pkgutil
import re
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

import pytest
import sentencex
from syntok import segmenter
from syntok.tokenizer import Tokenizer as Syntok

import catchline
from catchline.data.checks import WORD
from catchline.extractive.words import cut_words
from catchline.metrics.faithfulness import check_support
from catchline.metrics.rouge import rouge
from catchline.text.base import restore_numbers
from catchline.text.markup import as_prose, own_words
from catchline.text.normalization import without_invisible
from catchline.text.sentences import PIECE, language_of, sentence_gaps, split_sentences
from catchline.text.tokenizer import BpeTokenizer, CharacterTokenizer, WordTokenizer

pytestmark = pytest.mark.slow
SHORT, LONG, MOST_RATIO = 20_000, 200_000, 25  # a square would take 100 times as long
LEAST, MOST = 0.02, 2.0  # seconds: shorter times count as the first; a short text that takes longer has failed
COMMON = ["a", "A", "1", " ", "\n", "\t", ".", "'", "中", "\u0301", "a.", "a b ", "A. ", "\n ", "\u200d", "\ud800"]
ROOT = Path(catchline.__file__).parent


def seconds(work: Callable[[str], Any], text: str) -> float:
    gc.disable()  # it looks through all that the process holds
    before = time.process_time()
    work(text)
    taken = time.process_time() - before
    gc.enable()
    return taken


def check(name: str, work: Callable[[str], Any], pieces: Iterable[str]) -> None:
    """Fail with the first piece of which long texts take more than linear time."""
    for piece in pieces:
        tiny, short, long = (piece * (size // len(piece)) + "!" for size in (SHORT // 10, SHORT, LONG))
        assert seconds(work, tiny) < MOST / 10, f"{name} with {piece!r}, {len(tiny)} characters"
        first = seconds(work, short)
        assert first < MOST, f"{name} with {piece!r}: {first:.2f} s for {SHORT} characters"
        allowed = MOST_RATIO * max(first, LEAST)
        taken = seconds(work, long)
        if taken > allowed:  # perhaps because of other work beside it
            taken = min(seconds(work, long) for _ in range(3))
        assert taken <= allowed, f"{name} with {piece!r}: {first:.3f} s, ten times as much text {taken:.2f} s"


def sample(pattern: Any) -> str:
    """A text that a parsed pattern matches, or nearly."""
    text = ""
    for kind, value in pattern:
        name = str(kind)
        if name in ("LITERAL", "NOT_LITERAL"):
            text += chr(value) if name == "LITERAL" else "x"
        elif name == "IN":
            first = value[0] if str(value[0][0]) != "NEGATE" else ("LITERAL", ord("x"))
            ranged = first[1][0] if str(first[0]) == "RANGE" else None
            text += chr(first[1] if str(first[0]) == "LITERAL" else ranged or ord(CATEGORIES.get(str(first[1]), "x")))
        elif name == "ANY":
            text += "x"
        elif name in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
            text += sample(value[2]) * max(1, min(value[0], 9))
        elif name == "SUBPATTERN":
            text += sample(value[3])
        elif name == "BRANCH":
            text += sample(value[1][0])
        elif name in ("ASSERT", "ATOMIC_GROUP"):
            text += sample(value[1] if name == "ASSERT" else value)
    return text


CATEGORIES = {"CATEGORY_DIGIT": "1", "CATEGORY_SPACE": " ", "CATEGORY_NOT_WORD": "-", "CATEGORY_NOT_DIGIT": "x"}


def compiled(value: Any, depth: int = 0) -> Iterator[re.Pattern[str]]:
    """The patterns in a value of a module, in its containers too."""
    if isinstance(value, re.Pattern) and isinstance(value.pattern, str):
        yield value
    elif isinstance(value, tuple | list | dict) and depth < 3:
        for one in value.values() if isinstance(value, dict) else value:
            yield from compiled(one, depth + 1)


def patterns() -> dict[str, re.Pattern[str]]:
    """By place: those of the modules, and those that a call of ``re`` is given as a string."""
    found: dict[re.Pattern[str], str] = {}
    for module in pkgutil.walk_packages(catchline.__path__, "catchline."):
        if module.name.endswith("__main__"):
            continue
        for name, value in vars(importlib.import_module(module.name)).items():
            for pattern in compiled(value):
                found.setdefault(pattern, f"{module.name}.{name}")
    for path in sorted(ROOT.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            function = node.func if isinstance(node, ast.Call) and node.args else None
            called = isinstance(function, ast.Attribute) and ast.unparse(function.value) == "re"
            # compiled ones are in the modules
            if called and function.attr != "compile" and isinstance(node.args[0], ast.Constant):
                place = f"{path.relative_to(ROOT)}:{node.lineno}.{function.attr}"
                found.setdefault(re.compile(node.args[0].value), place)
    return {f"{place} {number}": pattern for number, (pattern, place) in enumerate(found.items())}


PATTERNS = patterns()
# Patterns that see a few characters at once, where they are used: the name, and how many.
BOUNDED = {
    "text.sentences._LABEL": 30,
    "text.sentences._SHORT": 20,
    "text.sentences._UNREAD": 21,
    "text.truecase._BEGIN": 12,
}
BOUNDED["data.records._SHARD"] = 255  # a file's name


@pytest.mark.parametrize("name", PATTERNS)
def test_patterns(name: str) -> None:
    pattern = PATTERNS[name]
    if name.split()[0].removeprefix("catchline.") in BOUNDED:
        return

    module, _, constant = name.split()[0].rpartition(".")
    source = inspect.getsource(importlib.import_module(module)) if module.startswith("catchline") else ""
    used = set(re.findall(rf"\b{constant}\.(\w+)\(", source)) if source else {constant}

    def work(text: str) -> None:
        for _ in pattern.finditer(text) if not used or used - {"match", "fullmatch"} else ():
            pass
        pattern.match(text)
        pattern.fullmatch(text)

    whole = sample(parser.parse(pattern.pattern, pattern.flags))
    parts = {whole, whole[:-1], whole[: len(whole) // 2], whole[1:], *whole[:8], *COMMON}
    check(f"{name} ({pattern.pattern[:80]})", work, sorted(filter(None, parts)))


def trained(cls: Any, **options: Any) -> Any:
    made = cls(cls.Config(min_frequency=1, **options))
    made.train(["The river rose, said Anna's 3 men. 中文"])
    return made


TOKENIZERS = [trained(WordTokenizer), trained(WordTokenizer, digits_to_hash=True, unknown_marks=("<unk>",))]
TOKENIZERS += [trained(BpeTokenizer, max_vocabulary=60), trained(CharacterTokenizer)]
SIGNS = [*'[]<>#`*_~|&!"(\\/-=:;,?$%{}@^+', "``中", "中。", "<!--", "<a ", "<![CDATA[", "![", "](", "[a](", "**a"]
SIGNS += ["> ", "- ", "1. ", "# ", "http://", "www.", "a@", "a.b@", "#1", "'s ", "n't", "<p>", "</p>", "&amp;", "e.g. "]
MARKED = [*SIGNS, "\n#", "\n---\n", "\n|-|-|\n", "```\n", "    a\n", "<script>", "[a]: b\n", "- a\n  ", "<a href='"]
MAIL = ["\n> ", "On ", "wrote:\n", "From: ", "-- \n", "Am a schrieb b:\n", "---- Original Message ----\n", "a: b\n"]
CUES = ["\n\n1\n00:01 --> 00:02\n", " --> ", "<i>", "{\\", "\n\n"]
HEAD = "From: a@b\nSubject: c\n\n"
FEW = SIGNS[::3]
WORK: dict[str, tuple[Callable[[str], Any], list[str]]] = {
    **{
        f"sentences, {code}": (lambda text, code=code: split_sentences(text, code), SIGNS)
        for code in ("en", "de", "zh")
    },
    "language": (language_of, SIGNS),
    "syntok": (lambda text: list(segmenter.segment(Syntok(replace_not_contraction=False).tokenize(text))), SIGNS),
    "gaps": (lambda text: sentence_gaps("<EOS>" + text, "<EOS>"), ["<EOS> ", "<EOS>", "<"]),
    "gaps, lines": (lambda text: sentence_gaps(text, "<EOS>", by_line=True), ["a\n", "a \n\n"]),
    "Markdown": (lambda text: as_prose(text, ".md"), MARKED),
    "Markdown, by its look": (lambda text: as_prose("# A\n\nSee [b](http://c).\n" + text), MARKED),
    "text": (as_prose, [*SIGNS, *MAIL]),
    "page": (lambda text: as_prose("<html><body><p>" + text), ["<p>a", "<a href='b'>", "&", "<div>"]),
    "subtitles": (lambda text: as_prose(text, ".srt"), [*CUES, *SIGNS]),
    "mail": (lambda text: as_prose(HEAD + text), [*MAIL, *SIGNS]),
    "head of a mail": (lambda text: as_prose("From: a@b\nSubject: " + text), [*MAIL, *SIGNS, "=?utf-8?q?a?=", "b; "]),
    "a sender's own words": (own_words, MAIL),
    "words of methods": (lambda text: cut_words([text]), SIGNS),
    "ROUGE": (lambda text: rouge([text], [text]), SIGNS),
    "support": (lambda text: check_support("It rained in Graz in 2019.", text), SIGNS),
    "invisible characters": (without_invisible, ["\u00ad", "\u200d", "\u200c\u0915"]),
    "numbers": (lambda text: restore_numbers("## " + text, text), ["#", "#.", "1.", "1,"]),
    "words": (lambda text: WORD.findall(text), FEW),
    **{f"{made.name} {i}": (lambda text, made=made: made.encode(text), FEW) for i, made in enumerate(TOKENIZERS)},
}


@pytest.mark.parametrize("name", WORK)
def test_readers_splitters_and_words(name: str) -> None:
    work, pieces = WORK[name]
    check(name, work, [*COMMON, *pieces])


def test_what_sentencex_sees_is_bounded() -> None:
    """It takes the square of some texts: `split_sentences` shows it pieces."""
    assert PIECE <= 10_000
    assert seconds(lambda text: sentencex.get_sentence_boundaries("zh", text), "``中" * (PIECE // 3)) < MOST
