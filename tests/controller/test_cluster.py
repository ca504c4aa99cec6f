"""Registration, leader epochs, features, producer ids, and the controller over several lives of a broker."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ottla.app.disk import RealDisk
from ottla.common.config.broker_configs import BrokerConfig
from ottla.common.config.config_def import ConfigResourceType
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.platform.endpoint import Endpoint
from ottla.common.platform.runtime import NodeRuntime
from ottla.controller.driver import Controller
from ottla.controller.features import activation_records, handle_update_features
from ottla.controller.heartbeats import BrokerHeartbeats
from ottla.controller.producer_ids import handle_allocate_producer_ids
from ottla.controller.requests import operation_of
from ottla.controller.result import MIN_ISR, ControllerContext
from ottla.controller.topics import handle_create_topics, handle_delete_topics
from ottla.metadata.image import EMPTY_IMAGE, ControllerImage, MetadataImage, VersionRange, transaction_version
from ottla.metadata.publisher import MetadataPublisher
from ottla.metadata.records import ApiMessageAndVersion, versioned
from ottla.metrics.registry import MetricsRegistry
from ottla.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest
from ottla.protocol.messages.metadata_records import ConfigRecord, FeatureLevelRecord
from ottla.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from ottla.quorum.config import LocalReplica
from ottla.quorum.driver import QuorumDriver
from ottla.security.sasl.tokens import TokenIndex
from ottla.server.metadata_log.kraft import metadata_log_config

ENDPOINTS = [Endpoint("PLAINTEXT", "PLAINTEXT", "h", 9092)]


def update(image: MetadataImage, feature: str, level: int, version: int = 2, **options: Any) -> Any:
    return update_all(image, FeatureUpdateKey(feature=feature, max_version_level=level, **options), version=version)


def update_all(
    image: MetadataImage,
    *keys: FeatureUpdateKey,
    version: int = 2,
    kraft_version: int = 1,
    check_voters: Callable[[], None] = lambda: None,
    validate_only: bool = False,
) -> Any:
    config, _ = BrokerConfig.parse({MIN_ISR: "2"})
    context = ControllerContext(
        config=config,
        new_uuid=lambda: bytes(16),
        cluster_id="c",
        heartbeats=BrokerHeartbeats(9000),
        now_ms=0,
        time_ms=0,
        tokens=TokenIndex(""),
        next_offset=0,
        kraft_version=kraft_version,
        check_voters=check_voters,
    )
    request = UpdateFeaturesRequest(feature_updates=list(keys), validate_only=validate_only)
    return handle_update_features(image, request, version, context)


def test_metadata_version_is_final(image: MetadataImage) -> None:
    assert image.features == {
        "metadata.version": 25,
        "group.version": 1,
        "eligible.leader.replicas.version": 1,
        "transaction.version": 2,
    }
    result = update(image, "metadata.version", 25)
    assert (result.records, result.response.error_code) == ([], 0)


@pytest.mark.parametrize(
    ("feature", "level", "options", "message"),
    [
        ("metadata.version", 34, {}, "Local controller only supports versions 7-33"),
        ("metadata.version", 6, {"upgrade_type": 3}, "Local controller only supports versions 7-33"),
        ("metadata.version", 24, {}, "Can't downgrade the version of this feature without"),
        ("metadata.version", -1, {}, "A feature version cannot be less than 0."),
        ("metadata.version", 25, {"upgrade_type": 0}, "does not support the given upgrade type"),
        ("transaction.version", 3, {}, "Local controller only supports versions 0-2"),
        ("transaction.version", 1, {}, "Can't downgrade the version of this feature without"),
        ("streams.version", 1, {}, "Local controller does not support this feature."),
        ("kraft.version", 2, {}, "Local controller only supports versions 0-1"),
        ("kraft.version", 0, {"upgrade_type": 2}, "Can't downgrade the version of this feature."),
    ],
)
def test_feature_update_refused(
    image: MetadataImage, feature: str, level: int, options: dict[str, int], message: str
) -> None:
    result = update(image, feature, level, **options)
    assert result.records == []
    assert result.response.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert message in result.response.error_message
    assert result.response.results == []
    old = update(image, feature, level, version=1, **options)
    assert old.response == result.response


@pytest.mark.parametrize("downgrade", [2, 3])
def test_transaction_version_downgrade_and_upgrade(image: MetadataImage, apply: Any, downgrade: int) -> None:
    levels = []
    for level, upgrade_type in ((1, downgrade), (0, downgrade), (1, 1), (2, 1)):
        result = update(image, "transaction.version", level, upgrade_type=upgrade_type)
        assert result.response.error_code == 0
        image = apply(image, result.records)
        levels.append(transaction_version(image))
    assert levels == [1, 0, 1, 2]


def test_an_older_cluster_stays_without_transactions_of_a_level(image: MetadataImage) -> None:
    older = replace(image, features={"metadata.version": 25, "group.version": 1})
    assert not any(isinstance(record.message, FeatureLevelRecord) for record in activation_records(older, 1))
    assert transaction_version(older) == 0
    assert update(older, "transaction.version", 2).response.error_code == 0


@pytest.mark.parametrize("kind", ["Broker", "Controller"])
@pytest.mark.parametrize(
    ("supported", "message"),
    [({}, "{} 2 does not support this feature."), ({"transaction.version": VersionRange(0, 1)}, "{} 2 only supports")],
)
def test_level_unsupported_by_a_node_is_rejected(
    image: MetadataImage, kind: str, supported: dict[str, VersionRange], message: str
) -> None:
    image = replace(image, features=dict(image.features) | {"transaction.version": 0})
    if kind == "Broker":
        image = replace(image, brokers={**image.brokers, 2: replace(image.brokers[1], broker_id=2, features=supported)})
    else:
        image = replace(image, controllers={2: ControllerImage(2, b"I" * 16, (), supported)})
    result = update(image, "transaction.version", 2)
    assert (result.records, result.response.error_code) == ([], ErrorCode.INVALID_UPDATE_VERSION)
    assert message.format(kind) in result.response.error_message
    assert update(image, "transaction.version", 0).response.error_code == 0


@pytest.mark.promise("R12")
@pytest.mark.parametrize(
    ("upgrade_type", "reason"),
    [
        (2, "Refusing to perform the requested downgrade because it might delete metadata information."),
        (3, "Unsafe metadata downgrade is not supported in this version."),
    ],
)
def test_lossy_metadata_downgrade_is_rejected(image: MetadataImage, apply: Any, upgrade_type: int, reason: str) -> None:
    result = update(image, "metadata.version", 22, upgrade_type=upgrade_type)
    assert (result.records, result.response.error_code) == ([], ErrorCode.INVALID_UPDATE_VERSION)
    assert f"Unsupported metadata.version downgrade from 4.0-IV3 to 4.0-IV0. {reason}" in result.response.error_message
    lowered = apply(image, update(image, "metadata.version", 23, upgrade_type=upgrade_type).records)
    assert lowered.features["metadata.version"] == 23


def test_every_level_above_can_be_reached(image: MetadataImage, apply: Any) -> None:
    node = {"metadata.version": VersionRange(7, 33)}
    image = replace(
        image, brokers={}, controllers={1: ControllerImage(1, b"I" * 16, (), node)}, features={"metadata.version": 7}
    )
    for level in range(8, 34):
        image = apply(image, update(image, "metadata.version", level).records)
        assert image.features["metadata.version"] == level


def test_elr_feature_requires_its_metadata_level(image: MetadataImage) -> None:
    feature = "eligible.leader.replicas.version"
    image = replace(image, features={"metadata.version": 22})
    assert f"{feature} could not be set to 1 because it depends on metadata.version level 23" in (
        update(image, feature, 1).response.error_message
    )
    # Also if the request names only the required feature.
    image = replace(image, features={"metadata.version": 18, feature: 1})
    needed = update(image, "metadata.version", 22).response
    assert needed.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert f"{feature} could not be set to 1 because it depends on metadata.version level 23" in needed.error_message
    assert update(image, "metadata.version", 23).response.error_code == 0
    image = replace(image, features={"metadata.version": 22})
    keys = [
        FeatureUpdateKey(feature=feature, max_version_level=1),
        FeatureUpdateKey(feature="metadata.version", max_version_level=25),
    ]
    assert update_all(image, *keys).response.error_code == 0


def voters_unknown() -> None:
    raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION, "no directory is known of 3")


def test_the_level_of_the_voters_is_raised_once_all_are_known(image: MetadataImage) -> None:
    """`kafka-features upgrade --release-version` names it, too: an unchanged level is accepted."""
    kraft = FeatureUpdateKey(feature="kraft.version", max_version_level=1)
    keys = [kraft, FeatureUpdateKey(feature="metadata.version", max_version_level=26)]
    result = update_all(image, *keys, check_voters=voters_unknown)
    assert ([record.message.name for record in result.records], result.names_voters) == (["metadata.version"], False)
    # The image has one broker, which does not support the level.
    assert "Broker 1 does not support" in update_all(image, *keys, kraft_version=0).response.error_message
    image = replace(image, brokers={})
    refused = update_all(image, *keys, kraft_version=0, check_voters=voters_unknown)
    assert (refused.records, refused.names_voters) == ([], False)
    assert refused.response.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert "no directory is known of 3" in refused.response.error_message
    raised = update_all(image, *keys, kraft_version=0)
    assert ([record.message.name for record in raised.records], raised.names_voters) == (["metadata.version"], True)
    assert not update_all(image, *keys, kraft_version=0, validate_only=True).names_voters
    kraft.upgrade_type = 2
    assert "Can't downgrade to a newer" in update_all(image, *keys, kraft_version=0).response.error_message
    kraft.max_version_level, kraft.upgrade_type = 0, 1
    assert update_all(image, *keys, kraft_version=0).response.error_code == 0


@pytest.mark.parametrize(("upgrade_type", "problem"), [(1, "without setting"), (2, "feature."), (3, "feature.")])
def test_kraft_version_downgrade_is_rejected(image: MetadataImage, upgrade_type: int, problem: str) -> None:
    key = FeatureUpdateKey(feature="kraft.version", max_version_level=0, upgrade_type=upgrade_type)
    response = update_all(image, key).response
    assert response.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert "Can't downgrade the version of this feature" in response.error_message
    assert problem in response.error_message


def settings_of(records: Sequence[ApiMessageAndVersion]) -> list[tuple[str, str, str | None]]:
    messages = [record.message for record in records if isinstance(record.message, ConfigRecord)]
    return [(message.resource_name, message.name, message.value) for message in messages]


def test_new_cluster_stores_min_isr_of_its_config(apply: Any) -> None:
    records = activation_records(EMPTY_IMAGE, 2)
    assert settings_of(records) == [("", "min.insync.replicas", "2")]
    image = apply(EMPTY_IMAGE, records)
    assert image.features["eligible.leader.replicas.version"] == 1
    assert activation_records(image, 3) == []


def test_older_cluster_stores_the_highest_min_isr(image: MetadataImage, apply: Any) -> None:
    older = [("1", "3"), ("2", "2")]
    image = apply(
        image,
        [
            versioned(
                ConfigRecord(resource_type=ConfigResourceType.BROKER, resource_name=broker, name=MIN_ISR, value=value)
            )
            for broker, value in older
        ],
    )
    records = activation_records(image, 1)
    assert settings_of(records) == [("1", MIN_ISR, None), ("2", MIN_ISR, None), ("", MIN_ISR, "3")]
    assert activation_records(apply(image, records), 1) == []


def test_enabling_elr_stores_the_cluster_min_isr(image: MetadataImage, apply: Any) -> None:
    feature = "eligible.leader.replicas.version"
    off = apply(image, update(image, feature, 0, upgrade_type=2).records)
    assert activation_records(off, 2) == []
    assert settings_of(update(off, feature, 1).records) == [("", MIN_ISR, "2")]


def test_producer_ids_need_a_registered_broker(image: MetadataImage) -> None:
    epoch = image.brokers[1].broker_epoch
    first = handle_allocate_producer_ids(image, AllocateProducerIdsRequest(broker_id=1, broker_epoch=epoch)).response
    assert (first.producer_id_start, first.producer_id_len) == (0, 1000)
    for broker_id, broker_epoch in ((1, epoch + 1), (2, epoch)):
        request = AllocateProducerIdsRequest(broker_id=broker_id, broker_epoch=broker_epoch)
        with pytest.raises(KafkaError) as refused:
            handle_allocate_producer_ids(image, request)
        assert refused.value.code is ErrorCode.STALE_BROKER_EPOCH


class Life:
    """One run of a broker's controller on a data directory."""

    def __init__(
        self, data_dir: Path, log_epochs: dict[tuple[bytes, int], int] | None = None, **properties: str
    ) -> None:
        config, _ = BrokerConfig.parse({name.replace("_", "."): text for name, text in properties.items()})
        self.publisher = MetadataPublisher()
        self.published: list[tuple[MetadataImage, Any]] = []
        self.publisher.register(lambda image, changes: self.published.append((image, changes)))
        seed = random.Random()

        class Rng:
            def random_bytes(self, count: int) -> bytes:
                return seed.randbytes(count)

            def randrange(self, stop: int) -> int:
                return seed.randrange(stop)

        class Clock:
            def time_ms(self) -> int:
                return 1_700_000_000_000

            def monotonic(self) -> float:
                return 0.0

        class Now:
            """Runs blocking work and scheduled callbacks at once; timers never."""

            def submit(self, work: Any, done: Any) -> None:
                try:
                    result = work()
                except OSError as error:
                    done(None, error)
                else:
                    done(result, None)

            def call_soon(self, callback: Any, *args: Any) -> Any:
                callback(*args)

            def call_later(self, delay: float, callback: Any, *args: Any) -> Any:
                class Handle:
                    def cancel(self) -> None:
                        return

                return Handle()

        rng = Rng()
        quorum = QuorumDriver(
            runtime=NodeRuntime(RealDisk(), Clock(), rng, Now(), Now()),
            local=LocalReplica(config.node_id, b"D" * 16, str(data_dir), metadata_log_config(config)),
            publisher=self.publisher,
            on_failure=lambda error: None,
        )
        self.controller = Controller(
            metadata_log=quorum,
            config=config,
            cluster_id="a-cluster-of-tests-0000",
            log_dirs=lambda: [b"D" * 16],
            cordoned=list,
            clock=Clock(),
            rng=rng,
            scheduler=Now(),
            registry=MetricsRegistry(),
        )
        outcome: list[BaseException | None] = []
        self.controller.start(ENDPOINTS, outcome.append, lambda image: log_epochs or {})
        assert outcome == [None]

    @property
    def image(self) -> MetadataImage:
        return self.publisher.image

    def run(self, operation: Any) -> Any:
        outcome: list[Any] = []
        self.controller.submit(operation, lambda response, error: outcome.append((response, error)))
        ((response, error),) = outcome
        if error is not None:
            raise error
        return response

    def create(self, *names: str, partitions: int = 1) -> Any:
        wanted = [CreatableTopic(name=name, num_partitions=partitions, replication_factor=1) for name in names]
        request = CreateTopicsRequest(topics=wanted)
        return self.run(lambda image, context: handle_create_topics(image, request, context))

    def producer_ids(self) -> int:
        """The first of a block."""
        request = AllocateProducerIdsRequest(broker_id=1, broker_epoch=self.controller.broker_epoch)
        first: int = self.run(operation_of(request)).producer_id_start
        return first

    def stop(self) -> None:
        outcome: list[BaseException | None] = []
        self.controller.stop(outcome.append)
        assert outcome == [None]


@pytest.mark.promise("D6")
def test_restart_is_a_new_incarnation_with_new_epochs(tmp_path: Path) -> None:
    life = Life(tmp_path)
    assert [len(changes.created_topics) for _, changes in life.published] == [0]
    life.create("t", partitions=3)
    first = life.image
    assert first.brokers[1].active
    assert first.brokers[1].endpoints == tuple(ENDPOINTS)
    incarnations = {first.brokers[1].incarnation_id}
    broker_epochs = [first.brokers[1].broker_epoch]
    for number in (1, 2, 3):
        if number == 2:
            life.stop()  # the others end by crashes
        life = Life(tmp_path)
        image, changes = life.published[0]
        assert len(life.published) == 1, "the first published image has the new epochs"
        assert [(topic.name, index) for topic, index in changes.changed_partitions] == [("t", i) for i in range(3)]
        assert {part.leader_epoch for part in image.topics["t"].partitions.values()} == {number}
        assert image.topics["t"].topic_id == first.topics["t"].topic_id
        incarnations.add(image.brokers[1].incarnation_id)
        broker_epochs.append(image.brokers[1].broker_epoch)
        assert life.controller.broker_epoch == broker_epochs[-1]
    assert len(incarnations) == 4
    assert broker_epochs == sorted(set(broker_epochs))


@pytest.mark.promise("D6")
def test_leader_epochs_rise_above_those_of_the_logs(tmp_path: Path) -> None:
    """The metadata log lost its tail, and with it the epochs in which the broker already wrote."""
    life = Life(tmp_path)
    life.create("t", partitions=3)
    topic = life.image.topics["t"]
    life.stop()
    life = Life(tmp_path, {(topic.topic_id, 0): 7, (topic.topic_id, 1): 0, (b"other" * 3 + b".", 2): 9})
    after = life.image.topics["t"].partitions
    assert [after[index].leader_epoch for index in range(3)] == [8, 1, 1]
    assert [after[index].partition_epoch for index in range(3)] == [1, 1, 1]
    assert after[0].isr == topic.partitions[0].isr
    life.stop()
    assert Life(tmp_path).image.topics["t"].partitions[0].leader_epoch == 9


def test_producer_ids_are_unique_across_restarts(tmp_path: Path) -> None:
    seen: list[int] = []
    for _ in range(3):
        life = Life(tmp_path)
        seen += [life.producer_ids(), life.producer_ids()]
    assert seen == [number * 1000 for number in range(6)]


def test_requests_see_each_other_and_refusals_are_answered(tmp_path: Path) -> None:
    life = Life(tmp_path, delete_topic_enable="false")
    assert life.create("t").topics[0].error_code == 0
    assert life.create("t").topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS
    request = DeleteTopicsRequest(topic_names=["t"])
    with pytest.raises(KafkaError) as caught:
        life.run(lambda image, context: handle_delete_topics(image, request, context))
    assert caught.value.code == ErrorCode.TOPIC_DELETION_DISABLED
    life.stop()
    with pytest.raises(KafkaError) as caught:
        life.create("late")
    assert caught.value.code == ErrorCode.NOT_CONTROLLER


def test_many_partitions_survive(tmp_path: Path) -> None:
    life = Life(tmp_path)
    life.create("a", partitions=9000)
    life.create("b", partitions=3000)
    life = Life(tmp_path)
    assert life.image.partition_count() == 12000
    assert {part.leader_epoch for topic in life.image.topics.values() for part in topic.partitions.values()} == {1}
    assert life.image.next_producer_id == EMPTY_IMAGE.next_producer_id
