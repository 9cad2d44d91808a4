"""A call in a process of its own, for libraries that bring threads and servers and may take a process with them."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from importlib.util import find_spec
from multiprocessing import get_context
from typing import Any

import pytest

needs_ray = pytest.mark.skipif(not find_spec("ray"), reason="Ray is not installed (pip install 'catchline[ray]')")


def in_own_process(function: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """What ``function`` (of a module, not a local one) returns or raises; ``BrokenProcessPool`` if its process dies."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(function, *arguments, **named).result()
