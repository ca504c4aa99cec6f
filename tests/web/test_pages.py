"""Pages at a real broker: their contents, and hostile names and records on all of them."""

from __future__ import annotations

import csv
import io
import json
import re

import pytest

from ottla.client.admin.cluster import Cluster
from ottla.client.wire.model import ConfigOperation, ResourceType
from ottla.common.kafka.acl import Acl, AclOperation, PatternType, Permission
from ottla.common.kafka.acl import ResourceType as AclResource
from ottla.console.producing import produce_record
from ottla.console.routes import ROUTES
from ottla.record.builder import RecordData

from ..console.browsing import Browser
from ..console.test_parts import ATTACKS
from .forms import Page

TOPIC = "hostile"


@pytest.fixture(scope="module")
def browser(sign_in) -> Browser:
    return sign_in("admin")


@pytest.fixture(scope="module")
def hostile(admin: Cluster, browser) -> str:
    """A topic, groups, ACLs and quotas whose names and records are attacks."""
    admin.topics.create(TOPIC, 2, 1)
    for number, attack in enumerate(ATTACKS):
        data = attack.encode()
        produce_record(admin, TOPIC, 0, RecordData(1_000 + number, data, data, [(attack, data), (attack, None)]))
        admin.groups.commit_offsets(attack, {(TOPIC, 0): number})
        admin.quotas.alter([("client-id", attack)], {"producer_byte_rate": 1.0})
    admin.acls.create(
        [
            Acl(AclResource.GROUP, each, PatternType.LITERAL, f"User:{each}", "*", AclOperation.READ, Permission.ALLOW)
            for each in ATTACKS
        ]
    )
    return TOPIC


def reached(browser: Browser, start: str, most: int = 150) -> dict[str, str]:
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
    assert len(shapes) >= 18, shapes
    for target, text in pages.items():
        for tag, attributes in Page(text).elements:
            where = (target, tag, attributes)
            assert tag not in ("iframe", "object", "embed", "style", "base"), where
            if tag == "script":
                assert attributes == {"src": "/static/console.js", "type": "module"}, where
            assert not any(name.startswith("on") or name == "style" for name in attributes), where
            for name in ("href", "src", "action"):
                assert str(attributes.get(name, "/")).startswith(("/", "#")), where
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


def test_values_of_visible_rows_are_json(browser, hostile):
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
