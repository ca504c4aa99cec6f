"""State of share partitions through a whole broker: APIs 83 to 87, FindCoordinator, restarts, the persister."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import pytest

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.kafka.share_keys import coordinator_key
from ottla.common.kafka.share_state import SharePartitionKey, SharePersister, ShareState, ShareStateSummary, StateBatch
from ottla.coordinator.runtime import CoordinatorState
from ottla.protocol.messages import (
    delete_share_group_state,
    initialize_share_group_state,
    read_share_group_state,
    read_share_group_state_summary,
    write_share_group_state,
)
from ottla.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest
from ottla.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest

from .harness import Connection, Server

T = TypeVar("T")

GROUP = "billing:eu"
BATCHES = (StateBatch(10, 19, 2, 1), StateBatch(20, 20, 0, 2))
MODULES = (
    (initialize_share_group_state, "Initialize", 0),
    (read_share_group_state, "Read", 0),
    (write_share_group_state, "Write", 1),
    (delete_share_group_state, "Delete", 0),
    (read_share_group_state_summary, "Read", 1),
)


class Sharing:
    """A broker with three partitions of `__share_group_state`."""

    def __init__(self, server: Server, *, enabled: bool = True) -> None:
        self.server = server
        self.client: Connection = server.connect()
        if enabled:
            update = FeatureUpdateKey(feature="share.version", max_version_level=1, upgrade_type=1)
            response = self.client.ask(UpdateFeaturesRequest(feature_updates=[update], timeout_ms=1000), 1)
            assert response.error_code == ErrorCode.NONE, response
        self.topic_id = self.client.create_topic("t", 2)

    @property
    def persister(self) -> SharePersister:
        return self.server.broker.parts.share_groups.persister

    def key(self, partition: int = 0) -> SharePartitionKey:
        return SharePartitionKey(GROUP, self.topic_id, partition)

    def find(self, *keys: str) -> list[Coordinator]:
        request = FindCoordinatorRequest(key_type=2, coordinator_keys=list(keys))
        found: list[Coordinator] = self.client.ask(request, 6).coordinators
        return found

    def run(self, call: Coroutine[Any, Any, T]) -> T:
        return self.server.loop.run_until_complete(call)

    def write(self, key: SharePartitionKey) -> None:
        self.run(
            self.persister.write(
                key, state_epoch=1, leader_epoch=4, start_offset=10, delivery_complete_count=10, batches=BATCHES
            )
        )

    def settle(self) -> None:
        runtime = self.server.broker.parts.share_groups.coordination.runtime
        self.server.run_until(lambda: runtime.state_counts()[CoordinatorState.ACTIVE] == 3)


@pytest.fixture
def make_sharing(make_server: Callable[..., Server]) -> Callable[..., Sharing]:
    def make(*, enabled: bool = True) -> Sharing:
        return Sharing(make_server(share_coordinator_state_topic_num_partitions="3"), enabled=enabled)

    return make


@pytest.fixture
def sharing(make_sharing: Callable[..., Sharing]) -> Sharing:
    return make_sharing()


def request_of(module: Any, name: str, topic_id: bytes) -> Any:
    """A request with two share partitions."""
    suffix = "Summary" if module is read_share_group_state_summary else ""
    request = getattr(module, f"{name}ShareGroupState{suffix}Request")
    data = getattr(module, f"{name}State{suffix}Data")
    partitions = [module.PartitionData(partition=partition) for partition in (0, 1)]
    return request(group_id=GROUP, topics=[data(topic_id=topic_id, partitions=partitions)])


@pytest.mark.parametrize(("module", "name", "version"), MODULES)
def test_share_apis_are_unsupported_without_the_feature(
    make_sharing: Callable[..., Sharing], module: Any, name: str, version: int
) -> None:
    sharing = make_sharing(enabled=False)
    response = sharing.client.ask(request_of(module, name, sharing.topic_id), version)
    (result,) = response.results
    assert [each.error_code for each in result.partitions] == [ErrorCode.UNSUPPORTED_VERSION] * 2
    (found,) = sharing.find(coordinator_key(sharing.key()))
    assert found.error_code == ErrorCode.INVALID_REQUEST
    assert "__share_group_state" not in sharing.server.broker.image.topics


def test_requests_are_answered_for_each_share_partition(sharing: Sharing) -> None:
    assert [each.error_code for each in sharing.find(*(coordinator_key(sharing.key(n)) for n in (0, 1)))] == [0, 0]
    sharing.settle()
    codes = []
    for module, name, version in MODULES:
        response = sharing.client.ask(request_of(module, name, sharing.topic_id), version)
        (result,) = response.results
        assert bytes(result.topic_id) == sharing.topic_id
        codes.append([each.error_code for each in result.partitions])
    assert codes == [[ErrorCode.NONE] * 2] * 5


def test_coordinator_lookup_creates_the_topic_and_checks_keys(sharing: Sharing) -> None:
    key = coordinator_key(sharing.key())
    wrong, found = sharing.find(GROUP, key)
    assert (wrong.key, wrong.error_code) == (GROUP, ErrorCode.INVALID_REQUEST)
    assert (found.key, found.error_code, found.node_id, found.port) == (key, ErrorCode.NONE, 1, 9092)
    image = sharing.server.broker.image
    assert len(image.topics["__share_group_state"].partitions) == 3
    assert image.topic_configs("__share_group_state") == {
        "cleanup.policy": "delete",
        "compression.type": "producer",
        "min.insync.replicas": "2",
        "retention.bytes": "-1",
        "retention.ms": "-1",
        "segment.bytes": "104857600",
    }


def test_restarted_broker_keeps_the_state(sharing: Sharing) -> None:
    key = sharing.key()
    sharing.run(sharing.persister.initialize(key, 1, -1))
    assert sharing.run(sharing.persister.read(key, 4)) == ShareState(1, -1, ())
    sharing.write(key)
    sharing.server.restart()
    assert sharing.run(sharing.persister.read(key, 4)) == ShareState(1, 10, BATCHES)
    assert sharing.run(sharing.persister.summarize(key)) == ShareStateSummary(1, 4, 10, 10)
    with pytest.raises(KafkaError) as raised:
        sharing.run(sharing.persister.read(key, 3))
    assert raised.value.code is ErrorCode.FENCED_LEADER_EPOCH


def test_persister_deletes_states_of_missing_topics_too(sharing: Sharing) -> None:
    key = sharing.key()
    sharing.run(sharing.persister.delete(key))
    sharing.run(sharing.persister.initialize(key, 1, 5))
    sharing.run(sharing.persister.delete(key))
    assert sharing.run(sharing.persister.summarize(key)).start_offset == -1
    sharing.run(sharing.persister.delete(SharePartitionKey(GROUP, b"m" * 16, 0)))


def test_pruning_raises_the_log_start_offset(sharing: Sharing) -> None:
    key = sharing.key()
    sharing.run(sharing.persister.initialize(key, 1, 0))
    sharing.run(sharing.persister.initialize(key, 2, 0))
    coordination = sharing.server.broker.parts.share_groups.coordination
    index = coordination.runtime.partition_for(coordinator_key(key))
    shard = dict(coordination.runtime.active_shards())[index]
    coordination.runtime.schedule_write(
        "timer", index, lambda _shard: shard.housekeeping.prune(), lambda _response, _error: None
    )
    replica = sharing.server.broker.parts.replicas.find("__share_group_state", index)
    sharing.server.run_until(lambda: replica.log.log_start_offset == 1)
