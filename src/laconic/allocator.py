"""Memory that is asked for again and again, kept by C's library in between.

glibc gives a large array back to the system as soon as it is freed, and the system clears every page of the next one,
which was a third of the time of a search over graphs. `keep_pages` tells it to keep them, `give_back` hands back what
is free where a piece of work ends. Other libraries than glibc are left as they are. (A training gains nothing by this
and grows to twice its memory: its arrays are of too many sizes.)
"""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of mallopt(3)
_LARGE = 1 << 28  # bytes; larger arrays come from the system one by one, and go back
_SETTINGS = ("MALLOC_", "GLIBC_TUNABLES", "LD_PRELOAD")  # who sets one of these has chosen


def keep_pages() -> None:
    """Freed arrays stay with this process until `give_back`, unless the user set how memory is allocated."""
    if not any(name.startswith(_SETTINGS) for name in os.environ):
        with suppress(AttributeError, OSError, TypeError):  # where this is not glibc
            library = ctypes.CDLL(None)
            library.mallopt(_MMAP_THRESHOLD, _LARGE)
            library.mallopt(_TRIM_THRESHOLD, 2**31 - 1)


def give_back() -> None:
    """Free memory goes back to the system, also where used memory lies behind it."""
    with suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)
