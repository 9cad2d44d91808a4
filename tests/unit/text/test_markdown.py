"""Files of Markdown and reStructuredText are read as what they say in sentences."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from markdown_it.parser_inline import ParserInline

from catchline.cli.inputs import documents_of
from catchline.text.html import is_markdown
from catchline.text.markdown import markdown_text

README = """---
title: Foo
---
# Foo

[![badge](http://a/b.svg)](http://c) [![x](y)](z)

<p align="center"><img src="logo.png"><br>A fast tool that draws maps of towns &amp; rivers.</p>
<!-- hidden words that nobody should read at all -->

Foo is a **fast** `glob` library for [Node.js](https://node). It is
wrapped. See <b>more</b> in [the docs][docs].

[Website](a) | [Docs](b)

Install
-------

```
npm i foo
```

* one item
* [contents](#a)
* [how the maps of the towns are drawn](#b)

| a | b |
|---|---|
| 1 | 2 |

> [!NOTE]
> Mind the gap here.

[docs]: http://x
"""
SAID = [
    "A fast tool that draws maps of towns & rivers.",
    "Foo is a fast glob library for Node.js. It is wrapped. See more in the docs.",
    "one item",
    "how the maps of the towns are drawn",
    "Mind the gap here.",
]


@pytest.mark.parametrize("ends", ["\n", "\r\n"])
def test_paragraphs_and_items_are_what_it_says(ends: str) -> None:
    assert markdown_text(README.replace("\n", ends)).split("\n\n") == SAID


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ("<!--\nHidden.\n\nNobody may know a word of this.\n-->\n\nSeen.", "Seen."),
        ("<style>\nthis is not what one reads here\n</style>\n\nSeen.", "Seen."),
        ("---\n\n# Minutes\n\nThe board met.\n\n---\n\nNext: in June.", "The board met.\n\nNext: in June."),
        ("+++\ntitle = 1\n+++\n\nSeen.", "Seen."),
        ("A server of files<br>It caches.", "A server of files It caches."),
        ("- [ ] Replace it\n- [x] Done", "Replace it\n\nDone"),
        ("Foo is a tool.\nIt rises.\n---\n\nWhat is foo?\n-----\n\nSeen.", "Foo is a tool. It rises.\n\nSeen."),
        ("It is ~~on Monday~~ on Tuesday.[^1]\n\n[^1]: Or not.", "It is on Tuesday."),
        ("<p>A tool for <code>JSON</code>, <b>YAML</b>, and others.</p>", "A tool for JSON, YAML, and others."),
        ('<p><img alt="a > b" src="x"> This is text of five words.</p>', "This is text of five words."),
        ("[Website](a) | [Configure it](b) | [Rules](c) | [Chat](d)\n\nSeen.", "Seen."),
        ("<!--\nNobody may know a word of this.\n-->", ""),
        ("`fetch add foo --now`\n\n- `foo`\n\n`foo` rises.", "foo rises."),
        ("<table><th>One system<th>Another system<th>Cover</table>\n\nSeen.", "Seen."),
        ("# Foo, a tool\n\n![npm](https://x/y.svg)", "Foo, a tool"),
        (
            "<p>\u4e00\u4e2a\u7528\u4e8e\u6784\u5efa\u7528\u6237\u754c\u9762\u3002</p>",
            "\u4e00\u4e2a\u7528\u4e8e\u6784\u5efa\u7528\u6237\u754c\u9762\u3002",
        ),
        ("- a\n" + "".join("  " * depth + "- one\n" for depth in range(1, 15)), "a" + "\n\none" * 14),
    ],
)
def test_odd_places_of_markdown(document: str, said: str) -> None:
    assert markdown_text(document) == said


def test_markdown_is_known_by_a_heading_and_more() -> None:
    assert is_markdown(README)
    assert is_markdown("# Foo\n\nSee [this](http://x).")
    assert is_markdown("## Foo\n\n~~~\ncode\n~~~")
    program = "# best of all\n\nbest[i][0] = cost[i](0)\n[date][INFO]"
    for text in (
        "# only a heading",
        "See [this](http://x).",
        "#1 of [two](them)",
        "Plain words.",
        program,
        "#!x\n" + README,
    ):
        assert not is_markdown(text)


@pytest.mark.parametrize("name", ["README.md", "notes.markdown", "README"])
def test_files_of_markdown_are_read_so(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(README)
    assert next(documents_of(str(tmp_path / name))).document.split("\n\n") == SAID


def test_files_of_restructured_text_are_read_so(tmp_path: Path) -> None:
    lines = [
        "Foo",
        "===",
        "",
        ".. image:: http://a/b.svg",
        "   :alt: badge",
        "",
        "Foo is a *fast* ``glob`` library, see",
    ]
    lines += ["`the docs <http://x>`_::", "", "\tnpm i foo", "", "- one item", "", "Returns", "-------", "", "nothing"]
    path = tmp_path / "README.rst"
    path.write_bytes("\r\n".join(lines).encode())
    plain = path.with_name("README.txt")
    plain.write_bytes(path.read_bytes())
    for name in (path, plain):
        assert next(documents_of(str(name))).document == "Foo is a fast glob library, see the docs.\n\none item"
    path.write_text("Foo\n===\n\n:Author: Anna\n:Date: May\n  2021\n\nFoo is a tool.\n")
    assert next(documents_of(str(path))).document == "Foo is a tool."
    path.write_text("Foo\n===\n")
    assert next(documents_of(str(path))).document == "Foo\n===\n"


def test_what_is_not_markdown_stays_as_it_is(tmp_path: Path) -> None:
    for name, text in {"a.txt": README, "b.py": README, "c.md": "| a |\n|---|\n", "d": "# a\n\nwords"}.items():
        (tmp_path / name).write_text(text)
        assert next(documents_of(str(tmp_path / name))).document == text


def test_headings_that_ask_are_read_with_their_answers() -> None:
    asked = "# Foo FAQ\n\n## What is a foo?\n\nIt has bars.\n\n## Who has it?\n\nAnna.\n"
    assert markdown_text(asked) == "Foo FAQ\n\nWhat is a foo?\n\nIt has bars.\n\nWho has it?\n\nAnna."
    assert markdown_text(asked.replace("Foo FAQ", "Foo")) == "It has bars.\n\nAnna.", "a page of another kind"
    assert markdown_text(asked.replace("Who has it?", "Install")) == "It has bars.\n\nAnna."


@pytest.mark.parametrize(
    "piece", ["<!--", "<a", '<a"', "<pre>", "```x\n", "~~", "[^a]", "[", "*a ", "# a\n", "---\n", "> ", "<p>\n\n"]
)
def test_it_takes_no_longer_than_the_text_is(piece: str) -> None:
    markdown_text(piece * 20_000)  # where it were quadratic, this would take minutes
    is_markdown(piece * 20_000)


@pytest.mark.parametrize("piece", ["[", "![", "`\u4e2d", "<![CDATA["])
def test_of_a_long_paragraph_the_parser_sees_pieces_and_looks_at_each_place_a_few_times(
    piece: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen, looks, parse, skip = list[int](), list[int](), ParserInline.parse, ParserInline.skipToken

    def parsed(self: ParserInline, source: str, *others: Any) -> Any:
        seen.append(len(source))
        return parse(self, source, *others)

    monkeypatch.setattr(ParserInline, "parse", parsed)
    monkeypatch.setattr(ParserInline, "skipToken", lambda self, state: (looks.append(1), skip(self, state))[1])
    text = "x" + piece * (20_000 // len(piece))
    assert len(markdown_text(text)) > 9_000
    assert sum(seen) == len(text)
    assert max(seen) <= 3_000
    assert len(looks) < 25 * len(text)


def test_a_long_paragraph_is_cut_at_the_ends_of_lines() -> None:
    badges = "[![Build Status](https://example.org/a.svg)](https://example.org)\n" * 200
    assert markdown_text(badges + "Seen.\n") == "Seen."
    assert markdown_text("See [the map of the town](https://example.org/a) now. " * 200).count("the town now. ") > 195


def test_a_line_of_heading_signs_is_read_in_linear_time() -> None:
    def seconds(count: int) -> float:
        started = time.process_time()
        markdown_text("# " + "#" * count + "x")
        return time.process_time() - started

    assert seconds(200_000) < 15 * max(seconds(20_000), 0.02)
