"""The terminal view and the HTML pages: what they show, that they are self-contained, that nothing escapes."""

from __future__ import annotations

import io
import json
import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import pytest
from rich.console import Console

from laconic.explain.charts import gate_curve, line_chart, ticks
from laconic.explain.html import Curves, Figure, Prose, Samples, Table, embed_json, render, render_report
from laconic.explain.terminal import show
from laconic.types import SourceSpan, Summary, SummaryWord

EVIL = 'Tom & "Jerry" </script><script>alert(1)</script> <img src=x onerror=alert(2)> \u2028 end'


def word(text: str, start: int, *, copied: bool = False, sources: Any = (), p_gen: float | None = 0.5) -> SummaryWord:
    return SummaryWord(
        text=text,
        start=start,
        end=start + len(text),
        probability=0.5,
        copied=copied,
        copy_share=0.9 if copied else 0.1,
        p_gen=p_gen,
        sources=tuple(sources),
        attention=(0.25, 0.75),
    )


def made(document: str = EVIL, **changes: Any) -> Summary:
    cat = SourceSpan(0, 3, document[0:3], 0.75)
    end = SourceSpan(4, 5, document[4:5], 0.25)
    summary = Summary(
        text="Tom <unk> runs",
        score=-0.5,
        log_prob=-3.0,
        id="r<1>",
        model="model & co",
        document=document,
        words=(word("Tom", 0, copied=True, sources=(cat, end)), word("<unk>", 4), word("runs", 10, sources=(end,))),
        source_offsets=((0, 3), (4, 5)),
        tokens_read=2,
        tokens_given=9,
    )
    return replace(summary, **changes)


class Reader(HTMLParser):
    """Elements, their attributes, and the texts of scripts."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self._open: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in {"meta", "img", "br"}:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag, f"</{tag}> closes another element"

    def handle_data(self, data: str) -> None:
        self.texts.append((self._open[-1] if self._open else "", data))


def parse(page: str) -> Reader:
    reader = Reader()
    reader.feed(page)
    reader.close()
    return reader


def text_of(page: str) -> str:
    return "".join(text for tag, text in parse(page).texts if tag not in {"script", "style"})


def test_the_page_shows_document_and_summary_as_text_whatever_they_hold() -> None:
    page = render([made()], title="a < b & c")
    reader = parse(page)
    assert EVIL in text_of(page)
    assert "a < b & c" in text_of(page)
    assert "model & co" in text_of(page)
    assert not [tag for tag, attributes in reader.tags if tag == "img" or "onerror" in attributes]
    scripts = [attributes for tag, attributes in reader.tags if tag == "script"]
    assert len(scripts) == 2  # the data and ours


def test_the_page_asks_for_nothing_from_anywhere() -> None:
    page = render_report(
        "t",
        [
            Samples("s", [made("plain text")]),
            Figure("f", "<svg xmlns='http://www.w3.org/2000/svg'/>"),
            Curves("c", {"a": [(0, 1)]}),
        ],
    )
    for tag, attributes in parse(page).tags:
        assert tag not in {"link", "iframe", "object", "embed"}
        for name in ("src", "href", "action", "data", "srcset"):
            value = attributes.get(name)
            assert value is None or value.startswith("data:"), (tag, name)
    style = page[page.index("<style>") : page.index("</style>")]
    assert "url(" not in style
    assert "@import" not in style
    assert not re.search(r"\b(fetch|XMLHttpRequest|WebSocket|import)\b\s*\(", page)


def test_words_point_to_pieces_of_the_document() -> None:
    page = render([made()])
    reader = parse(page)
    data = json.loads(next(text for tag, text in reader.texts if tag == "script"))
    first = data[0]["words"][0]
    assert (first["t"], first["k"], first["g"]) == ("Tom", "copied", 0.5)
    assert [source[0] for source in first["s"]] == [[0], [1]]
    assert [entry["k"] for entry in data[0]["words"]] == ["copied", "unknown", "generated"]
    assert data[0]["columns"] == [[0], [1]]
    pieces = re.findall(r'data-piece="(\d+)">([^<]*)<', page)
    assert pieces == [("0", "Tom"), ("1", "&amp;")]
    words = re.findall(r'class="w (\w+)" data-word="(\d)" tabindex="(-?\d)" role="button">([^<]*)<', page)
    assert words == [
        ("copied", "0", "0", "Tom"),
        ("unknown", "1", "-1", "&lt;unk&gt;"),
        ("generated", "2", "-1", "runs"),
    ]


def test_the_text_between_overlapping_spans_is_kept_once() -> None:
    document = "abcdefghij klm"
    spans = [SourceSpan(2, 6, "cdef", 0.5), SourceSpan(4, 8, "efgh", 0.5)]
    one = made(document, words=(word("x", 0, sources=spans),), text="x", source_offsets=((0, 10), (11, 14)))
    page = render([one])
    start = page.index('class="document"')
    assert text_of(page[page.index(">", start) + 1 : page.index("</div>", start)]) == document


def test_systems_of_one_document_share_a_panel_and_references_stand_beside() -> None:
    page = render([made(), made(model="other"), made("another text")], references=["gold < 1", "gold < 1", ["a", "b"]])
    assert page.count("<article") == 2
    assert page.count('class="document"') == 2
    assert text_of(page).count("gold < 1") == 1
    assert page.count("summary reference") == 3
    with pytest.raises(ValueError, match="1 references for 2"):
        render([made(), made()], references=["x"])


def test_the_unread_end_is_marked_and_cut() -> None:
    page = render([made("Tom & " + "x" * 9000, truncated=True)])
    assert 'class="unread"' in page
    assert "5,001 more characters" in text_of(page)
    assert len(page) < 40_000


def test_a_summary_without_words_or_document_is_shown_too() -> None:
    page = render([Summary("only <b>text</b>")])
    assert "only <b>text</b>" in text_of(page)


def test_the_parts_of_a_report() -> None:
    rows = [["<b>a</b>", 1.234, 1200], ["b", 5.0, None]]
    table = Table("Scores", ["system", "R1", "n"], rows, note="sig", best=["R1"])
    page = render_report(
        "Report",
        [table, Prose("How", ["p < q"], code="x && y"), Figure("Png", b"\x89PNG\r\n"), Samples("S", [made()])],
        subtitle="two cores",
    )
    text = text_of(page)
    assert "<b>a</b>" in text
    assert "1.23" in text
    assert "1,200" in text
    assert "x && y" in text
    assert re.search(r'class="number best">5\.00<', page)
    assert "data:image/png;base64,iVBORw0K" in page


def test_json_in_a_script_cannot_end_it() -> None:
    embedded = str(embed_json({"x": EVIL + "<!--\u2029"}))
    assert not set("<>&\u2028\u2029") & set(embedded)
    assert json.loads(embedded) == {"x": EVIL + "<!--\u2029"}


def test_charts_are_well_formed_and_leave_out_what_is_no_number() -> None:
    svg = str(line_chart({"a<": [(0, 1.0), (1, float("nan")), (2, 3.0)], "b": [(0, 2.0)]}, y_label="loss & co"))
    root = ElementTree.fromstring(svg[: svg.index("</svg>") + 6])
    lines = [element for element in root if element.tag == "polyline"]
    assert [len(line.attrib["points"].split()) for line in lines] == [2, 1]
    assert "a&lt;" in svg
    assert "No points" in line_chart({"a": []})
    assert ticks(0, 10) == [0, 2, 4, 6, 8, 10]
    assert ticks(0.03, 0.11)[0] <= 0.03
    assert len(ticks(5, 5)) >= 2
    long = str(line_chart({"a": [(i, i) for i in range(100_000)]}))
    assert len(long) < 20_000


def test_the_gate_curve_is_empty_without_a_gate() -> None:
    assert gate_curve(made(words=(word("x", 0, p_gen=None),))) == ""
    ElementTree.fromstring(str(gate_curve(made())))


# --------------------------------------------------------------------------------------------- terminal


def shown(summary: Summary, *, colour: bool, **options: Any) -> str:
    out = io.StringIO()
    console = Console(
        file=out, force_terminal=colour, color_system="truecolor" if colour else None, width=100, no_color=not colour
    )
    show(summary, console, **options)
    return out.getvalue()


def test_without_colour_brackets_and_braces_mark_the_words() -> None:
    text = shown(made(), colour=False, words=True, document=True)
    assert "[Tom] {<unk>} runs" in text
    assert "1 of 3 words copied" in text
    assert "read 2 of 9 tokens" in text
    assert "\x1b" not in text
    assert "Tom @ 0-3 (0.75)" in text
    assert "[Tom] & " in text  # the document


def test_with_colour_there_are_no_brackets() -> None:
    text = shown(made(), colour=True)
    assert "\x1b[" in text
    assert "[Tom]" not in text


def test_no_color_is_respected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    out = io.StringIO()
    show(made(), Console(file=out, force_terminal=True, width=100))
    assert "[Tom]" in out.getvalue()


def test_markup_and_control_characters_of_a_document_do_nothing() -> None:
    document = "Tom \x1b[31m[bold]x[/bold] \x07 end\nline"
    evil = made(document, text="Tom <unk> runs", truncated=False)
    text = shown(evil, colour=False, words=True, document=True)
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "[bold]x[/bold]" in text
    assert "end\nline" in text
