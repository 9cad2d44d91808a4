"""Formats that are plain text: aligned files, inputs with several files of references, CNN/DailyMail stories, LCSTS."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from pathlib import Path

from catchline.data.columns import RawRecord, RawRecords, TableOptions
from catchline.data.lines import BadRecordError, bare_name, raw_lines, read_text, text_lines
from catchline.errors import DataError

# (part of a document file's name, part of its summary file's name)
_PAIR_PARTS = (
    (".source", ".target"), (".article", ".title"), (".document", ".summary"), (".src", ".tgt"),
    ("_source", "_target"), ("_article", "_title"),
)  # fmt: skip
_PACKED = ("", ".gz", ".zst")


# ----------------------------------------------------------------------------------- aligned files


def partner_name(path: Path) -> str:
    """The name of the other half of an aligned pair; empty when ``path`` is not named like one."""
    return _other_half(path)[0]


def is_pair_target(path: Path) -> bool:
    """Is this the summary half of a pair, by its name?"""
    return _other_half(path)[1]


def _other_half(path: Path) -> tuple[str, bool]:
    for parts in _PAIR_PARTS:
        for here, there in (parts, parts[::-1]):
            name, found = re.subn(rf"{re.escape(here)}(?=[._\-]|\Z)", there, path.name)
            if found:
                return name, here == parts[1]
    return "", False


def pair_partner(path: Path) -> Path | None:
    """The existing other half, compressed or not."""
    name = partner_name(path)
    for candidate in (name, *(bare_name(Path(name)) + ending for ending in _PACKED)):
        if name and (path.parent / candidate).is_file():
            return path.parent / candidate
    return None


def pair_of_prefix(prefix: Path) -> Path | None:
    """``data/train`` stands for ``data/train.source`` and ``data/train.target`` where those exist."""
    for source, _ in _PAIR_PARTS:
        for text, packed in itertools.product(("", ".txt"), _PACKED):
            candidate = prefix.with_name(prefix.name + source + text + packed)
            if candidate.is_file() and pair_partner(candidate) is not None:
                return candidate
    return None


def read_pair(path: Path, options: TableOptions) -> RawRecords:
    """Two files with one text a line, line n of one belonging to line n of the other.

    Raises:
        DataError: the other half is missing, or the files have different numbers of lines.
    """
    partner = pair_partner(path)
    if partner is None:
        raise DataError(f"{path}: its other half is missing; expected {partner_name(path) or 'a .target file'}.")
    documents, summaries = (partner, path) if is_pair_target(path) else (path, partner)
    yield from _aligned(documents, [summaries], options, f"pairs with {summaries.name}")


def _aligned(documents: Path, references: list[Path], options: TableOptions, choice: str) -> RawRecords:
    """One document a line, and one reference a line in each of the other files."""
    count, *others = (sum(1 for _ in raw_lines(path)) for path in (documents, *references))
    for reference, other in zip(references, others, strict=True):
        if other != count:
            raise DataError(
                f"{documents} has {count:,} lines but {reference.name} has {other:,}: the files are misaligned, and "
                "which line belongs to which document cannot be known; write them again."
            )
    options.on_choice(f"{documents}: {choice}")
    for lines in zip(*map(text_lines, (documents, *references)), strict=True):
        number, texts = lines[0][0], [text for _, text in lines]
        broken = next((text for text in texts if isinstance(text, BadRecordError)), None)
        good = [text for text in texts if isinstance(text, str)]
        yield broken or RawRecord(good[0], tuple(good[1:]), str(number), f"{documents}:{number}")


# ------------------------------------------------------------------- one input, many references

_DUC_INPUT = re.compile(r"input(?:\.txt)?(?:\.gz|\.zst)?\Z")
_DUC_REFERENCES = re.compile(r"task1_ref(\d+)(?:\.txt)?(?:\.gz|\.zst)?\Z")  # task 2 has other documents


def duc_files(place: Path) -> tuple[Path, list[Path]] | None:
    """The input and the reference files of a folder (or of the folder of an input file); None where it has none.

    The layout of the usual copies of DUC-2003, DUC-2004 and of Gigaword's test set: ``input.txt`` with one document a
    line, ``task1_ref0.txt`` to ``task1_ref3.txt`` with one reference a line, beside it or in a folder ``references``.
    """
    folder = place if place.is_dir() else place.parent
    inputs = [path for path in sorted(folder.iterdir()) if _DUC_INPUT.match(path.name)] if folder.is_dir() else []
    if not inputs or (place.is_file() and place not in inputs):
        return None
    for home in (folder, folder / "references"):
        paths = sorted(home.iterdir(), reverse=True) if home.is_dir() else []  # a plain file before its packed copy
        named = {int(found[1]): path for path in paths if (found := _DUC_REFERENCES.match(path.name))}
        if named:
            return (place if place.is_file() else inputs[0]), [named[number] for number in sorted(named)]
    return None


def read_duc(path: Path, options: TableOptions) -> RawRecords:
    """One document a line, and several files with one reference a line (`duc_files`).

    Raises:
        DataError: there is no such layout, or a file has another number of lines than the input.
    """
    found = duc_files(path)
    if found is None:
        raise DataError(f"{path}: expected input.txt with task1_ref0.txt, task1_ref1.txt, ... beside it.")
    documents, references = found
    plural = "s" if len(references) > 1 else ""
    yield from _aligned(documents, references, options, f"{len(references)} reference{plural} a document")


# -------------------------------------------------------------------------------- CNN / DailyMail


def stories(folder: Path) -> Iterator[Path]:
    """The ``.story`` files of a folder, without the hidden ones that macOS puts beside its files."""
    return (path for path in folder.iterdir() if bare_name(path).endswith(".story") and not path.name.startswith("."))


def read_story(path: Path, options: TableOptions) -> RawRecords:
    """``.story`` files: paragraphs, then highlights, each after a line ``@highlight``.

    Paragraphs are joined by blank lines, as they stand in the file (a blank line ends a sentence), highlights by line
    breaks. A folder is read in the order of the names.
    """
    names = sorted(stories(path)) if path.is_dir() else [path]
    options.on_choice(f"{path}: {len(names):,} story file{'s' if len(names) != 1 else ''}")
    for name in names:
        try:
            yield _story(name)
        except BadRecordError as problem:
            yield problem


def _story(path: Path) -> RawRecord:
    body: list[str] = []
    highlights: list[str] = []
    current = body
    for line in read_text(path).split("\n"):
        if line.strip() == "@highlight":
            current = highlights
        elif line.strip():
            current.append(line.strip())
    name = bare_name(path).removesuffix(".story")
    return RawRecord("\n\n".join(body), ("\n".join(highlights),), name, str(path))


# ------------------------------------------------------------------------------------------ LCSTS

_DOC = re.compile(r"<doc(?:\s+id\s*=\s*\"?([^\s\">]+)\"?)?\s*>")
_SUMMARY = re.compile(r"<summary>(.*?)</summary>", re.DOTALL)
_SHORT_TEXT = re.compile(r"<short_text>(.*?)</short_text>", re.DOTALL)
_HUMAN_LABEL = re.compile(r"<human_label>\s*(\d{1,9})\s*</human_label>")


def read_lcsts(path: Path, options: TableOptions) -> RawRecords:
    """``<doc id=0> <summary>...</summary> <short_text>...</short_text> </doc>``, tags on lines of their own or not.

    Parts II and III also have ``<human_label>`` with a score from 1 to 5. The files are not XML (no quotes, no root),
    so they are read by their tags.
    """
    options.on_choice(f"{path}: LCSTS blocks")
    block: list[str] = []
    start = 0
    broken: BadRecordError | None = None
    for number, line in itertools.chain(text_lines(path), [(0, "<doc>")]):
        if isinstance(line, BadRecordError):
            if any("</doc>" in part for part in block):  # the block before it is whole
                yield broken or _lcsts_block("\n".join(block), path, start)
                block, broken = [], None
            broken = broken or line
            continue
        for part in line.replace("</doc>", "</doc>\n").split("\n"):  # a line may hold several blocks
            if _DOC.match(part.strip()) and (block or broken):
                yield broken or _lcsts_block("\n".join(block), path, start)
                block, broken = [], None
            if not block:
                start = number
                if not part.strip():
                    continue
            block.append(part)


def _lcsts_block(block: str, path: Path, line: int) -> RawRecord | BadRecordError:
    origin = f"{path}:{line}"
    summary, text, opened = (pattern.search(block) for pattern in (_SUMMARY, _SHORT_TEXT, _DOC))
    if summary is None or text is None:
        missing = "summary" if summary is None else "short_text"
        return BadRecordError(origin, f"a <doc> block without <{missing}>", "the file is damaged here")
    name = (opened[1] if opened else None) or str(line)
    label = _HUMAN_LABEL.search(block)
    return RawRecord(text[1].strip(), (summary[1].strip(),), name, origin, human_score=int(label[1]) if label else None)
