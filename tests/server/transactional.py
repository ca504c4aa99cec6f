"""A transactional producer in messages: the requests of an Apache Kafka client, one at a time.

`version` 2 behaves like a client of transactions v2: Produce and TxnOffsetCommit add their partitions, and EndTxn
returns the epoch of the next transaction. 1 behaves like older clients.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from ottla.common.errors import ErrorCode
from ottla.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from ottla.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from ottla.protocol.messages.describe_transactions import DescribeTransactionsRequest
from ottla.protocol.messages.end_txn import EndTxnRequest
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from ottla.record.batch import iter_batches
from ottla.record.transactions import TransactionFilter

from .harness import ANSWER_TIMEOUT_S, Connection, batch_of, fetch_request, fetched, produce_request

TRANSACTION = 1
END_TXN = {1: 4, 2: 5}
PRODUCE = {1: 11, 2: 12}
TXN_OFFSET_COMMIT = {1: 4, 2: 5}
READ_COMMITTED = 1
LATEST = -1

RETRIABLE = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)


def again(client: Connection, ask: Callable[[], Any], code_of: Callable[[Any], int]) -> Any:
    """Retry until the response is not retriable, or time is up."""
    deadline = time.monotonic() + ANSWER_TIMEOUT_S
    while True:
        response = ask()
        if code_of(response) not in RETRIABLE or time.monotonic() > deadline:
            return response
        client.server.turn()


def find_coordinator(client: Connection, *transactional_ids: str) -> list[Any]:
    """The coordinator of these ids; creates the coordinator's topic."""
    request = FindCoordinatorRequest(key_type=TRANSACTION, coordinator_keys=list(transactional_ids))
    return list(client.ask(request, 6).coordinators)


class TransactionalProducer:
    """One transactional id, and its current producer id and epoch."""

    def __init__(self, client: Connection, transactional_id: str = "t", *, version: int = 2) -> None:
        self.client = client
        self.transactional_id = transactional_id
        self.version = version
        self.producer_id = -1
        self.producer_epoch = -1
        self.sequences: dict[tuple[str, int], int] = {}

    def init(self, timeout_ms: int = 60_000, *, keep: bool = False) -> ErrorCode:
        """InitProducerId; `keep`: like a producer that continues after an error (KIP-360)."""
        request = InitProducerIdRequest(transactional_id=self.transactional_id, transaction_timeout_ms=timeout_ms)
        if keep:
            request.producer_id, request.producer_epoch = self.producer_id, self.producer_epoch
        response = again(self.client, lambda: self.client.ask(request, 5), lambda response: response.error_code)
        if not response.error_code:
            self.producer_id, self.producer_epoch = response.producer_id, response.producer_epoch
            self.sequences = {}
        return ErrorCode(response.error_code)

    def begin(self, *partitions: tuple[str, int]) -> list[ErrorCode]:
        """AddPartitionsToTxn, which a client of transactions v2 no longer sends."""
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.producer_epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=name, partitions=[index]) for name, index in partitions],
        )

        def codes(response: Any) -> dict[tuple[str, int], int]:
            return {
                (topic.name, partition.partition_index): partition.partition_error_code
                for topic in response.results_by_topic_v3_and_below
                for partition in topic.results_by_partition
            }

        response = again(
            self.client, lambda: self.client.ask(request, 3), lambda response: max(codes(response).values())
        )
        return [ErrorCode(codes(response)[place]) for place in partitions]

    def produce(self, topic: str, *values: bytes, partition: int = 0, **batch: Any) -> Any:
        """One batch of the open transaction; begins it under v2. Returns the partition's response."""
        sequence = self.sequences.get((topic, partition), 0)
        fields = {
            "producer_id": self.producer_id,
            "producer_epoch": self.producer_epoch,
            "base_sequence": sequence,
            "is_transactional": True,
        } | batch
        request = produce_request(topic, partition=partition, records=batch_of(*values, **fields))
        request.transactional_id = self.transactional_id
        response = again(
            self.client,
            lambda: self.client.ask(request, PRODUCE[self.version]).responses[0].partition_responses[0],
            lambda response: response.error_code,
        )
        if not response.error_code:
            self.sequences[topic, partition] = sequence + len(values)
        return response

    def add_offsets(self, group_id: str) -> ErrorCode:
        """Offsets of the group will be part of the transaction: AddOffsetsToTxn."""
        request = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            group_id=group_id,
        )
        response = again(self.client, lambda: self.client.ask(request, 3), lambda response: response.error_code)
        return ErrorCode(response.error_code)

    def commit_offset(self, group_id: str, topic: str, offset: int) -> ErrorCode:
        """The offset of partition 0, as part of the transaction."""
        if self.version == 1:
            code = self.add_offsets(group_id)
            if code:
                return code
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=group_id,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            topics=[
                TxnOffsetCommitRequestTopic(
                    name=topic,
                    partitions=[TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset)],
                )
            ],
        )
        response = again(
            self.client,
            lambda: self.client.ask(request, TXN_OFFSET_COMMIT[self.version]).topics[0].partitions[0],
            lambda response: response.error_code,
        )
        return ErrorCode(response.error_code)

    def end(self, *, commit: bool = True) -> ErrorCode:
        """EndTxn."""
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch,
            committed=commit,
        )
        response = again(
            self.client, lambda: self.client.ask(request, END_TXN[self.version]), lambda answer: answer.error_code
        )
        if not response.error_code and self.version == 2:
            self.producer_id, self.producer_epoch = response.producer_id, response.producer_epoch
            self.sequences = {}
        return ErrorCode(response.error_code)

    def state(self) -> Any:
        """The response of DescribeTransactions."""
        request = DescribeTransactionsRequest(transactional_ids=[self.transactional_id])
        (state,) = self.client.ask(request, 0).transaction_states
        return state


def until(client: Connection, condition: Callable[[], bool]) -> None:
    """Run the broker until the responses to a client meet a condition."""
    deadline_s = time.monotonic() + ANSWER_TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline_s
        client.server.loop.run_until_complete(asyncio.sleep(0.001))


def completed(producer: TransactionalProducer) -> None:
    """Wait until the markers of the producer's ended transactions are written."""
    until(producer.client, lambda: producer.state().transaction_state.startswith("Complete"))


def latest(client: Connection, topic: str, partition: int = 0, *, committed: bool = True) -> int:
    """The last stable offset, or the high watermark."""
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=READ_COMMITTED if committed else 0,
        topics=[
            ListOffsetsTopic(name=topic, partitions=[ListOffsetsPartition(partition_index=partition, timestamp=LATEST)])
        ],
    )
    answer = client.ask(request, 8).topics[0].partitions[0]
    assert answer.error_code == 0
    return int(answer.offset)


def read(client: Connection, topic: str, partition: int = 0, *, committed: bool = True) -> list[bytes]:
    """The values that a consumer sees from the beginning; one response is of one segment."""
    values: list[bytes] = []
    offset, end = 0, latest(client, topic, partition, committed=committed)
    while offset < end:
        request = fetch_request((topic, partition, offset), isolation_level=READ_COMMITTED if committed else 0)
        answer = fetched(client.ask(request, 12))[topic, partition]
        assert answer.error_code == 0
        passing = TransactionFilter(answer.aborted_transactions or ())
        for batch in iter_batches(answer.records or b""):
            if passing.passes(batch):
                values += [bytes(record.value or b"") for record in batch.records()]
            offset = batch.next_offset
    return values
