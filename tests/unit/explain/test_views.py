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
from html.parser import HTMLParser
from typing import Any

import pytest
from rich.console import Console

from catchline.explain import html
from catchline.explain.html import (
    Samples,
    bundle,
    embed_json,
    render,
    render_report,
    report_script,
    view_files,
)
from catchline.explain.record import to_dict
from catchline.explain.terminal import UNKNOWN, show
from catchline.types import SourceSpan, Summary, SummaryToken, SummaryWord

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
    assert "only <b>text</b>" in text_of(render([Summary("only <b>text</b>")])), "without words and document"


def test_the_page_asks_for_nothing_from_anywhere() -> None:
    page = render_report("t", [Samples("s", [made("plain text")])])
    for tag, attributes in parse(page).tags:
        assert tag not in {"link", "iframe", "object", "embed"}
        for name in ("src", "href", "action", "data", "srcset"):
            value = attributes.get(name)
            assert value is None or value.startswith("data:"), (tag, name)
    style = page[page.index("<style>") : page.index("</style>")]
    assert "url(" not in style
    assert "@import" not in style
    assert not re.search(r"\b(fetch|XMLHttpRequest|WebSocket|import)\b\s*\(", page)


def data_of(page: str) -> list[dict[str, Any]]:
    return [json.loads(text) for tag, text in parse(page).texts if tag == "script" and text.startswith("{")]


def record_of(summary: Summary) -> dict[str, Any]:
    """What the script of a page about one summary gets."""
    return data_of(render([summary]))[0]["records"][0]


def test_the_script_gets_the_records_as_the_service_gives_them() -> None:
    (data,) = data_of(render([made()]))
    (record,) = data["records"]
    assert record == to_dict(made(), document=False) | {"support": record["support"]}
    assert (data["charts_open"], data["more"]) == (True, 0)


def test_attention_has_few_digits_and_is_left_out_where_it_would_be_heavy(monkeypatch: pytest.MonkeyPatch) -> None:
    fine = replace(made().words[0], attention=(0.123456, 0.00001))
    assert record_of(made(words=(fine,)))["words"][0]["attention"] == [0.1235, 0]
    monkeypatch.setattr(html, "MAX_HEAT_CELLS", 5)
    record = record_of(made(truncated=True))
    assert "attention" not in record["words"][0]
    assert "source_offsets" not in record
    assert record["read_to"] == 5


def test_what_the_document_lacks_is_named_and_a_summary_that_names_nothing_is_not_called_supported() -> None:
    record = record_of(made("Tom met Jerry.", text="Tom met Anna 12 times", words=made().words[:1]))
    found = record["support"]["unsupported"]
    assert [(one["kind"], one["text"]) for one in found] == [("name", "Anna"), ("number", "12")]
    support = record_of(made("It was late.", text="late again", words=made().words[:1]))["support"]
    assert support["rate"] is None
    assert [one["text"] for one in support["supported"]] == ["late"]
    assert support["supported"][0]["source"] == [7, 11]


def shown_document(page: str) -> str:
    start = page.index('<div class="document" dir="auto">')
    return unescape(page[start + len('<div class="document" dir="auto">') : page.index("</div>", start)])


def test_the_document_keeps_every_position() -> None:
    document = " a\r\nb\rc\n & \0 < 🙂 d"
    assert shown_document(render([made(document)])) == document.replace("\0", "\ufffd")
    assert "\r" not in render([made(document)])  # as such a browser would read it as a line feed


def test_systems_of_one_document_share_a_panel_and_references_stand_beside() -> None:
    page = render([made(), made(model="other"), made("another text")], references=["gold < 1", "gold < 1", ["a", "b"]])
    assert page.count("<article") == 2
    assert page.count('class="document"') == 2
    assert text_of(page).count("gold < 1") == 1
    assert page.count("system reference") == 2  # two references of one document stand together
    with pytest.raises(ValueError, match="1 references for 2"):
        render([made(), made()], references=["x"])


def test_the_unread_end_is_marked_and_cut() -> None:
    page = render([made("Tom & " + "x" * 9000, truncated=True)])
    (data,) = data_of(page)
    assert data["more"] == 5001
    assert len(shown_document(page)) == 5 + html.UNREAD_SHOWN


def test_json_in_a_script_cannot_end_it() -> None:
    embedded = str(embed_json({"x": EVIL + "<!--\u2029"}))
    assert not set("<>&\u2028\u2029") & set(embedded)
    assert json.loads(embedded) == {"x": EVIL + "<!--\u2029"}


# ------------------------------------------------------------------------------------------- components


def test_modules_are_joined_in_order_without_imports() -> None:
    modules = {
        "main.js": 'import { a } from "./a.js";\nimport {\n  b,\n} from "./b.js";\na(b);\n',
        "a.js": 'import { b } from "./b.js";\nexport function a() {\n  return b;\n}\n',
        "b.js": "export const b = 1;\n",
    }
    joined = bundle("main.js", modules)
    assert joined.index("const b = 1") < joined.index("function a()") < joined.index("a(b);")
    assert not problems_of(joined)


def problems_of(script: str) -> list[str]:
    """What the simple joining of modules cannot carry: imports and exports that it leaves, a name that two modules
    declare, what ends a script's element."""
    names = Counter(re.findall(r"^(?:async )?(?:function\*?|const|let|class) +([\w$]+)", script, re.MULTILINE))
    twice = [name for name, count in names.items() if count > 1]
    return twice + re.findall(r"^(?:import|export)\b.*|(?i:</script|<!--)", script, re.MULTILINE)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('import { a as c } from "./a.js";\n', 'import { a as c } from "./a.js";'),
        ('import a from "./a.js";\n', 'import a from "./a.js";'),
        ('import { a } from "./a.js";\nconst a = 2;\n', "a"),
        ('import { a } from "./a.js";\nexport default a;\n', "export default a;"),
        ('const end = "</script>";\n', "</script"),
    ],
)
def test_what_modules_may_not_hold_would_be_found(text: str, problem: str) -> None:
    assert problems_of(bundle("main.js", {"main.js": text, "a.js": "export const a = 1;\n"})) == [problem]


def test_the_shared_modules_can_be_joined_and_are_small() -> None:
    assert report_script().startswith("(() => {")
    assert not problems_of(report_script())
    for name, text in view_files().items():
        assert len(text.splitlines()) < 500, name


def test_script_and_terminal_know_the_same_unknown_words() -> None:
    listed = re.search(r"const UNKNOWN = (\[.*\]);", view_files()["record.js"])
    assert listed is not None
    assert tuple(json.loads(listed.group(1))) == UNKNOWN


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
    assert "Tom @ 1-3 (0.75)" in text  # the first and the last character
    assert "attended to: " in text.split("runs")[-1]  # a word that was generated is from nowhere
    assert "[Tom] & " in text  # the document


def test_the_terminal_says_what_the_document_lacks() -> None:
    view = shown(made("Tom met Jerry in 1999.", text="tom meets Oslo in 1999 happily"), colour=False)
    assert "1 of 2 names, numbers and dates are in the document; not in it: Oslo (name)" in view
    assert "other words that are not there: happily" in view
    assert "no names, numbers or dates to compare" in shown(made("It was late.", text="late again"), colour=False)


def test_with_colour_there_are_no_brackets(monkeypatch: pytest.MonkeyPatch) -> None:
    text = shown(made(), colour=True)
    assert "\x1b[" in text
    assert "[Tom]" not in text
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
    token = SummaryToken("Tom", 0.5, None, 0.0, sources={"[/x]\x1b": (SourceSpan(0, 3, "Tom", 1.0),)})
    words = (replace(made().words[0], tokens=(token,)),)
    text = shown(made(model="m\x1b[31m", id="a\x07\x1b", extracted="no\x1b", words=words), colour=False, words=True)
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "[/x]" in text


def test_a_page_carries_its_own_policy() -> None:
    """Only our script may run in a report, whatever a model wrote and whoever serves the file."""
    page = render([])
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)
    assert policy
    rules = dict(rule.strip().split(" ", 1) for rule in unescape(policy[1]).split(";"))
    assert rules["default-src"] == "'none'"
    scripts = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    digests = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
    assert rules["script-src"] == " ".join(f"'sha256-{digest}'" for digest in digests)
    assert page.index("Content-Security-Policy") < page.index("<style>")
