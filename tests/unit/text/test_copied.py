"""Pages copied out of a browser: headline and paragraphs stay, what stands around them goes."""

from __future__ import annotations

import pytest

from catchline.text.copied import copied_text
from catchline.text.reading import as_prose

HEADLINE = "Council approves barrier for riverside homes"
FIRST = 'A barrier that will protect 300 homes in Netherford was approved on Tuesday. "At last," said Joan.'
SECOND = "By Friday the diggers will be there, and work will take about 18 months."
SAID = f"{HEADLINE}\n\n{FIRST}\n\n{SECOND}"
AROUND = [
    ("Home\nNews\nSport\n", "By Martha Ellison\nPublished\n12 March 2024\n", "Related topics\nThe flood came twice."),
    ("Advertisement\n", "by: Kayla Burns\nPosted: Jan 14, 2024 / 05:12 PM\nSHARE\n", "Copyright 2024 Foo. All rights."),
    ("This site uses cookies.\nAccept all\n", "May 3, 2023 • 6 min read\n", "Comments (12)\nGood!"),
    ("Skip to content\n", "Image source, Getty Images\nThe river in 2022\n", "Follow us on Facebook\nTags: floods"),
    ("TECH\n", "Share on X\nImage Credits: Foo\n", "Read more: The year in floods\n© 2025 Foo LLC."),
    ("", "1 hour ago\nPA Media A lorry under a bridge\nShare\nSave\n", "Follow Foo Devon on X, and on Instagram."),
    ("", "A worker measures a wall.Credit...Todd Baxter for Foo\n", "A version of this article appears in print."),
    ("", "FILE - The river, 2022. (AP Photo/J. Smith)\n", "___\nFoo writer Lisa Gray contributed to this report."),
    ("Member-only story\n", "Dana Fields\n·\nFollow\n7 min read\n", "18 responses"),
    ("", "This post may contain affiliate links.\nPrint this page\n", "Leave a reply"),
    ("FOR IMMEDIATE RELEASE\nContact:\nHead of Press, Foo\n+44 20 7946 0000\n", "", "SOURCE Foo Inc."),
]


@pytest.mark.parametrize(("above", "between", "below"), AROUND)
def test_what_a_site_puts_around_an_article_goes(above: str, between: str, below: str) -> None:
    page = f"{above}{HEADLINE}\n{between}{FIRST}\n\nA label\n{SECOND}\n{below}\n"
    assert copied_text(page) == SAID
    assert as_prose(page) == ("article", SAID)
    assert as_prose(page.replace("\n", "\r\n")) == ("article", SAID)
    assert as_prose(page, ".md")[0] == "markdown"


def test_an_encyclopedia_page() -> None:
    page = (
        'Article\nTalk\nFrom Wikipedia, the free encyclopedia\n"Larn" redirects here. For the club, see Larn F.C.\n'
        "Population of the county\t18,412 (2021)\n\nThe Larn is a river.[1][b] It rises on a fell.[citation needed]\n\n"
        "History[edit]\nIt was made navigable in 1712.\n\nReferences[edit]\n^ Smith, A. Rivers. London.\n"
        "This page was last edited on 3 May 2024, at 10:02 (UTC).\n"
    )
    assert copied_text(page) == "The Larn is a river. It rises on a fell.\n\nIt was made navigable in 1712."


@pytest.mark.parametrize(
    "text",
    [
        SAID,
        f"Share\nBy Martha Ellison\n12 March 2024\n{SAID}",  # a reading list, minutes, an e-mail
        f"Share this article\n{SAID}",
        "Share this\nUnsubscribe\nThe barrier that the council approved on Tuesday\nwill protect 300 homes.\n",
        "Copyright 2024 Foo\nCopyright 2025 Bar\nAll rights reserved.\nThe barrier was approved.",
    ],
)
def test_other_texts_are_no_copied_pages(text: str) -> None:
    assert copied_text(text) == ""
    assert as_prose(text) == ("text", text)
