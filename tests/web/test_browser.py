"""A real browser at a real console: each page is loaded, checked for accessibility, and used.

OTTLA_SCREENSHOTS=DIR writes pictures of all pages, light, dark and as on a phone.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ottla.client.admin.cluster import Cluster
from ottla.common.config.properties import format_properties
from ottla.console.producing import produce_record
from ottla.record.builder import RecordData

from ..scale import size
from .browser import fill, needs_chromium, press, until
from .conftest import PASSWORDS
from .process import console

pytestmark = needs_chromium
AXE = "axe-core@4.14.1"
CACHE = Path(__file__).parents[2] / ".cache" / "web"
TOPIC, GROUP = "browsed", "browsing"
PAGES = {
    "overview": "/",
    "topics": "/topics",
    "create": "/create-topic",
    "records": f"/topics/{TOPIC}/records",
    "search": f"/topics/{TOPIC}/records?q=value.id+%3D%3D+7&order=oldest",
    "record": f"/topics/{TOPIC}/records/0/3",
    "versions": f"/topics/{TOPIC}/records/0/3/versions",
    "versions-side": f"/topics/{TOPIC}/records/0/3/versions?layout=side",
    "live": f"/topics/{TOPIC}/live",
    "topic": f"/topics/{TOPIC}",
    "settings": f"/topics/{TOPIC}/settings",
    "setting": f"/topics/{TOPIC}/settings/edit?name=retention.ms",
    "preview": f"/topics/{TOPIC}/settings/preview?name=retention.ms&operation=set&value=86400000",
    "topic-groups": f"/topics/{TOPIC}/groups",
    "produce": f"/topics/{TOPIC}/produce",
    "manage": f"/topics/{TOPIC}/manage",
    "clone": f"/topics/{TOPIC}/clone?name=browsed-copy",
    "trim": f"/topics/{TOPIC}/trim?before=2",
    "groups": "/groups",
    "group": f"/group?id={GROUP}",
    "reset": f"/group/reset?id={GROUP}&target=to_earliest",
    "cluster": "/cluster",
    "transactions": "/transactions",
    "users": "/users",
    "acls": "/acls",
    "quotas": "/quotas",
    "clients": "/clients",
    "subscription": "/subscription",
}
SIZES = {"light": (1280, 860), "dark": (1280, 860), "phone": (390, 844)}


@pytest.fixture(scope="module")
def url(servers: str, admin: Cluster, tmp_path_factory) -> Iterator[str]:
    """A console whose users sign in; the topic has records, and a group has read some of them."""
    admin.topics.create(TOPIC, 2, 1)
    for number in range(12):
        value = b'{"id": %d, "customer": "Ada", "state": "open"}' % number
        produce_record(
            admin, TOPIC, number % 2, RecordData(1_795_860_000_000 + number, b"k", value, [("env", b"test")])
        )
    admin.groups.commit_offsets(GROUP, {(TOPIC, 0): 2, (TOPIC, 1): 6})
    folder = tmp_path_factory.mktemp("console")
    properties = folder / "console.properties"
    properties.write_text(format_properties({"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}))
    with console(folder, "-b", servers, "--command-config", str(properties)) as address:
        yield address


@pytest.fixture(scope="module")
def axe() -> str | None:
    """The script of axe-core; None where npm cannot fetch it."""
    script = CACHE / "node_modules" / "axe-core" / "axe.min.js"
    if not script.exists() and shutil.which("npm") is not None:
        command = ["npm", "install", "--silent", "--no-save", "--prefix", str(CACHE), AXE]
        subprocess.run(command, check=False, timeout=300)
    return script.read_text() if script.exists() else None


@pytest.fixture(scope="module")
def signed_in(chromium: Any, url: str) -> Any:
    browser = chromium
    browser.get(url + "/topics")
    fill(browser, name="admin", password=PASSWORDS["admin"])
    press(browser, "Sign in")
    until(browser, "return document.title.startsWith('Topics')")
    return browser


def resize(browser: Any, kind: str) -> None:
    width, height = SIZES[kind]
    metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": kind == "phone"}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    scheme = {"name": "prefers-color-scheme", "value": "dark" if kind == "dark" else "light"}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [scheme]})


def serious(browser: Any, axe: str) -> list[str]:
    """Serious findings of axe-core on the page."""
    browser.execute_script(axe)
    found = browser.execute_async_script(
        "const done = arguments[0]; axe.run({resultTypes: ['violations']}).then((found) => done(found.violations))"
    )
    return [
        f"{each['id']}: {each['help']}: {each['nodes'][0]['html'][:200]}"
        for each in found
        if each["impact"] in ("serious", "critical")
    ]


@pytest.mark.parametrize("kind", size(("phone",), tuple(SIZES)))
def test_pages_are_accessible_and_fit_the_screen(signed_in, url, axe, kind):
    browser = signed_in
    resize(browser, kind)
    problems: list[str] = []
    browser.get_log("browser")
    for name, target in PAGES.items():
        browser.get(url + target)
        problems += [f"{name}: {entry['message']}" for entry in browser.get_log("browser")]
        if browser.execute_script("return document.documentElement.scrollWidth > innerWidth"):
            problems.append(f"{name}: wider than the screen")
        if axe is not None:
            problems += [f"{name}: {finding}" for finding in serious(browser, axe)]
        if folder := os.environ.get("OTTLA_SCREENSHOTS"):
            browser.save_screenshot(str(Path(folder) / f"{name}-{kind}.png"))
    assert problems == []
    if axe is None:
        pytest.skip("axe-core could not be fetched by npm: accessibility was not checked")


def test_list_of_topics_fills_in_sizes_and_rates(signed_in, url):
    signed_in.get(url + "/topics")
    until(signed_in, "return [...document.querySelectorAll('[data-cell]')].every((e) => e.textContent !== '-')")


def test_overview_draws_rates_and_names_the_busiest(signed_in, url, admin):
    signed_in.get(url + "/")
    until(signed_in, "return document.querySelectorAll('[data-rows-of=topics] a').length > 0")
    produce_record(admin, TOPIC, 0, RecordData(1, None, b"x"))
    until(signed_in, "return document.querySelector('#chart polyline').getAttribute('points').length > 0")
    until(signed_in, "return Number(document.getElementById('chart-most').textContent) > 0")
    assert signed_in.find_element("css selector", f"[data-rows-of=topics] a[href$='/{TOPIC}']").text == TOPIC


def test_cluster_page_fills_in_sizes(signed_in, url):
    signed_in.get(url + "/cluster")
    until(signed_in, "return document.querySelectorAll('[data-size-of]').length > 0")
    until(signed_in, "return [...document.querySelectorAll('[data-size-of]')].every((e) => e.textContent !== '-')")


def test_live_page_shows_new_records(signed_in, url, admin):
    signed_in.get(f"{url}/topics/{TOPIC}/live")
    until(signed_in, "return document.getElementById('tail-state').textContent.startsWith('0 records')")
    produce_record(admin, TOPIC, 0, RecordData(1, None, b"<img src=x onerror=alert(1)>"))
    until(signed_in, "return document.querySelectorAll('main tbody tr').length === 1")
    cells = signed_in.find_element("css selector", "main tbody").text
    assert "<img src=x onerror=alert(1)>" in cells
    assert signed_in.find_elements("css selector", "main img") == []


def test_topic_is_created_used_and_deleted(signed_in, url, admin):
    signed_in.get(url + "/create-topic")
    fill(signed_in, name="made", partitions="1")
    press(signed_in, "Create topic")
    until(signed_in, "return document.title.startsWith('made')")
    signed_in.get(url + "/topics/made/produce")
    fill(signed_in, value="two\nlines", headers="a: b")
    press(signed_in, "Produce")
    until(signed_in, "return document.title.startsWith('Record')")
    assert admin.records.fetch("made", 0, 0).records.count(b"two\nlines") == 1
    signed_in.get(url + "/topics/made/manage")
    fill(signed_in, confirm="made")
    press(signed_in, "Delete topic")
    until(signed_in, "return document.title.startsWith('Topics')")
    assert "made" not in admin.topics.all()


def test_reset_is_previewed_and_applied(signed_in, url, admin):
    signed_in.get(f"{url}/group/reset?id={GROUP}&target=to_offset&value=1")
    fill(signed_in, confirm=GROUP)
    press(signed_in, "Reset offsets")
    until(signed_in, "return document.body.textContent.includes('were reset')")
    assert {each.offset for each in admin.groups.offsets(GROUP).values()} == {1}


def test_theme_is_kept_over_pages(signed_in, url):
    resize(signed_in, "light")
    signed_in.get(url + "/groups")
    signed_in.find_element("id", "theme").click()
    signed_in.get(url + "/cluster")
    assert signed_in.execute_script("return document.documentElement.dataset.theme") == "dark"
    signed_in.delete_cookie("ottla_theme")


def test_skip_link_is_the_first_stop_of_the_keyboard(signed_in, url):
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys

    signed_in.get(url + "/")
    ActionChains(signed_in).send_keys(Keys.TAB).perform()
    assert signed_in.switch_to.active_element.text == "Skip to content"
    ActionChains(signed_in).send_keys(Keys.ENTER).perform()
    assert signed_in.execute_script("return location.hash") == "#content"
