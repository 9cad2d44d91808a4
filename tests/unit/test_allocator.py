"""What is told to C's library of memory, and when nothing is."""

import ctypes
import os

import pytest

from catchline import allocator


class Library:
    """A glibc that writes down what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, tuple[int, ...]]] = []

    def mallopt(self, *arguments: int) -> int:
        self.told.append(("mallopt", arguments))
        return 1

    def malloc_trim(self, *arguments: int) -> int:
        self.told.append(("malloc_trim", arguments))
        return 1


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Library:
    found = Library()
    monkeypatch.setattr(allocator, "_keeping", False)
    monkeypatch.setattr(ctypes, "CDLL", lambda name: found)
    monkeypatch.setattr(os, "environ", {"HOME": "/root"})
    return found


def test_arrays_up_to_a_quarter_of_a_gigabyte_stay_until_they_are_given_back(library: Library) -> None:
    allocator.keep_pages()
    assert dict(arguments for _, arguments in library.told) == {-3: 2**28, -1: 2**31 - 1}  # as mallopt(3) numbers them
    library.told.clear()
    allocator.give_back()
    assert library.told[0] == ("mallopt", (-1, 0)), "what a thread frees at the end of its memory goes back, too"
    assert dict(arguments for name, arguments in library.told if name == "mallopt") == {-3: 2**25, -1: 2**26}
    assert library.told[-1] == ("malloc_trim", (0,))
    library.told.clear()
    allocator.give_back()  # nothing was kept, so nothing is set
    assert library.told == [("malloc_trim", (0,))]


@pytest.mark.parametrize("name", ["MALLOC_TRIM_THRESHOLD_", "GLIBC_TUNABLES", "LD_PRELOAD"])
def test_whoever_set_the_allocator_keeps_it(library: Library, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setitem(os.environ, name, "1")
    allocator.keep_pages()
    allocator.share_pages()
    assert not library.told


def test_threads_have_the_memory_of_the_first(library: Library) -> None:
    allocator.share_pages()
    assert library.told == [("mallopt", (-8, 1))]  # M_ARENA_MAX


def test_another_library_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(allocator, "_keeping", True)
    monkeypatch.setattr(ctypes, "CDLL", lambda name: object())
    allocator.keep_pages()
    allocator.share_pages()
    allocator.give_back()
