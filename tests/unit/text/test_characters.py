"""Lines, invisible characters, and control characters: what a terminal gets, and what pipes and files get."""

from __future__ import annotations

import ast
import io
import json
import sys
from pathlib import Path

import pytest

import catchline.cli
from catchline.cli.main import main
from catchline.data.checks import supported_share, words_of
from catchline.extractive.words import cut_words
from catchline.metrics.faithfulness import check_support
from catchline.metrics.rouge import rouge
from catchline.metrics.words import words
from catchline.text.control import harmless, safe_print
from catchline.text.normalization import located, split_lines, with_line_feeds, without_invisible
from catchline.types import Record

EVIL = "a\x1b[2Jb\x9b31mc\x07d\re\u2028\tf\u202eg\u2069\n"


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def test_a_terminal_and_stderr_get_no_control_character(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal, pipe, errors = Terminal(), io.StringIO(), io.StringIO()
    monkeypatch.setattr(sys, "stderr", errors)
    safe_print("\x1b]0;title\x07", file=sys.stderr)
    assert errors.getvalue() == "\ufffd]0;title\ufffd\n"
    safe_print(EVIL, "\ud800", file=terminal, end="")
    safe_print(EVIL, file=pipe, end="")
    assert terminal.getvalue() == "a\ufffd[2Jb\ufffd31mc\ufffdd\ufffde\u2028\tf\ufffdg\ufffd\n ?"
    assert pipe.getvalue() == EVIL
    assert len(harmless(EVIL)) == len(EVIL)


def test_every_command_prints_so() -> None:
    """A ``print`` of a file of cli/ is `safe_print`."""
    for path in Path(catchline.cli.__file__).parent.glob("*.py"):
        source = path.read_text()
        called = (node.func for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call))
        calls = {function.id for function in called if isinstance(function, ast.Name)}
        assert "print" not in calls or "safe_print as print" in source or path.name == "main.py", path


@pytest.mark.parametrize("command", ["summarize lead", "evaluate lead --data"])
def test_json_loses_no_character(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "北京 — x.jsonl"
    path.write_text('{"document": "北京 — x.", "summary": "x"}\n')
    raw = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(raw, encoding="latin-1"))
    assert main(["--quiet", *command.split(), str(path), "--json"]) == 0
    assert "北京 — x" in str(json.loads(raw.getvalue().decode("latin-1")))


@pytest.mark.parametrize("command", [["summarize", "lead"], ["explain", "lead"], ["data", "check"]])
def test_documents_in_the_terminal(command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / ("pairs.jsonl" if command[0] == "data" else "text.txt")
    text = "One \x1b[2J\x9bsentence. Another\x07 one."
    path.write_text('{"\\u001b[2Jtitle": "b", "document": "a"}\n' if command[0] == "data" else text)
    out, errors = Terminal(), Terminal()
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", errors)
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "dumb")
    main(["--quiet", *command, str(path)])
    said = out.getvalue() + errors.getvalue()
    assert said
    assert not {"\x1b", "\x9b", "\x07"} & set(said)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r", "\v", "\f", "\x85", "\u2028", "\u2029"])
def test_what_a_line_is(end: str) -> None:
    text = f"a b{end}c{end}{end}d"
    assert split_lines(text) == ["a b", "c", "", "d"]
    assert len(with_line_feeds(text)) == len(text)
    assert [line.strip() for line in with_line_feeds(text).split("\n")] == ["a b", "c", "", "d"]
    assert split_lines(f"a{end}") == ["a"]


@pytest.mark.parametrize(
    ("text", "counted"),
    [
        ("Kran\u00adken\u00adkasse, \ufeffmo\u2060ni\u200etor", "Krankenkasse, monitor"),
        ("na\u200cme of\u200d a", "name of a"),
        ("نام\u200cهای نامه\u200cای", "نام\u200cهای نامه\u200cای"),  # two words of Persian, which joined are one
        ("\u200cکتاب\u200c خوب", "کتاب خوب"),
        ("क्\u200dष", "क्\u200dष"),
        ("a\u200bb", "a\u200bb"),  # a blank
    ],
)
def test_invisible_characters_are_not_counted(text: str, counted: str) -> None:
    assert without_invisible(text) == counted
    clean, places = located(text)
    assert (clean, "".join(text[place] for place in places)) == (counted, counted)


SIGNS = "\u00ad\u2060\u200c\u200d\ufeff\u200e\u200f\u202a\u202c\u2066\u2069\u061c\u034f"


@pytest.mark.parametrize("sign", SIGNS, ids=ascii)
def test_every_count_of_words_passes_over_them(sign: str) -> None:
    text = "The pumping station in Oldmere needs a new pump by May 14, 2001, for $ 3,500."
    divided = "".join(f"{one}{sign}" if one.isalnum() and number % 3 == 1 else one for number, one in enumerate(text))
    assert divided.count(sign) > 15
    for count in (words, words_of, lambda one: cut_words([one])):
        assert count(divided) == count(text)
    for one, other in ((text, divided), (divided, text)):
        assert supported_share(Record(one, other)) == 1.0
        assert rouge([one], [other], profile="unicode").mean["2"].f == 1.0
        report = check_support(one, other)
        assert report.unsupported == ()
        dates = [claim for claim in report.claims if claim.kind == "date"]
        assert [without_invisible(one[slice(claim.start, claim.end)]) for claim in dates] == ["May 14, 2001"]
        assert [without_invisible(other[slice(*claim.source or ())]) for claim in dates] == ["May 14, 2001"]
