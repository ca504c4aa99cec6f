"""`ottla adopt`: directories of Apache Kafka are reported, checked and left unchanged."""

from __future__ import annotations

import json
import shlex
import struct
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from ottla.app.disk import RealDisk
from ottla.app.main import cli
from ottla.client.admin.cluster import Cluster
from ottla.controller.features import bootstrap_records
from ottla.coordinator.group.offsets.committed_offset import pack
from ottla.coordinator.group.records import GroupRecord, OffsetPlace, encode_record
from ottla.coordinator.transaction.metadata import TransactionMetadata
from ottla.coordinator.transaction.records import encode_key, encode_value
from ottla.coordinator.transaction.state import TransactionState
from ottla.protocol.messages.coordinator_records import (
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    GroupMetadataKey,
    GroupMetadataValue,
)
from ottla.protocol.messages.metadata_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    UserScramCredentialRecord,
)
from ottla.quorum.snapshot_file import BOOTSTRAP, bootstrap_snapshot
from ottla.record.builder import RecordData, build_batch
from ottla.record.control import end_transaction_marker

from .apache_layout import (
    CLUSTER_ID,
    NOW_MS,
    ApacheDirectory,
    batch,
    features,
    registration,
    topic_id,
    topic_records,
    unread_record,
)

BATCHES = batch(0, 10) + batch(10, 5, compression="gzip")


@pytest.fixture
def made(tmp_path: Path) -> ApacheDirectory:
    """One topic of one partition, stopped cleanly."""
    directory = ApacheDirectory(tmp_path / "kafka")
    directory.write([*features(), registration(), *topic_records("t", retention_ms="-1")])
    directory.partition("t", 0, BATCHES)
    return directory


def adopt(directory: ApacheDirectory | Path, *arguments: str) -> Result:
    path = directory.path if isinstance(directory, ApacheDirectory) else directory
    return CliRunner().invoke(cli, ["adopt", str(path), *arguments])


def document(directory: ApacheDirectory, *arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(adopt(directory, "--json", *arguments).stdout)
    return found


def refused(directory: ApacheDirectory | Path) -> str:
    """The error message."""
    done = adopt(directory)
    assert done.exit_code == 2, done.output
    return done.stderr


def test_directory_is_reported_and_unchanged(made: ApacheDirectory) -> None:
    before = made.content()
    done = adopt(made, "--verify")
    assert done.exit_code == 0, done.output
    assert made.content() == before
    lines = {line.split("  ")[0]: line for line in done.stdout.splitlines()}
    assert f"1 of cluster {CLUSTER_ID}" in lines["node"]
    assert "clean" in lines["last stop"]
    assert "this node only" in lines["voters"]
    assert "metadata.version 25" in lines["features"]
    assert f"ottla start --data-dir {made.path}" in done.stdout
    found = document(made)
    assert found["obstacles"] == found["cuts"] == found["strays"] == []
    assert found["partitions"] == [
        {
            "path": str(made.path / "t-0"),
            "topic": "t",
            "partition": 0,
            "topic_id": found["partitions"][0]["topic_id"],
            "segments": 1,
        }
        | {"bytes": len(BATCHES)}
    ]


def test_credentials_are_reported_as_in_force(tmp_path: Path) -> None:
    directory = ApacheDirectory(tmp_path / "kafka")
    users = [UserScramCredentialRecord(name="ann", mechanism=number, iterations=4096) for number in (1, 2)]
    directory.write([*features(), registration(), *users])
    lines = {line.split("  ")[0]: line.split() for line in adopt(directory).stdout.splitlines()}
    assert lines["SCRAM credentials"] == ["SCRAM", "credentials", "2", "in", "force"]
    assert document(directory)["scram_credentials"] == 2
    assert document(directory)["delegation_tokens"] == 0


def test_voters_of_a_configuration_are_known_from_quorum_state(tmp_path: Path) -> None:
    directory = ApacheDirectory(tmp_path / "kafka", node_id=2, voters=(1, 2, 3), voters_in_log=False)
    directory.write([*features(), registration(2)])
    done = adopt(directory)
    assert done.exit_code == 0, done.output
    assert "1, 2, 3" in done.stdout
    assert "It is one node of a cluster" in done.stdout


def test_another_node_id_is_part_of_the_command_that_serves_it(tmp_path: Path) -> None:
    directory = ApacheDirectory(tmp_path / "kafka", node_id=7, voters=(7,))
    directory.write([*features(), registration(7)])
    assert "--set node.id=7" in adopt(directory).stdout


@pytest.mark.parametrize("voters_in_log", [True, False])
def test_a_start_serves_the_same_bytes(ottla: Any, tmp_path: Path, voters_in_log: bool) -> None:
    """After a kill, with an unknown config."""
    directory = ApacheDirectory(tmp_path / "kafka", voters_in_log=voters_in_log)
    records = [*features(), registration(), *topic_records("t", message_format_version="2.8", retention_ms="-1")]
    directory.write(records, clean=False)
    directory.partition("t", 0, BATCHES, clean=False)
    started = ottla.start("--data-dir", str(directory.path), "--port", "0")
    with Cluster(started.ready["bootstrap_servers"]) as cluster:
        assert bytes(cluster.records.fetch("t", 0, 0).records) == BATCHES
    started.process.terminate()
    assert started.process.wait() == 0
    found = document(directory)
    assert (found["clean_stop"], found["unknown_settings"]) == (True, ["t: message.format.version"])
    assert [each["bytes"] for each in found["partitions"]] == [len(BATCHES)]


class TestSeveralDirectories:
    @pytest.fixture
    def two(self, tmp_path: Path) -> tuple[ApacheDirectory, ApacheDirectory]:
        """A node with two, and a partition in each; the metadata log is in the first."""
        first, second = ApacheDirectory(tmp_path / "d1"), ApacheDirectory(tmp_path / "d2", directory_id=b"E" * 16)
        first.write([*features(), registration(log_dirs=[b"D" * 16, b"E" * 16]), *topic_records("t", partitions=2)])
        second.write_identity()
        first.partition("t", 0, BATCHES)
        second.partition("t", 1, BATCHES)
        return first, second

    def test_directory_with_metadata_log_is_listed_first(self, two: tuple[ApacheDirectory, ApacheDirectory]) -> None:
        first, second = two
        done = adopt(second, str(first.path))
        assert done.exit_code == 0, done.output
        assert f"--set log.dirs={first.path},{second.path}" in done.stdout
        found = document(first, str(second.path))
        assert [each["partition"] for each in found["partitions"]] == [0, 1]

    def test_missing_data_directory_is_an_obstacle(self, two: tuple[ApacheDirectory, ApacheDirectory]) -> None:
        first, second = two
        first_of, then = document(first)["obstacles"]
        assert "2 directories, and 1 of them were given" in first_of
        assert "the partitions t-1 of node 1 are not in" in then
        assert "0 of" in refused(second)

    def test_a_copy_a_stranger_and_a_partition_in_both(self, two: tuple[ApacheDirectory, ApacheDirectory]) -> None:
        first, second = two
        second.partition("t", 0, BATCHES)
        (obstacle,) = document(first, str(second.path))["obstacles"]
        assert "t-0 are in more than one of" in obstacle
        properties = second.path / "meta.properties"
        properties.write_text(properties.read_text().replace("node.id=1", "node.id=2"))
        assert "belong to different nodes" in adopt(first, str(second.path)).stderr
        properties.write_text((first.path / "meta.properties").read_text())
        assert "have the same directory.id" in adopt(first, str(second.path)).stderr


class TestUncleanStop:
    def test_preallocated_space_is_not_damage(self, tmp_path: Path) -> None:
        directory = ApacheDirectory(tmp_path / "kafka")
        directory.write([*features(), registration(), *topic_records("t")], clean=False)
        directory.partition("t", 0, BATCHES, clean=False)
        found = document(directory)
        assert found["clean_stop"] is False
        assert found["cuts"] == found["obstacles"] == []

    def test_torn_end_is_reported(self, tmp_path: Path) -> None:
        directory = ApacheDirectory(tmp_path / "kafka")
        directory.write([*features(), registration(), *topic_records("t")], clean=False)
        directory.partition("t", 0, BATCHES[:-3], clean=False)
        (cut,) = document(directory)["cuts"]
        assert (cut["position"], cut["end_offset"]) == (len(batch(0, 10)), 10)
        assert cut["size_bytes"] == len(BATCHES) - 3 - len(batch(0, 10))
        assert "cut short" in adopt(directory).stdout

    def test_damage_with_batches_behind_it_is_an_obstacle(self, tmp_path: Path) -> None:
        directory = ApacheDirectory(tmp_path / "kafka")
        directory.write([*features(), registration(), *topic_records("t")], clean=False)
        damaged = bytearray(BATCHES)
        damaged[len(batch(0, 10)) - 1] ^= 1
        directory.partition("t", 0, bytes(damaged), clean=False)
        assert "is damaged at position 0 (the CRC" in refused(directory)

    def test_verify_reads_segments_below_recovery_point(self, tmp_path: Path) -> None:
        directory = ApacheDirectory(tmp_path / "kafka")
        directory.write([*features(), registration(), *topic_records("t")], clean=False)
        damaged = bytearray(batch(0, 10))
        damaged[-1] ^= 1
        directory.partition("t", 0, bytes(damaged), clean=False)
        directory.partition("t", 0, batch(10, 5), clean=False, base_offset=10)
        directory.recovery_points({("t", 0): 10})
        assert document(directory)["obstacles"] == []
        (obstacle,) = document(directory, "--verify")["obstacles"]
        assert f"lose {len(damaged) + len(batch(10, 5))} bytes" in obstacle

    def test_offsets_are_missing_only_where_nothing_was_compacted(self, tmp_path: Path) -> None:
        directory = ApacheDirectory(tmp_path / "kafka")
        directory.write(
            [*features(), registration(), *topic_records("t"), *topic_records("c", cleanup_policy="compact,delete")],
            clean=False,
        )
        for topic in ("t", "c"):
            directory.partition(topic, 0, batch(0, 5), clean=False)
            directory.partition(topic, 0, batch(10, 5), clean=False, base_offset=10)
        (obstacle,) = document(directory)["obstacles"]
        assert "/t-0/" in obstacle
        assert "offsets 5 to 9 are missing" in obstacle


class TestCoordinators:
    def test_groups_are_counted_by_their_newest_records(self, made: ApacheDirectory) -> None:
        made.partition("t", 0, BATCHES)
        records = [
            encode_record(GroupRecord(GroupMetadataKey(group="old"), GroupMetadataValue(protocol_type="consumer"))),
            encode_record(GroupRecord(ConsumerGroupMetadataKey(group_id="new"), ConsumerGroupMetadataValue(epoch=1))),
            encode_record(GroupRecord(GroupMetadataKey(group="gone"), GroupMetadataValue(protocol_type="consumer"))),
            encode_record(GroupRecord(GroupMetadataKey(group="gone"), None)),
            *(_offset("old", partition) for partition in range(3)),
            (_offset("old", 2)[0], None),
            _offset("simple", 0),
            (struct.pack(">hh5s", 11, 5, b"share"), b"\0\0unread"),
            (struct.pack(">hh7s", 17, 7, b"streams"), b"\0\0unread"),
        ]
        data = _batch(0, records) + _batch(len(records), [_offset("new", 0)], is_transactional=True, producer_id=4)
        found = self._found(made, "__consumer_offsets", data)["groups"]
        assert found["types"] == {"classic": 2, "consumer": 1, "share": 1, "streams": 1}
        assert (found["offsets"], found["pending_offsets"]) == (3, 1)
        assert "kept, not loaded" in adopt(made).stdout

    def test_offsets_of_a_transaction_count_with_its_marker(self, made: ApacheDirectory) -> None:
        data = b""
        for producer_id, committed in ((4, True), (5, False)):
            data += _batch(len(data), [_offset(f"g{producer_id}", 0)], is_transactional=True, producer_id=producer_id)
            data += end_transaction_marker(
                commit=committed,
                timestamp_ms=NOW_MS,
                producer_id=producer_id,
                producer_epoch=0,
                coordinator_epoch=0,
                base_offset=len(data),
            )
        found = self._found(made, "__consumer_offsets", data)["groups"]
        assert (found["offsets"], found["pending_offsets"]) == (1, 0)

    def test_open_transactions_are_named(self, made: ApacheDirectory) -> None:
        states = {"a": TransactionState.ONGOING, "b": TransactionState.COMPLETE_COMMIT, "c": TransactionState.ONGOING}
        records: list[tuple[bytes, bytes | None]] = [
            (encode_key(name), encode_value(_transaction(state), 2)) for name, state in states.items()
        ]
        records.append((encode_key("c"), None))
        found = self._found(made, "__transaction_state", _batch(0, records))["transactions"]
        assert found == {"ids": 2, "open": ["a"], "unreadable": 0}

    def test_unreadable_records_are_counted_and_no_obstacle(self, made: ApacheDirectory) -> None:
        """A start skips them, as Apache Kafka does."""
        records: list[tuple[bytes, bytes | None]] = [
            (encode_key("a"), encode_value(_transaction(TransactionState.ONGOING), 2)),
            (encode_key("b"), encode_value(_transaction(TransactionState.ONGOING), 2)),
            (encode_key("a"), b"\0\x01nonsense"),
            (b"\0", b""),
        ]
        found = self._found(made, "__transaction_state", _batch(0, records))
        assert found["transactions"] == {"ids": 1, "open": ["b"], "unreadable": 2}
        assert found["obstacles"] == []
        assert "2 can't be decoded" in adopt(made).stdout

    @staticmethod
    def _found(made: ApacheDirectory, topic: str, data: bytes) -> dict[str, Any]:
        directory = ApacheDirectory(made.path.with_name("with-groups"))
        directory.write([*features(), registration(), *topic_records(topic, cleanup_policy="compact")])
        directory.partition(topic, 0, data)
        made.path = directory.path
        return document(directory)


def _offset(group: str, partition: int) -> tuple[bytes, bytes | None]:
    return encode_record(GroupRecord(OffsetPlace(group, "t", partition), pack(5, -1, NOW_MS, -1, topic_id("t"), "")))


def _batch(base_offset: int, records: list[tuple[bytes, bytes | None]], **options: Any) -> bytes:
    data = [RecordData(NOW_MS, key, value) for key, value in records]
    return bytes(build_batch(data, base_offset=base_offset, leader_epoch=0, **options))


def _transaction(state: TransactionState) -> TransactionMetadata:
    partitions = frozenset({("t", 0)}) if state is TransactionState.ONGOING else frozenset()
    return TransactionMetadata(7, -1, -1, 0, -1, 60_000, state, partitions, NOW_MS, NOW_MS, 2)


class TestObstacles:
    def test_a_broker_that_runs(self, made: ApacheDirectory) -> None:
        lock = RealDisk().lock(str(made.path / ".lock"))
        try:
            assert "in use by a running broker" in refused(made)
        finally:
            lock.release()

    def test_no_directory_of_a_node(self, tmp_path: Path) -> None:
        assert "it has no meta.properties" in refused(tmp_path)
        assert "is not a directory" in refused(tmp_path / "nowhere")
        assert list(tmp_path.iterdir()) == []

    def test_a_directory_of_zookeeper_times(self, made: ApacheDirectory) -> None:
        (made.path / "meta.properties").write_text(f"version=0\nbroker.id=1\ncluster.id={CLUSTER_ID}\n")
        assert "ZooKeeper mode: migrate" in refused(made)

    def test_an_identity_of_before_directories_had_one(self, made: ApacheDirectory) -> None:
        properties = made.path / "meta.properties"
        properties.write_text("".join(line for line in properties.open() if "directory.id" not in line))
        assert "has no directory.id: start this directory once with Apache Kafka 3.7 or later" in refused(made)

    def test_missing_metadata_log_is_an_obstacle(self, made: ApacheDirectory) -> None:
        made.metadata.rename(made.path.with_name("elsewhere"))
        assert "have a metadata log" in refused(made)

    def test_a_level_that_this_version_does_not_have(self, tmp_path: Path) -> None:
        directory = ApacheDirectory(tmp_path / "kafka")
        directory.write([*features(metadata_version=9999), registration()])
        assert "is at level 9999 of metadata.version" in refused(directory)

    def test_unknown_metadata_records_are_an_obstacle(self, tmp_path: Path) -> None:
        """All unknown records are listed, and the decodable ones are reported."""
        directory = ApacheDirectory(tmp_path / "kafka")
        unknown = [unread_record(kind) for kind in (200, 200, 21)]
        directory.write([*features(metadata_version=9999), registration()], values=unknown)
        done = adopt(directory)
        assert done.exit_code == 2
        assert "the state of a ZooKeeper migration (1)" in done.stderr
        assert "metadata record of kind 200, which this version does not support (2)" in done.stderr
        assert "is at level 9999" in done.stderr
        assert CLUSTER_ID in done.stdout

    def test_partitions_that_are_not_there(self, made: ApacheDirectory) -> None:
        (made.path / "t-0").rename(made.path.with_name("t-0"))
        assert "the partitions t-0 of node 1 are not in" in refused(made)

    def test_data_in_tiered_storage_is_an_obstacle(self, tmp_path: Path) -> None:
        directory = ApacheDirectory(tmp_path / "kafka")
        directory.write([*features(), registration(), *topic_records("t", remote_storage_enable="true")])
        directory.partition("t", 0, BATCHES)
        assert "tiered storage contains a part of t" in refused(directory)

    def test_a_damaged_metadata_log(self, made: ApacheDirectory) -> None:
        path = made.metadata / f"{0:020d}.log"
        data = bytearray(path.read_bytes())
        data[80] ^= 1
        path.write_bytes(data)
        assert "is damaged at position 0" in refused(made)

    @pytest.mark.parametrize(
        ("bounds", "what"),
        [
            ([BeginTransactionRecord()], "an open"),
            ([BeginTransactionRecord(), AbortTransactionRecord()], "an aborted"),
            ([BeginTransactionRecord(), EndTransactionRecord()], ""),
        ],
    )
    def test_a_transaction_of_the_metadata_that_does_not_count(
        self, tmp_path: Path, bounds: list[Any], what: str
    ) -> None:
        directory = ApacheDirectory(tmp_path / "kafka")
        directory.write([*features(), bounds[0], registration(), *bounds[1:]])
        if what:
            assert f"has {what} metadata transaction" in refused(directory)
        else:
            assert adopt(directory).exit_code == 0


def test_next_step_is_quoted_for_the_shell(tmp_path: Path) -> None:
    directory = ApacheDirectory(tmp_path / "my $kafka")
    directory.write([*features(), registration()])
    line = adopt(directory).stdout.splitlines()[-1]
    assert shlex.split(line)[-1] == str(directory.path)


def test_strays_and_pending_removals_are_listed(made: ApacheDirectory) -> None:
    made.partition("gone", 0, BATCHES)
    (made.path / f"t-1.{'1' * 32}-delete").mkdir()
    (made.path / f"t-0.{'2' * 32}-future").mkdir()
    found = document(made)
    assert found["strays"] == ["gone-0"]
    assert [name[-7:] for name in found["set_aside"]] == ["-future", "-delete"]


def test_settings_that_are_unknown_are_named(tmp_path: Path) -> None:
    directory = ApacheDirectory(tmp_path / "kafka")
    directory.write([*features(), registration(), *topic_records("t", message_format_version="2.8")])
    directory.partition("t", 0, BATCHES)
    assert document(directory)["unknown_settings"] == ["t: message.format.version"]


def test_a_directory_that_was_formatted_and_not_started(tmp_path: Path) -> None:
    directory = ApacheDirectory(tmp_path / "d")
    directory.write_identity()
    directory.metadata.mkdir()
    records = bootstrap_records({"metadata.version": 21})
    (directory.metadata / BOOTSTRAP.file_name).write_bytes(bootstrap_snapshot([], records, NOW_MS))
    assert document(directory)["features"] == {"metadata.version": 21}
