"""The worked examples of CONTRIBUTING.md: a file and a line each, in a copy of the source, are all it takes."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import catchline
from catchline.cli.main import main
from commands import run
from json_lines import read_lines, write_lines

PAGE = Path(__file__).parents[2] / "CONTRIBUTING.md"
TESTS = Path(__file__).parents[1]
SOURCE = Path(catchline.__file__).parent
FILE = re.compile(r"^`src/(catchline/[\w/]+\.py)`:\n\n```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINE = re.compile(r"^In `(\w+)`:\n\n```python\n(    \"(\w+)\": .*\n)```$", re.MULTILINE)
PAIRS = [
    {"document": f"{name} lost the {thing} on the way home .", "summary": f"{name} lost the {thing} ."}
    for name in ("anna", "bob", "carla")
    for thing in ("keys", "phone", "car", "lunch")
]
TRAIN = "train headline_writer --size tiny --set training.max_updates=2"
RECURRENT = shlex.split(
    f"{TRAIN} --set model.attention.type=general --set model.head.type=fixed_share "
    "--set 'objectives=[{type: nll}, {type: attention_entropy}]' "
    "--set 'search.scorers=[{type: favour_source, bonus: 0.25}]'"
)
TRANSFORMER = shlex.split(
    "train contrastive --row pointer --size tiny --set training.max_updates=2 --set model.head.type=fixed_share"
)
# One process: importing torch costs more than all that is done with it.
DRIVER = """
import json, sys
import pytest
from catchline.cli.main import main
for arguments in json.loads(sys.argv[1]):
    if main(["--quiet", *arguments]):
        sys.exit("failed: " + " ".join(arguments))
names, files = sys.argv[2], sys.argv[3:]
sys.exit(int(pytest.main(["-p", "no:cacheprovider", "-k", names, *files])))
"""


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The examples put into a copy; trained, summarized and put to the contract tests there."""
    folder = tmp_path_factory.mktemp("contributed")
    page, copy = PAGE.read_text(encoding="utf-8"), folder / "catchline"
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(SOURCE, copy, ignore=ignored, copy_function=lambda place, to: os.symlink(place, to))
    for name, code in FILE.findall(page):
        assert not (folder / name).exists()
        (folder / name).write_text(code, encoding="utf-8")
    names = copy / "config/names.py"
    text = names.read_text(encoding="utf-8")
    for table, line, _ in LINE.findall(page):
        text, count = re.subn(rf"^({table}: Table = {{\n)", rf"\g<1>{line}", text, flags=re.MULTILINE)
        assert count == 1, table
    names.unlink()  # a link to the real one
    names.write_text(text, encoding="utf-8")
    for split in ("train", "validation"):
        write_lines(folder / f"{split}.jsonl", PAIRS)
    commands = []
    for name, command in {"recurrent": RECURRENT, "transformer": TRANSFORMER}.items():
        out, inputs = folder / name, str(folder / "validation.jsonl")
        commands.append([*command, "--data", str(folder), "--out", str(out)])
        commands.append(["summarize", str(out), inputs, "--explain", "--output", f"{out}.jsonl"])
    kinds = [name for _, _, name in LINE.findall(page)]
    files = [str(TESTS / "contract" / f"test_{kind}.py") for kind in ("attention_contract", "copy_heads", "scorers")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), str(TESTS)])}
    process = subprocess.run(
        [sys.executable, "-c", DRIVER, json.dumps(commands), " or ".join(kinds), *files],
        env=environment,
        cwd=PAGE.parent,
        capture_output=True,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stdout[-4000:] + process.stderr[-4000:]
    return folder, process.stdout


def test_each_example_is_a_file_and_a_line() -> None:
    page = PAGE.read_text(encoding="utf-8")
    targets = {f"{path.removesuffix('.py').replace('/', '.')}" for path, _ in FILE.findall(page)}
    assert len(targets) == len(LINE.findall(page)) == 4
    assert targets == {re.findall(r'"([\w.]+):', line)[0] for _, line, _ in LINE.findall(page)}


@pytest.mark.parametrize("name", ["recurrent", "transformer"])
def test_models_train_and_summarize_with_them(done: tuple[Path, str], name: str) -> None:
    folder, _ = done
    settings = json.loads((folder / name / "model/config.json").read_text())["model"]
    assert settings["head"]["type"] == "fixed_share"
    assert name == "transformer" or settings["attention"] == {"type": "general"}
    lines = read_lines(folder / f"{name}.jsonl")
    assert len(lines) == len(PAIRS)
    shares = {round(word["p_gen"], 6) for line in lines for word in line["words"]}
    assert len(shares) == 1, "one share for all steps"
    assert shares != {0.5}, "and it is trained"


def test_code_named_in_the_command_is_trusted_for_the_score_at_its_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for split in ("train", "validation"):
        write_lines(tmp_path / f"{split}.jsonl", PAIRS)
    places = ["--data", str(tmp_path), "--out", str(tmp_path / "run")]
    own = ["--set", "model.attention.type=catchline.layers.attention.additive:AdditiveAttention"]
    said = run(capsys, *TRAIN.split(), *own, "--set", "objectives=[{type: nll}]", *places)
    assert "could not be scored" not in said
    assert "lead-1" in said
    made = str(tmp_path / "run")
    command = ["--quiet", "export", made, "--out", str(tmp_path / "exported")]
    assert main(command) != 0
    assert "say so: --trust-code" in capsys.readouterr().err
    assert main([*command, "--trust-code"]) == 0, capsys.readouterr().err
    assert (tmp_path / "exported" / "export.json").is_file()


def test_the_log_the_terms_and_the_contracts_have_them(done: tuple[Path, str]) -> None:
    folder, said = done
    assert "attention_entropy" in (folder / "recurrent/log.jsonl").read_text()
    added = [line["terms"]["favour_source"] for line in read_lines(folder / "recurrent.jsonl")]
    assert all(value == pytest.approx(0.25 * round(value / 0.25)) for value in added)
    assert any(added)
    assert int(re.findall(r"(\d+) passed", said)[-1]) >= 20  # each promise of attentions and of copy heads
    assert "failed" not in said
