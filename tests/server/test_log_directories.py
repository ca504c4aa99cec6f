"""A broker over two data directories: placement, DescribeLogDirs, restarts."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.server.harness import Connection, Server

from ottla.common.config.feature_levels import CORDONED_DIRECTORIES
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.kafka.ids import ZERO_UUID
from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from ottla.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from ottla.replica.directory_assignments import DirectoryAssignments


def described(client: Connection) -> dict[str, tuple[int, set[tuple[str, int]]]]:
    results = client.ask(DescribeLogDirsRequest(topics=None), 4).results
    return {
        Path(each.log_dir).name: (
            each.error_code,
            {(topic.name, partition.partition_index) for topic in each.topics for partition in topic.partitions},
        )
        for each in results
    }


def test_partitions_are_spread_and_stay_where_they_are(tmp_path: Path) -> None:
    server = Server(tmp_path, log_dirs=f"{tmp_path}/a,{tmp_path}/b")
    try:
        client = server.connect()
        client.create_topic("t", partitions=4)
        placed = described(client)
        assert placed == {"a": (0, {("t", 0), ("t", 2)}), "b": (0, {("t", 1), ("t", 3)})}
        for partition in range(4):
            client.produce("t", b"value", partition=partition)
        server.restart()
        assert described(server.connect()) == placed
        assert len(list(tmp_path.glob("[ab]/t-*"))) == 4
        assert not (tmp_path / "b" / "__cluster_metadata-0").exists()
    finally:
        server.stop()


def test_removed_log_directory_is_not_recreated(tmp_path: Path) -> None:
    both, one = f"{tmp_path}/a,{tmp_path}/b", f"{tmp_path}/a"
    server = Server(tmp_path, log_dirs=both)
    try:
        client = server.connect()
        client.create_topic("t", partitions=4)
        placed = described(client)
        for partition in range(4):
            client.produce("t", b"value", partition=partition)
        topic = server.broker.parts.publisher.image.topics["t"]
        ids = {each.path: each.directory_id for each in server.broker.parts.logs.directories}
        of_b = ids[f"{tmp_path}/b"]
        server.run_until(lambda: server.broker.parts.publisher.image.topics["t"].partitions[1].directories == (of_b,))
        server.stop()
        server.settings["log.dirs"] = one
        server.start()
        assert described(server.connect()) == {"a": placed["a"]}
        with pytest.raises(KafkaError) as caught:
            server.broker.parts.replicas.find("t", 1)
        assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        server.connect().produce("t", b"value", partition=0)
        server.connect().create_topic("u", partitions=2)
        server.stop()
        server.settings["log.dirs"] = both
        server.start()
        assert described(server.connect())["b"] == placed["b"]
        assert server.broker.parts.replicas.find("t", 1).log.log_end_offset == 1
        assert server.broker.parts.replicas.find("t", 0).log.log_end_offset == 2
        assert topic.topic_id == server.broker.parts.publisher.image.topics["t"].topic_id
    finally:
        server.stop()


def test_unassigned_replica_is_not_recreated(tmp_path: Path) -> None:
    """The broker ends before it has reported the directory of the replica, and the directory is lost."""
    reports = pytest.MonkeyPatch()
    reports.setattr(DirectoryAssignments, "report", lambda *_: None)
    server = Server(tmp_path, log_dirs=f"{tmp_path}/a,{tmp_path}/b")
    try:
        client = server.connect()
        client.create_topic("t", partitions=2)
        client.produce("t", b"value", partition=1)
        placed = described(client)
        assert server.broker.parts.publisher.image.topics["t"].partitions[1].directories == (ZERO_UUID,)
        server.stop()
        reports.undo()
        (tmp_path / "b").rename(tmp_path / "away")
        for _ in range(2):  # the first one created an empty directory, and recorded that the replica is offline
            server.start()
            assert described(server.connect())["a"] == placed["a"]
            with pytest.raises(KafkaError) as caught:
                server.broker.parts.replicas.find("t", 1)
            assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR
            server.connect().produce("t", b"value", partition=0)
            server.stop()
        (tmp_path / "b").rename(tmp_path / "empty")
        (tmp_path / "away").rename(tmp_path / "b")
        server.start()
        assert described(server.connect()) == placed
        assert server.broker.parts.replicas.find("t", 1).log.log_end_offset == 1
    finally:
        reports.undo()
        server.stop()


def test_cordoned_directory_is_reported(tmp_path: Path) -> None:
    server = Server(tmp_path, log_dirs=f"{tmp_path}/a,{tmp_path}/b", cordoned_log_dirs=f"{tmp_path}/a")
    try:
        client = server.connect()
        client.create_topic("t", partitions=3)
        assert described(client) == {"a": (0, set()), "b": (0, {("t", 0), ("t", 1), ("t", 2)})}
        results = client.ask(DescribeLogDirsRequest(topics=None), 5).results
        assert [each.is_cordoned for each in results] == [True, False]
    finally:
        server.stop()


@pytest.mark.parametrize("level", [CORDONED_DIRECTORIES - 1, CORDONED_DIRECTORIES])
def test_single_node_with_all_directories_cordoned(tmp_path: Path, level: int) -> None:
    """From the level that supports cordoning (KIP-1066)."""
    server = Server(tmp_path, log_dirs=f"{tmp_path}/a,{tmp_path}/b")
    try:
        client = server.connect()
        update = FeatureUpdateKey(feature="metadata.version", max_version_level=level, upgrade_type=1)
        assert client.ask(UpdateFeaturesRequest(feature_updates=[update], timeout_ms=1000), 1).error_code == 0

        def is_reported() -> bool:
            known = server.broker.parts.publisher.image.brokers[1].cordoned_log_dirs
            return level < CORDONED_DIRECTORIES or list(known) == server.broker.parts.logs.cordoned_ids()

        def cordon(value: str) -> None:
            config = AlterableConfig(name="cordoned.log.dirs", config_operation=0, value=value)
            resource = AlterConfigsResource(resource_type=4, resource_name="1", configs=[config])
            (result,) = server.connect().ask(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
            assert result.error_code == 0, result.error_message
            server.run_until(is_reported)

        def created(name: str) -> int:
            topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
            (result,) = server.connect().ask(CreateTopicsRequest(topics=[topic]), 7).topics
            return result.error_code

        expected = ErrorCode.INVALID_REPLICATION_FACTOR if level == CORDONED_DIRECTORIES else ErrorCode.NONE
        assert created("t") == 0
        cordon("*")
        assert created("u") == expected
        server.restart()
        assert len(server.broker.parts.logs.cordoned_ids()) == 2
        server.run_until(is_reported)
        assert created("v") == expected
        cordon("")
        assert created("w") == 0
    finally:
        server.stop()
