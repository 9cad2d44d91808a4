"""The lazy tables: resolving, classes from outside, and what is said about unknown names."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from catchline.config import names
from catchline.config.base import ConfigBase
from catchline.config.schema import RunConfig
from catchline.errors import ConfigError


class Outside:
    class Config(ConfigBase):
        size: int = 3

    def __init__(self, config: Config, *, width: int = 0) -> None:
        self.config, self.width = config, width


TABLE = {"outside": f"{__name__}:Outside", "lost": "catchline.nowhere:Lost", "gone": "catchline.types:Gone"}


def test_a_name_is_resolved_and_built() -> None:
    spec = {"type": "outside", "size": 5}
    built = names.build("thing", TABLE, spec, width=7)
    assert spec == {"type": "outside", "size": 5}, "left alone"
    assert isinstance(built, Outside)
    assert (built.config.size, built.width) == (5, 7)
    # a class outside of the tables needs no entry
    assert names.parse("thing", {}, {"type": f"{__name__}:Outside"}) == (Outside, Outside.Config(size=3))


def test_a_module_of_the_working_directory_needs_no_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "of_my_own.py").write_text(f"from {__name__} import Outside as Mine\n")
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place])
    monkeypatch.chdir(tmp_path)
    cls, _ = names.parse("thing", {}, {"type": "of_my_own:Mine"})
    assert cls is Outside


def test_modules_from_outside_are_found_and_not_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "not_read.py").write_text("raise SystemExit")
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place])
    monkeypatch.chdir(tmp_path)
    spec = {"model": {"type": "not_read:Model", "head": {"type": "not_read:Head"}}, "search": [{"type": "no.such:X"}]}
    assert names.sources_of(spec) == [tmp_path / "not_read.py"]
    assert names.sources_of([{"type": "seq2seq"}, {"type": "sys:X"}, {"type": ":X"}, {"type": ".names:X"}, None]) == []


def test_a_part_of_a_model_has_a_type() -> None:
    """What is set of a part that the recipe does not name takes the place of the model's own choice of one."""
    run = RunConfig(name="mine", model={"type": "seq2seq", "attention": {"size": 3}}, training={"max_updates": 1})
    with pytest.raises(ConfigError, match="An attention needs a 'type'; known: additive"):
        names.check_run(run)


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"type": "outsid"}, "Unknown thing 'outsid'. Did you mean 'outside'?"),
        ({"size": 1}, "A thing needs a 'type'"),
        ({"type": "outside", "sise": 1}, "Unknown key 'thing.sise'. Did you mean 'size'?"),
        ({"type": "outside", "size": "big"}, "'thing.size'"),
        ({"type": "lost"}, "could not be loaded"),
        ({"type": "gone"}, "could not be loaded"),
    ],
)
def test_mistakes(spec: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        names.parse("thing", TABLE, spec)
    assert said in str(caught.value)
