"""A real Chromium for the tests: Debian's, headless, and only where it is installed."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from playwright.sync_api import Page, sync_playwright

PHONE, LAPTOP = (390, 800), (1280, 900)
PATIENCE = 120_000
"""Milliseconds: a busy machine is slow, not wrong."""


@contextmanager
def browser_page(*, size: tuple[int, int] = LAPTOP, scheme: str = "light") -> Iterator[tuple[Page, list[str]]]:
    """A page, and a list that fills with what its console complains of, and what it asks of the network beyond here."""
    chromium = shutil.which("chromium")
    if chromium is None:
        pytest.skip("chromium is not installed; `make test` installs it where apt-get may")
    troubles: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        try:
            width, height = size
            context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
            context.set_default_timeout(PATIENCE)
            page = context.new_page()
            page.on("console", lambda said: troubles.append(said.text) if said.type in ("error", "warning") else None)
            page.on("pageerror", lambda error: troubles.append(str(error)))
            page.on("request", lambda asked: None if is_ours(asked.url) else troubles.append(asked.url))
            yield page, troubles
        finally:
            browser.close()


def is_ours(url: str) -> bool:
    return url.startswith(("file:", "data:", "http://127.0.0.1:"))


def overflows(page: Page) -> bool:
    """Whether the page has to be moved sideways to be read."""
    found: bool = page.evaluate("document.documentElement.scrollWidth > window.innerWidth")
    return found
