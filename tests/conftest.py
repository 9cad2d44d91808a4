"""Settings of the whole suite: property tests draw the same examples every time and mind no clock."""

from __future__ import annotations

import os
import tempfile

from hypothesis import HealthCheck, settings

from own_process import exports_forked  # noqa: F401  (for the tests that ask for it)

settings.register_profile("laconic", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("laconic")

# What runs keep for later ones belongs to this process and those it starts.
_cache = tempfile.TemporaryDirectory(prefix="laconic-cache-")
os.environ["LACONIC_CACHE"] = _cache.name
