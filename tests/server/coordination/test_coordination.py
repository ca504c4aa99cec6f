"""Coordination on an internal topic, with a coordinator of counters in a whole broker, independent of groups."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ottla.common.errors import ErrorCode
from ottla.coordinator.runtime import CoordinatorState, runtime
from ottla.coordinator.runtime.key_hash import partition_for
from ottla.coordinator.runtime.runtime import REMEMBERED_KEY_LENGTH
from ottla.metadata.delta import MetadataChanges, MetadataDelta, all_changes
from ottla.metadata.image import MetadataImage
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest
from ottla.protocol.messages.find_coordinator import Coordinator, FindCoordinatorRequest
from ottla.protocol.messages.metadata_records import PartitionChangeRecord
from ottla.server.coordination import coordinator_host
from ottla.server.coordination.coordinator_host import NO_PARTITION, BrokerServices, CoordinatorType

from ..harness import Connection, Server
from .counters import ADD, COUNTERS_TOPIC, VALUE, Answer, Asked, CounterCoordination

KEY_TYPE = 77
PARTITIONS = 4


class Counting:
    """A broker that also coordinates counters."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.client: Connection = server.connect()
        parts = server.broker.parts
        self.parts = parts
        host = BrokerServices(1, parts.node_runtime, parts.scheduler, parts.replicas, parts.in_flight, parts.failures)
        self.coordinator_host = parts.coordinations[KEY_TYPE] = CounterCoordination(host)

    @property
    def image(self) -> MetadataImage:
        return self.parts.publisher.image

    def find(self, *names: str) -> list[Coordinator]:
        """The coordinator lookup of a client, which creates a missing topic."""
        request = FindCoordinatorRequest(key_type=KEY_TYPE, coordinator_keys=list(names))
        return self.client.ask(request, 6).coordinators

    def create(self) -> None:
        (found,) = self.find("a")
        assert found.error_code == ErrorCode.NONE
        self.settle()

    def settle(self) -> None:
        """Wait until all partitions that this broker leads are loaded."""
        runtime = self.coordinator_host.runtime
        self.server.run_until(lambda: runtime.state_counts()[CoordinatorState.LOADING] == 0)

    def send(self, name: str, amount: int) -> list[Answer]:
        answers: list[Answer] = []
        self.coordinator_host.runtime.answer(ADD, None, Asked(name, amount), answers.append)
        return answers

    def add(self, name: str, amount: int) -> Answer:
        answers = self.send(name, amount)
        self.server.run_until(lambda: bool(answers))
        return answers[0]

    def value(self, name: str) -> Answer:
        answers: list[Answer] = []
        self.coordinator_host.runtime.answer(VALUE, None, Asked(name), answers.append)
        (answer,) = answers
        return answer

    def led_by(self, broker_id: int, name: str, image: MetadataImage) -> tuple[MetadataImage, MetadataChanges]:
        """The image after `image`, with another leader and a new epoch of a counter's partition."""
        topic = image.topics[COUNTERS_TOPIC.name]
        index = partition_for(name, PARTITIONS)
        delta = MetadataDelta(image)
        delta.replay(PartitionChangeRecord(partition_id=index, topic_id=bytes(topic.topic_id), leader=broker_id))
        return delta.apply(image.offset, image.epoch)


@pytest.fixture
def counting(make_server: Callable[..., Server]) -> Counting:
    return Counting(make_server(offsets_topic_num_partitions=str(PARTITIONS)))


def test_topic_is_created_with_its_configured_settings(counting: Counting) -> None:
    counting.create()
    assert len(counting.image.topics["__counters"].partitions) == PARTITIONS
    assert counting.image.topic_configs("__counters") == {"cleanup.policy": "compact"}
    assert counting.coordinator_host.runtime.state_counts()[CoordinatorState.ACTIVE] == PARTITIONS


def test_clients_find_the_coordinator_of_a_counter(counting: Counting) -> None:
    names = ["a", "b", "c"]
    assert [(found.key, found.error_code, found.node_id, found.port) for found in counting.find(*names)] == [
        (name, ErrorCode.NONE, 1, 9092) for name in names
    ]
    assert counting.add("c", 1) == 1


@pytest.mark.parametrize(
    ("key_type", "version", "code"),
    [
        (CoordinatorType.SHARE, 6, ErrorCode.INVALID_REQUEST),
        (CoordinatorType.SHARE, 5, ErrorCode.INVALID_REQUEST),
        (KEY_TYPE + 1, 6, ErrorCode.INVALID_REQUEST),
    ],
)
def test_a_type_without_a_coordinator(counting: Counting, key_type: int, version: int, code: ErrorCode) -> None:
    request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=["a"])
    (found,) = counting.client.ask(request, version).coordinators
    assert (found.error_code, found.node_id) == (code, -1)


def test_coordinator_is_unavailable_without_its_topic(counting: Counting) -> None:
    assert counting.add("a", 1) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert counting.coordinator_host.leader("a", counting.image) is None
    assert counting.coordinator_host.partition_in(counting.image, "a") == NO_PARTITION
    assert not counting.coordinator_host.is_loading(NO_PARTITION)


def test_a_long_key_is_hashed_once_in_a_request(counting: Counting, monkeypatch: pytest.MonkeyPatch) -> None:
    counting.create()
    hashed: list[str] = []

    def noted(key: str, partition_count: int) -> int:
        hashed.append(key)
        return partition_for(key, partition_count)

    monkeypatch.setattr(runtime, "partition_for", noted)
    monkeypatch.setattr(coordinator_host, "partition_for", noted)
    keys = [letter * (REMEMBERED_KEY_LENGTH + 1) for letter in "abc"]
    assert [found.error_code for found in counting.find(*keys)] == [ErrorCode.NONE] * 3
    assert hashed == keys


def test_a_write_is_answered_when_it_is_in_the_log(counting: Counting) -> None:
    counting.create()
    first, second = counting.send("a", 1), counting.send("a", 2)
    assert (first, second, counting.value("a")) == ([], [], 0)
    counting.server.run_until(lambda: bool(second))
    assert (first, second, counting.value("a")) == ([1], [3], 3)
    assert counting.add("a", -1) == ErrorCode.INVALID_REQUEST
    replica = counting.parts.replicas.find("__counters", counting.coordinator_host.runtime.partition_for("a"))
    assert (replica.log.log_end_offset, replica.high_watermark) == (2, 2)
    assert counting.coordinator_host.runtime.statistics.operations == {"add-to-counter": 3, "value-of-counter": 2}


def test_a_restart_finds_the_same_state(counting: Counting) -> None:
    counting.create()
    names = [f"counter-{number}" for number in range(20)]
    for number, name in enumerate(names):
        assert counting.add(name, number) == number
    counting.server.restart()
    again = Counting(counting.server)
    image = again.image
    loaded: list[bool] = []
    again.coordinator_host.follow(image, all_changes(image))
    partitions = [again.coordinator_host.partition_in(image, name) for name in names]
    assert all(map(again.coordinator_host.is_loading, partitions))
    assert again.value(names[3]) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    again.coordinator_host.after_loading(partitions, lambda: loaded.append(True))
    assert not loaded
    again.server.run_until(lambda: bool(loaded))
    assert [again.value(name) for name in names] == list(range(20))
    assert loaded == [True]


class HeldPool:
    """A pool that keeps its jobs."""

    def __init__(self) -> None:
        self.jobs: list[tuple[Callable[[], object], Callable[[object, BaseException | None], None]]] = []

    def submit(self, work: Callable[[], object], done: Callable[[object, BaseException | None], None]) -> None:
        self.jobs.append((work, done))


def test_code_of_shards_is_imported_once_in_the_pool(counting: Counting, monkeypatch: pytest.MonkeyPatch) -> None:
    counting.create()
    assert counting.add("a", 5) == 5
    counting.server.restart()
    again = Counting(counting.server)
    pool = HeldPool()
    imported: list[str] = []
    monkeypatch.setattr(coordinator_host, "import_module", imported.append)
    monkeypatch.setattr(again.coordinator_host, "_pool", pool)
    again.coordinator_host.follow(again.image, all_changes(again.image))
    again.server.run_until(lambda: bool(pool.jobs))
    assert again.value("a") == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert not imported
    ((work, done),) = pool.jobs
    done(work(), None)
    again.settle()
    assert again.value("a") == 5
    assert imported == ["ottla.coordinator.runtime"]
    assert len(pool.jobs) == 1


def test_another_broker_leads_and_this_one_again(counting: Counting) -> None:
    counting.create()
    assert counting.add("a", 5) == 5
    coordinator_host = counting.coordinator_host
    index = coordinator_host.runtime.partition_for("a")
    shard = dict(coordinator_host.runtime.active_shards())[index]
    waiting = counting.send("a", 1)

    led_by_2, changes = counting.led_by(2, "a", counting.image)
    coordinator_host.follow(led_by_2, changes)
    assert coordinator_host.leader("a", led_by_2) == 2
    assert coordinator_host.runtime.state(index) is None
    assert shard.life == "unloaded"
    assert waiting == [ErrorCode.NOT_COORDINATOR]
    assert counting.add("a", 1) == counting.value("a") == ErrorCode.NOT_COORDINATOR

    counting.parts.publisher.publish(*counting.led_by(1, "a", led_by_2))
    counting.settle()
    assert coordinator_host.leader("a", counting.image) == 1
    assert dict(coordinator_host.runtime.active_shards())[index] is not shard
    assert counting.value("a") == 5
    assert counting.add("a", 1) == 6


def test_deleted_topic_removes_its_state(counting: Counting) -> None:
    counting.create()
    assert counting.add("a", 5) == 5
    counting.client.ask(DeleteTopicsRequest(topic_names=["__counters"]), 5)
    assert counting.add("a", 1) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    counting.create()
    assert counting.value("a") == 0


def test_stopping_broker_answers_waiting_requests(counting: Counting) -> None:
    counting.create()
    waiting = counting.send("a", 1)
    counting.server.stop()
    assert waiting == [1], "pending records are written"
    assert counting.coordinator_host.runtime.state_counts()[CoordinatorState.ACTIVE] == 0
    counting.server.start()
