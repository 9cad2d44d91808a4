"""Watching a function while it does what it did."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest


def watch(
    monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, what: Callable[..., Any] = lambda *_, **__: None
) -> list[Any]:
    """A list that grows, with each call of ``owner.name``, by what ``what`` makes of its arguments."""
    seen, usual = list[Any](), getattr(owner, name)

    def watched(*given: Any, **options: Any) -> Any:
        seen.append(what(*given, **options))
        return usual(*given, **options)

    monkeypatch.setattr(owner, name, watched)
    return seen
