"""A corpus out of what is installed: the body of a docstring is the document, its summary line the summary.

The packages' files are read and parsed, never imported. Both sides are what the author wrote (PEP 257: a summary line,
a blank line, a more elaborate description), with code, parameter lists and mark-up removed. A pair is left out when

* what is left of the body has fewer than 15 words, or the summary is not a sentence of 3 to 20 words;
* the body shares less than `MIN_OVERLAP` of the summary's content words, so that nobody could write it from the body;
* the summary, the body or most of the body's 5-grams were seen before, in whichever package.

Splits are by distribution; the standard library is in the training split. For a model that is handed on, ``permissive``
reads only packages whose metadata states a permissive licence, without the copies of others that they carry.
"""

from __future__ import annotations

import ast
import os
import sysconfig
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from importlib import metadata
from pathlib import Path
from statistics import fmean

from catchline.config.names import DEFAULT, ROOT
from catchline.errors import DataError
from catchline.files import write_json
from catchline.text.base import read_json
from catchline_study.corpora.docstring_text import clean_docstring
from catchline_study.corpora.pairs import (
    CorpusPair,
    CorpusStats,
    SeenPairs,
    hold_out,
    licence_of,
    shuffled,
    words_of,
    write_splits,
)

STANDARD_LIBRARY = "python"
MIN_BODY_WORDS = 15
MAX_BODY_WORDS = 400
MIN_OVERLAP = 0.25
_MAX_FILE_BYTES = 2_000_000
_SKIPPED_FOLDERS = frozenset({"__pycache__", "site-packages", "dist-packages", "tests", "test", "testing", "idlelib"})
_VENDORED = frozenset(
    """_vendor vendor _vendored vendored third_party thirdparty extern externals vendored_packages""".split()  # noqa: SIM905
)
_STOP_WORDS = frozenset(
    """a an and are as at be been but by can do does for from has have if in into is it its not of on or such than that
    the their then there these this those to was were when where which while will with you your""".split()  # noqa: SIM905
)


def learnt_packages() -> Collection[str]:
    """The packages that the bundled model, which is compared with what is made of the others, learnt from."""
    found: Collection[str] = read_json(ROOT / DEFAULT / "data.json", optional=True).get("docstring_packages", ())
    return found


def build_corpus(
    out: Path,
    *,
    roots: Sequence[Path] | None = None,
    standard_library: bool = True,
    permissive: bool = False,
    validation: int | None = None,
    in_training: Collection[str] = (),
    progress: Callable[[float, float], object] | None = None,
) -> CorpusStats:
    """Write ``train.jsonl``, ``validation.jsonl`` and ``test.jsonl``, as far as they have pairs, and ``stats.json``.

    ``roots`` are folders of installed packages, this interpreter's by default; ``validation`` the most pairs for
    validation, with none for a test, instead of a tenth for each; packages ``in_training`` are not held out. Raises
    DataError: no pairs were found.
    """
    stats = CorpusStats(Counter(files=0, unreadable_files=0, docstrings=0))
    installed = dict.fromkeys(Path(sysconfig.get_path(name)) for name in ("purelib", "platlib"))
    places = [path for path in installed if path.is_dir()] if roots is None else roots
    files = list(find_files(places, standard_library, stats if permissive else None))
    pairs = list(collect_pairs(files, stats, progress))
    if not pairs:
        raise DataError("No usable docstrings were found; give --root a folder of Python packages.")
    splits = split_by_package(pairs, validation, in_training)
    write_splits(out, splits, "package")
    for split, chosen in splits.items():
        sides = [[len(getattr(pair, side).split()) for pair in chosen] for side in ("document", "summary")]
        packages = dict(Counter(pair.group for pair in chosen).most_common())
        of = {"pairs": len(chosen), "words": [round(fmean(words or [0]), 1) for words in sides], "packages": packages}
        stats.splits |= {split: of} if chosen else {}
    write_json(out / "stats.json", stats.as_dict(), indent=2)
    return stats


# ------------------------------------------------------------------------------------------ files


def find_files(
    roots: Sequence[Path], standard_library: bool = True, stats: CorpusStats | None = None
) -> Iterator[tuple[str, str, Path]]:
    """Yield (package, name of the file below its root, path), ordered by package: what is first wins duplicates. The
    package is the distribution's where the metadata tells it (``_pytest`` and ``pytest`` are one); no test folders.
    With ``stats``, which takes the licences, only packages that state a permissive one."""
    found: list[tuple[str, str, Path]] = []
    for root in roots:
        owners = _owners(root, stats)
        for path in _python_files(root):
            name = path.relative_to(root).as_posix()
            top = name.split("/")[0].removesuffix(".py")
            owner = owners.get(top, top.lower())
            if stats is None or (owner in stats.licences and not _VENDORED.intersection(name.split("/"))):
                found.append((owner, name, path))
    if standard_library:
        root = Path(sysconfig.get_path("stdlib"))
        yield from ((STANDARD_LIBRARY, path.relative_to(root).as_posix(), path) for path in _python_files(root))
    yield from sorted(found)


def _owners(root: Path, stats: CorpusStats | None) -> dict[str, str]:
    """Top-level names below ``root`` and the distribution they belong to, out of the lists of installed files."""
    owners: dict[str, str] = {}
    for distribution in metadata.distributions(path=[str(root)]):
        name = (distribution.name or "").lower().replace("_", "-")
        if stats is not None:
            licence, permissive = licence_of(distribution.metadata)
            (stats.licences if permissive else stats.refused)[name] = f"{distribution.version}: {licence}"
        listed = distribution.read_text("RECORD") or distribution.read_text("SOURCES.txt") or ""
        for top in {line.split(",", 1)[0].split("/", 1)[0].removesuffix(".py") for line in listed.splitlines()}:
            owners[top] = min(name, owners.get(top, name))
    return owners


def _python_files(root: Path) -> Iterator[Path]:
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(
            name for name in folders if name not in _SKIPPED_FOLDERS and not name.endswith((".dist-info", ".egg-info"))
        )
        for name in sorted(names):
            if name.endswith(".py") and not name.startswith("test_"):
                yield Path(folder) / name


# ------------------------------------------------------------------------------------------ pairs


def collect_pairs(
    files: Sequence[tuple[str, str, Path]], stats: CorpusStats, progress: Callable[[float, float], object] | None = None
) -> Iterator[CorpusPair]:
    """Parse the files, clean their docstrings and leave out what the module's description says."""
    unique = SeenPairs()
    for number, (package, name, path) in enumerate(files, start=1):
        stats.read["files"] += 1
        try:
            found = docstrings_of(path)
        except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
            stats.read["unreadable_files"] += 1
            found = []
        for qualified, text in found:
            stats.read["docstrings"] += 1
            place = f"{name.removesuffix('.py').replace('/', '.')}:{qualified}"
            pair = CorpusPair(package, place, *clean_docstring(text))
            if reason := unusable(pair) or unique.refuse(pair):
                stats.left_out[reason] += 1
            else:
                yield pair
        if progress and (number % 50 == 0 or number == len(files)):
            progress(number, len(files))


def docstrings_of(path: Path) -> list[tuple[str, str]]:
    """The docstrings with more than one paragraph in a file: qualified name and text without indentation."""
    source = path.read_bytes()
    if len(source) > _MAX_FILE_BYTES or (b'"""' not in source and b"'''" not in source):
        return []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tree = ast.parse(source)
    return list(_visit(tree, ""))


def _visit(node: ast.AST, name: str) -> Iterator[tuple[str, str]]:
    if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        text = ast.get_docstring(node)
        if text and "\n\n" in text:
            yield name or "module", text
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return
    for child in getattr(node, "body", []):
        if isinstance(child, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield from _visit(child, f"{name}.{child.name}".lstrip("."))
        elif isinstance(child, ast.If | ast.Try | ast.With):
            yield from _visit(child, name)


def unusable(pair: CorpusPair) -> str:
    """Why a cleaned docstring cannot be used, or nothing."""
    if not pair.summary:
        return "no summary sentence"
    words = len(pair.document.split())
    if not MIN_BODY_WORDS <= words <= MAX_BODY_WORDS:
        return "body too short" if words < MIN_BODY_WORDS else "body too long"
    return "summary and body share too few words" if overlap(pair.summary, pair.document) < MIN_OVERLAP else ""


def overlap(summary: str, body: str) -> float:
    """The share of the summary's content words that the body has (compared by their first five letters)."""
    wanted = {word[:5] for word in words_of(summary) if word not in _STOP_WORDS}
    offered = {word[:5] for word in words_of(body)}
    return len(wanted & offered) / len(wanted) if wanted else 0.0


# ----------------------------------------------------------------------------------------- splits


def split_by_package(
    pairs: Sequence[CorpusPair], validation: int | None = None, in_training: Collection[str] = ()
) -> dict[str, list[CorpusPair]]:
    """Assign whole packages: in the order of a hash of their names, test and validation fill up to their share.

    A package much larger than a share stays in the training split, and so do the standard library and those of
    ``in_training``. Within a split the order is that of a hash too: the first n pairs are a fair sample of them.
    With ``validation`` the validation split has at most this many pairs and the test split none.
    """
    counts = Counter(pair.group for pair in pairs if pair.group not in {STANDARD_LIBRARY, *in_training})
    tenth, home = len(pairs) // 10, dict[str, str]()
    for split, room in ({"validation": validation} if validation else {"test": tenth, "validation": tenth}).items():
        left = {name: count for name, count in counts.items() if name not in home}
        home |= dict.fromkeys(hold_out(left, room), split)
    result: dict[str, list[CorpusPair]] = {"train": [], "validation": [], "test": []}
    for pair in sorted(pairs, key=lambda pair: shuffled(f"{pair.group} {pair.name}")):
        result[home.get(pair.group, "train")].append(pair)
    return result
