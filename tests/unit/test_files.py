"""Files and folders that appear whole, and the locks on them."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from pathlib import Path

import pytest

from catchline.errors import FolderInUseError
from catchline.files import (
    LOCK,
    only_here,
    only_writer,
    part_of,
    put_back,
    remove_leftovers,
    replacing_folder,
    write_text,
)

WORK = """
import os, signal, sys
from pathlib import Path
from catchline.files import only_here, only_writer, part_of, replacing_folder
with {what}(Path(sys.argv[1])) as draft:
    if isinstance(draft, Path):
        (draft / "half").write_text("x")
    print("ready", flush=True)
    os.kill(os.getpid(), signal.SIGKILL) if sys.argv[2] == "die" else sys.stdin.read()
"""


def other(what: str, place: Path, end: str) -> subprocess.Popen[str]:
    """Another process that works in ``place``: it dies there, or waits for the end of its input."""
    command = [sys.executable, "-c", WORK.format(what=what), str(place), end]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize(
    ("hold", "place", "kind"), [(only_here, "new", "folder"), (only_writer, "new/a.jsonl", "file")]
)
def test_a_place_is_held_by_one(tmp_path: Path, hold: type[only_here], place: str, kind: str) -> None:
    process = other(hold.__name__, tmp_path / place, "wait")
    said = rf"{place} is in use by process {process.pid} on \S+; wait until that is done, or choose another {kind}\."
    with pytest.raises(FolderInUseError, match=said), hold(tmp_path / place):
        pass
    with only_writer(tmp_path / "neighbour"):
        process.communicate("")
    with hold(tmp_path / place), pytest.raises(FolderInUseError), hold(tmp_path / place):
        pass
    assert not list(tmp_path.rglob("*lock"))


def test_the_lock_dies_with_its_process(tmp_path: Path) -> None:
    assert other("only_here", tmp_path, "die").wait() == -9
    assert (tmp_path / LOCK).exists()
    with only_here(tmp_path):
        pass
    assert not names(tmp_path)


def test_a_forked_child_keeps_nothing_locked(tmp_path: Path) -> None:
    """A data-loading worker may live a little longer than the process that was killed."""
    if "fork" not in multiprocessing.get_all_start_methods():
        pytest.skip("no fork here")
    reading, writing = os.pipe()
    with only_here(tmp_path):
        child = os.fork()
        if not child:
            os.close(writing)
            os.read(reading, 1)
            os._exit(0)
    try:
        with only_here(tmp_path):
            pass
    finally:
        os.close(writing)
        os.waitpid(child, 0)
        os.close(reading)


@pytest.mark.parametrize("what", ["replacing_folder", "part_of"])
def test_what_a_killed_writer_left_is_removed_by_the_next(tmp_path: Path, what: str) -> None:
    place = tmp_path / "model"
    assert other(what, place, "die").wait() == -9
    (tmp_path / ".model.json.partial").touch()  # of a file called model.json: not ours
    assert names(tmp_path) == [".model.json.partial", ".model.lock", ".model.partial"]
    if what == "part_of":
        write_text(place, "x")
    else:
        with replacing_folder(place) as draft:
            (draft / "whole").write_text("x")
        assert names(place) == ["whole"]
    assert names(tmp_path) == [".model.json.partial", "model"]


def test_who_reads_waits_for_nobody_and_who_writes_for_a_living_writer(tmp_path: Path) -> None:
    place = tmp_path / "model"
    process = other("replacing_folder", place, "wait")
    put_back(place)
    second = subprocess.Popen([sys.executable, "-c", WORK.format(what="replacing_folder"), str(place), "die"])
    assert process.communicate("")[0] == ""
    assert second.wait() == -9
    assert names(place) == ["half"]
    remove_leftovers(place)
    assert names(tmp_path) == ["model"]


@pytest.mark.parametrize("name", ["model", "link"])
def test_an_old_folder_is_put_back_and_an_outlived_one_removed(tmp_path: Path, name: str) -> None:
    place, previous = tmp_path / "model", tmp_path / ".model.previous"
    (tmp_path / "link").symlink_to("model")
    write_text(previous / "old", "x")
    put_back(tmp_path / name)
    assert names(place) == ["old"]
    previous.mkdir()
    remove_leftovers(tmp_path / name)
    assert names(tmp_path) == ["link", "model"]


def test_what_a_broken_replacement_calls_the_old_folder_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But not a folder whose name a person chose."""
    place = tmp_path / "model"
    write_text(place / "old", "x")
    write_text(tmp_path / "model.previous" / "mine", "x")

    def only_away(path: Path, target: Path) -> None:
        if target == place:
            raise KeyboardInterrupt
        os.rename(path, target)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt), replacing_folder(place):
        patch.setattr(Path, "rename", only_away)
    assert not place.exists()
    put_back(place)
    assert names(place) == ["old"]
    assert names(tmp_path) == ["model", "model.previous"]
    assert names(tmp_path / "model.previous") == ["mine"]


def test_the_folder_behind_a_link_is_replaced(tmp_path: Path) -> None:
    place, link = tmp_path / "far" / "model", tmp_path / "latest"
    place.mkdir(parents=True)
    link.symlink_to(Path("far", "model"))
    for content in "ab":
        with replacing_folder(link) as draft:
            (draft / content).touch()
        assert names(place) == [content]
    assert link.is_symlink()
    assert names(place.parent) == ["model"]


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "file"
    write_text(path, "old")
    with pytest.raises(TypeError), part_of(path) as file:
        file.writelines([b"half", None])  # type: ignore[list-item]
    assert path.read_text() == "old"
    assert names(path.parent) == ["file"]


def test_the_file_behind_a_link_is_replaced_and_keeps_its_mode(tmp_path: Path) -> None:
    path, link = tmp_path / "far" / "file", tmp_path / "link"
    link.symlink_to(Path("far", "file"))
    write_text(link, "new")  # it leads nowhere yet
    path.chmod(0o640)
    with part_of(link) as file:
        assert [draft.stat().st_mode & 0o777 for draft in path.parent.glob(".*partial")] == [0o640]
        file.write(b"newer")
    assert link.is_symlink()
    assert path.read_text() == "newer"
    assert path.stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("name", ["n" * 250, "é" * 125, "x" + "é" * 125])
def test_a_long_name(tmp_path: Path, name: str) -> None:
    """Its draft and its lock have names of at most 255 bytes, which are no other long name's."""
    path = tmp_path / name
    with only_writer(path):
        pass
    write_text(path, "x")
    assert names(tmp_path) == [name]
    path.unlink()
    with replacing_folder(path):
        draft = next(tmp_path.glob(".*.partial"))
        assert draft.name.encode()  # no half letter
    path.rename(draft.with_suffix(".previous"))
    put_back(tmp_path / f"{name[:-1]}y")
    assert not path.exists()
    put_back(path)
    assert path.is_dir()
