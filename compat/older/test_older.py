"""Clients of brokers 0.8.2 to 0.10.0 next to a current one, in both directions.

They are kafka-python 1.4, and librdkafka by `broker.version.fallback`. kafkajs at its lowest versions is in
compat/kafkajs.
"""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.testing import Broker

HERE = Path(__file__).parent
CODECS = ("none", "gzip", "snappy", "lz4")
"""The codecs of message sets."""
BEFORE_GROUPS = "0.8.2"
FIRST_WITH_TIMES = "0.10.0"
OLD_CLIENTS = [
    *(("kafka-python", version) for version in (BEFORE_GROUPS, "0.9.0", FIRST_WITH_TIMES)),
    *(("librdkafka", version) for version in (BEFORE_GROUPS, "0.9.0")),  # later brokers are queried for their versions
]
WAIT_S = 30.0

Row = tuple[bytes | None, bytes | None]
"""Key, value."""
ROWS: list[Row] = [(b"key", b"v" * 500), (None, b"no key"), (b"gone", None), (b"", b""), (b"key", "페이지".encode())]

Produce = Callable[[Broker, str, str], list[int]]
"""(broker, topic, codec) to the offsets of ROWS."""
Consume = Callable[[Broker, str, str, int], tuple[list[tuple[int, Row]], int]]
"""(broker, topic, group, count) to (offset, row) of each record, and the group's committed offset."""


class Rdkafka:
    """librdkafka that assumes a broker of `version`, or queries the broker's versions if that is None."""

    def __init__(self, version: str | None) -> None:
        self._version = version
        self._configs: dict[str, Any] = {} if version is None else old_configs(version)

    def produce(self, broker: Broker, topic: str, codec: str) -> list[int]:
        outcomes: list[int | KafkaError] = []
        configs = {"bootstrap.servers": broker.bootstrap_servers, "compression.codec": codec, "linger.ms": 50}
        producer = Producer({**configs, **self._configs})
        for key, value in ROWS:
            producer.produce(
                topic,
                value,
                key,
                partition=0,
                on_delivery=lambda error, message: outcomes.append(error or message.offset()),
            )
        assert producer.flush(WAIT_S) == 0
        assert all(isinstance(outcome, int) for outcome in outcomes), outcomes
        return outcomes

    def consume(self, broker: Broker, topic: str, group: str, count: int) -> tuple[list[tuple[int, Row]], int]:
        configs = {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
        consumer = Consumer({**configs, **self._configs})
        try:
            if self._version == BEFORE_GROUPS:
                consumer.assign([TopicPartition(topic, 0)])
            else:
                consumer.subscribe([topic])
            found = consumer.consume(count, WAIT_S)
            assert [message.error() for message in found if message.error()] == []
            consumer.commit(asynchronous=False)
            [committed] = consumer.committed([TopicPartition(topic, 0)], WAIT_S)
            return [(message.offset(), (message.key(), message.value())) for message in found], committed.offset
        finally:
            consumer.close()


def old_configs(version: str) -> dict[str, Any]:
    """Returns librdkafka's settings for a broker of `version` without ApiVersions; silences deprecation warnings."""
    return {"api.version.request": False, "broker.version.fallback": version, "log_level": 3}


class KafkaPython:
    """kafka-python 1.4 that assumes a broker of `version`."""

    def __init__(self, python: Path, version: str) -> None:
        self._python = python
        self._version = version

    def produce(self, broker: Broker, topic: str, codec: str) -> list[int]:
        rows = [{"key": encoded(key), "value": encoded(value)} for key, value in ROWS]
        [offsets] = self._run("produce", broker, topic, codec, stdin="".join(json.dumps(row) + "\n" for row in rows))
        return list(offsets)

    def consume(self, broker: Broker, topic: str, group: str, count: int) -> tuple[list[tuple[int, Row]], int]:
        *rows, committed = self._run("consume", broker, topic, group, str(count))
        assert {row["timestamp"] is not None for row in rows} == {self._version == FIRST_WITH_TIMES}
        return [(row["offset"], (decoded(row["key"]), decoded(row["value"]))) for row in rows], committed

    def _run(self, command: str, broker: Broker, *arguments: str, stdin: str = "") -> list[Any]:
        program = [str(self._python), str(HERE / "client.py"), command, broker.bootstrap_servers, self._version]
        result = subprocess.run(
            [*program, *arguments], input=stdin, capture_output=True, text=True, timeout=120, check=False
        )
        assert result.returncode == 0, result.stderr
        return [json.loads(line) for line in result.stdout.splitlines()]


def encoded(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()


def decoded(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


@pytest.fixture(params=OLD_CLIENTS, ids="-".join)
def old(request: pytest.FixtureRequest) -> Rdkafka | KafkaPython:
    """A client that assumes an old broker."""
    library, version = request.param
    if library == "librdkafka":
        return Rdkafka(version)
    if sys.version_info >= (3, 12):
        pytest.skip("kafka-python 1.4 does not run on this Python")
    return KafkaPython(request.getfixturevalue("older_python"), version)


@pytest.fixture
def topic(broker: Broker, request: pytest.FixtureRequest) -> str:
    name = "older-" + "".join(one if one.isalnum() else "-" for one in request.node.name)
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    for made in admin.create_topics([NewTopic(name, 1, 1)]).values():
        made.result(WAIT_S)
    return name


def test_old_and_new_clients_read_each_others_records(old: Rdkafka | KafkaPython, broker: Broker, topic: str) -> None:
    """Every codec, null keys and values; a group resumes from offsets of a client of the other generation."""
    new = Rdkafka(None)
    written = 0
    for codec in CODECS:
        for client in (old, new):
            assert client.produce(broker, topic, codec) == list(range(written, written + len(ROWS)))
            written += len(ROWS)
    expected = [(offset, ROWS[offset % len(ROWS)]) for offset in range(written)]
    half = written // 2 + 1
    # The new client is first: librdkafka looks up a coordinator of 0.8.2 only once.
    assert new.consume(broker, topic, f"{topic}-1", half) == (expected[:half], half)
    assert old.consume(broker, topic, f"{topic}-1", written - half) == (expected[half:], written)
    assert old.consume(broker, topic, f"{topic}-2", half) == (expected[:half], half)
    assert new.consume(broker, topic, f"{topic}-2", written - half) == (expected[half:], written)


def test_zstd_records_are_refused_to_old_consumers(broker: Broker, topic: str) -> None:
    Rdkafka(None).produce(broker, topic, "zstd")
    configs = {"bootstrap.servers": broker.bootstrap_servers, "group.id": topic, "auto.offset.reset": "earliest"}
    consumer = Consumer({**configs, **old_configs("0.9.0")})
    try:
        consumer.subscribe([topic])
        message = consumer.poll(WAIT_S)
        assert message is not None
        assert message.error().code() == KafkaError.UNSUPPORTED_COMPRESSION_TYPE
    finally:
        consumer.close()
