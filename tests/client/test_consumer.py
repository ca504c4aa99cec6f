"""`RecordConsumer` against scripted brokers: leaders that change, outages, markers at the end, bad bytes."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.client.librdkafka.consumer import RecordConsumer
from ottla.client.wire import outage as outage_module
from ottla.client.wire.failure import TopicReplaced
from ottla.common.errors import ErrorCode, KafkaError
from ottla.protocol.messages.fetch import AbortedTransaction, FetchableTopicResponse, FetchResponse, PartitionData
from ottla.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from ottla.protocol.registry import ApiKey
from ottla.record.builder import RecordData, build_batch
from ottla.record.control import ControlRecordType, control_record_key

TOPIC_ID = bytes(range(16))


@pytest.fixture
def leaders(scripted):
    """The leader of each partition of the topic `t`, all of which the one broker is."""
    made = [1, 1]

    def metadata(version, request):
        partitions = [
            MetadataResponsePartition(partition_index=index, leader_id=leader, replica_nodes=[1], isr_nodes=[1])
            for index, leader in enumerate(made)
        ]
        return MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=1, host="127.0.0.1", port=scripted.port)],
            cluster_id="cluster",
            controller_id=1,
            topics=[MetadataResponseTopic(name="t", topic_id=TOPIC_ID, partitions=partitions)],
        )

    scripted.answers[ApiKey.METADATA] = metadata
    return made


def batch(base_offset, *values, **details):
    return bytes(build_batch([RecordData(5, value=value) for value in values], base_offset=base_offset, **details))


def answer(partitions):
    return FetchResponse(
        responses=[
            FetchableTopicResponse(
                topic="t",
                topic_id=TOPIC_ID,
                partitions=[PartitionData(partition_index=index, **data) for index, data in partitions.items()],
            )
        ]
    )


def script(scripted, *answers):
    """Responses in order, the last one forever; without one the connection is closed."""
    left = list(answers)
    scripted.answers[ApiKey.FETCH] = lambda version, request: left.pop(0) if len(left) > 1 else left[0]


def values(consumer, **limits):
    with consumer:
        return [record.value for records in consumer.batches(**limits) for record in records]


def test_all_partitions_of_a_leader_in_one_request(scripted, leaders):
    script(scripted, answer({0: {"records": batch(3, b"a", b"b")}, 1: {"records": batch(7, b"c")}}))
    starts, ends = {("t", 0): 4, ("t", 1): 7}, {("t", 0): 5, ("t", 1): 8}
    assert values(RecordConsumer(scripted.address, starts, ends=ends)) == [b"b", b"c"]
    (request,) = [request for key, _, request in scripted.requests if key == ApiKey.FETCH]
    assert [(each.partition, each.fetch_offset) for each in request.topics[0].partitions] == [(0, 4), (1, 7)]
    assert request.isolation_level == 1


def test_outage_is_retried_and_reported(scripted, leaders, monkeypatch):
    monkeypatch.setattr(outage_module, "REPORT_AFTER_S", 0.0)
    notices = []
    lost = answer({0: {"error_code": ErrorCode.NOT_LEADER_OR_FOLLOWER}})
    script(scripted, None, lost, None, answer({0: {"records": batch(0, b"a")}}))
    consumer = RecordConsumer(scripted.address, {("t", 0): 0}, notify=notices.append)
    assert values(consumer, max_records=1) == [b"a"]
    assert len(notices) == 2
    assert notices[0].startswith("the cluster does not respond")
    assert notices[1].startswith("the cluster responds again")


def test_a_partition_without_a_leader_holds_up_no_other(scripted, leaders):
    leaders[0] = -1
    script(scripted, answer({1: {"records": batch(0, b"a")}}))
    consumer = RecordConsumer(scripted.address, {("t", 0): 0, ("t", 1): 0})
    assert values(consumer, max_records=1) == [b"a"]


def test_end_is_reached_after_markers_and_aborted_records(scripted, leaders):
    transaction: dict[str, Any] = {"producer_id": 7, "producer_epoch": 0, "is_transactional": True}
    marker = build_batch(
        [RecordData(5, key=control_record_key(ControlRecordType.ABORT), value=bytes(6))],
        base_offset=2,
        is_control=True,
        **transaction,
    )
    log = batch(0, b"a") + batch(1, b"aborted", base_sequence=0, **transaction) + bytes(marker)
    script(
        scripted,
        answer({0: {"records": log, "aborted_transactions": [AbortedTransaction(producer_id=7, first_offset=1)]}}),
    )
    assert values(RecordConsumer(scripted.address, {("t", 0): 0}, ends={("t", 0): 3})) == [b"a"]


def test_a_topic_made_again_is_not_read_on(scripted, leaders):
    """Its records have the offsets of the old one's, and those below the position would be passed over in silence."""
    metadata = scripted.answers[ApiKey.METADATA]

    def made_again(version, request):
        response = metadata(version, request)
        response.topics[0].topic_id = bytes(15) + b"\x01"
        return response

    def fetch(version, request):
        if request.topics[0].partitions[0].fetch_offset == 0:
            return answer({0: {"records": batch(0, b"a")}})
        if request.topics[0].topic_id == TOPIC_ID:
            scripted.answers[ApiKey.METADATA] = made_again
            return answer({0: {"error_code": ErrorCode.UNKNOWN_TOPIC_ID}})
        return answer({0: {"records": batch(1, b"other")}})

    scripted.answers[ApiKey.FETCH] = fetch
    with RecordConsumer(scripted.address, {("t", 0): 0}) as consumer:
        arriving = consumer.batches(max_records=2)
        assert [record.value for record in next(arriving)] == [b"a"]
        with pytest.raises(TopicReplaced, match="created again"):
            next(arriving)


@pytest.mark.parametrize(
    ("data", "code"),
    [
        ({"error_code": ErrorCode.OFFSET_OUT_OF_RANGE}, ErrorCode.OFFSET_OUT_OF_RANGE),
        ({"records": batch(0, b"a")[:-1] + b"x"}, ErrorCode.CORRUPT_MESSAGE),
        ({"records": bytes(16) + b"\3" + bytes(60)}, ErrorCode.CORRUPT_MESSAGE),
    ],
)
def test_permanent_errors_are_raised(scripted, leaders, data, code):
    script(scripted, answer({0: data}))
    with pytest.raises(KafkaError, match="t-0") as caught:
        values(RecordConsumer(scripted.address, {("t", 0): 0}))
    assert caught.value.code == code
