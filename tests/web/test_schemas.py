"""Records by schemas of a registry in every view, a registry that is down, and records of 10 MB."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from ottla.client.admin.cluster import Cluster
from ottla.console.formats import MAX_SHOWN_CHARS
from ottla.console.mask_policy import MaskPolicy, TopicMask
from ottla.console.producing import produce_record
from ottla.console.record_parts import MAX_CELL_CHARS
from ottla.record.builder import RecordData
from ottla.schemas import registry as registries
from ottla.schemas.settings import open_registry
from ottla.search.masks import NOT_FOUND, parse_rule

from ..console.browsing import Browser
from ..pipeline.transform.registry_server import RegistryServer, registry_server
from ..search.test_schema_decoders import ORDER, ORDER_VALUE, avro, framed, view_file, view_message
from .conftest import SignIn
from .forms import Page
from .tailing import tail


@pytest.fixture
def server() -> Iterator[RegistryServer]:
    with registry_server() as found:
        yield found


Open = Callable[..., SignIn]


@pytest.fixture
def topic(admin: Cluster, request: pytest.FixtureRequest) -> Iterator[str]:
    """A new topic for records of up to 12 MB."""
    name = f"schemas-{abs(hash(request.node.name))}"
    admin.topics.create(name, 1, 1, configs={"max.message.bytes": "12000000"})
    yield name
    admin.topics.delete([name])


def browser_at(open_console: Open, server: RegistryServer, **services: object) -> Browser:
    return open_console(registry=open_registry(server.url, is_interactive=True), **services)("admin")


def content(browser: Browser, target: str) -> str:
    answer = browser.get(target)
    assert answer.status == 200, answer.text
    return Page(answer.text).content


def produce(admin: Cluster, topic: str, *values: bytes) -> None:
    for value in values:
        produce_record(admin, topic, 0, RecordData(1, b"k", value))


def test_all_kinds_of_schemas_are_decoded_in_every_view(open_console, server, admin, topic):
    browser = browser_at(open_console, server)
    numbers = (
        server.register("t", json.dumps(ORDER)),
        server.register("p", base64.b64encode(view_file().SerializeToString()).decode(), "PROTOBUF"),
        server.register("j", "{}", "JSON"),
    )
    bodies = (avro(ORDER, ORDER_VALUE), b"\0" + view_message(), b'{"id": 7}')
    values = [framed(number, body) for number, body in zip(numbers, bodies, strict=True)]
    produce(admin, topic, *values)
    page = f"/topics/{topic}/records"
    listed = content(browser, page)
    kinds = ("avro", "protobuf", "json")
    for offset, (kind, number, value) in enumerate(zip(kinds, numbers, values, strict=True)):
        assert f"{kind}, schema {number}" in listed
        one = content(browser, f"{page}/0/{offset}")
        assert f"{kind}, schema {number}" in one
        assert '\n  "id": ' in one
        assert value[:8].hex(" ") in one
        assert browser.get(f"{page}/0/{offset}/value").body == value
    assert "2 matches" in content(browser, page + "?q=value.id+%3D%3D+7")
    lines = [json.loads(each) for each in browser.get(f"/topics/{topic}/export?order=oldest").text.splitlines()]
    assert [each["value_decoder"] for each in lines] == list(kinds)
    assert "weight" in content(browser, f"{page}/0/1/versions")
    assert tail(browser, topic, partial(produce, admin, topic, values[0]))["value_remarks"] == [
        f"avro, schema {numbers[0]}"
    ]


def test_registry_that_is_down_leaves_records_raw_with_the_reason(open_console, server, admin, topic, monkeypatch):
    monkeypatch.setattr(registries, "OUTAGE_S", 3600.0)
    browser = browser_at(open_console, server)
    number = server.register("t", json.dumps(ORDER))
    value = framed(number, avro(ORDER, ORDER_VALUE))
    produce(admin, topic, value, value)
    server.fails_with = 503
    page = f"/topics/{topic}/records"
    reason = f"the schema registry at {server.url} can't be reached: it answers with status 503"
    for target in (page, f"{page}/0/0", f"{page}/0/1/versions", page + "?q=value.id+%3D%3D+7"):
        assert reason in content(browser, target), target
    assert reason in browser.get(f"/topics/{topic}/export").text
    assert any(
        reason in str(each) for each in tail(browser, topic, partial(produce, admin, topic, value))["value_remarks"]
    )
    assert browser.get(f"{page}/0/0/value").body == value
    assert len(server.requests) == 1, "the outage is remembered over pages"


def test_registry_that_is_back_is_used_again(open_console, server, admin, topic, monkeypatch):
    monkeypatch.setattr(registries, "OUTAGE_S", 0.0)
    browser = browser_at(open_console, server)
    number = server.register("t", json.dumps(ORDER))
    produce(admin, topic, framed(number, avro(ORDER, ORDER_VALUE)))
    server.fails_with = 503
    assert "can't be reached" in content(browser, f"/topics/{topic}/records")
    server.fails_with = 0
    assert f"avro, schema {number}" in content(browser, f"/topics/{topic}/records")


def test_browser_cannot_choose_the_registry(open_console, server, admin, topic):
    produce(admin, topic, framed(1, b"x"))
    with registry_server() as other:
        browser = browser_at(open_console, server)
        fields = f"schema_registry={other.url}&registry={other.url}&value_decoder=registry"
        assert "does not know schema 1" in content(browser, f"/topics/{topic}/records?{fields}")
        assert other.requests == []
    without = open_console()("admin")
    assert without.get(f"/topics/{topic}/records?value_decoder=registry").status == 400


def test_schema_that_is_registered_later_is_found(open_console, server, admin, topic):
    browser = browser_at(open_console, server)
    produce(admin, topic, framed(1, b'{"id": 7}'))
    assert "does not know schema 1" in content(browser, f"/topics/{topic}/records")
    server.register("j", "{}", "JSON")
    assert "json, schema 1" in content(browser, f"/topics/{topic}/records")


def test_masked_field_of_a_schema_is_masked_or_all_is_hidden(open_console, server, admin, topic):
    masks = MaskPolicy([TopicMask("schemas-*", (parse_rule("value.state", "hidden"),))], b"secret")
    browser = browser_at(open_console, server, masks=masks)
    number = server.register("t", json.dumps(ORDER))
    produce(admin, topic, framed(number, avro(ORDER, ORDER_VALUE)), framed(number + 1, b"late"))
    page = f"/topics/{topic}/records"
    shown = content(browser, f"{page}/0/0?value_decoder=hex")
    assert '"state": "[hidden]"' in shown
    assert f"avro, schema {number}" in shown
    assert NOT_FOUND in content(browser, f"{page}/0/1?value_decoder=text")
    assert b"late" not in browser.get(f"{page}/0/1/value").body


LARGE = b'{"id": 1, "text": "' + b"x" * 10_000_000 + b'"}'


def test_large_record_is_cut_with_its_size_in_every_view(open_console, server, admin, topic):
    browser = browser_at(open_console, server)
    produce(admin, topic, LARGE, LARGE.replace(b"1", b"2", 1))
    page = f"/topics/{topic}/records"
    answer = browser.get(page)
    assert "10.0 MB in all download" in Page(answer.text).content
    assert f"{page}/0/1/value" in Page(answer.text).links()
    assert len(answer.text) < 50 * MAX_CELL_CHARS
    one = browser.get(f"{page}/0/0")
    assert "more of 10.0 MB: download it." in Page(one.text).content
    assert len(one.text) < 2 * MAX_SHOWN_CHARS
    assert browser.get(f"{page}/0/0/value").body == LARGE
    compared = browser.get(f"{page}/0/1/versions")
    assert '+  "id": 2,' in Page(compared.text).content
    assert "The newer value has 10.0 MB; only its first 500 lines" in Page(compared.text).content
    assert {f"{page}/0/0/value", f"{page}/0/1/value"} <= set(Page(compared.text).links())
    assert len(compared.text) < 4 * MAX_SHOWN_CHARS
    event = tail(browser, topic, partial(produce, admin, topic, LARGE))
    assert len(str(event["value"])) == MAX_CELL_CHARS + 1
    assert (event["value_remarks"], event["url"]) == (["10.0 MB in all"], f"{page}/0/2")
