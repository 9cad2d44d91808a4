"""Commands as a person gives them: what one prints that works, and the one sentence of one that does not."""

from __future__ import annotations

import pytest

from laconic.cli.main import main


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    """What the command prints; what was printed before it does not count."""
    capsys.readouterr()
    code = main(["--quiet", *map(str, arguments)])
    captured = capsys.readouterr()
    assert code == 0, captured.err
    return captured.out


def refused(capsys: pytest.CaptureFixture[str], code: int, said: str, *arguments: object) -> None:
    """The command ends with ``code`` and one line that holds ``said``."""
    assert main(["--quiet", *map(str, arguments)]) == code
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
