"""Data sets made into what a paper's models read: Gigaword, DUC, SAMSum, CNN/DailyMail.

Gigaword and DUC: facts of the preparation by Rush et al. (2015). Tokens are our own rules where the text is not
tokenized already (theirs: the parses of Annotated Gigaword, NLTK's Treebank tokenizer for DUC), and so are sentence
ends (theirs: NLTK's), so that single records can differ from theirs. SAMSum and CNN/DailyMail: as Li et al. (2021)
read them, cased, untokenized text, nothing left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from catchline.data.lines import decoded
from catchline.errors import DataError
from catchline.text.normalization import split_lines
from catchline.text.sentences import ENGLISH, sentence_strings
from catchline.text.tokenizer import WordTokenizer
from catchline.types import Record, references_of

_BRACKETS = {"(": "-lrb-", ")": "-rrb-", "[": "-lsb-", "]": "-rsb-", "{": "-lcb-", "}": "-rcb-"}
_NOT_IN_TITLES = frozenset(("'", '"', "`", "``", "''", "!", "=", "-", "--", ",", "?", ".", "-rrb-", "-llb-", "\\/"))
# Parts of titles that say that a text is not a news story, or that a title is no headline. They are looked for
# within words too, as in the original: "ap" is in "japan".
_BLACKLIST = (
    "update", "recasts", "undated", "grafs", "corrects", "retransmitting", "dateline", "writethru", "recaps", "inserts",
    "incorporates", "adv##", "djlfx", "edits", "byline", "repetition", "background", "thruout", "quotes", "attention",
    "ny###", "overline", "embargo", "ap", "gmt", "adds", "urgent", "?", " i ", " : ", " - ", " by ", "-lrb-", "-rrb-",
)  # fmt: skip

SHORT_SENTENCE = 130  # characters below which DUC's input takes the second sentence too
Words = Callable[[str], list[str]]  # a text to its tokens


def words_by(tokenized: bool = False) -> Words:
    """Cuts texts, lower-cased: at blanks if they are tokenized already, or by our word rules."""
    tokenizer = WordTokenizer(WordTokenizer.Config(min_frequency=1, lowercase=True))
    tokenizer.train(["x"])

    def words(text: str) -> list[str]:
        tokens = text.lower().split() if tokenized else tokenizer.encode(text).tokens
        return [_BRACKETS.get(token, token) for token in tokens]

    return words


# --------------------------------------------------------------------------------------- Gigaword


def gigaword_pair(record: Record, words: Words, *, filtered: bool = True) -> Record | str:
    """The first sentence of an article and its headline, lower-cased, digits as ``#``; or why the pair is refused.

    The sentence goes to the first token ``.``, or to the end of the first line without one. With ``filtered`` a pair is
    refused whose sentence has not 11 to 99 tokens or no full stop, whose title has not 4 to 49 tokens or holds a part
    of the blacklist, or that share no word longer than three characters; the lengths are those before signs are
    dropped from the title.
    """
    first = words(record.document.strip().split("\n")[0])
    source = [_hashed(word) for word in first[: first.index(".") + 1 if "." in first else None]]
    title = [_hashed(word) for word in words(record.summary)]
    if filtered and (reason := _fault(source, title)):
        return reason
    kept = [word for word in title if word not in _NOT_IN_TITLES]
    if not source or not kept:
        return "empty side"
    return replace(record, document=" ".join(source), summary=" ".join(kept), references=(), sentences=())


def _hashed(word: str) -> str:
    return re.sub(r"\d", "#", word)


def _fault(source: Sequence[str], title: Sequence[str]) -> str:
    joined = " ".join(title)
    faults = {
        "no full stop in the sentence": "." not in source,
        "title with a part of the blacklist": any(part in joined for part in _BLACKLIST),
        "sentence not of 11 to 99 tokens": not 10 < len(source) < 100,
        "title not of 4 to 49 tokens": not 3 < len(title) < 50,
        "no word in common": not {word for word in title if len(word) > 3} & set(source),
    }
    return next((reason for reason, found in faults.items() if found), "")


# -------------------------------------------------------------------------------------------- DUC


def duc_input(text: str, words: Words) -> str:
    """The sentence that represents a document of DUC's task 1.

    The first sentence; if it has fewer than 130 characters, `` , `` and the second instead of its last character.
    Lower-cased, tokenized; where a closing bracket stands, what precedes the first lone ``--``, ``-`` or ``_`` (a
    dateline) goes; brackets are ``-lrb-`` and ``-rrb-``, ``_`` is a comma. Digits stay.
    """
    sentences = sentence_strings(" ".join(word for word in text.split() if not word.startswith("&")), ENGLISH)
    if not sentences:
        return ""
    first = sentences[0]
    if len(first) < SHORT_SENTENCE and len(sentences) > 1:
        first = f"{first.strip()[:-1]} , {sentences[1]}"
    line = " ".join(words(first))
    if "-rrb-" in line:
        line = re.split(r" (?:--|-|_) ", line, maxsplit=1)[-1]
    return line.replace("_", ",")


def duc_records(documents: Path, references: Path) -> Iterator[Record]:
    """The documents of the distribution with their references. ``documents`` has a folder a document set
    (``d30001t/APW19981016.0240``), each document with a ``<TEXT>``; ``references`` has files named by set, author and
    document (``D30001.P.10.T.A.APW19981016.0240``). Raises DataError: no documents, or a document without references.
    """
    files = sorted(path for path in documents.glob("*/*") if path.is_file()) if documents.is_dir() else []
    if not files:
        raise DataError(f"{documents} holds no folders of documents (expected d30001t/APW19981016.0240 and the like).")
    models = sorted(references.iterdir()) if references.is_dir() else []
    words = words_by()
    for path in files:
        group, name = path.parent.name[:-1].upper(), path.name.upper()
        mine = [model for model in models if model.name.upper().startswith(group) and name in model.name.upper()]
        texts = tuple(filter(None, (" ".join(_text(model).split()) for model in mine)))
        if not texts:
            raise DataError(f"{path}: {references} has no reference named {group}*{name}*.")
        yield Record(duc_input(_body(_text(path)), words), texts[0], f"{path.parent.name}/{path.name}", texts)


def _text(path: Path) -> str:
    return decoded(path.read_bytes(), str(path))


def _body(text: str) -> str:
    """What stands between ``<TEXT>`` and its end, without paragraph marks."""
    found = re.search(r"<TEXT>(.*?)(?:</TEXT>|\Z)", text, re.DOTALL)
    return re.sub(r"</?P>", " ", found[1]) if found else ""


# ------------------------------------------------------------------------------ dialogues and news

TURNS = " | "  # between the turns of a dialogue


def dialogue(record: Record) -> Record:
    """A dialogue of one turn a line (SAMSum, DialogSum) in one line: turns joined by `` | ``, speakers' names kept. The
    turns are the record's sentences, so that extractive methods pick turns. A document that is one line already is
    split where it has such bars."""
    lines = split_lines(record.document)
    if len([line for line in lines if line.strip()]) < 2:
        lines = record.document.split(TURNS)
    turns = tuple(filter(None, map(_one_line, lines)))
    return replace(
        record,
        document=TURNS.join(turns),
        summary=_one_line(record.summary),
        references=tuple(_one_line(text) for text in record.references),
        sentences=turns,
    )


def news(record: Record) -> Record:
    """An article in one line, as BART's data were made; its highlights joined by blanks as the summary that a model
    learns, and one a line as the reference that it is scored against. Agency marks such as "(CNN)" stay."""
    references = tuple("\n".join(filter(None, map(_one_line, split_lines(text)))) for text in references_of(record))
    return replace(
        record,
        document=_one_line(record.document),
        summary=_one_line(record.summary),
        references=references,
        sentences=tuple(filter(None, map(_one_line, record.sentences))),
    )


def first_highlight(record: Record) -> Record:
    """`news` of which the first highlight is the summary that a model learns, and every highlight its own
    reference (`docs/coarse_to_fine.md`): the profile ``cnndm-first`` scores it so, the best reference counts."""
    made = news(record)
    highlights = tuple(dict.fromkeys(line for text in made.references for line in split_lines(text)))
    return replace(made, summary=highlights[0] if highlights else made.summary, references=highlights)


def _one_line(text: str) -> str:
    return " ".join(text.split())
