"""As what a text is read, by the end of its name or how it looks, and what it then says in sentences."""

from __future__ import annotations

import re

from catchline.text.copied import copied_text
from catchline.text.html import (
    MARKDOWN_SUFFIXES,
    PAGE_SUFFIXES,
    is_html,
    is_markdown,
    is_tagged,
    page_text,
    tagged_text,
)
from catchline.text.manual import manual_text
from catchline.text.markdown import markdown_text, notebook_text
from catchline.text.restructured import paragraphs
from catchline.text.sources import said_in

_DIRECTIVE = re.compile(r"^\.\. (?:image|figure|code-block|contents|toctree|note|warning)::", re.MULTILINE)
_FIELDS = re.compile(r"^:[\w -]+:(?:[ ].*)?\n(?:[ ]+\S.*\n)*", re.MULTILINE)  # :Author: Anna


def as_prose(text: str, suffix: str = "") -> tuple[str, str]:
    """As what it was read, and the text that was read: of a page that has none an empty one, of all others what they
    are (``"text"``) where nothing is found. ``suffix`` is in small letters.

    Raises:
        ModuleNotFoundError: it is a page, and selectolax is not installed.
    """
    if said := said_in(text, suffix):
        return "module" if suffix == ".py" else "mail", said
    if suffix in MARKDOWN_SUFFIXES or (not suffix and is_markdown(text)):
        return "markdown", markdown_text(text)
    if suffix == ".ipynb":
        kind, said = "notebook", notebook_text(text)
    elif suffix == ".rst" or (suffix in ("", ".txt") and _DIRECTIVE.search(text)):
        plain = _FIELDS.sub("\n", text.replace("\r\n", "\n").expandtabs())
        kind, said = "restructuredtext", "\n\n".join(paragraphs(plain))
    elif suffix in PAGE_SUFFIXES or is_html(text):
        return "page", page_text(text)
    elif said := manual_text(text):
        kind = "manual"
    elif suffix in ("", ".txt") and (said := copied_text(text)):
        kind = "article"
    else:
        kind, said = "tagged", tagged_text(text) if suffix in ("", ".txt", ".xml") and is_tagged(text) else ""
    return (kind, said) if said else ("text", text)
