"""Pages at a real broker: their contents, and hostile names and records on all of them."""

from __future__ import annotations

import csv
import io
import json
import re

import pytest

from ottla.client.admin.cluster import Cluster
from ottla.client.wire.model import ConfigOperation, ResourceType
from ottla.common.config.client_metrics_configs import METRICS
from ottla.common.kafka.acl import Acl, AclOperation, PatternType, Permission
from ottla.common.kafka.acl import ResourceType as AclResource
from ottla.console import searching
from ottla.console.formats import visible
from ottla.console.producing import produce_record
from ottla.console.routes import ROUTES
from ottla.record.builder import RecordData
from ottla.search.engine import Budget

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
        admin.configs.alter(ResourceType.CLIENT_METRICS, attack, [change])
        labels = {"client_software_name": attack, "client_software_version": attack, "group_id": attack}
        metrics.text += info(attack, f"instance-{number}", **labels)
        metrics.text += sample("producer_record_send_total", attack, f"instance-{number}", 42, {"topic": attack})
    admin.acls.create(
        [
            Acl(AclResource.GROUP, each, PatternType.LITERAL, f"User:{each}", "*", AclOperation.READ, Permission.ALLOW)
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


def produce_versions(admin: Cluster, topic: str) -> None:
    admin.topics.create(topic, 1, 1)
    values = (b'{"id": 1, "state": "open"}', b"other", b'{"id": 1, "state": "<script>alert(1)</script>"}', None)
    for number, value in enumerate(values):
        produce_record(admin, topic, 0, RecordData(number, b"k" if number != 1 else b"other", value))
    produce_record(admin, topic, 0, RecordData(9, None, b"x"))


def test_versions_of_a_key_are_compared(browser, admin):
    produce_versions(admin, "versions")
    record = Page(browser.get("/topics/versions/records/0/2").text)
    (target,) = (link for link in record.links() if "compare=previous" in link)
    for address in (target, target + "&layout=side", "/topics/versions/records/0/0/versions?compare=next"):
        answer = browser.get(address)
        assert '-  "state": "open"' in Page(answer.text).content, address
        assert '+  "state": "<script>alert(1)</script>"' in Page(answer.text).content, address
        assert answer.text.count("<script") == 1, address
    deleted = Page(browser.get("/topics/versions/records/0/2/versions?compare=next").text).content
    assert "+null" in deleted
    same = Page(browser.get("/topics/versions/records/0/2/versions?other=2").text).content
    assert "Both values are the same." in same


def test_attacks_stay_text_in_versions(browser, admin):
    admin.topics.create("hostile-versions", 1, 1)
    for attack in ATTACKS:
        for value in (attack, f"{attack} changed"):
            produce_record(admin, "hostile-versions", 0, RecordData(1, attack.encode(), value.encode()))
    for number, attack in enumerate(ATTACKS):
        for layout in ("unified", "side"):
            target = f"/topics/hostile-versions/records/0/{2 * number + 1}/versions?layout={layout}"
            text = browser.get(target).text
            require_inert(target, text)
            assert f"+{visible(attack)} changed" in Page(text).content, target


def test_versions_that_do_not_exist_are_named(browser, admin):
    produce_versions(admin, "unversioned")
    page = "/topics/unversioned/records/0"
    first = Page(browser.get(f"{page}/0/versions").text).content
    assert "Partition 0 has no previous version of this key. Compaction or retention may have removed one." in first
    statuses = [browser.get(f"{page}/{each}").status for each in ("4/versions", "9/versions", "0/versions?other=1")]
    assert statuses == [404, 404, 404]
    assert not [link for link in Page(browser.get(f"{page}/4").text).links() if "/versions" in link]


def test_search_for_a_version_stops_and_continues(browser, admin, monkeypatch):
    admin.topics.create("far", 1, 1)
    for number in range(12):
        produce_record(
            admin, "far", 0, RecordData(number, b"k" if number in (0, 11) else b"other", b"v%d" % number * 50)
        )
    monkeypatch.setattr(searching, "FETCH_BYTES", 200)
    monkeypatch.setattr(searching, "VERSION_BUDGET", Budget(bytes=1))
    target, visited = "/topics/far/records/0/11/versions", []
    while target not in visited:
        visited.append(target)
        page = Page(browser.get(target).text)
        target = next((link for link in page.links() if "edge=" in link), target)
        assert ("The search stopped" in page.content) == (target not in visited)
    assert len(visited) > 1
    assert "v0v0" in page.content
    assert "v11v11" in page.content


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


def test_values_of_visible_rows_are_json(sign_in, hostile):
    browser = sign_in("admin")  # the list of topics of another session may be older
    sizes = json.loads(browser.get(f"/topic-flows?name={TOPIC}").text)
    assert sizes["cells"]["0-size"].endswith("B")
    lags = json.loads(browser.get("/group-flows?name=%26lt%3Bscript%26gt%3B").text)
    assert lags["cells"]["0-lag"] == "3"
    for target in ("/topic-flows", "/group-flows"):
        assert browser.get(f"{target}?{'&'.join(['name=x'] * 51)}").status == 400, target


def test_clone_has_partitions_and_settings_but_no_records(browser, admin):
    admin.topics.create("cloned", 3, 1, {"retention.ms": "7200000", "cleanup.policy": "compact,delete"})
    produce_record(admin, "cloned", 0, RecordData(1, b"k", b"v"))
    answer = browser.get("/topics/cloned/clone?name=cloned-2")
    page = Page(answer.text)
    for text in ("7200000", "compact,delete", "No record is copied"):
        assert text in page.content
    assert "cloned-2" not in admin.topics.all()
    fields = page.forms["/topics/cloned/clone"] | {"token": browser.token}
    admin.configs.alter(ResourceType.TOPIC, "cloned", [("retention.ms", ConfigOperation.SET, "1")])
    assert browser.post("/topics/cloned/clone", fields).status == 409, "the topic has changed"
    admin.configs.alter(ResourceType.TOPIC, "cloned", [("retention.ms", ConfigOperation.SET, "7200000")])
    assert browser.post("/topics/cloned/clone", fields).header("location") == "/topics/cloned-2"
    assert len(admin.topics.get("cloned-2").partitions) == 3
    assert overridden(admin, "cloned-2") == overridden(admin, "cloned") != {}
    assert set(admin.records.offsets_at([("cloned-2", each) for each in range(3)], -1).values()) == {0}
    assert browser.get("/topics/cloned/clone?name=cloned-2").status == 400, "it exists"


def overridden(admin: Cluster, topic: str) -> dict[str, str | None]:
    entries = admin.configs.describe(ResourceType.TOPIC, topic)
    return {each.name: each.value for each in entries if each.source == "topic"}


def test_previews_of_trim_and_reset_show_every_partition(browser, admin):
    admin.topics.create("previewed", 3, 1)
    for partition, count in ((0, 4), (1, 1)):
        for _ in range(count):
            produce_record(admin, "previewed", partition, RecordData(1, None, b"v"))
    trim = browser.get("/topics/previewed/trim?before=3").text
    assert Page(trim).rows == [
        ["0", "0", "3", "3"],
        ["1", "0", "1", "1"],
        ["2", "0", "0", "0"],
    ]
    admin.groups.commit_offsets("previewed", {("previewed", 0): 4, ("previewed", 1): 0})
    reset = browser.get("/group/reset?id=previewed&target=to_offset&value=1").text
    assert Page(reset).rows == [
        ["previewed", "0", "4", "1", "-3"],
        ["previewed", "1", "0", "1", "+1"],
        ["previewed", "2", "none", "unchanged", "no offset to reset"],
    ]
    assert "3 offsets again, and skip 1" in Page(reset).content


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
