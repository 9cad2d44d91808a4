"""What counts as a web page, and in which encoding it is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from catchline.cli.inputs import documents_of
from catchline.text.html import charset_of, is_html, is_tagged, page_text, tagged_text


@pytest.mark.parametrize(
    ("text", "page"),
    [
        ("<!doctype html><p>", True),
        ("\n<!-- a -->\n<!-- b > -- c -->\n<html>", True),
        ('<?xml version="1.0"?><!-- a --><HTML lang="en">', True),
        ("<!-- a --> A title <html>", False),
        ("<!-- a <html>", False),
        ("<htmlx>", False),
    ],
)
def test_a_page_begins_as_one(text: str, page: bool) -> None:
    assert is_html(text) is page


def test_a_comment_ends_in_one_way_only() -> None:
    assert not is_html("<!--a-->" * 200 + "A text.")  # by a pattern that may go on behind its end this takes years


TEXT = "<p>The river rose two metres in the night.</p>"
TEASER = "<article><h3>Other</h3></article>"


@pytest.mark.parametrize(
    "body",
    [
        f"<form><input><label>Search</label><select><option>All</select>{TEXT}<button>Go</button></form>",
        f"{TEXT}<form><p>Write to us</p></form>",
        f"<main>{TEXT}</main>{TEASER}",
        f"<main><p>Home</p><article>{TEXT}</article><p>Comments: none</p></main>",
        f"<h1>A river</h1>{TEASER}<article>{TEXT}</article>",
    ],
)
def test_the_text_of_a_page_is_its_article(body: str) -> None:
    assert page_text(f"<html><body>{body}</body></html>") == "The river rose two metres in the night."


def test_an_article_that_is_but_a_teaser_is_not_the_pages_text() -> None:
    assert page_text(f"<html><body><p>Home</p><main>{TEXT}{TEASER}</main></body></html>").startswith("The river rose")


@pytest.mark.parametrize(
    ("name", "read_as"),
    [
        ("iso-8859-2", "iso-8859-2"),
        ("Windows-1252", "Windows-1252"),
        *((name, "utf-8") for name in ("undefined", "idna", "punycode", "unicode_escape", "hex", "nothing", "base64")),
    ],
)
def test_the_encoding_that_a_page_names(name: str, read_as: str) -> None:
    assert charset_of(f'<meta charset="{name}">'.encode()) == read_as


XML = '<?xml version="1.0"?>\n<rss><a>Bars</a> <item><text>Bars close on <b>Monday</b>, says Foo.</text></item>'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (XML, "Bars close on Monday, says Foo."),
        ('<?xml version="1.0"?><a>Foo</a><a>Bar</a>', "Foo\n\nBar"),
        ("Bars <b>close</b> on <i>Monday</i>,\nsays &quot;Foo&quot;.<br>It <b>rains</b> all day long.", None),
    ],
)
def test_what_stands_between_tags_is_read(text: str, said: str | None, tmp_path: Path) -> None:
    said = said or 'Bars close on Monday, says "Foo".\n\nIt rains all day long.'
    assert is_tagged(text)
    assert tagged_text(text) == said
    for name, read in {"a": said, "a.txt": said, "a.c": text}.items():
        (tmp_path / name).write_text(text)
        assert next(documents_of(str(tmp_path / name))).document == read
    assert not is_tagged("The tags <b> and </b> are for bold text, a < b, and List<a>.")
