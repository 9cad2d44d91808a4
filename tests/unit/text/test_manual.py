"""Manual pages: what is read of them, as `man` shows them and in their source."""

from __future__ import annotations

from pathlib import Path

import pytest

from catchline.cli.inputs import documents_of
from catchline.text.manual import manual_text

SHOWN = """FOO(1)                     User Commands                     FOO(1)

NAME
       foo, bar - print all bars of a file

SYNOPSIS
       foo [-a] FILE

DESCRIPTION
       Foo  reads a file and prints its bars in the order of their be\u2010
       ginning.

       -a     all of them

AUTHOR
       Anna Foo.

foo 1.2                       May 2021                       FOO(1)
"""
SOURCE = r"""'\" t
.\" Made by a program; do not edit.
.de XX
.B never seen
..
.TH FOO "1" "May 2021" "foo 1.2"
.SH NAME
foo, bar \- print all \fIbars\fR of a file
.SH SYNOPSIS
.B foo
[\-a] FILE
.SH "DESCRIPTION"
.B Foo
reads a\~file and prints its
.BR bars (1)
in the order \(em the first
first \[em] of their beginning.
.nh
.TP
\fB\-a\fR
all of them
.SH AUTHOR
Anna Foo.
"""
MDOC = """.Dd May 2021
.Dt FOO 1
.Sh NAME
.Nm foo
.Nd print all bars of a file
.Sh DESCRIPTION
.Nm
reads a file as
.Xr bar 1
does.
"""
SAID = {
    SHOWN: "foo, bar - print all bars of a file\n\n"
    "Foo reads a file and prints its bars in the order of their beginning.",
    SOURCE: "foo, bar - print all bars of a file\n\n"
    "Foo reads a file and prints its bars(1) in the order \u2014 the first first \u2014 of their beginning.",
    MDOC: "foo - print all bars of a file\n\nfoo reads a file as bar 1 does.",
}


@pytest.mark.parametrize("page", SAID)
def test_name_and_description_are_read_of_a_manual_page(page: str, tmp_path: Path) -> None:
    (tmp_path / "foo.1").write_text(page)
    assert next(documents_of(str(tmp_path / "foo.1"))).document == SAID[page]
    bold = "".join(f"{letter}\b{letter}" if letter.isupper() else letter for letter in page)
    assert manual_text(bold) == SAID[page], "as for a typewriter"


@pytest.mark.parametrize("text", ["LS(1) is a page.\n\nNAME", ".TH is a request\n", "FOO(1)", "", SHOWN[70:]])
def test_what_is_no_manual_page_is_not_read_so(text: str) -> None:
    assert manual_text(text) == ""


@pytest.mark.parametrize("piece", [".TH a\n", '.\\"\n.TH a\n.de b\n', "A(1) ", "A(1)\t\t", "(", "a\b"])
def test_it_takes_no_longer_than_the_text_is(piece: str) -> None:
    manual_text(piece * 20_000)  # where it were quadratic, this would take minutes
