"""A cluster at every level of metadata.version, and one that is raised through all of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.app.apache_layout import ApacheDirectory, features, registration

from ottla.app.adoption.metadata import read_metadata
from ottla.app.clock import SystemClock, SystemRng
from ottla.app.disk import RealDisk
from ottla.common.config.feature_choice import first_levels
from ottla.common.config.feature_levels import (
    DIRECTORY_ASSIGNMENT,
    HIGHEST_LEVEL,
    KRAFT_VERSION,
    LOWEST_LEVEL,
    METADATA_LEVELS,
    METADATA_VERSION,
    release_features,
)
from ottla.common.errors import OperatorError
from ottla.controller.features import bootstrap_records
from ottla.metadata.records import ApiMessageAndVersion, decode_record
from ottla.metadata.snapshot import delegation_token_record
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.protocol.messages.metadata_records import (
    BrokerRegistrationChangeRecord,
    DelegationTokenRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    UserScramCredentialRecord,
)
from ottla.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from ottla.quorum.format import format_directory
from ottla.record.batch import iter_batches

from ..quorum.snapshot_content import read_snapshot
from .harness import Connection, Server, fetch_request, fetched

CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"


def formatted(directory: Path, level: int) -> Path:
    """A directory in the state after `ottla format --release-version`."""
    records = bootstrap_records(first_levels(METADATA_LEVELS[level].name, {}))
    data_dir = str(directory / "data")
    format_directory(
        RealDisk(), SystemClock(), SystemRng(), data_dir, node_id=1, cluster_id=CLUSTER_ID, records=records
    )
    return directory


def finalized(client: Connection) -> dict[str, int]:
    response = client.ask(ApiVersionsRequest(client_software_name="t", client_software_version="1"), 4)
    levels = {feature.name: feature.max_version_level for feature in response.finalized_features}
    assert levels.pop(KRAFT_VERSION) == 1
    return levels


def raise_to(client: Connection, **levels: int) -> None:
    updates = [
        FeatureUpdateKey(feature=name.replace("_", "."), max_version_level=level) for name, level in levels.items()
    ]
    response = client.ask(UpdateFeaturesRequest(feature_updates=updates), 2)
    assert response.error_code == 0, response.error_message


def count_at(client: Connection, topic: str) -> int:
    """The high watermark of partition 0."""
    return int(fetched(client.ask(fetch_request((topic, 0, 0)), 12))[topic, 0].high_watermark)


def written(directory: Path) -> list[ApiMessageAndVersion]:
    """The records of the metadata log."""
    segments = sorted((directory / "data" / "__cluster_metadata-0").glob("*.log"))
    batches = [batch for segment in segments for batch in iter_batches(segment.read_bytes())]
    return [
        decode_record(record.value or b"") for batch in batches if not batch.is_control for record in batch.records()
    ]


@pytest.mark.promise("R12")
@pytest.mark.parametrize("level", METADATA_LEVELS)
def test_a_cluster_of_each_level_serves_and_starts_again(tmp_path: Path, level: int) -> None:
    server = Server(formatted(tmp_path, level), node_id="1")
    try:
        client = server.connect()
        assert finalized(client) == release_features(level)
        client.create_topic("t", partitions=2)
        assert client.produce("t", b"one").error_code == 0
        server.restart()
        client = server.connect()
        assert finalized(client) == release_features(level)
        assert client.produce("t", b"two").error_code == 0
        assert count_at(client, "t") == 2
    finally:
        server.stop()
    versions: dict[type, set[int]] = {}
    for message, version in written(tmp_path):
        versions.setdefault(type(message), set()).add(version)
    partitions = {2} if level >= 23 else {1} if level >= DIRECTORY_ASSIGNMENT else {0}
    assert versions[PartitionRecord] == versions[PartitionChangeRecord] == partitions
    brokers = 4 if level >= 30 else 3 if level >= DIRECTORY_ASSIGNMENT else 2 if level > LOWEST_LEVEL else 1
    assert versions[RegisterBrokerRecord] == {brokers}


def test_a_cluster_is_raised_level_by_level_under_a_client(tmp_path: Path) -> None:
    server = Server(formatted(tmp_path, LOWEST_LEVEL), node_id="1")
    try:
        client = server.connect()
        client.create_topic("t")
        produced = 0
        for level in range(LOWEST_LEVEL, HIGHEST_LEVEL):
            raise_to(client, metadata_version=level + 1)
            client.create_topic(f"of-{level + 1}")
            assert client.produce("t", b"x").error_code == 0
            produced += 1
            assert count_at(client, "t") == produced
        raise_to(client, eligible_leader_replicas_version=1, group_version=1, transaction_version=2)
        server.restart()
        client = server.connect()
        assert finalized(client) == release_features(HIGHEST_LEVEL)
        assert count_at(client, "t") == produced
    finally:
        server.stop()
    changes = [record for record in written(tmp_path) if isinstance(record.message, BrokerRegistrationChangeRecord)]
    assert [(len(message.log_dirs), version) for message, version in changes] == [(1, 2)], "once it can be named"


def test_several_directories_need_a_supporting_metadata_level(tmp_path: Path) -> None:
    formatted(tmp_path, DIRECTORY_ASSIGNMENT - 1)
    with pytest.raises(OperatorError, match=r"Several data directories \(log.dirs\) need metadata.version 3.7-IV2"):
        Server(tmp_path, node_id="1", log_dirs=f"{tmp_path / 'data'},{tmp_path / 'more'}")


def test_credentials_and_tokens_outlive_snapshots_and_starts(tmp_path: Path) -> None:
    """Configs of an Apache Kafka directory, which are returned unchanged."""
    directory = ApacheDirectory(tmp_path / "data")
    kept = [
        UserScramCredentialRecord(
            name="ann", mechanism=1, salt=b"s", stored_key=b"k", server_key=b"v", iterations=4096
        ),
        DelegationTokenRecord(owner="User:ann", requester="User:ann", renewers=["User:bob"], token_id="t1"),
    ]
    directory.write([*features(), registration(), *kept])
    server = Server(tmp_path, node_id="1", metadata_log_max_record_bytes_between_snapshots="1")
    try:
        for name in ("t", "u"):
            server.connect().create_topic(name)
            server.restart()
        server.run_until(lambda: len(snapshots(directory)) > 0)
    finally:
        server.stop()
    newest = read_snapshot(snapshots(directory)[-1].read_bytes())
    assert [record.message for record in newest.records if isinstance(record.message, tuple(map(type, kept)))] == kept
    # Again, from the snapshot alone.
    server = Server(tmp_path, node_id="1")
    server.stop()
    image = read_metadata(RealDisk(), str(directory.path)).image
    assert list(map(delegation_token_record, image.delegation_tokens.values())) == kept[1:]
    assert image.scram_credentials == {("ann", 1): (b"s", b"k", b"v", 4096)}


def snapshots(directory: ApacheDirectory) -> list[Path]:
    return sorted(directory.metadata.glob("*.checkpoint"))


@pytest.mark.parametrize(
    ("release", "named", "levels"),
    [
        ("3.9", {}, {METADATA_VERSION: 21}),
        (
            None,
            {"group.version": "0"},
            {METADATA_VERSION: 25, "transaction.version": 2} | {"eligible.leader.replicas.version": 1},
        ),
        ("4.0-IV0", {"transaction.version": "1"}, {METADATA_VERSION: 22, "group.version": 1, "transaction.version": 1}),
    ],
)
def test_levels_are_chosen_by_a_release_and_by_name(
    release: str | None, named: dict[str, str], levels: dict[str, int]
) -> None:
    assert first_levels(release, named) == levels


@pytest.mark.parametrize(
    ("release", "named", "message"),
    [
        ("3.2", {}, "--release-version 3.2 is not a metadata version: use one from 3.3-IV3 to 4.4-IV2"),
        (None, {"metadata.version": "20"}, "is named by --release-version"),
        (None, {"streams.version": "1"}, "is none that can be chosen: those are group.version"),
        (None, {"group.version": "2"}, "it has the levels 0 to 1"),
        (None, {"group.version": "-1"}, "=-1 names no level: those known here are 0 to 1"),
        (None, {"group.version": "99999999999"}, "names no level: those known here are 0 to 1"),
        (None, {"metadata.version": "1" * 5000}, "names no level: those known here are 7 to 33"),
        (None, {"other.version": "32768"}, "names no level: a level is an integer from 0 to 32767"),
        ("3.9", {"eligible.leader.replicas.version": "1"}, r"needs metadata.version 23 \(4.0-IV1\): choose a higher"),
    ],
)
def test_unsupported_feature_levels_are_named(release: str | None, named: dict[str, str], message: str) -> None:
    with pytest.raises(OperatorError, match=message):
        first_levels(release, named)
