"""A browser for the tests of the widgets' views, and a file for the page that mounts one."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.book.browser import chromium

if TYPE_CHECKING:
    from selenium.webdriver import Chrome


@pytest.fixture(scope="module")
def chrome() -> Iterator[Chrome]:
    with chromium() as browser:
        yield browser


@pytest.fixture
def page(tmp_path: Path) -> Path:
    return tmp_path / "widget.html"
