"""Settings of the whole suite: property tests draw the same examples every time and mind no clock."""

from __future__ import annotations

import gc
import os
import tempfile
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

settings.register_profile("catchline", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("catchline")

# What runs keep for later ones belongs to this process and those it starts.
_cache = tempfile.TemporaryDirectory(prefix="catchline-cache-")
os.environ["CATCHLINE_CACHE"] = _cache.name

# What a cut of the power leaves is not tested in this process: waiting for the disk would take a tenth of the time.
os.fsync = lambda _: None


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Modules and tests stay until the end: the collector of garbage need not look through them again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()
