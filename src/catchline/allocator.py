"""Memory that is asked for again and again, kept by C's library in between.

glibc gives a large array back to the system as soon as it is freed, and the system clears every page of the next one,
which was a third of the time of a search over graphs. `keep_pages` tells it to keep them, `give_back` hands back what
is free where a piece of work ends. Other libraries than glibc are left as they are. A training gains nothing by kept
pages and grows to twice its memory, for its arrays are of too many sizes; so `give_back` ends the keeping, too.

Other threads than the first have memory of their own in glibc, which keeps no pages whatever it is told: a search there
took 1.4 times as long. `share_pages` gives all threads the memory of the first.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping
from contextlib import suppress

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8  # of mallopt(3)
_KEPT = {_MMAP_THRESHOLD: 1 << 28, _TRIM_THRESHOLD: 2**31 - 1}  # bytes; larger arrays come and go one by one
_USUAL = {_MMAP_THRESHOLD: 1 << 25, _TRIM_THRESHOLD: 1 << 26}  # what glibc comes to by itself where arrays are large
_keeping = False
_SETTINGS = ("MALLOC_", "GLIBC_TUNABLES", "LD_PRELOAD")  # who sets one of these has chosen


def keep_pages() -> None:
    """Freed arrays stay with this process until `give_back`, unless the user set how memory is allocated."""
    global _keeping
    if not _chosen():
        _keeping = True
        _set(_KEPT)


def share_pages() -> None:
    """Threads that start from here on have no memory of their own, unless the user set how memory is allocated."""
    if not _chosen():
        _set({_ARENA_MAX: 1})


def give_back() -> None:
    """Free memory goes back to the system, also where used memory lies behind it, and does so again when freed."""
    global _keeping
    if _keeping:
        _keeping = False
        _set({_TRIM_THRESHOLD: 0})
        bytes(1 << 17)  # `malloc_trim` leaves the free end of a thread's own memory, which goes back when this is freed
        _set(_USUAL)
    with suppress(AttributeError, OSError, TypeError):  # where this is not glibc
        ctypes.CDLL(None).malloc_trim(0)


def _chosen() -> bool:
    return any(name.startswith(_SETTINGS) for name in os.environ)


def _set(options: Mapping[int, int]) -> None:
    with suppress(AttributeError, OSError, TypeError):
        for option, size in options.items():
            ctypes.CDLL(None).mallopt(option, size)
