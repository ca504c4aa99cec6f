"""Rates, lag in time and retention on the pages, at a real broker; the clock is moved by the tests."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import pytest

from ottla.client.admin.activity import BrokerProblem
from ottla.client.admin.cluster import Cluster
from ottla.client.wire.model import PartitionInfo, TopicInfo
from ottla.console.producing import produce_record
from ottla.record.builder import RecordData
from ottla.testing import Broker

from ..console.browsing import Answer, Browser, ManualClock
from .conftest import CONFIGS, SignIn, consoles, security_of
from .forms import Page

HOUR_S = 3_600


@pytest.fixture(scope="module")
def clock() -> ManualClock:
    """The present time, which the tests move; the broker rejects records far in the future."""
    clock = ManualClock()
    clock.now_s = time.time()
    return clock


@pytest.fixture(scope="module")
def sign_in_here(servers: str, admin: Cluster, clock: ManualClock) -> Iterator[SignIn]:
    with consoles(servers, clock) as start:
        yield start


@pytest.fixture
def browser(sign_in_here: SignIn) -> Browser:
    return sign_in_here("admin")


def values(browser: Browser, target: str) -> Any:
    """The values of a page as its script gets them."""
    answer = browser.get(target)
    assert answer.status == 200, answer.text
    return json.loads(answer.text)


def produce(admin: Cluster, topic: str, partition: int, count: int, time_ms: int) -> None:
    for number in range(count):
        produce_record(admin, topic, partition, RecordData(time_ms + number, None, b"x" * 100))


def test_rates_of_topic_and_partitions_are_differences(admin, browser, clock):
    admin.topics.create("flowing", 2, 1)
    first = values(browser, "/topics/flowing/flow")
    assert (first["chart"], first["cells"]["rate-0"]) == (None, "-")
    produce(admin, "flowing", 0, 30, clock.time_ms())
    clock.now_s += 10
    second = values(browser, "/topics/flowing/flow")
    assert second["chart"] == 3.0
    assert {key: second["cells"][key] for key in ("records", "rate-0", "rate-1", "end-0")} == {
        "records": "3",
        "rate-0": "3",
        "rate-1": "0",
        "end-0": "30",
    }
    assert second["cells"]["bytes"].endswith(" B/s")
    listed = values(browser, "/topic-flows?name=absent&name=flowing")["cells"]
    assert (listed["1-records"], "0-records" in listed) == ("3", False), "not sampled again within a second"
    assert listed["1-size"].endswith("kB")


def test_overview_shows_the_busiest_topics_and_groups(admin, browser, clock):
    admin.topics.create("busy", 1, 1)
    admin.groups.commit_offsets("busy group", {("busy", 0): 0})
    values(browser, "/flow")
    produce(admin, "busy", 0, 40, clock.time_ms())
    admin.groups.commit_offsets("busy group", {("busy", 0): 10})
    clock.now_s += 20
    found = values(browser, "/flow")
    assert found["chart"] >= 2.0
    assert ["/topics/busy", "busy", "2", found["rows"]["topics"][0][3]] in found["rows"]["topics"]
    assert ["/group?id=busy+group", "busy group", "30", "0.5", "-"] in found["rows"]["groups"]
    assert found["note"] == found["cells"]["topics"] == found["cells"]["groups"] == ""
    page = Page(browser.get("/").text)
    assert {"data-rows-of": "topics"} in [attributes for tag, attributes in page.elements if tag == "tbody"]


def test_group_has_a_time_to_catch_up(admin, browser, clock):
    admin.topics.create("behind", 2, 1)
    produce(admin, "behind", 0, 40, clock.time_ms())
    admin.groups.commit_offsets("behind", {("behind", 0): 0})
    assert values(browser, "/group-flow?id=behind")["cells"]["wait"] == "-"
    clock.now_s += 20
    admin.groups.commit_offsets("behind", {("behind", 0): 10})
    found = values(browser, "/group-flow?id=behind")
    assert found["chart"] == 30
    cells = found["cells"]
    assert [cells[key] for key in ("lag", "consumed", "written", "wait")] == ["30", "0.5", "0", "1 min"]
    assert (cells["lag-behind-0"], cells["consumed-behind-0"], cells["committed-behind-0"]) == ("30", "0.5", "10")
    listed = values(browser, "/group-flows?name=behind")["cells"]
    assert [listed[f"0-{key}"] for key in ("lag", "consumed", "wait")] == ["30", "0.5", "1 min"]


@pytest.fixture(scope="module")
def old_records(admin: Cluster, clock: ManualClock) -> str:
    """A topic with records of two hours, one hour and one minute ago; the group `aging` reads it."""
    admin.topics.create("aging", 2, 1, {"retention.ms": str(65 * 60 * 1000)})
    produce(admin, "aging", 0, 1, clock.time_ms() - 2 * HOUR_S * 1000)
    produce(admin, "aging", 0, 1, clock.time_ms() - HOUR_S * 1000)
    produce(admin, "aging", 1, 1, clock.time_ms() - 60_000)
    return "aging"


def test_lag_in_time_is_the_age_of_the_next_record(old_records, browser, admin):
    admin.groups.commit_offsets("aging", {("aging", 0): 1, ("aging", 1): 1})
    cells = values(browser, "/group-flow?id=aging")["cells"]
    assert [cells[key] for key in ("age", "age-aging-0", "age-aging-1")] == ["1 h", "1 h", "0 s"]
    assert values(browser, "/group-flows?name=aging")["cells"]["0-age"] == "1 h"
    assert "1 h" in Page(browser.get("/topics/aging/groups").text).content
    admin.groups.commit_offsets("aging", {("aging", 0): 2, ("aging", 1): 0})
    cells = values(browser, "/group-flow?id=aging")["cells"]
    assert [cells[key] for key in ("age", "age-aging-0", "age-aging-1")] == ["1 min", "0 s", "1 min"]


def test_page_warns_when_retention_is_near(old_records, browser, admin):
    admin.groups.commit_offsets("aging", {("aging", 0): 1})
    content = Page(browser.get("/group?id=aging").text).content
    assert "Retention may delete the next unread record of 1 partition soon: aging-0 (5 min)" in content
    admin.groups.commit_offsets("aging", {("aging", 0): 0})
    assert "soon: aging-0 (now)" in Page(browser.get("/group?id=aging").text).content
    admin.groups.commit_offsets("aging", {("aging", 0): 2})
    assert "Retention may delete" not in Page(browser.get("/group?id=aging").text).content


def test_lag_in_time_needs_read_on_the_topic(old_records, sign_in_here, admin):
    admin.groups.commit_offsets("aging", {("aging", 0): 1, ("aging", 1): 1})
    watcher = sign_in_here("watcher")
    for target in ("/group-flow?id=aging", "/group-flows?name=aging"):
        found = values(watcher, target)
        ages = [text for key, text in found["cells"].items() if key in ("age", "0-age")]
        lags = [text for key, text in found["cells"].items() if key in ("lag", "0-lag")]
        assert (ages, lags) == (["-"], ["1"]), found
        assert "needs READ on the topic, which your user lacks: aging" in found["note"]
    assert "needs READ on the topic" in Page(watcher.get("/group?id=aging").text).content


def test_leader_that_is_not_live_is_named(admin):
    topic = TopicInfo("t", bytes(16), False, (PartitionInfo(0, 77, 0, (77,), (77,), ()),))
    reading = admin.activity.read_partitions({"t": topic}, [("t", 0)], with_sizes=True)
    assert reading.problems == [BrokerProblem(77, "no address", "it is not live")]
    assert not reading.ends


class Outage(NamedTuple):
    """A broker that a test ends and starts, with the topic `there`, and a console at it."""

    broker: Broker
    admin: Cluster
    browser: Browser


@pytest.fixture(scope="module")
def outage(clock: ManualClock) -> Iterator[Outage]:
    with (
        Broker(configs=CONFIGS) as broker,
        Cluster(broker.bootstrap_servers, security=security_of("admin")) as cluster,
        consoles(broker.bootstrap_servers, clock, timeout_s=2.0) as start,
    ):
        cluster.topics.create("there", 1, 1)
        yield Outage(broker, cluster, start("admin"))


def until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


def is_shown(browser: Browser, target: str) -> bool:
    return browser.get(target).status == 200


def test_pages_recover_when_the_broker_returns(outage, clock):
    targets = ("/", "/flow", "/topics/there", "/topics/there/flow", "/topic-flows?name=there", "/groups")
    assert {outage.browser.get(target).status for target in targets} == {200}
    outage.broker.kill()
    clock.now_s += 60
    for target in targets:
        answer = outage.browser.get(target)
        assert answer.status == 503, (target, answer.text)
        assert "data-reload" in answer.text
    outage.broker.start()
    clock.now_s += 60
    for target in targets:
        until(partial(is_shown, outage.browser, target), target)


def test_live_records_continue_after_an_outage(outage):
    shown = Answer(0, [], b"")
    arguments = {"answer": shown, "leaves": lambda: b"after the outage" in shown.body}
    tail = threading.Thread(target=outage.browser.send, args=("GET", "/topics/there/tail"), kwargs=arguments)
    tail.start()
    until(lambda: b"0 records shown" in shown.body, "the tail did not start")
    outage.broker.kill()
    until(lambda: b"continues when the cluster responds" in shown.body, "the tail did not notice")
    outage.broker.start()
    outage.admin.topics.get("there")  # connects again: a record is sent once
    produce_record(outage.admin, "there", 0, RecordData(1, None, b"after the outage"))
    tail.join(60)
    assert not tail.is_alive()
    assert b"event: end" not in shown.body
