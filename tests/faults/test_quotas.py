"""Clients that heed no throttle time, on real connections."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import closing

import pytest

from ottla.client.admin.cluster import Cluster
from ottla.client.wire.connection import Connection
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.registry import ApiKey
from ottla.record.builder import RecordData, build_batch
from ottla.testing import Broker

QUOTA = 200_000
VALUE = bytes(9_900)
REQUESTS = 60
WINDOW_S = 1.0
"""With two windows, this many seconds of traffic may come at once."""


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(configs={"quota.window.num": 2, "quota.window.size.seconds": 1}) as broker:
        yield broker


@pytest.fixture
def cluster(broker: Broker) -> Iterator[Cluster]:
    with Cluster(broker.bootstrap_servers, client_id="admin", timeout_s=30) as cluster:
        yield cluster


@pytest.fixture
def topic_id(cluster: Cluster) -> bytes:
    if "held" not in cluster.topics.all():
        cluster.topics.create("held", 1)
    return cluster.topics.get("held").topic_id


def connect(broker: Broker, client_id: str) -> Connection:
    return Connection("127.0.0.1", broker.port, client_id=client_id, timeout_s=60.0, software_version="0")


def produce(connection: Connection, topic_id: bytes, value: bytes = VALUE) -> int:
    """The throttle time of the response; the client does not wait for it here."""
    batch = bytes(build_batch([RecordData(1_700_000_000_000, None, value)]))
    row = TopicProduceData(topic_id=topic_id, partition_data=[PartitionProduceData(index=0, records=batch)])
    response = connection.request(ApiKey.PRODUCE, ProduceRequest(acks=1, timeout_ms=5000, topic_data=[row]))
    assert response.responses[0].partition_responses[0].error_code == 0
    return int(response.throttle_time_ms)


@pytest.mark.promise("S7")
def test_producer_ignoring_throttle_is_muted_others_continue(broker: Broker, cluster: Cluster, topic_id: bytes) -> None:
    cluster.quotas.alter([("client-id", "greedy")], {"producer_byte_rate": QUOTA})
    done = threading.Event()
    throttled: list[int] = []

    def greedy() -> None:
        with closing(connect(broker, "greedy")) as connection:
            throttled.extend(produce(connection, topic_id) for _ in range(REQUESTS))
        done.set()

    begin = time.monotonic()
    thread = threading.Thread(target=greedy)
    thread.start()
    served = 0
    with closing(connect(broker, "modest")) as connection:
        while not done.is_set():
            assert produce(connection, topic_id, b"small") == 0
            served += 1
    took_s = time.monotonic() - begin
    thread.join()
    assert max(throttled) > 0
    least_s = REQUESTS * len(VALUE) / QUOTA - WINDOW_S
    assert took_s >= 0.9 * least_s
    assert served > REQUESTS, "a client without a limit does not wait"


def test_a_change_ends_a_mute_of_hours(broker: Broker, cluster: Cluster, topic_id: bytes) -> None:
    cluster.quotas.alter([("client-id", "stuck")], {"producer_byte_rate": 1})
    with closing(connect(broker, "stuck")) as connection:
        assert produce(connection, topic_id) > 3_600_000
        answered = threading.Event()

        def another() -> None:
            produce(connection, topic_id)
            answered.set()

        thread = threading.Thread(target=another)
        thread.start()
        assert not answered.wait(0.2), "it is muted"
        cluster.quotas.alter([("client-id", "stuck")], {"producer_byte_rate": None})
        assert answered.wait(60)
        thread.join()
