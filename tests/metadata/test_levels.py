"""Records at the levels of metadata.version, and their round trip through snapshots."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ottla.common.config.config_def import ConfigResourceType
from ottla.common.config.feature_levels import (
    HIGHEST_LEVEL,
    LOWEST_LEVEL,
    METADATA_LEVELS,
    METADATA_VERSION,
    metadata_changed,
    metadata_level_of,
    release_features,
    unmet_need,
)
from ottla.common.errors import InvariantError
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import EMPTY_IMAGE, ConfigResource, MetadataImage
from ottla.metadata.records import at_level, decode_record, encode_record, versioned
from ottla.metadata.snapshot import image_records
from ottla.protocol.messages.metadata_records import (
    AccessControlEntryRecord,
    BrokerRegistrationChangeRecord,
    ClearElrRecord,
    ConfigRecord,
    DelegationTokenRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UnregisterControllerRecord,
    UserScramCredentialRecord,
    ZkMigrationStateRecord,
)
from ottla.security.sasl.credentials import ScramMechanism

TOPIC = b"T" * 16
CREDENTIAL = UserScramCredentialRecord(
    name="ann", mechanism=1, salt=b"s", stored_key=b"k", server_key=b"v", iterations=4096
)
TOKEN = DelegationTokenRecord(
    owner="User:ann",
    requester="User:eve",
    renewers=["User:bob"],
    issue_timestamp=1,
    expiration_timestamp=2,
    max_timestamp=3,
    token_id="t1",
)
ACL = AccessControlEntryRecord(id=b"A" * 16, resource_type=2, resource_name="secret", principal="User:ann", host="*")


def replayed(base: MetadataImage, *messages: Any) -> MetadataImage:
    delta = MetadataDelta(base)
    for message in messages:
        delta.replay(message)
    return delta.apply(base.offset + len(messages), 1)[0]


def from_snapshot(image: MetadataImage) -> MetadataImage:
    written = [decode_record(encode_record(record)).message for record in image_records(image)]
    return replace(replayed(EMPTY_IMAGE, *written), offset=image.offset)


def test_levels_have_no_gap() -> None:
    assert list(METADATA_LEVELS) == list(range(LOWEST_LEVEL, HIGHEST_LEVEL + 1))
    assert (LOWEST_LEVEL, HIGHEST_LEVEL) == (7, 33)
    named = {7: "3.3-IV3", 11: "3.5-IV2", 17: "3.7-IV2", 25: "4.0-IV3", 33: "4.4-IV2"}
    assert {level: METADATA_LEVELS[level].name for level in named} == named
    assert not metadata_changed(23, 29)
    assert metadata_changed(22, 23)
    assert metadata_changed(29, 33)
    assert [level for level, row in METADATA_LEVELS.items() if row.changes_metadata] == [
        *(7, 8, 11, 13, 14, 15, 17, 23, 30, 32, 33)
    ]


@pytest.mark.parametrize(
    ("version", "level"),
    [("3.3-IV3", 7), ("3.5", 11), ("3.5.2", 11), ("4.0", 25), ("4.4", 33), ("4.4-IV0", 31), ("4", None), ("5.0", None)],
)
def test_a_level_is_found_by_its_name_or_a_release(version: str, level: int | None) -> None:
    found = metadata_level_of(version)
    assert (found and found.level) == level


@pytest.mark.parametrize(
    ("level", "levels"),
    [
        (7, {}),
        (23, {"group.version": 1}),
        (25, {"group.version": 1, "transaction.version": 2}),
        (33, {"group.version": 1, "transaction.version": 2, "eligible.leader.replicas.version": 1}),
    ],
)
def test_a_release_brings_the_features_of_its_new_clusters(level: int, levels: dict[str, int]) -> None:
    assert release_features(level) == {METADATA_VERSION: level, **levels}
    assert unmet_need(release_features(level)) is None


@pytest.mark.parametrize(
    ("level", "versions"),
    [
        (7, [1, 1, 0, 0]),
        (8, [2, 1, 0, 0]),
        (16, [2, 1, 0, 0]),
        (17, [3, 2, 1, 1]),
        (25, [3, 2, 2, 2]),
        (33, [4, 3, 2, 2]),
    ],
)
def test_records_are_written_as_the_level_allows(level: int, versions: list[int]) -> None:
    cordoned = [b"D" * 16]
    records = [
        RegisterBrokerRecord(log_dirs=cordoned, cordoned_log_dirs=cordoned),
        BrokerRegistrationChangeRecord(log_dirs=cordoned, cordoned_log_dirs=cordoned),
        PartitionRecord(topic_id=TOPIC, directories=cordoned, eligible_leader_replicas=[1], last_known_elr=[2]),
        PartitionChangeRecord(topic_id=TOPIC, directories=cordoned, eligible_leader_replicas=[1]),
    ]
    written = list(at_level(map(versioned, records), level))
    assert [record.version for record in written] == versions
    for record in written:
        assert decode_record(encode_record(record)) == record
    assert (written[0].message.cordoned_log_dirs is None) == (level < 30)
    assert (written[2].message.eligible_leader_replicas is None) == (level < 23)
    assert written[2].message.directories == ([] if level < 17 else cordoned)
    assert written[3].message.directories == (None if level < 17 else cordoned)
    assert written[0].message.log_dirs == ([] if level < 17 else cordoned)
    assert not written[0].message.is_migrating_zk_broker


def test_a_level_counts_from_its_record_on() -> None:
    change = FeatureLevelRecord(name=METADATA_VERSION, feature_level=30)
    written = at_level(map(versioned, [RegisterBrokerRecord(), change, RegisterBrokerRecord()]), 25)
    assert [record.version for record in written] == [3, 0, 4]


@pytest.mark.parametrize("level", METADATA_LEVELS)
def test_snapshot_restores_the_migration_state(level: int) -> None:
    image = replayed(EMPTY_IMAGE, FeatureLevelRecord(name=METADATA_VERSION, feature_level=level))
    for state in (1, 2, 3):
        image = replayed(image, ZkMigrationStateRecord(zk_migration_state=state))
        assert image.zk_migration_state == state
        assert from_snapshot(image) == image


@pytest.mark.parametrize("level", METADATA_LEVELS)
def test_snapshot_restores_credentials(level: int) -> None:
    other = UserScramCredentialRecord(name="ann", mechanism=2, salt=b"t", iterations=8192)
    image = replayed(EMPTY_IMAGE, FeatureLevelRecord(name=METADATA_VERSION, feature_level=level), CREDENTIAL, other)
    assert image.scram_credential("ann", ScramMechanism.SHA_256) == (b"s", b"k", b"v", 4096)
    assert image.scram_credential("ann", ScramMechanism.SHA_512) == (b"t", b"", b"", 8192)
    assert from_snapshot(image) == image
    assert "b'k'" not in repr(image)
    image = replayed(image, RemoveUserScramCredentialRecord(name="ann", mechanism=1), CREDENTIAL)
    image = replayed(image, RemoveUserScramCredentialRecord(name="ann", mechanism=1))
    assert list(image.scram_credentials) == [("ann", 2)]
    assert from_snapshot(image) == image


def test_unknown_migration_state_is_rejected() -> None:
    assert replayed(EMPTY_IMAGE, ZkMigrationStateRecord(zk_migration_state=0)).zk_migration_state == 0
    with pytest.raises(InvariantError, match="migration state 4"):
        replayed(EMPTY_IMAGE, ZkMigrationStateRecord(zk_migration_state=4))


def test_migration_flags_survive_a_snapshot() -> None:
    image = replayed(
        EMPTY_IMAGE,
        FeatureLevelRecord(name=METADATA_VERSION, feature_level=25),
        RegisterBrokerRecord(broker_id=1, incarnation_id=b"b" * 16, is_migrating_zk_broker=True),
        RegisterControllerRecord(controller_id=9, incarnation_id=b"c" * 16, zk_migration_ready=True),
    )
    assert image.brokers[1].is_migrating_zk_broker
    assert image.controllers[9].zk_migration_ready
    assert from_snapshot(image) == image


@pytest.mark.parametrize("level", METADATA_LEVELS)
def test_snapshot_restores_tokens(level: int) -> None:
    image = replayed(EMPTY_IMAGE, FeatureLevelRecord(name=METADATA_VERSION, feature_level=level), TOKEN)
    assert image.delegation_tokens["t1"] == ("t1", "User:ann", "User:eve", ("User:bob",), 1, 3, 2)
    newer = DelegationTokenRecord(owner="User:ann", requester="User:ann", token_id="t1", expiration_timestamp=9)
    other = DelegationTokenRecord(owner="User:ann", requester="User:ann", token_id="t2")
    image = replayed(image, newer, other)
    assert [token.expiry_ms for token in image.delegation_tokens.values()] == [9, 0]
    assert from_snapshot(image) == image
    assert replayed(image, ACL).delegation_tokens is image.delegation_tokens
    image = replayed(image, RemoveDelegationTokenRecord(token_id="t1"), RemoveDelegationTokenRecord(token_id="gone"))
    assert list(image.delegation_tokens) == ["t2"]
    assert from_snapshot(image) == image


def test_acls_are_added_and_removed_by_id() -> None:
    image = replayed(EMPTY_IMAGE, ACL, AccessControlEntryRecord(id=b"B" * 16, host="10.0.0.1"))
    assert [acl.host for acl in image.acls.values()] == ["*", "10.0.0.1"]
    assert from_snapshot(image) == image
    assert replayed(image, ZkMigrationStateRecord(zk_migration_state=3)).acls is image.acls
    image = replayed(image, RemoveAccessControlEntryRecord(id=b"A" * 16))
    assert list(image.acls) == [b"B" * 16]
    with pytest.raises(InvariantError, match="does not exist"):
        replayed(image, RemoveAccessControlEntryRecord(id=b"A" * 16))


@pytest.mark.parametrize("name", ["", "t", "other"])
def test_eligible_leaders_are_cleared(name: str) -> None:
    partition = PartitionRecord(
        partition_id=0, topic_id=TOPIC, replicas=[1, 2], isr=[1], leader=1, leader_epoch=1, partition_epoch=4,
        eligible_leader_replicas=[2],
    )  # fmt: skip
    image = replayed(EMPTY_IMAGE, TopicRecord(name="t", topic_id=TOPIC), partition)
    cleared = replayed(image, ClearElrRecord(topic_name=name)).partition("t", 0)
    assert cleared is not None
    assert (cleared.eligible_leader_replicas, cleared.partition_epoch) == (((2,), 4) if name == "other" else ((), 5))
    within = replayed(
        EMPTY_IMAGE, TopicRecord(name="t", topic_id=TOPIC), partition, ClearElrRecord(topic_name=name)
    ).partition("t", 0)
    assert within == cleared


def test_controller_is_unregistered() -> None:
    image = replayed(EMPTY_IMAGE, RegisterControllerRecord(controller_id=3, incarnation_id=b"I" * 16))
    assert replayed(image, UnregisterControllerRecord(controller_id=3)).controllers == {}


def test_settings_of_unsupported_group_types_are_retained() -> None:
    image = replayed(
        EMPTY_IMAGE,
        ConfigRecord(resource_type=32, resource_name="g", name="share.session.timeout.ms", value="45000"),
    )
    assert image.configs == {ConfigResource(ConfigResourceType.GROUP, "g"): {"share.session.timeout.ms": "45000"}}
    assert from_snapshot(image) == image
