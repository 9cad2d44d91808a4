"""A browser that drives the page, where there is one."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import Any

import pytest
from stand_in import Server, serving

ADVICE = "the page's tests need a browser; scripts/install_browser.sh installs one"
NAMES = (os.environ.get("CATCHLINE_CHROMIUM", ""), "chromium", "chromium-browser", "google-chrome")


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Debian's Chromium, else the one that Playwright downloaded."""
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="the page's tests need: pip install 'catchline[dev]'"
    )
    found = next((path for name in NAMES if name and (path := shutil.which(name))), None)
    with playwright.sync_playwright() as driver:
        try:
            # Without its sandbox, because tests may run as root; the pages are our own.
            opened = driver.chromium.launch(executable_path=found, args=["--no-sandbox"])
        except playwright.Error:
            pytest.skip(ADVICE)
        yield opened
        opened.close()


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as running:
        yield running


@pytest.fixture
def context(browser: Any) -> Iterator[Any]:
    """A fresh profile on a screen of a laptop."""
    made = browser.new_context(
        viewport={"width": 1280, "height": 860}, permissions=["clipboard-read", "clipboard-write"]
    )
    made.set_default_timeout(30_000)
    yield made
    made.close()


@pytest.fixture
def page(context: Any) -> Iterator[Any]:
    """A tab that fails the test on an error of the script, a refused style or an address that is not ours."""
    tab = context.new_page()
    wrong: list[str] = []
    tab.on("pageerror", lambda error: wrong.append(str(error)))
    tab.on("console", lambda message: wrong.append(message.text) if "Content Security" in message.text else None)
    tab.on("request", lambda request: wrong.append(request.url) if not is_ours(request.url) else None)
    yield tab
    assert not wrong


def is_ours(address: str) -> bool:
    return address.startswith(("http://127.0.0.1:", "blob:", "data:", "file:"))
