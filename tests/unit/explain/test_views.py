"""The terminal view and the HTML pages: what they show, that they are self-contained, that nothing escapes."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import re
from collections import Counter
from dataclasses import replace
from html import unescape
from typing import Any

import pytest
from lxml.html import fromstring
from rich.console import Console

from catchline.explain import html
from catchline.explain.html import bundle, embed_json, render, report_script, view_files
from catchline.explain.provenance import UNKNOWN
from catchline.explain.record import to_dict
from catchline.explain.terminal import show
from catchline.types import SourceSpan, Summary, SummaryToken, SummaryWord

EVIL = 'Tom & "Jerry" </script><script>alert(1)</script> <img src=x onerror=alert(2)> \u2028 end'
FIGURES: Any = {"probability": 0.5, "p_gen": 0.5, "attention": (0.25, 0.75)}


def made(document: str = EVIL, **changes: Any) -> Summary:
    tom, end = SourceSpan(0, 3, document[0:3], 0.75), SourceSpan(4, 5, document[4:5], 0.25)
    words = (
        SummaryWord("Tom", 0, 3, copied=True, copy_share=0.9, sources=(tom, end), **FIGURES),
        SummaryWord("<unk>", 4, 9, copy_share=0.1, **FIGURES),
        SummaryWord("runs", 10, 14, copy_share=0.1, sources=(end,), **FIGURES),
    )
    read: Any = {"source_offsets": ((0, 3), (4, 5)), "tokens_read": 2, "tokens_given": 9}
    summary = Summary("Tom <unk> runs", -0.5, -3.0, "r<1>", "model & co", document, words, **read)
    return replace(summary, **changes)


def text_of(page: str) -> str:
    root = fromstring(page)
    for element in root.xpath("//script|//style"):
        element.getparent().remove(element)
    return root.text_content()


def data_of(page: str) -> dict[str, Any]:
    """What the page's script gets."""
    return json.loads(fromstring(page).xpath("//script[@type='application/json']")[0].text)


def shown_document(page: str) -> str:
    return unescape(page.split('<div class="document" dir="auto">')[1].split("</div>")[0])


def test_the_page_shows_document_and_summary_as_text_whatever_they_hold() -> None:
    page = render([made()], title="a < b & c")
    assert all(text in text_of(page) for text in (EVIL, "a < b & c", "model & co"))
    assert not fromstring(page).xpath("//img|//*[@onerror]")
    assert len(fromstring(page).xpath("//script")) == 2  # the data and ours
    assert "only <b>text</b>" in text_of(render([Summary("only <b>text</b>")])), "without words and document"
    embedded = str(embed_json({"x": EVIL + "<!--\u2029"}))
    assert not set("<>&\u2028\u2029") & set(embedded)
    assert json.loads(embedded) == {"x": EVIL + "<!--\u2029"}


def test_the_page_asks_for_nothing_from_anywhere_and_carries_its_policy() -> None:
    page = render([made("plain text")])
    root = fromstring(page)
    assert not root.xpath("//link|//iframe|//object|//embed")
    values = [value for name in ("src", "href", "action", "data", "srcset") for value in root.xpath(f"//@{name}")]
    assert all(value.startswith("data:") for value in values)
    style = page[page.index("<style>") : page.index("</style>")]
    assert not re.search(r"url\(|@import", style)
    assert not re.search(r"\b(fetch|XMLHttpRequest|WebSocket|import)\b\s*\(", page)
    (policy,) = root.xpath("//meta[@http-equiv='Content-Security-Policy']/@content")
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    scripts = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    digests = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    assert rules["default-src"] == "'none'"
    assert rules["script-src"] == " ".join(f"'sha256-{digest}'" for digest in digests)
    assert page.index("Content-Security-Policy") < page.index("<style>")


def test_the_script_gets_the_records_as_the_service_gives_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """But attention in few digits, and none where it would be heavy."""
    data = data_of(render([made()]))
    (record,) = data["records"]
    assert record == to_dict(made(), document=False) | {"support": record["support"]}
    assert data["more"] == 0
    fine = replace(made().words[0], attention=(0.123456, 0.00001))
    assert data_of(render([made(words=(fine,))]))["records"][0]["words"][0]["attention"] == [0.1235, 0]
    monkeypatch.setattr(html, "MAX_HEAT_CELLS", 5)
    record = data_of(render([made(truncated=True)]))["records"][0]
    assert "attention" not in record["words"][0]
    assert "source_offsets" not in record
    assert record["read_to"] == 5


def test_the_document_keeps_every_position_and_its_unread_end_is_cut() -> None:
    document = " a\r\nb\rc\n & \0 < 🙂 d"
    assert shown_document(render([made(document)])) == document.replace("\0", "\ufffd")
    assert "\r" not in render([made(document)])  # as such a browser would read it as a line feed
    page = render([made("Tom & " + "x" * 9000, truncated=True)])
    assert data_of(page)["more"] == 5001
    assert len(shown_document(page)) == 5 + html.UNREAD_SHOWN


def test_systems_of_one_document_share_a_panel_and_references_stand_beside() -> None:
    page = render([made(), made(model="other"), made("another text")], references=["gold < 1", "gold < 1", ["a", "b"]])
    assert page.count("<article") == page.count('class="document"') == 2
    assert text_of(page).count("gold < 1") == 1
    assert page.count("system reference") == 2  # two references of one document stand together
    with pytest.raises(ValueError, match="1 references for 2"):
        render([made(), made()], references=["x"])


def problems_of(script: str) -> list[str]:
    """What the simple joining of modules cannot carry: imports and exports that it leaves, a name that two modules
    declare, what ends a script's element."""
    names = Counter(re.findall(r"^(?:async )?(?:function\*?|const|let|class) +([\w$]+)", script, re.MULTILINE))
    twice = [name for name, count in names.items() if count > 1]
    return twice + re.findall(r"^(?:import|export)\b.*|(?i:</script|<!--)", script, re.MULTILINE)


def test_modules_are_joined_in_order_without_imports() -> None:
    modules = {
        "main.js": 'import { a } from "./a.js";\nimport {\n  b,\n} from "./b.js";\na(b);\n',
        "a.js": 'import { b } from "./b.js";\nexport function a() {\n  return b;\n}\n',
        "b.js": "export const b = 1;\n",
    }
    joined = bundle("main.js", modules)
    assert joined.index("const b = 1") < joined.index("function a()") < joined.index("a(b);")
    assert not problems_of(joined)
    assert problems_of(bundle("main.js", modules | {"main.js": 'import b from "./b.js";\n'}))
    assert not problems_of(report_script())
    listed = re.search(r"const UNKNOWN = (\[.*\]);", view_files()["record.js"])
    assert tuple(json.loads(listed[1])) == UNKNOWN  # type: ignore[index]


def shown(summary: Summary, *, colour: bool = False, **options: Any) -> str:
    out = io.StringIO()
    system: Any = "truecolor" if colour else None
    show(summary, Console(file=out, force_terminal=colour, color_system=system, width=100), **options)
    return out.getvalue()


def test_words_are_marked_by_colour_or_by_brackets_and_braces(monkeypatch: pytest.MonkeyPatch) -> None:
    text = shown(made(), words=True, document=True)
    for part in ("[Tom] {<unk>} runs", "1 of 3 words copied", "read 2 of 9 tokens", "Tom @ 1-3 (0.75)", "[Tom] & "):
        assert part in text
    assert "\x1b" not in text
    assert "attended to: " in text.split("runs")[-1]  # a word that was generated is from nowhere
    text = shown(made(), colour=True)
    assert "\x1b[" in text
    assert "[Tom]" not in text
    monkeypatch.setenv("NO_COLOR", "1")
    assert "[Tom]" in shown(made(), colour=True)


def test_the_terminal_says_what_the_document_lacks() -> None:
    view = shown(made("Tom met Jerry in 1999.", text="tom meets Oslo in 1999 happily"))
    assert "1 of 2 names, numbers and dates are in the document; not in it: Oslo (name)" in view
    assert "other words that are not there: happily" in view
    assert "no names, numbers or dates to compare" in shown(made("It was late.", text="late again"))


def test_markup_and_control_characters_of_a_document_do_nothing() -> None:
    token = SummaryToken("Tom", 0.5, None, 0.0, sources={"[/x]\x1b": (SourceSpan(0, 3, "Tom", 1.0),)})
    words = (replace(made().words[0], tokens=(token,)),)
    changes: Any = {"model": "m\x1b[31m", "id": "a\x07\x1b", "extracted": "no\x1b", "words": words}
    document = "Tom \x1b[31m[bold]x[/bold] \x07 end\nline"
    text = shown(made(document, truncated=False, **changes), words=True, document=True)
    assert not {"\x1b", "\x07"} & set(text)
    assert all(part in text for part in ("[bold]x[/bold]", "end\nline", "[/x]"))
