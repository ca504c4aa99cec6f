"""A node on another metadata log than KRaft's: in memory, without quorum, term or file, numbered like ZooKeeper's.

It has to implement `MetadataLog`; the rest of the node must not notice the difference.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.platform.endpoint import Endpoint
from ottla.metadata.delta import MetadataDelta, all_changes
from ottla.metadata.image import MetadataImage
from ottla.metadata.log import LeaderAndEpoch, LeadershipListener, MetadataLog, Submission, SubmitDone, prepare_all
from ottla.metadata.records import ApiMessageAndVersion
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.describe_cluster import DescribeClusterRequest
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.registry import ApiKey
from ottla.server.metadata_log import choice
from ottla.server.metadata_log.node import MetadataLogContext, NodeMetadataLog

from .harness import Connection, Server, fetch_request, fetched

CONTROLLER_EPOCH = 3


class MemoryLog:
    """Every submission is a delta to the image; the offset of an image is controller epoch and sequence."""

    def __init__(self, context: MetadataLogContext) -> None:
        self._publisher = context.publisher
        self._scheduler = context.runtime.scheduler
        self._node_id = context.config.node_id
        self._endpoints: tuple[Endpoint, ...] = ()
        self._closed = False
        self.next_offset = CONTROLLER_EPOCH << 32
        self.latest = MetadataImage()

    @property
    def leader(self) -> LeaderAndEpoch:
        return LeaderAndEpoch(self._node_id, CONTROLLER_EPOCH)

    @property
    def kraft_version(self) -> int:
        return 0

    @property
    def brokers_have_sessions(self) -> bool:
        return False

    def check_voters(self) -> None:
        raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION, "this metadata log has no voters")

    name_voters = check_voters

    @property
    def bootstrap(self) -> Sequence[ApiMessageAndVersion]:
        return ()

    def leader_endpoint(self) -> Endpoint | None:
        return self._endpoints[0] if self._endpoints else None

    def start(self, endpoints: Sequence[Endpoint]) -> bool:
        self._endpoints = tuple(endpoints)
        return True

    def listen(self, listener: LeadershipListener) -> None:
        listener.on_leader_change(self.leader, True)

    def submit(self, records: Submission, done: SubmitDone) -> None:
        assert not self._closed
        if records:
            prepared = prepare_all(self.latest, records)
            self.next_offset += len(prepared.messages)
            self.latest, changes = prepared.delta.apply(self.next_offset - 1, CONTROLLER_EPOCH)
            self._scheduler.call_soon(self._publisher.publish, self.latest, changes)
        self._scheduler.call_soon(done, None)

    def submit_start(self, batches: Sequence[Sequence[ApiMessageAndVersion]], done: SubmitDone) -> None:
        for records in batches:
            self.latest, _ = self._replayed(records).apply(self.next_offset - 1, CONTROLLER_EPOCH)
        self._scheduler.call_soon(self._publisher.publish, self.latest, all_changes(self.latest))
        self._scheduler.call_soon(done, None)

    def _replayed(self, records: Sequence[ApiMessageAndVersion]) -> MetadataDelta:
        delta = MetadataDelta(self.latest)
        for record in records:
            delta.replay(record.message)
        self.next_offset += len(records)
        return delta

    def stop(self, done: SubmitDone) -> None:
        self._scheduler.call_soon(done, None)

    def close(self) -> None:
        self._closed = True


def memory_log(context: MetadataLogContext) -> NodeMetadataLog:
    log: MetadataLog = MemoryLog(context)
    return NodeMetadataLog(log, quorum=None, register_gauges=lambda registry: None)


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Connection]:
    monkeypatch.setattr(choice, "kraft", memory_log)
    server = Server(tmp_path)
    yield server.connect()
    server.stop()
    server.loop.close()


def test_topics_are_created_written_and_read(client: Connection) -> None:
    topic_id = client.create_topic("t", 2)
    assert client.produce("t", b"x").error_code == 0
    (partition,) = fetched(client.ask(fetch_request((topic_id, 0, 0)), 13)).values()
    assert partition.high_watermark == 1
    (again,) = client.ask(CreateTopicsRequest(topics=[CreatableTopic(name="t", num_partitions=1)]), 7).topics
    assert again.error_code == ErrorCode.TOPIC_ALREADY_EXISTS


def test_topic_is_auto_created(client: Connection) -> None:
    def asked() -> int:
        (topic,) = client.ask(MetadataRequest(topics=[MetadataRequestTopic(name="new")]), 12).topics
        return int(topic.error_code)

    assert asked() == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    while asked() != ErrorCode.NONE:
        client.server.turn()


def test_settings_reach_the_log(client: Connection) -> None:
    client.create_topic("t")
    setting = AlterableConfig(name="max.message.bytes", value="1000")
    resource = AlterConfigsResource(resource_type=2, resource_name="t", configs=[setting])
    (result,) = client.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
    assert result.error_code == ErrorCode.NONE
    assert client.produce("t", b"x" * 2000).error_code == ErrorCode.MESSAGE_TOO_LARGE


def test_producers_get_ids(client: Connection) -> None:
    first = client.ask(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000), 4)
    assert first.error_code == ErrorCode.NONE
    second = client.ask(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000), 4)
    assert second.producer_id == first.producer_id + 1


def test_leader_of_the_metadata_log_is_the_controller(client: Connection) -> None:
    assert client.ask(DescribeClusterRequest(), 1).controller_id == client.server.broker.contexts.admin.config.node_id


def test_without_a_quorum_no_quorum_apis_are_served(client: Connection) -> None:
    served = {api.api_key for api in client.ask(ApiVersionsRequest(), 2).api_keys}
    assert ApiKey.CREATE_TOPICS in served
    assert not served & {ApiKey.DESCRIBE_QUORUM, ApiKey.ADD_RAFT_VOTER, ApiKey.REMOVE_RAFT_VOTER}
