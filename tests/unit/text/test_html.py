"""What counts as a web page, and in which encoding it is read."""

from __future__ import annotations

import pytest

from laconic.text.html import charset_of, is_html


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
