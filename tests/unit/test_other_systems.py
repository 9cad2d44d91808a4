"""What other systems do otherwise, pretended here: Windows has no locks of this kind, opens no folder, writes out only
what is open for writing, and neither renames nor removes what is open; Git may turn the ends of lines there.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from catchline import files
from catchline.errors import ModelError
from catchline.export.folder import export_apart
from catchline.files import flush, only_here, only_writer, part_of, replacing_folder, write_text

ROOT = Path(__file__).parent.parent.parent
OPEN_ONES = Path("/proc/self/fd")


@pytest.fixture
def windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files as on Windows, as far as a process of this system can have them so."""
    if not OPEN_ONES.exists():
        pytest.skip("this system does not say which files are open")
    opened, synced = os.open, os.fsync

    def opening(path: str | os.PathLike[str], *flags: int, **others: int | None) -> int:
        if os.path.isdir(path):
            raise PermissionError(13, "Permission denied", os.fspath(path))
        return opened(path, *flags, **others)

    def syncing(handle: int) -> None:
        os.write(handle, b"")  # fails where it is not open for writing
        synced(handle)

    def refusing(name: str) -> None:
        does = getattr(os, name)

        def done(path: str | os.PathLike[str], *others: object, **options: object) -> None:
            for place in {os.path.realpath(each) for each in (path, *others) if isinstance(each, str | os.PathLike)}:
                held = [os.path.realpath(handle) for handle in OPEN_ONES.iterdir()]
                if any(each == place or each.startswith(f"{place}/") for each in held):
                    raise PermissionError(13, "The process cannot access the file", place)
            does(path, *others, **options)

        monkeypatch.setattr(os, name, done)

    monkeypatch.setattr(files, "fcntl", None)
    monkeypatch.setattr(shutil, "_use_fd_functions", False)
    monkeypatch.setattr(os, "open", opening)
    monkeypatch.setattr(os, "fsync", syncing)
    for name in ("rename", "replace", "unlink"):
        refusing(name)


@pytest.mark.usefixtures("windows")
def test_files_are_replaced_without_locks(tmp_path: Path) -> None:
    path = tmp_path / "scores.json"
    for text in ("old", "new"):
        write_text(path, text)
    with pytest.raises(TypeError), part_of(path) as file:
        file.writelines([b"half", "and no bytes"])  # type: ignore[list-item]
    assert path.read_text() == "new"
    assert [each.name for each in tmp_path.iterdir()] == ["scores.json"]


@pytest.mark.usefixtures("windows")
def test_folders_are_replaced_without_locks(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    for text in ("old", "new"):
        with replacing_folder(folder) as draft:
            (draft / "weights").write_text(text)
    assert (folder / "weights").read_text() == "new"
    assert os.listdir(tmp_path) == ["model"]


@pytest.mark.usefixtures("windows")
def test_without_locks_nobody_is_kept_out_and_nothing_stays(tmp_path: Path) -> None:
    with only_here(tmp_path), only_here(tmp_path), only_writer(tmp_path / "a"), only_writer(tmp_path / "a"):
        pass
    assert not os.listdir(tmp_path)


@pytest.mark.usefixtures("windows")
def test_what_is_on_the_disk_is_so_where_folders_are_not_opened(tmp_path: Path) -> None:
    flush(tmp_path)
    (tmp_path / "file").touch()
    flush(tmp_path / "file")
    with pytest.raises(FileNotFoundError):
        flush(tmp_path / "none")


def test_git_leaves_the_ends_of_lines_alone(tmp_path: Path) -> None:
    """Git for Windows turns them unless told otherwise; the model in the box and the tables name digests of files."""
    subprocess.run(["git", "init", "-q", str(tmp_path)], check=True)
    shutil.copy(ROOT / ".gitattributes", tmp_path)
    ours = ["src/catchline/oneline/casing.json", "deploy/Dockerfile", "src/catchline/cli/main.py"]
    asked = ["git", "-C", str(tmp_path), "check-attr", "text", "--", *ours]
    told = subprocess.run(asked, capture_output=True, text=True, check=True).stdout
    assert told.splitlines() == [f"{name}: text: unset" for name in ours]


@pytest.mark.slow
def test_an_export_tells_of_names_in_any_letters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONIOENCODING", "latin-1")
    with pytest.raises(ModelError, match="entra\u00eenement"):
        export_apart(tmp_path / "entra\u00eenement", tmp_path / "out")
