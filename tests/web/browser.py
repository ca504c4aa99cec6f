"""Chromium by its driver (Debian: `apt-get install chromium chromium-driver`). Tests are skipped without it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
needs_chromium = pytest.mark.skipif(
    CHROMIUM is None or DRIVER is None, reason="no Chromium: apt-get install chromium chromium-driver"
)
WAIT_S = 60


@contextmanager
def open_chromium() -> Iterator[Any]:
    """A browser without a window, which accepts the certificates of tests."""
    pytest.importorskip("selenium", reason="no selenium: pip install 'ottla[test]'")
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    options.set_capability("acceptInsecureCerts", True)
    driver = webdriver.Chrome(options=options, service=Service(DRIVER))
    driver.set_page_load_timeout(WAIT_S)
    driver.set_script_timeout(WAIT_S)
    yield driver
    driver.quit()


def fill(browser: Any, **fields: str) -> None:
    for name, text in fields.items():
        control = browser.find_element("css selector", f"main [name='{name}']")
        control.clear()
        control.send_keys(text)


def press(browser: Any, text: str) -> None:
    browser.find_element("xpath", f"//main//button[text()='{text}']").click()


def until(browser: Any, script: str) -> None:
    from selenium.webdriver.support.wait import WebDriverWait

    WebDriverWait(browser, WAIT_S).until(lambda driver: driver.execute_script(script))
