"""A browser, where there is one: Debian's chromium (or another of its names), driven by playwright."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

__all__ = ["open_browser"]

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@contextmanager
def open_browser() -> Iterator[Any]:
    """Open the browser of this machine; without one the test is skipped, and says so.

    Playwright's event loop must not outlive a module's tests: others have loops of their own.
    """
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    program = next(filter(None, map(shutil.which, NAMES)), None)
    if program is None:
        pytest.skip(f"no browser: none of {', '.join(NAMES)} is on PATH")
    with playwright.sync_playwright() as running:
        browser = running.chromium.launch(
            executable_path=program,
            args=["--no-sandbox"],
            ignore_default_args=["--hide-scrollbars"],  # readers have them, and tests look for them
        )
        yield browser
        browser.close()
