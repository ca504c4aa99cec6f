"""Pages at a real broker: their contents, and hostile names and records on all of them."""

from __future__ import annotations

import csv
import io
import json
import re

import pytest

from ottla.client.admin.cluster import Cluster
from ottla.client.wire.model import ConfigOperation
from ottla.client.wire.model import ResourceType as Resource
from ottla.common.config.client_metrics_configs import METRICS
from ottla.common.kafka.acl import Acl, AclOperation, PatternType, Permission, ResourceType
from ottla.console.producing import produce_record
from ottla.console.routes import ROUTES
from ottla.record.builder import RecordData

from ..console.browsing import Browser
from ..console.metrics_server import MetricsServer, info, sample
from ..console.test_parts import ATTACKS
from .forms import Page, require_inert

TOPIC = "hostile"


@pytest.fixture(scope="module")
def browser(sign_in) -> Browser:
    return sign_in("admin")


@pytest.fixture(scope="module")
def hostile(admin: Cluster, browser, metrics: MetricsServer) -> str:
    """A topic, groups, ACLs, quotas, subscriptions and clients whose names and records are attacks."""
    admin.topics.create(TOPIC, 2, 1)
    for number, attack in enumerate(ATTACKS):
        data = attack.encode()
        produce_record(admin, TOPIC, 0, RecordData(1_000 + number, data, data, [(attack, data), (attack, None)]))
        admin.groups.commit_offsets(attack, {(TOPIC, 0): number})
        admin.quotas.alter([("client-id", attack)], {"producer_byte_rate": 1.0})
        accepted = "".join(each for each in attack if each.isprintable() and each != ",")
        change = (METRICS, ConfigOperation.SET, accepted)
        admin.configs.alter(Resource.CLIENT_METRICS, attack, [change])
        labels = {"client_software_name": attack, "client_software_version": attack, "group_id": attack}
        metrics.text += info(attack, f"instance-{number}", **labels)
        metrics.text += sample("producer_record_send_total", attack, f"instance-{number}", 42, {"topic": attack})
    admin.acls.create(
        [
            Acl(ResourceType.GROUP, each, PatternType.LITERAL, f"User:{each}", "*", AclOperation.READ, Permission.ALLOW)
            for each in ATTACKS
        ]
    )
    return TOPIC


def reached(browser: Browser, start: str, most: int = 200) -> dict[str, str]:
    """The pages that can be reached from one by links, without downloads."""
    pages: dict[str, str] = {}
    left = [start]
    while left and len(pages) < most:
        target = left.pop(0)
        if target in pages or "/export" in target or target.endswith("/value") or "/value?" in target:
            continue
        answer = browser.get(target)
        assert answer.status == 200, (target, Page(answer.text).content)
        pages[target] = answer.text
        left += [link for link in Page(answer.text).links() if link.startswith("/")]
    return pages


def test_attacks_stay_text_on_every_page(browser, hostile):
    pages = reached(browser, "/")
    shapes = {re.sub(r"/\d+", "/N", target.partition("?")[0]) for target in pages}
    assert len(shapes) >= 21, shapes
    for target, text in pages.items():
        require_inert(target, text)
    assert all(any(attack in Page(text).content for text in pages.values()) for attack in ATTACKS[:6])


def test_every_page_with_a_link_or_form_is_in_the_table(browser, hostile):
    shapes = [re.compile(re.sub(r"\{\w+\}", "[^/]+", row.path)) for row in ROUTES]
    for target, text in reached(browser, "/", most=60).items():
        page = Page(text)
        for link in (*page.links(), *page.forms):
            path = link.partition("?")[0].partition("#")[0]
            if path:
                assert any(shape.fullmatch(path) for shape in shapes), (target, link)


def test_produced_record_is_shown_and_found(browser, admin):
    admin.topics.create("shown", 3, 1)
    answer = browser.post(
        "/topics/shown/produce",
        {"token": browser.token, "key": "k", "value": '{"id": 42}', "headers": "a: 1\r\na: 2", "partition": "1"},
    )
    assert answer.header("location") == "/topics/shown/records/1/0"
    record = Page(browser.get("/topics/shown/records/1/0").text).content
    assert '"id": 42' in record
    assert "was stored at offset 0 of partition 1" in record
    found = Page(browser.get("/topics/shown/records?q=value.id+%3D%3D+42").text).content
    assert "1 match" in found
    missing = Page(browser.get("/topics/shown/records?q=value.id+%3D%3D+43").text).content
    assert "0 matches" in missing
    lines = browser.get("/topics/shown/export?format=jsonl").text.splitlines()
    assert json.loads(lines[0])["headers"] == [{"name": "a", "value": "1"}, {"name": "a", "value": "2"}]


def test_query_that_does_not_parse_names_its_position(browser, admin):
    answer = browser.get(f"/topics/{TOPIC}/records?q=value.id+%3D%3D")
    assert answer.status == 400
    assert "at character" in answer.text


def test_downloads_are_attachments_without_formulas(browser, admin):
    admin.topics.create("down", 1, 1)
    for value in (b"=1+1", b"plain", b"<html>"):
        produce_record(admin, "down", 0, RecordData(1, None, value))
    export = browser.get("/topics/down/export?format=csv&order=oldest")
    assert export.header("content-disposition") == 'attachment; filename="down.csv"'
    assert [row[4] for row in csv.reader(io.StringIO(export.text))] == ["value", "'=1+1", "plain", "<html>"]
    raw = browser.get("/topics/down/records/0/2/value")
    assert (raw.body, raw.header("content-type")) == (b"<html>", "application/octet-stream")
    assert raw.header("content-disposition") == 'attachment; filename="down-0-2.value"'


def test_missing_things_are_not_found(browser):
    for target in ("/topics/absent", "/topics/absent/records", "/group?id=absent", "/topics/down/records/9/0"):
        assert browser.get(target).status in (400, 404), target
    assert browser.get("/topics/down/records/0/99").status == 404
    assert browser.get("/topics/down/records/0/x").status == 404


def test_overview_says_that_the_cluster_is_healthy(browser):
    assert "Healthy: 1 broker" in Page(browser.get("/").text).content


def test_lags_and_sizes_of_visible_rows_are_json(browser, hostile):
    sizes = json.loads(browser.get(f"/topic-sizes?name={TOPIC}").text)
    assert sizes[TOPIC].endswith("B")
    lags = json.loads(browser.get("/group-lags?name=%26lt%3Bscript%26gt%3B").text)
    assert lags == {"&lt;script&gt;": "3"}


def test_page_of_a_client_has_the_values_of_its_last_push(browser, hostile, metrics):
    page = Page(browser.get("/client?instance=instance-0").text).content
    assert ATTACKS[0] in page
    assert "producer_record_send_total" in page
    assert f"topic={ATTACKS[0]}" in page
    assert "42" in page
    assert set(metrics.tokens) == {"Bearer token"}
    assert Page(browser.get("/client?instance=instance-0&filter=none").text).content.count("record_send") == 0
    assert browser.get("/client?instance=absent").status == 404
    assert browser.get("/client?instance=http://example.com/").status == 400


def test_metrics_of_clients_need_the_permission_of_a_scrape(sign_in, hostile):
    guest, reader = sign_in("guest"), sign_in("reader")
    assert guest.get("/client?instance=instance-0").status == 403
    assert "instance-0" not in guest.get("/clients").text
    assert "instance-0" in reader.get("/clients").text
    for browser in (guest, reader):
        page = Page(browser.get("/clients").text)
        assert "Not shown: " in page.content
        assert not any(link.startswith("/subscription?") for link in page.links())


def test_subscription_without_receiver_is_a_warning(browser, hostile):
    assert "These brokers receive no metrics of clients: " in Page(browser.get("/clients").text).content


def test_invalid_subscription_is_refused_before_it_is_applied(browser, admin):
    answer = browser.get("/subscription/preview?name=bad&metrics=x&interval.ms=1")
    assert answer.status == 400
    assert "interval must be between" in Page(answer.text).content
    assert browser.get("/subscription/preview?name=bad").status == 400
    assert "bad" not in {each.name for each in admin.client_metrics.all()}
