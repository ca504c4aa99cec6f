"""Responses of the transaction coordinator's APIs."""

from __future__ import annotations

from collections.abc import Mapping

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.kafka.topic_partition import TopicPartition
from ottla.coordinator.transaction.shard import ProducerIdResult
from ottla.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnResponse
from ottla.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnTopicResult,
)
from ottla.protocol.messages.end_txn import EndTxnResponse
from ottla.protocol.messages.init_producer_id import InitProducerIdResponse

FIRST_FENCED_INIT_PRODUCER_ID = 4
FIRST_FENCED_ADD_PARTITIONS = 2
FIRST_FENCED_ADD_OFFSETS = 2
FIRST_FENCED_END_TXN = 2
"""First versions in which clients know PRODUCER_FENCED (KIP-588); before, it is INVALID_PRODUCER_EPOCH."""


def error_code(error: KafkaError) -> ErrorCode:
    """Return the code for a failed append, as Apache Kafka does: a client can't repair records that are too large."""
    too_large = error.code is ErrorCode.RECORD_LIST_TOO_LARGE
    return ErrorCode.UNKNOWN_SERVER_ERROR if too_large else error.code


def known_error(code: ErrorCode, api_version: int, first_fenced: int) -> ErrorCode:
    """Return `code`, or the code that replaces it in this version."""
    if code is ErrorCode.PRODUCER_FENCED and api_version < first_fenced:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code


def initialized(api_version: int, answer: ProducerIdResult) -> InitProducerIdResponse:
    """Return the response; producer id and epoch are -1 with an error."""
    return InitProducerIdResponse(
        error_code=known_error(answer.error, api_version, FIRST_FENCED_INIT_PRODUCER_ID),
        producer_id=answer.producer_id,
        producer_epoch=answer.producer_epoch,
    )


def ended(api_version: int, answer: ProducerIdResult) -> EndTxnResponse:
    """Return the response; only clients of transactions v2 get producer id and epoch."""
    return EndTxnResponse(
        error_code=known_error(answer.error, api_version, FIRST_FENCED_END_TXN),
        producer_id=answer.producer_id,
        producer_epoch=answer.producer_epoch,
    )


def offsets_added(api_version: int, code: ErrorCode) -> AddOffsetsToTxnResponse:
    return AddOffsetsToTxnResponse(error_code=known_error(code, api_version, FIRST_FENCED_ADD_OFFSETS))


def partition_results(
    api_version: int, codes: Mapping[TopicPartition, ErrorCode]
) -> list[AddPartitionsToTxnTopicResult]:
    """Return the results grouped by topic, in the order of `codes`."""
    topics: dict[str, AddPartitionsToTxnTopicResult] = {}
    for (name, index), code in codes.items():
        topic = topics.get(name)
        if topic is None:
            topic = topics[name] = AddPartitionsToTxnTopicResult(name=name)
        topic.results_by_partition.append(
            AddPartitionsToTxnPartitionResult(
                partition_index=index,
                partition_error_code=known_error(code, api_version, FIRST_FENCED_ADD_PARTITIONS),
            )
        )
    return list(topics.values())
