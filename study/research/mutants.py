"""300 small faults in the old code, and which of them its tests notice.

    python study/research/mutants.py cover|select|run|report --copy COPY --pristine CLONE --work FOLDER

Run it with the Python of the clone's environment (with coverage in it). COPY is a copy of CLONE without its
environment: its source is changed, one fault at a time, CLONE's never. Each command continues where it was cut off.

* ``cover``: the fast tests, folder by folder, with the lines and branches that each test runs;
* ``select``: draws the faults from lines that tests run, in files whose code the third edition keeps;
* ``run``: runs for each fault the 25 quickest tests of its line, up to the first failure, in a forked process that has
  the libraries but not the package imported; a test that also fails without the fault does not count;
* ``report``: writes ``coverage.json`` and ``mutants.jsonl`` into ``baseline/``.

``baseline/mutants.json.gz`` has the 300 faults of revision 058ff37d with their tests: unpacked as ``chosen.json`` in
FOLDER it spares the first two commands. 238 were noticed (``killed``). 150 of them are still in the source (``now``):
123 were noticed then and 124 are now. ``baseline/coverage.json`` has both coverages.

A fault is stored by function and text of the line. With ``--package catchline --mapped JOURNAL``, ``select`` finds the
faults of another run's journal in today's source: the same change of an equal line in a function of the same name.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import re
import resource
import shutil
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

COUNT, A_FILE, A_FUNCTION, A_KIND, TESTS, CPU_SECONDS = 300, 6, 2, 60, 25, 300
PARTS = """papers layers kernels models objectives search training data text metrics extractive explain evaluation
    systems summarizer export runtime server config cli"""
LEFT_OUT = """kernels/windows kernels/gru_sequence kernels/deferral kernels/graph kernels/packed objectives/risk
    training/outlook training/processes training/corpus data/subset data/prepare data/pieces data/tables data/lines
    data/checks text/surface text/casing text/mending text/languages text/stretches text/restructured text/sources
    text/html text/manual text/copied text/reading text/sentences metrics/confidence metrics/support metrics/quantities
    metrics/dates metrics/words metrics/alignment metrics/card metrics/consensus metrics/lower_precision
    systems/revision systems/bulk export/tracing export/lowering export/shapes export/products export/builder
    runtime/onnx_file runtime/eight_bits server/middleware server/streaming server/run server/metrics config/spellings
    cli/tune cli/calibrate cli/plot cli/data_write cli/align cli/demo cli/own_data cli/judge cli/completion cli/card
    cli/data cli/inputs cli/options"""
GONE = re.compile("RDrop|Unmoved|Band|[Gg]roup|[Dd]ivers|[Ss]kip|[Jj]ack|drand|[Pp]recision|_automatic|[Rr]ay|Stemmer")
COMPARE = {"<=": "<", ">=": ">", "==": "!=", "!=": "==", "is not": "is", "not in": "in"}
COMPARE |= {"<": "<=", ">": ">=", "is": "is not", "in": "not in"}
NAMES = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=", ast.Is: "is"}
NAMES |= {ast.IsNot: "is not", ast.In: "in", ast.NotIn: "not in"}
ARITHMETIC = {ast.Add: "+-", ast.Sub: "-+", ast.Mult: "*/", ast.Div: "/*"}
PLACE = ("lineno", "col", "end_lineno", "end_col")
Edit = tuple[str, int, int, int, str]  # kind, line, first and last column, new text


def cover(options: argparse.Namespace) -> None:
    tests = options.copy / "tests"
    folders = [path for path in (*tests.glob("unit/*/"), *tests.glob("*/")) if any(path.glob("test_*.py"))]
    folders = [path for path in folders if path.name not in ("unit", "integration")]
    files = [path for folder in (".", "unit", "integration") for path in sorted(tests.glob(f"{folder}/test_*.py"))]
    for group in (*folders, *files):
        name = "-".join(group.relative_to(tests).with_suffix("").parts)
        log = options.work / f"{name}.log"
        if log.is_file():
            continue
        environment = os.environ | {"COVERAGE_FILE": str(options.work / f".coverage.{name}")}
        command = (
            f"-m coverage run --branch --source={options.copy}/src/{options.package} -m pytest -p {Path(__file__).stem}"
        )
        command += " -p no:cacheprovider -rf --durations=0 --durations-min=0 --hypothesis-seed=0"
        with log.with_suffix(".part").open("w") as file:
            done = subprocess.run(
                [sys.executable, *command.split(), str(group.relative_to(options.copy))],
                cwd=options.copy, env=environment, stdout=file, stderr=file, check=False,
            )  # fmt: skip
        log.with_suffix(".part").rename(log)
        print(time.strftime("%H:%M"), name, done.returncode, flush=True)


def edits(tree: ast.AST, source: str) -> Iterator[tuple[str, Edit]]:
    """The faults of a module, each with its function's qualified name. Columns count bytes."""
    lines = [line.encode() for line in source.splitlines()]

    def between(kind: str, left: ast.expr, right: ast.expr, old: str, new: str) -> Iterator[Edit]:
        line, start, end = left.end_lineno or 0, left.end_col_offset or 0, right.col_offset
        if right.lineno == line and (text := lines[line - 1][start:end].decode()).strip(" ()") == old:
            yield kind, line, start, end, text.replace(old, new)

    def of(node: ast.AST) -> Iterator[Edit]:
        line, start, last, end = (getattr(node, f"{key}_offset" if "col" in key else key, 0) for key in PLACE)
        whole = line == last
        match node:
            case ast.Compare():
                sides = [node.left, *node.comparators]
                for left, operation, right in zip(sides, node.ops, sides[1:], strict=False):
                    yield from between("comparison", left, right, (old := NAMES[type(operation)]), COMPARE[old])
            case ast.BinOp() if type(node.op) in ARITHMETIC and not any(
                isinstance(side, ast.JoinedStr) or isinstance(getattr(side, "value", None), str)
                for side in (node.left, node.right)
            ):
                yield from between("arithmetic", node.left, node.right, *ARITHMETIC[type(node.op)])
            case ast.BoolOp():
                old, new = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
                for left, right in zip(node.values, node.values[1:], strict=False):
                    yield from between("and/or", left, right, old, new)
            case ast.Constant(value=bool()) if whole:
                yield "boolean", line, start, end, str(not node.value)
            case ast.Constant(value=int() | float()) if whole:
                yield "number", line, start, end, repr(node.value + 1)
            case ast.UnaryOp(op=ast.Not()) if whole:
                yield "not", line, start, start + len("not "), ""
            case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test) if test.lineno == test.end_lineno:
                if not isinstance(test, ast.Compare | ast.UnaryOp | ast.BoolOp | ast.NamedExpr | ast.Constant):
                    yield "not", test.lineno, test.col_offset, test.col_offset, "not "
            case ast.Return(value=ast.expr()) if whole and not isinstance(node.value, ast.Constant):
                yield "return", line, start, end, "return None"

    def walk(node: ast.AST, name: str) -> Iterator[tuple[str, Edit]]:
        if isinstance(node, ast.JoinedStr | ast.Raise | ast.arguments | ast.AnnAssign):
            return
        if isinstance(node, ast.keyword) and node.arg == "strict":  # of zip: it changes nothing that is right
            return
        if name and not name.endswith("."):
            yield from ((name, edit) for edit in of(node))
        for child in ast.iter_child_nodes(node):
            if child is getattr(node, "returns", None) or child in getattr(node, "decorator_list", ()):
                continue
            inside = name
            if isinstance(child, ast.FunctionDef | ast.ClassDef):
                inside = (name if not name or name.endswith(".") else name + ".") + child.name
                inside += "." * isinstance(child, ast.ClassDef)
            yield from walk(child, inside)

    return walk(tree, "")


def applied(source: str, edit: Edit) -> tuple[str, str, str]:
    """The whole source with the fault; its line before and after."""
    _, line, start, end, new = edit
    lines = source.splitlines(keepends=True)
    before = lines[line - 1].encode()
    lines[line - 1] = (before[:start] + new.encode() + before[end:]).decode()
    return "".join(lines), before.decode().strip(), lines[line - 1].strip()


def pytest_runtest_logstart(nodeid: str) -> None:
    """While tests are covered this module is a plugin of pytest: what runs from here on is run by that test."""
    from coverage import Coverage

    if measured := Coverage.current():
        measured.switch_context(nodeid)


def select(options: argparse.Namespace) -> None:
    from coverage import CoverageData

    logs = "".join(log.read_text() for log in sorted(options.work.glob("*.log")))
    seconds: Counter[str] = Counter()
    for duration, test in re.findall(r"^([\d.]+)s (?:call|setup|teardown) +(\S.*)$", logs, re.MULTILINE):
        seconds[test] += float(duration)
    failed = set(re.findall(r"^FAILED (.+?)(?: - .*)?$", logs, re.MULTILINE))
    covered: dict[str, dict[int, set[str]]] = {}
    for path in sorted(options.work.glob(".coverage.*")):
        data = CoverageData(path)
        data.read()
        for file in data.measured_files():
            lines = covered.setdefault(file, {})
            for line, contexts in data.contexts_by_lineno(file).items():
                lines.setdefault(line, set()).update(set(contexts) - {""})
    sites, root = [], options.copy / "src" / options.package
    wanted = [json.loads(line) for line in options.mapped.open(encoding="utf-8")] if options.mapped else []
    sought = {(one["function"], one["before"], one["after"]): one["number"] for one in wanted}
    for path in sorted(path for part in PARTS.split() for path in (root / part).rglob("*.py")):
        name = str(path.relative_to(root).with_suffix(""))
        pristine = options.pristine / path.relative_to(options.copy)
        source = pristine.read_text(encoding="utf-8")
        for function, edit in edits(ast.parse(source), source) if wanted or name not in LEFT_OUT.split() else ():
            tests = covered.get(str(path), {}).get(edit[1], set()) - failed
            if wanted:
                number = sought.pop((function, *applied(source, edit)[1:]), None)
                if number is not None:
                    sites.append((name, function, edit, tests, number))
            elif tests and not GONE.search(function):
                sites.append((name, function, edit, tests, -1))
    random.Random(58).shuffle(sites)
    sites.sort(key=lambda site: site[-1])
    chosen, count = [], Counter[str]()
    for name, function, edit, tests, known in sites:
        keys = {name: A_FILE, f"{name}:{function}": A_FUNCTION, edit[0]: A_KIND, f"{name}:{edit[1]}": 1}
        if len(chosen) == COUNT or (not wanted and any(count[key] >= most for key, most in keys.items())):
            continue
        file = Path("src", options.package, f"{name}.py")
        changed, before, after = applied((options.pristine / file).read_text(encoding="utf-8"), edit)
        try:
            compile(changed, str(file), "exec")
        except SyntaxError:
            continue
        count.update(list(keys))
        functions, order = Counter[str](), []  # the quickest case of each test function before any second case
        for test in sorted(tests, key=lambda test: (seconds[test], test)):
            order.append((functions[test.partition("[")[0]], len(order), test))
            functions[test.partition("[")[0]] += 1
        quickest = [test for _, _, test in sorted(order)[:TESTS]]
        number = known if wanted else len(chosen)
        mutant = {"number": number, "file": str(file), "function": function, "line": edit[1], "kind": edit[0]}
        mutant |= {"before": before, "after": after, "covering": len(tests), "edit": edit, "tests": quickest}
        chosen.append(mutant)
    options.work.joinpath("chosen.json").write_text(json.dumps(chosen, indent=1), encoding="utf-8")
    print(len(sites), "places,", len(chosen), "chosen:", Counter(mutant["kind"] for mutant in chosen))
    print(len(sought), "of the journal are not in the source any more")


class Failure:
    """A plugin that remembers the first test that failed."""

    test = ""

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.test = self.test or (report.nodeid if report.failed else "")


def first_failure(tests: list[str], log: Path) -> str:
    """Which of the tests fails first, in its own process; empty if all pass."""
    log.with_suffix(".failed").write_text("out of time, or no test could be collected")
    if child := os.fork():
        os.waitpid(child, 0)
        return log.with_suffix(".failed").read_text()
    os.setsid()
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(output, 1), os.dup2(output, 2)
    import pytest

    seen = Failure()
    ended = pytest.main(["-x", "-q", "-p", "no:cacheprovider", "--hypothesis-seed=0", *tests], plugins=[seen])
    if ended == 0 or seen.test:
        log.with_suffix(".failed").write_text(seen.test)
    os._exit(0)


def run(options: argparse.Namespace) -> None:
    import accelerate, hypothesis, numpy, onnxruntime, pydantic, pytest, rich, scipy, torch, transformers, typer  # noqa

    torch.set_num_threads(1)
    os.chdir(options.copy)
    sys.dont_write_bytecode = True
    os.environ |= {"PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1"}
    journal, log = options.work / "journal.jsonl", options.work / "tests.txt"
    done = {json.loads(line)["number"] for line in journal.read_text().splitlines()} if journal.is_file() else set()
    for mutant in json.loads((options.work / "chosen.json").read_text()):
        if mutant["number"] in done:
            continue
        path, source = options.copy / mutant["file"], (options.pristine / mutant["file"]).read_text(encoding="utf-8")
        tests, killer, start = mutant["tests"], "", time.time()
        while tests:
            path.write_text(applied(source, tuple(mutant["edit"]))[0], encoding="utf-8")
            shutil.rmtree(path.parent / "__pycache__", ignore_errors=True)
            try:
                killer = first_failure(tests, log)
            finally:
                path.write_text(source, encoding="utf-8")
            if killer not in tests or not first_failure([killer], log):
                break
            tests, killer = [test for test in tests if test != killer], ""
        if killer and killer not in tests and first_failure(tests, log):  # also without the fault: this says nothing
            tests, killer = [], ""
        shown = {key: value for key, value in mutant.items() if key not in ("edit", "tests")} | {"ran": len(tests)}
        with journal.open("a", encoding="utf-8") as file:
            file.write(json.dumps(shown | {"killed": bool(killer), "by": killer}) + "\n")
        print(mutant["number"], mutant["file"], killer, round(time.time() - start), flush=True)


def report(options: argparse.Namespace) -> None:
    from coverage import Coverage

    out, root = Path(__file__).parent / "baseline", options.copy / "src" / options.package
    whole = Coverage(data_file=options.work / "combined", branch=True, source=[str(root)])
    whole.combine(map(str, options.work.glob(".coverage.*")), keep=True)
    whole.json_report(outfile=str(options.work / "coverage.json"))
    n = json.loads((options.work / "coverage.json").read_text())["totals"]
    figures = {"lines": n["covered_lines"] / n["num_statements"], "branches": n["covered_branches"] / n["num_branches"]}
    (out / "coverage.json").write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    journal = options.work / "journal.jsonl"
    lines = journal.read_text().splitlines() if journal.is_file() else []
    (out / "mutants.jsonl").write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    print(figures, sum(json.loads(line)["killed"] for line in lines), "of", len(lines), "killed")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("command", choices=("cover", "select", "run", "report"))
    parser.add_argument("--copy", type=Path, required=True)
    parser.add_argument("--pristine", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--package", default="laconic")
    parser.add_argument("--mapped", type=Path, help="the journal of another run, whose faults are sought")
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    os.environ |= {
        "PYTHONPATH": f"{options.copy}/src:{Path(__file__).parent}",
        "OMP_NUM_THREADS": "1",
        "HF_HUB_OFFLINE": "1",
    }
    sys.path.insert(0, str(options.copy / "src"))
    {"cover": cover, "select": select, "run": run, "report": report}[options.command](options)


if __name__ == "__main__":
    main()
