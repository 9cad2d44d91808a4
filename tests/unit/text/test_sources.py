"""What is read of notebooks, Python files and e-mails."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from catchline.cli.inputs import documents_of
from catchline.text.markdown import notebook_text
from catchline.text.sources import said_in

NOTEBOOK = json.dumps(
    {
        "cells": [
            {"cell_type": "markdown", "source": ["# Bars\n", "\n", "Foo *prints* bars.\n"]},
            {"cell_type": "code", "source": "bars()"},
        ]
    }
)
MAIL = """From: Anna Foo <anna@foo.org>
To: Bert <bert@bar.org>,
 Carl <carl@bar.org>
Subject: Bars

The bars were closed.
> Were they?

On Monday, May 2, Bert wrote:
> Where are the bars?
-- 
Anna Foo
"""
CODED = """Subject: =?utf-8?q?B=C3=A4r?=
From: anna@foo.org
Content-Type: text/plain; charset=iso-8859-1
Content-Transfer-Encoding: quoted-printable

The b=E4rs were closed=
 on Monday.
"""
SAID = [
    ("a.ipynb", NOTEBOOK, "Foo prints bars."),
    ("a.py", '#!x\n"""Print bars.\n\n    Of all kinds.\n    """\nbars("\\d")\n', "Print bars.\n\nOf all kinds."),
    ("a.eml", MAIL, "The bars were closed."),
    ("a", MAIL.replace("The bars were closed.", ""), None),
    ("a", CODED, "The b\u00e4rs were closed on Monday."),
    ("a", MAIL.replace("bars were", "b\u00e4rs were"), "The b\u00e4rs were closed."),
    ("a", MAIL.replace("Subject: Bars", "Content-Type: multipart; x"), "The bars were closed."),
    ("a.txt", MAIL.replace("\n", "\r\n"), "The bars were closed."),
]


@pytest.mark.parametrize(("name", "text", "said"), SAID)
def test_what_they_say_is_read(name: str, text: str, said: str | None, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(text.encode())
    found = next(documents_of(str(tmp_path / name))).document
    assert found == said if said else "> Were they?" in found


@pytest.mark.parametrize(
    ("name", "text"),
    [
        *[(".py", text) for text in ("bars()", "(", "\0")],
        ("", "Note: it rains.\nTo: Bert\n\nBars."),
    ],
)
def test_what_is_none_of_these_stays_as_it_is(name: str, text: str) -> None:
    assert said_in(text, name) == ""
    for damaged in ("{", "[]", '{"cells": 1}', '{"cells": [1]}', "{}", text):
        assert notebook_text(damaged) == ""


@pytest.mark.parametrize(
    "piece", ["From: a\n", "From: a\n b\n", "A: b\n", "On a\n", "> a\n", "-- \n", "--- Original\n"]
)
def test_it_takes_no_longer_than_the_text_is(piece: str) -> None:
    said_in("From: a\nTo: b\n\n" + piece * 20_000, "")  # where it were quadratic, this would take minutes
    said_in(piece * 20_000, "")
