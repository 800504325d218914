"""A Chromium for browser tests."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from tests.components import require, require_module

NO_NETWORK = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """A Chromium that the tests of a module share. While it is open, asyncio runs nothing else in this thread."""
    chromium = shutil.which("chromium")
    require("chromium", chromium, "pages are opened in it; install Debian's chromium")
    playwright = require_module("playwright.sync_api")
    with playwright.sync_playwright() as started:
        opened = started.chromium.launch(executable_path=chromium, args=["--no-sandbox", NO_NETWORK])
        yield opened
        opened.close()
