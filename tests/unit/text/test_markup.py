"""Files and pasted text in other formats are read as what they say in sentences."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from catchline.cli.io import documents_of
from catchline.cli.options import DocumentOptions
from catchline.errors import DataError
from catchline.text import markup
from catchline.text.markup import as_prose, is_markdown, markdown_text, own_words, suffix_of
from commands import refused, run
from office_files import MAKERS, PROSE, docx, ipynb, pdf, pptx

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


def read(path: Path) -> str:
    return next(documents_of(str(path), DocumentOptions())).document


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r", "\u2028"])
def test_paragraphs_and_items_of_markdown_are_its_prose(end: str) -> None:
    assert markdown_text(README.replace("\n", end)).split("\n\n") == SAID


@pytest.mark.parametrize(
    ("document", "said"),
    [
        (
            "# A\n\nIt reads the wind.\n\n## License\n\nMIT\n\n## More\n\n* fast\n* small",
            "It reads the wind.\n\nfast\n\nsmall",
        ),
        ("# Foo, a tool\n\n![npm](https://x/y.svg)", "Foo, a tool"),  # where there is nothing else
        ("<!--\nHidden.\n\nNobody may know a word of this.\n-->\n\nSeen.", "Seen."),
        ("<style>\nthis is not what one reads here\n</style>\n\nSeen.", "Seen."),
        ("---\n\n# Minutes\n\nThe board met.\n\n---\n\nNext: in June.", "The board met.\n\nNext: in June."),
        ("+++\ntitle = 1\n+++\n\nSeen.", "Seen."),
        ("A server of files<br>It caches.", "A server of files It caches."),
        ("- [ ] Replace it\n- [x] Done", "Replace it\n\nDone"),
        ("It is ~~on Monday~~ on Tuesday.[^1]\n\n[^1]: Or not.", "It is on Tuesday."),
        ("<p>A tool for <code>JSON</code>, <b>YAML</b>, and others.</p>", "A tool for JSON, YAML, and others."),
        ('<p><img alt="a > b" src="x"> This is text of five words.</p>', "This is text of five words."),
        ("[Website](a) | [Configure it](b) | [Rules](c) | [Chat](d)\n\nSeen.", "Seen."),
        ("<!--\nNobody may know a word of this.\n-->", ""),
        ("`fetch add foo --now`\n\n- `foo`\n\n`foo` rises.", "foo rises."),
        ("<table><th>One system<th>Another system<th>Cover</table>\n\nSeen.", "Seen."),
        ("<p>一个用于构建用户界面。</p>", "一个用于构建用户界面。"),
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
    for text in ("# only a heading", "See [this](http://x).", "#1 of [two](them)", "Plain.", program, "#!x\n" + README):
        assert not is_markdown(text)


def test_of_a_long_paragraph_the_parser_sees_pieces_that_end_where_lines_do() -> None:
    badges = "[![Build Status](https://example.org/a.svg)](https://example.org)\n" * 200
    assert markdown_text(badges + "Seen.\n") == "Seen."
    assert markdown_text("See [the map of the town](https://example.org/a) now. " * 200).count("the town now. ") > 195


MAIL = """From: Anna Foo <anna@foo.org>
To: Bert <bert@bar.org>,
 Carl <carl@bar.org>
Subject: Bars

The bars were closed.
- both rooms
> Were they?

Best regards,
Anna

On Monday, May 2, Bert wrote:
> Where are the bars?
"""
CODED = """Subject: =?utf-8?q?B=C3=A4r?=
From: anna@foo.org
Content-Type: text/plain; charset=iso-8859-1
Content-Transfer-Encoding: quoted-printable

The b=E4rs were closed=
 on Monday.
"""
PARTS = """From: anna@foo.org
Subject: Bars
Content-Type: multipart/alternative; boundary="x"

--x
Content-Type: text/html; charset=utf-8

<html><style>p {}</style><p>The bars were closed.</p><p>It &amp; that.</p></html>
--x--
"""
SRT = """1
00:00:00,500 --> 00:00:03,000
So the first thing I want

2
00:00:03,000 --> 00:00:06,200
to show you is {\\an8}the <i>new</i> pump.

3
00:00:06,300 --> 00:00:09,900
It needs half of the power and

4
00:00:10,000 --> 00:00:13,000
it is quiet enough for a hospital.
"""
SPOKEN = "So the first thing I want to show you is the new pump. "
SPOKEN += "It needs half of the power and it is quiet enough for a hospital."
VTT = "WEBVTT - x\nKind: captions\n\nSTYLE\n::cue {}\n\nNOTE hidden\n\nid 7\n00:01.000 --> 00:02.000 align:start\n"
VTT += "<v Ben>I tell the &amp; customer.\n\n00:01.000 --> 00:02.000\nI tell the &amp; customer.\nthat it rains."


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("a.eml", MAIL, "The bars were closed.\n- both rooms"),
        ("a", MAIL.replace("\n", "\r\n"), "The bars were closed.\n- both rooms"),
        ("a.txt", MAIL.replace("closed", "clösed"), "The bars were clösed.\n- both rooms"),
        ("a.eml", CODED, "The bärs were closed on Monday."),
        ("a.eml", PARTS, "The bars were closed.\n\nIt & that."),
        ("a", MAIL.replace("Subject: Bars", "Content-Type: multipart; x"), "The bars were closed.\n- both rooms"),
        ("a", "Note: it rains.\nTo: Bert\n\nBars.", None),
        ("a.srt", SRT, SPOKEN),
        ("a", "\ufeff" + SRT.replace("\n", "\r\n"), SPOKEN),
        ("a.vtt", VTT, "I tell the & customer. that it rains."),
        ("a", VTT, "I tell the & customer. that it rains."),
        ("a.sbv", "0:00:00.5,0:00:04.1\nSo a\n\n0:00:04.1,0:00:06.7\npump.\nIt is new.", "So a pump. It is new."),
        ("a", SRT.replace("\n\n", "\n").replace("1\n0", "0", 1), SPOKEN),
        ("a", "A&amp;B said it&#39;s late.<br /><br />We are <b>here</b>.", "A&B said it's late.\n\nWe are here."),
        ("a.txt", "It&rsquo;s late &mdash; a <b> c.", "It’s late — a <b> c."),
        ("a", "The <br> tag ends a line &c; so it is.", None),
        ("a", "1\n00:30 is when it begins --> be there", None),
        ("README.md", README, "\n\n".join(SAID)),
        ("README", README, "\n\n".join(SAID)),
        ("a.txt", README[README.index("Foo is a") :], None),
        ("b.py", README, None),
        ("c.md", "| a |\n|---|\n", None),
        ("a.c", "Bars <b>close</b> on <i>Monday</i>, <b>it</b> <b>rains</b>", None),
        ("a", "The tags <b> and </b> are for bold text, a < b, and List<a>.", None),
    ],
)  # fmt: skip
def test_mail_subtitles_and_tags(name: str, text: str, said: str | None, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(text.encode())
    assert read(tmp_path / name) == (text if said is None else said)


def test_the_newest_words_of_a_mail() -> None:
    long = "We meet " + "on Monday and " * 40 + "leave."
    told = f"Hi Bert,\n\n{long}\n\n\n\nThanks, that is fine.\n"
    quoted = "-----Original Message-----\nFrom: Bert\nSent: Monday\n\nWhen?\n"
    assert own_words(told + quoted) == f"Hi Bert,\n\n{long}"  # what is behind a line of thanks is a signature
    assert own_words("Am Montag, 2. Mai 2022 schrieb Bert:\n> Wann?\n") != ""
    assert own_words("> Only this.") == ""
    whole = "It rains here.\n" * 2_000
    assert own_words(whole) == whole.strip(), "the library sees the beginning of a long one"


PAGE = f"""<!doctype html><html><head><meta charset="iso-8859-2"><title>T</title></head><body>
<nav><a href="/">Home</a> <a href="/x">About us</a></nav><main><article><h1>A river</h1><p>{PROSE}</p>
<ul><li>Nobody was hurt in the village of Łódź.</li></ul><script>var hidden = 1;</script>
<p>See <a href="http://x">the docs</a> for <b>more</b>.</p></article></main>
<footer>Copyright 2024, all rights reserved</footer></body></html>"""


@pytest.mark.parametrize("make", [docx, pptx, pdf, ipynb])
def test_office_files(make: Callable[[], bytes], tmp_path: Path) -> None:
    path = tmp_path / f"a.{make.__name__}"
    path.write_bytes(make())
    assert read(path) == PROSE.replace("metres", "me-tres" if make is pdf else "metres")
    if make is not ipynb:  # half of one is read as text
        path.write_bytes(make()[:100])
        with pytest.raises(DataError, match=rf"a\.{make.__name__} cannot be read as"):
            read(path)


@pytest.mark.parametrize("suffix", [suffix for suffix in MAKERS if suffix != ".html"])
def test_a_file_is_known_by_its_content(suffix: str, tmp_path: Path) -> None:
    raw = MAKERS[suffix]()
    (tmp_path / "upload").write_bytes(raw)
    assert suffix_of(raw) == suffix
    assert "in the night." in read(tmp_path / "upload")


def test_a_scanned_pdf_gets_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.pdf").write_bytes(pdf(3, scanned=True))
    (tmp_path / "b.docx").write_bytes(docx())
    with pytest.raises(DataError, match=r"a\.pdf has no text: it may be scanned"):
        read(tmp_path / "a.pdf")
    both = ["summarize", "lead-1", tmp_path / "a.pdf", tmp_path / "b.docx"]
    refused(capsys, 3, "it may be scanned", *both)
    assert run(capsys, *both, "--skip-bad").splitlines()[1:] == [PROSE]


MEASURED = """
import resource, sys
from pathlib import Path
from catchline.data.lines import document_text
kind, text = document_text(Path(sys.argv[1]).read_bytes(), sys.argv[1])
print(text.count("until noon"), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""


@pytest.mark.slow
def test_three_hundred_pages_in_bounded_memory(tmp_path: Path) -> None:
    (tmp_path / "a.pdf").write_bytes(pdf(300, 45))
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, tmp_path / "a.pdf"], capture_output=True, text=True, check=True
    )
    lines, megabytes = map(int, done.stdout.split())
    assert lines == 300 * 45
    assert megabytes < 1000


def test_pages(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_bytes(PAGE.encode("iso-8859-2"))
    (tmp_path / "a").write_text(PAGE)
    for name in ("a.html", "a"):
        assert read(tmp_path / name) == f"{PROSE}\n\nNobody was hurt in the village of Łódź.\n\nSee the docs for more."
    for text in ("\n<!-- a -->\n<!-- b > -- c -->\n<html><p>", '<?xml version="1.0"?><!-- a --><HTML lang="en">'):
        assert as_prose(text) == ("page", "")
    for text in ("<!-- a --> A title <html>", "<!-- a <html>", "<htmlx>", "<!--a-->" * 200 + "A text."):
        assert as_prose(text)[0] == "text"
    (tmp_path / "a.html").write_text("<html><script>The river rose.</script></html>")
    (tmp_path / "a.pdf").write_bytes(pdf(3, scanned=True))
    for name in ("a.html", "a.pdf"):
        with pytest.raises(DataError, match=rf"{name} has no text: it may be scanned"):
            read(tmp_path / name)


def test_files_that_unpack_to_too_much_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.docx").write_bytes(docx())
    (tmp_path / "a.pdf").write_bytes(pdf())
    monkeypatch.setattr(markup, "MOST_UNPACKED", 100)
    monkeypatch.setattr(markup, "MOST_PAGES", 0)
    for name, reason in {"a.docx": "has more than 100 bytes of text", "a.pdf": "has 1 pages; at most 0"}.items():
        with pytest.raises(DataError, match=reason):
            read(tmp_path / name)


def test_without_the_extra_one_sentence_names_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from catchline.cli.main import main

    usual: Any = __import__
    without = ("trafilatura", "markitdown", "pypdfium2")

    def imported(name: str, *others: Any) -> Any:
        if name in without:
            raise ModuleNotFoundError(f"No module named '{name}'", name=name)
        return usual(name, *others)

    monkeypatch.setattr("builtins.__import__", imported)
    (tmp_path / "a.html").write_text(PAGE)
    (tmp_path / "a.docx").write_bytes(docx())
    for name in ("a.html", "a.docx"):
        assert main(["summarize", "lead", str(tmp_path / name)]) != 0
        assert "pip install 'catchline[documents]'" in capsys.readouterr().err
