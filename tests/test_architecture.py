"""Rules of the source, checked from syntax trees: who imports whom, no cycles, no drawers, files of a readable size.

Each rule is a function from ``{module name: source}`` to a list of complaints.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src"

MAX_FILE_LINES, MAX_FUNCTION_LINES, MAX_PARAMETERS = 500, 80, 8

# From the bottom up; a package imports packages of lower layers, and within its layer only those named below.
LAYERS: list[set[str]] = [
    {"", "errors", "files", "jobs", "types", "papers"},  # "" is catchline/__init__.py
    {"config", "text", "kernels"},
    {"layers", "data", "metrics", "search"},
    {"models", "objectives", "extractive", "explain", "runtime"},
    {"training", "summarizer"},
    {"evaluation", "export"},
    {"server"},
    {"cli"},
    {"__main__"},
]
SAME_LAYER = {
    ("text", "config"),
    ("files", "errors"),
    ("jobs", "errors"),
    ("types", "errors"),
    ("models", "runtime"),  # how weights of eight bits are read
}
NEVER = {("models", "search"), ("search", "models"), ("layers", "data")}
TORCH_FREE = {"", "errors", "files", "jobs", "types", "config", "text", "metrics", "search", "extractive"}
TORCH_FREE |= {"explain", "runtime", "server"}
TORCH_FILES = {"catchline.search.torch_bridge"}
TORCH_FREE_FILES = {
    *(f"catchline.data.{name}" for name in ("readers", "columns", "checks", "dataset", "padding")),
    *(f"catchline.cli.{name}" for name in ("main", "output", "recipes")),
    *(f"catchline.summarizer.{name}" for name in ("bulk", "decoding", "onnx_backend", "extractive", "summarize")),
    "catchline.summarizer",
    "catchline.evaluation.run",
}
TENSOR_LIBRARIES = {"torch", "transformers", "accelerate"}
LAZY_TABLES = {"catchline", "catchline.config.names"}
# Not among the dependencies of the core; imported where used, with a sentence that says what to install.
OPTIONAL = {
    "datasets",
    "markdown_it",  # slow to import, and rarely needed
    "mailparser_reply",
    "huggingface_hub",
    "pyarrow",
    "tensorboard",
    "fastapi",
    "uvicorn",
    "ray",
    "markitdown",
    "trafilatura",
    *("pypdfium2", "nltk", "scipy", "sacrebleu", "onnxruntime"),
    "filelock",  # of the core, but whoever only reads need not wait for it
    "syntok",  # nor for this one whoever splits no text
}
# Words for documents that are not in the repository.
UNSEEN = re.compile(r"\b[Ss]pecification\b|\b[Ss]pec\.? [a-z]\.?[0-9]|\bDESIGN\b|\bshared/(?!data\b)")
PAGE = re.compile(r"\bdocs/[\w/-]+\.md\b")
DRAWERS = {"utils", "util", "helpers", "helper", "common", "misc", "tools"}

Tree = dict[str, str]


@dataclass(frozen=True)
class Import:
    """One imported module: absolute name, line, and whether the statement stands inside a function."""

    target: str
    line: int
    in_function: bool


def read_tree(root: Path = SOURCE) -> Tree:
    """Every module below ``root``; packages under their own name."""
    tree = {}
    for path in sorted(root.rglob("*.py")):
        parts = list(path.relative_to(root).with_suffix("").parts)
        if parts[-1] == "__init__":
            parts.pop()
        tree[".".join(parts)] = path.read_text(encoding="utf-8")
    return tree


parsed = cache(ast.parse)  # each rule looks at the same trees


@cache
def imports_of(source: str, known: frozenset[str] = frozenset()) -> list[Import]:
    """The imports of a module, those below ``if TYPE_CHECKING`` left out.

    ``from package import name`` counts as an import of ``package.name`` where that is a module.
    """

    def walk(node: ast.AST, in_function: bool) -> Iterator[Import]:
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            for child in node.orelse:
                yield from walk(child, in_function)
            return
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(alias.name, node.lineno, in_function)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            module = node.module or ""
            for alias in node.names:
                full = f"{module}.{alias.name}"
                target = full if full in known else module
                yield Import(target, node.lineno, in_function)
        inside = in_function or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        for child in ast.iter_child_nodes(node):
            yield from walk(child, inside)

    return list(walk(parsed(source), False))


def package_of(module: str) -> str:
    """``catchline.text.sentences`` -> ``text``; the package itself is ``""``."""
    return [*module.split("."), ""][1]


def layer_of(package: str) -> int | None:
    return next((level for level, packages in enumerate(LAYERS) if package in packages), None)


# ------------------------------------------------------------------------------------------- the rules


def wrong_directions(tree: Tree) -> list[str]:
    """A module imports only layers below its own."""
    found = []
    for module, source in tree.items():
        here = package_of(module)
        level = layer_of(here)
        if level is None:
            found.append(f"{module}: the package '{here}' is in no layer")
            continue
        for item in imports_of(source, frozenset(tree)):
            if item.target.split(".")[0] != "catchline":
                continue
            there = package_of(item.target)
            other = layer_of(there)
            allowed = there in {here, ""} or (other is not None and other < level) or (here, there) in SAME_LAYER
            if not allowed or (here, there) in NEVER:
                found.append(f"{module}:{item.line} imports {item.target}: '{here}' may not use '{there}'")
    return found


def papers_alone(tree: Tree) -> list[str]:
    """The equations import torch and the standard library, not each other: one file is read beside one paper."""
    return [
        f"{module}:{item.line} imports {item.target}: the papers' equations import torch alone"
        for module, source in tree.items()
        if package_of(module) == "papers"
        for item in imports_of(source, frozenset(tree))
        if _root(item.target) != "torch" and _root(item.target) not in sys.stdlib_module_names
    ]


def cycles(tree: Tree) -> list[str]:
    """Modules that import each other in a circle, imports inside functions included."""
    graph = {
        module: {i.target for i in imports_of(source, frozenset(tree)) if i.target in tree and i.target != module}
        for module, source in tree.items()
    }
    found: list[str] = []
    done: set[str] = set()

    def visit(module: str, path: list[str]) -> None:
        if module in path:
            found.append(" -> ".join([*path[path.index(module) :], module]))
            return
        if module in done:
            return
        for target in sorted(graph[module]):
            visit(target, [*path, module])
        done.add(module)

    for module in sorted(graph):
        visit(module, [])
    return found


def imports_inside_functions(tree: Tree) -> list[str]:
    """Only the command line, the lazy tables and optional dependencies may import late."""
    return [
        f"{module}:{item.line} imports {item.target} inside a function"
        for module, source in tree.items()
        if package_of(module) != "cli" and module not in LAZY_TABLES
        for item in imports_of(source)
        if item.in_function and item.target.split(".")[0] not in OPTIONAL
    ]


def tensor_imports(tree: Tree) -> list[str]:
    """The parts that must stay quick to import name no tensor library, not even late; and import none indirectly."""
    found = []
    graph = {module: imports_of(source, frozenset(tree)) for module, source in tree.items()}
    heavy = {module for module, items in graph.items() if any(_root(i.target) in TENSOR_LIBRARIES for i in items)}

    def reaches(module: str, seen: set[str]) -> str | None:
        if module in heavy:
            return module
        seen.add(module)
        for item in graph.get(module, []):
            if item.target in tree and item.target not in seen and not item.in_function:
                hit = reaches(item.target, seen)
                if hit:
                    return hit
        return None

    for module in sorted(set(tree) - TORCH_FILES):
        if package_of(module) in TORCH_FREE or module in TORCH_FREE_FILES:
            hit = reaches(module, set())
            if hit:
                found.append(f"{module} must not need a tensor library, but {hit} imports one")
    return found


def _root(module: str) -> str:
    return module.split(".")[0]


def over_budget(tree: Tree) -> list[str]:
    """500 lines a file, 80 a function, 8 parameters (self not counted)."""
    found = []
    for module, source in tree.items():
        if len(source.splitlines()) > MAX_FILE_LINES:
            found.append(f"{module}: {len(source.splitlines())} lines, budget {MAX_FILE_LINES}")
        for node in ast.walk(parsed(source)):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > MAX_FUNCTION_LINES:
                found.append(f"{module}:{node.lineno} {node.name}: {lines} lines, budget {MAX_FUNCTION_LINES}")
            arguments = node.args
            names_ = [a.arg for a in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]]
            count = len([n for n in names_ if n not in {"self", "cls"}])
            # The parameters of a command are its options: typer reads them one by one.
            if count > MAX_PARAMETERS and package_of(module) != "cli":
                found.append(f"{module}:{node.lineno} {node.name}: {count} parameters, budget {MAX_PARAMETERS}")
    return found


def drawers(tree: Tree) -> list[str]:
    """A file is called after what is in it."""
    return [f"{module}: a drawer" for module in tree if DRAWERS & set(module.split("."))]


def names_used_twice(tree: Tree) -> list[str]:
    """A public class name means one thing; nested classes are named with the class around them."""
    places: dict[str, list[str]] = {}
    for module, source in tree.items():
        for node in parsed(source).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, []).append(f"{module}:{node.lineno}")
    return [f"{name} is a class in {' and in '.join(found)}" for name, found in places.items() if len(found) > 1]


# Packages whose ``__init__`` offers one name of their own, besides the docstring.
WITH_A_NAME = {"catchline", "catchline.extractive", "catchline.summarizer"}
RULES: list[Callable[[Tree], list[str]]] = [
    wrong_directions,
    papers_alone,
    cycles,
    imports_inside_functions,
    tensor_imports,
    over_budget,
    drawers,
    names_used_twice,
]


# --------------------------------------------------------------------------------------- the real tree


@pytest.fixture(scope="module")
def tree() -> Tree:
    found = read_tree()
    assert "catchline.types" in found
    assert len(found) > 8
    return found


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_house_keeps_its_rules(rule: Callable[[Tree], list[str]], tree: Tree) -> None:
    complaints = rule(tree)
    assert not complaints, "\n".join(complaints)


def test_packages_are_docstrings(tree: Tree) -> None:
    """Importing one module must not import its neighbours."""
    packages = {".".join(path.relative_to(SOURCE).parent.parts) for path in (SOURCE / "catchline").rglob("*.py")}
    for package in packages - WITH_A_NAME:
        assert len(parsed(tree[package]).body) == 1, package


def test_what_is_cited_is_here() -> None:
    """Whoever reads a comment can open what it cites: a paper, or a page of this repository."""
    folders = ("src", "tests", "docs", "benchmarks", "scripts")
    files = [*ROOT.glob("*.md"), *(path for folder in folders for path in (ROOT / folder).rglob("*"))]
    for path in files:
        if path.suffix in {".py", ".md", ".yaml", ".js"} and path != Path(__file__):
            text = path.read_text(encoding="utf-8")
            assert not UNSEEN.findall(text), path
            assert not [page for page in PAGE.findall(text) if not (ROOT / page).is_file()], path
