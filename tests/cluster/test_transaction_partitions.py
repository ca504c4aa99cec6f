"""Transactions v2 with coordinator and leaders on different brokers: leaders add their partitions by requests."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from ottla.app.ports import HOST
from ottla.client.wire.connection import Connection
from ottla.common.errors import ErrorCode
from ottla.protocol.messages.end_txn import EndTxnRequest
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.registry import ApiKey
from ottla.record.builder import RecordData, build_batch

from .nodes import Nodes, eventually
from .test_three_nodes import admin, create, in_sync, partitions

TRANSACTION = 1
FIRST_PRODUCE_OF_V2, FIRST_END_OF_V2 = 12, 5
AGAIN = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
    }
)


@pytest.fixture
def cluster(steady: Nodes) -> Nodes:
    client = admin(*steady.nodes)
    create(client, "t", partitions=3)
    eventually(lambda: in_sync(client, "t", 3), "all replicas in sync")
    assert {part.leader for part in partitions(client, "t").values()} == {1, 2, 3}
    return steady


def committed(nodes: Nodes, count: int) -> list[bytes]:
    """Return all records that a read_committed consumer sees up to the end of all partitions."""
    consumer = Consumer(
        {
            "bootstrap.servers": nodes.bootstrap_servers,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.assign([TopicPartition("t", index, 0) for index in range(3)])
    values: list[bytes] = []
    ended: set[int] = set()

    def poll() -> bool:
        for message in consumer.consume(500, 0.2):
            if message.error() is None:
                values.append(message.value())
            else:
                ended.add(message.partition())
        return len(values) >= count and len(ended) == 3

    eventually(poll, f"{count} records of t and its end")
    consumer.close()
    return sorted(values)


class RawProducer:
    """A client of transactions v2 that sends raw messages."""

    def __init__(self, nodes: Nodes, transactional_id: str) -> None:
        self.transactional_id = transactional_id
        self.connections = {
            node.node_id: Connection(HOST, node.port, client_id="raw", timeout_s=30, software_version="1")
            for node in nodes.nodes
        }
        request = FindCoordinatorRequest(key_type=TRANSACTION, coordinator_keys=[transactional_id])
        any_node = next(iter(self.connections.values()))
        found = self._until_done(
            lambda: any_node.request(ApiKey.FIND_COORDINATOR, request).coordinators[0], "a coordinator"
        )
        self.coordinator_id = found.node_id
        init = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)
        answer = self._until_done(
            lambda: self.connections[self.coordinator_id].request(ApiKey.INIT_PRODUCER_ID, init), "a producer id"
        )
        self.identity = answer.producer_id, answer.producer_epoch

    def _until_done(self, ask: Any, what: str) -> Any:
        def probe() -> Any:
            answer = ask()
            return None if answer.error_code in AGAIN else answer

        answer = eventually(probe, what)
        assert answer.error_code == 0
        return answer

    def produce(self, leader: int, partition: int, value: bytes) -> None:
        """Produce the first batch of a transaction in this partition, which adds it."""
        producer_id, producer_epoch = self.identity
        batch = build_batch(
            [RecordData(1, None, value)],
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=0,
            is_transactional=True,
        )
        row = TopicProduceData(name="t", partition_data=[PartitionProduceData(index=partition, records=bytes(batch))])
        request = ProduceRequest(transactional_id=self.transactional_id, acks=-1, timeout_ms=10_000, topic_data=[row])
        connection = self.connections[leader]
        assert connection.version_for(ApiKey.PRODUCE, FIRST_PRODUCE_OF_V2) == FIRST_PRODUCE_OF_V2
        self._until_done(
            lambda: (
                connection.request(ApiKey.PRODUCE, request, max_version=FIRST_PRODUCE_OF_V2)
                .responses[0]
                .partition_responses[0]
            ),
            f"a record in partition {partition}",
        )

    def end(self, *, commit: bool) -> None:
        producer_id, producer_epoch = self.identity
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            committed=commit,
        )
        answer = self._until_done(
            lambda: self.connections[self.coordinator_id].request(ApiKey.END_TXN, request, max_version=FIRST_END_OF_V2),
            "an end",
        )
        self.identity = answer.producer_id, answer.producer_epoch

    def close(self) -> None:
        for connection in self.connections.values():
            connection.close()


def test_leaders_add_partitions_at_remote_coordinator(cluster: Nodes) -> None:
    leaders = {index: part.leader for index, part in partitions(admin(*cluster.nodes), "t").items()}
    expected = []
    for number in range(3):
        producer = RawProducer(cluster, f"id-{number}")
        for turn in range(4):
            for index, leader in leaders.items():
                producer.produce(leader, index, b"%d-%d" % (number, turn))
            producer.end(commit=turn % 2 == 0)
            if turn % 2 == 0:
                expected += [b"%d-%d" % (number, turn)] * 3
        producer.close()
    assert committed(cluster, len(expected)) == sorted(expected)
