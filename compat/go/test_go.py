"""franz-go and segmentio/kafka-go with one broker: every codec, a group, and the admin requests of kadm."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from go_process import TIMEOUT_S, Ongoing, run

from ottla.testing import Broker

pytestmark = pytest.mark.timeout(900)  # the first test builds the program, which is slow on a loaded machine

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
LIBRARIES = ["franz", "segmentio"]
MESSAGES: list[dict[str, Any]] = [
    {"key": "k1", "value": "v" * 2000, "headers": {"trace": "abc", "other": "x"}},
    {"key": None, "value": "without a key", "headers": {}},
    {"key": "tombstone", "value": None, "headers": {}},
    {"key": "k2", "value": "페이지 뷰", "headers": {}},
]


def create(broker: Broker, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(TIMEOUT_S)


def read_in_group(
    program: Path, library: str, broker: Broker, topic: str, count: int, folder: Path
) -> list[dict[str, Any]]:
    """Returns the first `count` records, read by a group member that commits and leaves."""
    reader = Ongoing(
        folder, library, program, f"{library}-consume", broker.bootstrap_servers, topic, f"{library}-readers-{topic}"
    )
    try:
        until = time.monotonic() + TIMEOUT_S
        while len(reader.lines()) < count and time.monotonic() < until:
            time.sleep(0.05)
        return reader.finish()
    finally:
        reader.kill()


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("codec", CODECS)
def test_round_trip(go_program: Path, group_broker: Broker, library: str, codec: str, tmp_path: Path) -> None:
    topic = f"{library}-{codec}"
    create(group_broker, topic)
    run(go_program, f"{library}-send", group_broker.bootstrap_servers, topic, codec, messages=MESSAGES)
    read = read_in_group(go_program, library, group_broker, topic, len(MESSAGES), tmp_path)
    assert read == [{**message, "partition": 0, "offset": at} for at, message in enumerate(MESSAGES)]


def test_administration(go_program: Path, group_broker: Broker, tmp_path: Path) -> None:
    topic = "franz-administered"
    create(group_broker, topic)
    run(go_program, "franz-send", group_broker.bootstrap_servers, topic, "none", messages=MESSAGES)
    read_in_group(go_program, "franz", group_broker, topic, len(MESSAGES), tmp_path)
    group = f"franz-readers-{topic}"
    run(go_program, "franz-send", group_broker.bootstrap_servers, topic, "none", messages=MESSAGES)
    [found] = run(go_program, "franz-admin", group_broker.bootstrap_servers, topic, group)
    configs = found.pop("configs")
    assert (configs["retention.ms"], configs["segment.bytes"]) == ("60000", "2097152")
    assert found.pop("broker configs") > 100
    assert group in found.pop("groups")
    assert found == {
        "created": 2,
        "more partitions": f"{topic}-made",
        "altered": f"{topic}-made",
        "partitions": 3,
        "deleted": f"{topic}-made",
        "brokers": 1,
        "api versions": 1,
        "log dirs": 1,
        "topics": True,
        "end": 8,
        "by time": 0,
        "low after deletion": 1,
        "start": 1,
        "group state": "Empty",
        "lag": 4,
        "group deleted": group,
    }


def test_transactions(go_program: Path, group_broker: Broker) -> None:
    topic = "franz-transactions"
    create(group_broker, topic)
    fenced, read = run(go_program, "franz-transactions", group_broker.bootstrap_servers, topic, f"{topic}-id")
    assert fenced == {"fenced": True}
    assert read == [each for value in ("0", "3", "second", "last") for each in (value, value)]
