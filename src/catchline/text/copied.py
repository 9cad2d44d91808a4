"""A page that was copied out of a browser: its headline and its sentences, without what stands around them there.

Lines are known by what most sites write ("Share this article", "Image caption", "5 min read"), in English.
"""

from __future__ import annotations

import re

_AGENCY = r"(?:Getty Images|PA Media|Reuters|AFP|EPA|Alamy|Shutterstock)"
_SITES = r"(?:Facebook|Twitter|X|LinkedIn|WhatsApp|Instagram|Google News|YouTube|Pinterest|Reddit)"
_MONTH = r"(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)[a-z]*\.?"
# Patterns of lines, one or more a line; those of the first group hardly stand in a text of another kind.
_CERTAIN = rf"""
From Wikipedia, the free encyclopedia|Jump to (?:navigation|search|content|recipe)\b.*|Skip to (?:main )?content
(?:Skip )?advertisement|Share (?:this|on {_SITES})\b.*|Listen to this .*|Print (?:this )?(?:article|page|recipe)
.*\b(?:we|(?:web)?site) uses? cookies\b.*|Accept all\b.*
.*\bcontain affiliate links\b.*|.*\bmay earn an? (?:\w+ )?commission\b.*
Image (?:credits?|source|caption)\W.*|.*[.\w]Credit\.\.\..*|(?:.*\s)?\d+ min(?:ute)?s? read\b.*|Member-only story
Verified purchase\b.*|.*\d \w+ found this helpful|Customers also \w+
(?:Most|Also|More|Read) (?:popular|read|on this story|more:|next:|also:).*
Related (?:topics?|articles?|stories|content)\b.*|Explore more on these topics|Leave a (?:reply|comment)
(?:Follow|Join|Like) \w[\w ]{{0,30}} on {_SITES}\b.*|(?:.*\s)?View (?:\w+ )?in (?:your )?browser\b.*
If someone forwarded\b.*|Sign up here\b.*|For other uses, see .*|"[^"]+" redirects here\..*|[\w ]+\[edit\]|\^ .*
This page was last edited\b.*
Our Standards:.*|.*\bcontributed (?:to this \w+|reporting)\.|A version of this article appears in print\b.*
For immediate release|This press release\b.*|(?-i:SOURCE) .{{0,60}}
(?:First |Last )?(?:Published|Updated|Posted|Modified)(?: on|:|,)? (?=.{{0,60}}\d).{{0,60}}
"""
_LIKELY = rf"""
(?:Edited |Written |Posted |Reporting |Recipe )?By:? .{{3,60}}|\d+ (?:minute|hour|day|week)s? ago
Published|Updated|Posted|Share|Save|Print|Listen|Follow|Editorial|Opinion|Newsletters?
(?:.{{0,40}}\s)?(?:\d{{1,2}} {_MONTH}|{_MONTH} \d{{1,2}}),? \d{{4}}\b.{{0,40}}
(?:Sign|Log) (?:in|up)\b.{{0,40}}|Subscribe\b.{{0,40}}|(?:Tags?|Topics?|Categor(?:y|ies)|Filed under|Coordinates):.*
(?:Photo|Picture|Photograph|Image)s?(?: by| courtesy|:).{{3,90}}
FILE\b.*|{_AGENCY}\b.*|.*\((?:{_AGENCY}|Photo|AP)\b[^()]*\)
Comments?(?: \(?\d+\)?)?|\d+ (?:comments|responses)|Terms of (?:service|use)|Privacy policy|Contact:?|\+?[\d ()-]{{7,}}
Unsubscribe\b.*|By continuing to use\b.*|Report abuse|Helpful\b.{{0,30}}|Add to \w+|(?:[\w &]+ [»›>] )+[\w &]+
Head of (?:communications|press|media)\b.*|(?:Media|Press) (?:contact|office|relations)\w*\b.*
"""
_FOOT = re.compile(  # behind such a line the article is at its end
    r"(?i)(?:see also|references|external links|related (?:topics?|articles?|stories)|more on this story"
    r"|most (?:popular|read)|comments?(?: \(\d+\))?|leave a (?:reply|comment)|forward-looking statements"
    r"|explore more on these topics|customers also \w+|about the author)(?:\[edit\])?:?"
)
_KNOWN, _BESIDE = (
    re.compile("|".join(lines.split("\n")[1:-1]), re.IGNORECASE) for lines in (_CERTAIN, _CERTAIN + _LIKELY[1:])
)
_RIGHTS = re.compile(r"(?i)(?:©|Copyright |All rights reserved).*")
_MARKS = re.compile(r"\[(?:\d{1,3}|[a-z]|edit|citation needed|note \d+)\]|, opens new tab\b")
_STOP = re.compile(r"[.!?\u2026][\"'\u2019\u201d)\]]*\Z")
_WRAPPED = re.compile(r"(?m)^.{39,}[^\s.!?:]\n[ \t]*(?!by\b)(?=[a-z]+[ ,])")
_FEWEST_WORDS = 4  # of a headline
_LONGEST = 300  # characters of a line that is looked at


def copied_text(text: str) -> str:
    """The headline and the paragraphs; nothing where the text does not look as if it was such a page."""
    lines = [" ".join(line.split()) for line in text.splitlines() if "\t" not in line.strip()]
    beside = {line: _KNOWN.fullmatch(line) for line in lines if len(line) <= _LONGEST and _BESIDE.fullmatch(line)}
    if len(beside) < 2 or not any(beside.values()) or _WRAPPED.search(text):
        return ""
    kept: list[str] = []
    for line in lines:
        ended = _STOP.search(line)
        if _FOOT.fullmatch(line) and len(kept) > 2:
            break
        if (line in beside and (beside[line] or not ended)) or _RIGHTS.fullmatch(line):
            continue
        if ended or (not kept and len(line.split()) >= _FEWEST_WORDS):  # else a caption, a label, a list
            kept.append(_MARKS.sub("", line))
    return "\n\n".join(kept)
