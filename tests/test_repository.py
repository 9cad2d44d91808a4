"""Budgets of reading and of keys; plain English; programs that run seldom."""

from __future__ import annotations

import ast
import importlib
import io
import json
import re
import subprocess
import sys
import tokenize
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import FrameType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

import catchline
from catchline.config import names
from catchline.config.base import ConfigBase
from catchline.config.loading import load_recipe, resolve_run
from catchline.config.schema import RunConfig
from catchline.data.dataset import Collator, Example
from catchline.models.seq2seq import Seq2SeqConfig
from catchline.search.scorers import RepetitionPenalty
from catchline.types import UpdateContext
from samples import BOS, EOS, IDS, PAD, UNK, VOCAB

SOURCE = Path(catchline.__file__).parent

# What a reader of the papers reads; the kernels are the same equations again.
CORE = ("papers", "layers", "models", "search", "objectives", "training/loop.py", "training/step.py")
MAX_KEYS = 290


def keys_of_recipes() -> dict[type[ConfigBase], list[str]]:
    """The keys that a recipe can set, by the class that declares them (settings of the service and headers of files
    stand in no recipe)."""
    for table in (value for value in vars(names).values() if isinstance(value, dict)):
        for target in table.values():
            if isinstance(target, str) and target.startswith("catchline."):
                importlib.import_module(target.split(":")[0])

    def below(cls: type[ConfigBase]) -> Iterable[type[ConfigBase]]:
        for child in cls.__subclasses__():
            yield child
            yield from below(child)

    return {
        cls: [key for key in cls.model_fields if key in cls.__annotations__]
        for cls in below(ConfigBase)
        if cls.__module__.startswith("catchline.")
        and not cls.__module__.startswith(("catchline.server", "catchline.models.stored", "catchline.runtime"))
        and cls.__name__ != "RougeOptions"  # the flags of a tool
        and cls.__module__ != "catchline.summarizer.llm"  # these stand behind the name of the model
    }


# ------------------------------------------------------------------------------------ files to open


def lines_run(action: Callable[[], Any], within: str | tuple[str, ...] = CORE) -> dict[str, int]:
    """The files of the core of which ``action`` runs something, and how many of their lines: what a reader who follows
    it opens and reads.

    What runs is counted, not what is imported: an import closure has every neighbour of a class that is imported for
    one name, and says more about how files are cut than about what happens. `types`, `config` and `kernels` are left
    out: records, settings, and the equations that `papers` has already.
    """
    found: set[tuple[str, int]] = set()

    def see(frame: FrameType, event: str, _: object) -> Any:
        if not frame.f_code.co_filename.startswith(str(SOURCE)):
            return None
        if event == "line":
            found.add((str(Path(frame.f_code.co_filename).relative_to(SOURCE)), frame.f_lineno))
        return see

    before = sys.gettrace()
    sys.settrace(see)
    try:
        action()
    finally:
        sys.settrace(before)
    return dict(Counter(file for file, _ in found if file.startswith(within)))


def test_few_files_run_from_ids_to_the_loss() -> None:
    """All files of the library, of the recipe's pointer-generator."""
    run = resolve_run(load_recipe("headline_writer"), "pointer-generator-coverage", "tiny")
    model = names.build("model", names.MODELS, run.model, vocab_size=VOCAB, **IDS)
    objectives = [names.build("objective", names.OBJECTIVES, spec) for spec in run.objectives]
    source, target = np.array([5, VOCAB, 6], np.int64), np.array([VOCAB, EOS], np.int64)
    collator = Collator(SimpleNamespace(vocab_size=VOCAB, pad_id=PAD, unk_id=UNK, decoder_start_id=BOS))

    def whole() -> None:
        batch = collator([Example(source, ["Ada"], target, index=n) for n in range(2)]).changed(torch.from_numpy)
        context = UpdateContext(noise_seed=1)
        for objective in objectives:
            context = objective.wants(batch, context)
        output = model(batch, context=context)
        assert all(objective(output, batch, context).sum.isfinite() for objective in objectives)

    files = lines_run(whole, "")
    assert 5 < len(files) <= 15, sorted(files)


# ----------------------------------------------------------------------------------------- the command

ENTERED = """
import json, sys
from collections import Counter
from pathlib import Path
import catchline
from catchline.cli.main import main

source, entered, imports = str(Path(catchline.__file__).parent) + "/", Counter(), 0

def see(frame, event, _):
    global imports
    code = frame.f_code
    if code.co_name == "<module>":
        imports += {"call": 1, "return": -1}.get(event, 0)
    elif event == "call" and not imports and code.co_filename.startswith(source) and code.co_name[0] != "<":
        entered[code.co_filename.removeprefix(source), code.co_qualname] += 1

sys.setprofile(see)
code = main(["summarize", sys.argv[1]])
sys.setprofile(None)
print(json.dumps([code, sorted({file for file, _ in entered}), len(entered), entered.total()]), file=sys.stderr)
"""
# Of our own source, without what imports run and without comprehensions.
MOST_FILES, MOST_FUNCTIONS, MOST_CALLS = 32, 220, 1_500


def test_a_summary_of_two_sentences_enters_few_files_and_functions(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("A storm closed the ferry to the island on Monday. Boats stay in the harbour until Wednesday.")
    done = subprocess.run([sys.executable, "-c", ENTERED, text], capture_output=True, text=True, check=True)
    code, files, functions, calls = json.loads(done.stderr.splitlines()[-1])
    assert (code, bool(done.stdout)) == (0, True)
    assert len(files) <= MOST_FILES, files
    assert functions <= MOST_FUNCTIONS
    assert calls <= MOST_CALLS


# ------------------------------------------------------------------------------------------------- keys


def test_recipes_have_few_keys() -> None:
    found = keys_of_recipes()
    for cls, key in ((RunConfig, "training"), (Seq2SeqConfig, "unk_loss"), (RepetitionPenalty.Config, "penalty")):
        assert key in found[cls]
    assert not any(cls.__module__.startswith("catchline.server") for cls in found)
    assert sum(map(len, found.values())) <= MAX_KEYS


def test_each_key_is_in_a_recipe_or_in_a_page() -> None:
    """A page is one of ``docs`` or the README, or what the site makes of a class: its docstring."""
    root = SOURCE.parent.parent
    recipes = "\n".join(path.read_text(encoding="utf-8") for path in (SOURCE / "recipes").glob("*.yaml"))
    pages = [*(root / "docs").glob("*.md"), root / "README.md"]
    text = "\n".join(path.read_text(encoding="utf-8") for path in pages)
    modules = {cls: sys.modules[cls.__module__] for cls in keys_of_recipes()}
    owners = {cls: vars(modules[cls]).get(cls.__qualname__.partition(".")[0], cls) for cls in modules}
    lacking = [
        f"{cls.__module__}.{cls.__qualname__}.{key}"
        for cls, keys in keys_of_recipes().items()
        for key in keys
        if not re.search(rf"\b{key}:", recipes)
        and not re.search(rf"(`|\.){key}(`|=|:)|\b{key}[=:]", text)
        and not re.search(rf"\b{key}\b", f"{cls.__doc__} {owners[cls].__doc__}")
    ]
    assert not lacking


ROOT = Path(__file__).parent.parent
PHRASES = "in place of|stands? for|shall|goes on|likeliest|in hand|mended|at hand|told|the box|so many|of its own|house"
BANNED = re.compile(rf"\b(?:{PHRASES})\b", re.IGNORECASE)
SOURCES = [path for folder in ("src", "study/src", "benchmarks", "scripts") for path in (ROOT / folder).rglob("*.py")]
DOCUMENTS = [
    *(ROOT / "docs").rglob("*.md"),
    *(ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")),
]
_CODE = re.compile(r"```.*?```|`[^`\n]*`|\"[^\"\n]{1,300}\"", re.DOTALL)  # and what is quoted


def of_source(text: str) -> Iterator[str]:
    """The comments of a Python file, and its strings without what stands between braces."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.string
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value


def of_document(text: str) -> Iterator[str]:
    """A document without code and quotations."""
    yield _CODE.sub(" ", text)


@pytest.mark.parametrize(
    ("paths", "prose"), [(SOURCES, of_source), (DOCUMENTS, of_document)], ids=["code", "documents"]
)
def test_no_banned_phrase(paths: list[Path], prose: type[Iterator[str]]) -> None:
    found = []
    for path in sorted(paths):
        for text in prose(path.read_text(encoding="utf-8")):  # type: ignore[call-arg]
            flat = " ".join(text.split())
            found += [
                f"{path.relative_to(ROOT)}: {flat[max(0, m.start() - 40) : m.end() + 20]}"
                for m in BANNED.finditer(flat)
            ]
    assert not found, "\n".join(found)


PROGRAMS = sorted(path for folder in ("benchmarks", "scripts") for path in (ROOT / folder).rglob("*.py"))


def lacking(source: str) -> list[str]:
    """The names that ``source`` imports of catchline and that are not there."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [
                alias.name for alias in node.names if alias.name.startswith("catchline") and not there(alias.name)
            ]
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "catchline":
            found += [f"{node.module}.{alias.name}" for alias in node.names if not there(node.module, alias.name)]
    return found


def there(module: str | None, name: str | None = None) -> bool:
    """Is there such a module, and in it (or below it) such a name?"""
    try:
        loaded = importlib.import_module(str(module))
        return name is None or hasattr(loaded, name) or there(f"{module}.{name}")
    except ModuleNotFoundError:
        return False


def by_hand() -> set[str]:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    return set(re.search(r"^BY_HAND := (.*)$", makefile, re.MULTILINE)[1].split())  # type: ignore[index]


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.name)
def test_what_programs_import_is_there(path: Path) -> None:
    assert lacking(path.read_text(encoding="utf-8")) == []


def test_all_benchmarks_run_unless_they_are_run_by_hand() -> None:
    listed = set(re.findall(r"`(\w+)\.py`", (ROOT / "benchmarks" / "README.md").read_text(encoding="utf-8")))
    for path in (ROOT / "benchmarks").glob("*.py"):
        source = path.read_text(encoding="utf-8")
        asks = re.search(r'add_argument\("\w|required=True', source) or "__main__" not in source
        assert not asks or path.stem in by_hand(), f"{path.name} does nothing without arguments"
        assert path.stem in listed


@pytest.mark.slow
@pytest.mark.parametrize(
    "path",
    sorted(path for path in (ROOT / "benchmarks").glob("*.py") if path.stem not in by_hand()),
    ids=lambda p: p.stem,
)
def test_a_benchmark_runs_with_its_shortest_settings(path: Path) -> None:
    short = ["--short"] if '"--short"' in path.read_text(encoding="utf-8") else []
    done = subprocess.run([sys.executable, path, *short], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout
