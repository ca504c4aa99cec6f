"""WriteTxnMarkers (27): versions 1 and 2. A transaction's coordinator writes its end markers here (KIP-98).

Each partition has a result of its own; the request is answered after the last of them. Results of one producer id
are merged into one, as in Apache Kafka. Requests before version 2 do not name the rules for the epoch check: they use
those before KIP-890.
"""

from __future__ import annotations

from collections.abc import Generator

from ottla.common.errors import ErrorCode
from ottla.common.kafka.acl import AclOperation, ResourceType
from ottla.common.kafka.topic_partition import TopicPartition
from ottla.common.platform.shares import finish
from ottla.protocol.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from ottla.protocol.registry import ApiKey
from ottla.record.control import EndMarker
from ottla.server.handlers.transactions.context import TransactionContext
from ottla.server.requests.api import SchemaApi
from ottla.server.requests.authorization import RequiredPermission
from ottla.server.requests.request import Request
from ottla.server.requests.stepped import Steps
from ottla.server.transactions.marker_writer import MarkerDone

_NEEDS = (
    RequiredPermission(AclOperation.ALTER, ResourceType.CLUSTER),
    RequiredPermission(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER),
)
"""Either one suffices: brokers have the second; administrators abort a hanging transaction with the first (KIP-664)."""


_PLACES = 16
"""Markers that are written in one step."""


def handle(context: TransactionContext, request: Request, message: WriteTxnMarkersRequest) -> object | None:
    """Write all markers, in the order of the request; a partition that a marker names twice gets one."""
    if not any(request.allowed(need.operation, need.resource_type) for need in _NEEDS):
        return _refuse(message, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    named = sum(len(topic.partition_indexes) for marker in message.markers for topic in marker.topics)
    context.check_partition_count(named)
    steps = _write(context, request, message)
    return steps if max(named, len(message.markers)) > _PLACES else finish(steps)


def _write(context: TransactionContext, request: Request, message: WriteTxnMarkersRequest) -> Steps:
    writing = _MarkerRequest(request, message)
    written = 0
    for row, marker in enumerate(message.markers):
        end = EndMarker(
            marker.producer_id,
            marker.producer_epoch,
            marker.coordinator_epoch,
            marker.transaction_result,
            marker.transaction_version,
        )
        for topic, index in writing.places(row):
            context.markers.write(topic, index, [(end, writing.written(row, (topic, index)))])
            written += 1
            if written % _PLACES == 0:
                yield None
        yield None
    response = writing.begun()
    return (yield from response) if isinstance(response, Generator) else response


class _MarkerRequest:
    """One request, until the last of its partitions is answered."""

    __slots__ = ("_begun", "_codes", "_message", "_request", "_waiting")

    def __init__(self, request: Request, message: WriteTxnMarkersRequest) -> None:
        self._request = request
        self._message = message
        self._codes: dict[int, dict[TopicPartition, ErrorCode]] = {}
        """By producer id."""
        self._waiting: set[tuple[int, str, int]] = set()
        """Row, topic and partition."""
        self._begun = False
        """Whether all markers were submitted."""

    def places(self, row: int) -> list[TopicPartition]:
        """The partitions of a marker, without repetition."""
        topics = self._message.markers[row].topics
        return list(dict.fromkeys((topic.name, index) for topic in topics for index in topic.partition_indexes))

    def written(self, row: int, place: TopicPartition) -> MarkerDone:
        """The callback for the result of one partition."""
        producer_id = self._message.markers[row].producer_id
        self._waiting.add((row, *place))

        def done(code: ErrorCode) -> None:
            key = (row, *place)
            if key not in self._waiting:
                return
            self._waiting.remove(key)
            self._codes.setdefault(producer_id, {})[place] = code
            if self._begun and not self._waiting:
                self._request.answer(self._response)

        return done

    def begun(self) -> object | None:
        """All markers were submitted: the response, if all results have arrived."""
        self._begun = True
        return None if self._waiting else self._response()

    def _response(self) -> object:
        steps = self._response_steps()
        return steps if len(self._codes) > _PLACES else finish(steps)

    def _response_steps(self) -> Steps:
        response = WriteTxnMarkersResponse()
        for producer_id, codes in self._codes.items():
            response.markers.append(WritableTxnMarkerResult(producer_id=producer_id, topics=_topics(codes)))
            yield None
        return response


def _topics(codes: dict[TopicPartition, ErrorCode]) -> list[WritableTxnMarkerTopicResult]:
    topics: dict[str, list[WritableTxnMarkerPartitionResult]] = {}
    for (topic, index), code in codes.items():
        topics.setdefault(topic, []).append(WritableTxnMarkerPartitionResult(partition_index=index, error_code=code))
    return [WritableTxnMarkerTopicResult(name=name, partitions=results) for name, results in topics.items()]


def _refuse(message: WriteTxnMarkersRequest, code: ErrorCode) -> Steps:
    """The same error for every partition, in steps."""
    response = WriteTxnMarkersResponse()
    for marker in message.markers:
        codes = {(topic.name, index): code for topic in marker.topics for index in topic.partition_indexes}
        response.markers.append(WritableTxnMarkerResult(producer_id=marker.producer_id, topics=_topics(codes)))
        yield None
    return response


def error_response(message: WriteTxnMarkersRequest, code: ErrorCode, text: str) -> object:
    """The same error for every partition."""
    return finish(_refuse(message, code))


WRITE_TXN_MARKERS = SchemaApi(ApiKey.WRITE_TXN_MARKERS, handle, error_response, item_needs=_NEEDS)
