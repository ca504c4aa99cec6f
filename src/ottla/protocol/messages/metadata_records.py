"""Records of the metadata log (KIP-500 and later), as `kafka-dump-log --cluster-metadata-decoder` reads them.

Each is encoded as frame version (unsigned varint, 1), key, version and body; `ottla.metadata.records` implements the
framing. The defaults of tagged fields in change records mean "unchanged".
"""

from __future__ import annotations

from ottla.protocol.schema import (
    BOOL,
    BYTES,
    FLOAT64,
    INT8,
    INT16,
    INT32,
    INT64,
    STRING,
    UINT16,
    UUID,
    array,
    f,
    message,
    struct,
)


@struct
class BrokerEndpoint:
    name: str = f(STRING, "0+")
    host: str = f(STRING, "0+")
    port: int = f(UINT16, "0+")
    security_protocol: int = f(INT16, "0+")


@struct
class BrokerFeature:
    name: str = f(STRING, "0+")
    min_supported_version: int = f(INT16, "0+")
    max_supported_version: int = f(INT16, "0+")


@message("0-4", flexible="0+", api_key=0)
class RegisterBrokerRecord:
    broker_id: int = f(INT32, "0+")
    is_migrating_zk_broker: bool = f(BOOL, "2+")
    incarnation_id: bytes = f(UUID, "0+")
    broker_epoch: int = f(INT64, "0+")
    end_points: list[BrokerEndpoint] = f(array(BrokerEndpoint), "0+")
    features: list[BrokerFeature] = f(array(BrokerFeature), "0+")
    rack: str | None = f(STRING, "0+", nullable="0+", default=None)
    fenced: bool = f(BOOL, "0+", default=True)
    in_controlled_shutdown: bool = f(BOOL, "1+")
    log_dirs: list[bytes] = f(array(UUID), "3+", tag=0)
    cordoned_log_dirs: list[bytes] | None = f(array(UUID), "4+", nullable="4+", tag=1, default=None)


@message("0", flexible="0+", api_key=1)
class UnregisterBrokerRecord:
    broker_id: int = f(INT32, "0+")
    broker_epoch: int = f(INT64, "0+")


@message("0", flexible="0+", api_key=2)
class TopicRecord:
    name: str = f(STRING, "0+")
    topic_id: bytes = f(UUID, "0+")


@message("0-2", flexible="0+", api_key=3)
class PartitionRecord:
    partition_id: int = f(INT32, "0+", default=-1)
    topic_id: bytes = f(UUID, "0+")
    replicas: list[int] = f(array(INT32), "0+")
    isr: list[int] = f(array(INT32), "0+")
    removing_replicas: list[int] = f(array(INT32), "0+")
    adding_replicas: list[int] = f(array(INT32), "0+")
    leader: int = f(INT32, "0+", default=-1)
    leader_recovery_state: int = f(INT8, "0+", tag=0)
    leader_epoch: int = f(INT32, "0+", default=-1)
    partition_epoch: int = f(INT32, "0+", default=-1)
    directories: list[bytes] = f(array(UUID), "1+")
    eligible_leader_replicas: list[int] | None = f(array(INT32), "2+", nullable="2+", tag=1, default=None)
    last_known_elr: list[int] | None = f(array(INT32), "2+", nullable="2+", tag=2, default=None)


@message("0", flexible="0+", api_key=4)
class ConfigRecord:
    resource_type: int = f(INT8, "0+")
    resource_name: str = f(STRING, "0+")
    name: str = f(STRING, "0+")
    value: str | None = f(STRING, "0+", nullable="0+", default=None)


@message("0-2", flexible="0+", api_key=5)
class PartitionChangeRecord:
    partition_id: int = f(INT32, "0+", default=-1)
    topic_id: bytes = f(UUID, "0+")
    isr: list[int] | None = f(array(INT32), "0+", nullable="0+", tag=0, default=None)
    leader: int = f(INT32, "0+", tag=1, default=-2)
    replicas: list[int] | None = f(array(INT32), "0+", nullable="0+", tag=2, default=None)
    removing_replicas: list[int] | None = f(array(INT32), "0+", nullable="0+", tag=3, default=None)
    adding_replicas: list[int] | None = f(array(INT32), "0+", nullable="0+", tag=4, default=None)
    leader_recovery_state: int = f(INT8, "0+", tag=5, default=-1)
    directories: list[bytes] | None = f(array(UUID), "1+", nullable="1+", tag=8, default=None)
    eligible_leader_replicas: list[int] | None = f(array(INT32), "2+", nullable="2+", tag=6, default=None)
    last_known_elr: list[int] | None = f(array(INT32), "2+", nullable="2+", tag=7, default=None)


@message("0", flexible="0+", api_key=7)
class FenceBrokerRecord:
    id: int = f(INT32, "0+")
    epoch: int = f(INT64, "0+")


@message("0", flexible="0+", api_key=8)
class UnfenceBrokerRecord:
    id: int = f(INT32, "0+")
    epoch: int = f(INT64, "0+")


@message("0", flexible="0+", api_key=9)
class RemoveTopicRecord:
    topic_id: bytes = f(UUID, "0+")


@message("0", flexible="0+", api_key=12)
class FeatureLevelRecord:
    name: str = f(STRING, "0+")
    feature_level: int = f(INT16, "0+")


@struct
class QuotaEntityData:
    entity_type: str = f(STRING, "0+")
    entity_name: str | None = f(STRING, "0+", nullable="0+")


@message("0", flexible="0+", api_key=14)
class ClientQuotaRecord:
    entity: list[QuotaEntityData] = f(array(QuotaEntityData), "0+")
    key: str = f(STRING, "0+")
    value: float = f(FLOAT64, "0+")
    remove: bool = f(BOOL, "0+")


@message("0", flexible="0+", api_key=15)
class ProducerIdsRecord:
    broker_id: int = f(INT32, "0+")
    broker_epoch: int = f(INT64, "0+", default=-1)
    next_producer_id: int = f(INT64, "0+")


@message("0-3", flexible="0+", api_key=17)
class BrokerRegistrationChangeRecord:
    broker_id: int = f(INT32, "0+")
    broker_epoch: int = f(INT64, "0+")
    fenced: int = f(INT8, "0+", tag=0)
    in_controlled_shutdown: int = f(INT8, "1+", tag=1)
    log_dirs: list[bytes] = f(array(UUID), "2+", tag=2)
    cordoned_log_dirs: list[bytes] | None = f(array(UUID), "3+", nullable="3+", tag=3, default=None)


@message("0", flexible="0+", api_key=20)
class NoOpRecord:
    """It has no fields."""


@message("0", flexible="0+", api_key=23)
class BeginTransactionRecord:
    name: str | None = f(STRING, "0+", nullable="0+", tag=0, default=None)


@message("0", flexible="0+", api_key=24)
class EndTransactionRecord:
    """It has no fields."""


@message("0", flexible="0+", api_key=25)
class AbortTransactionRecord:
    reason: str | None = f(STRING, "0+", nullable="0+", tag=0, default=None)


@struct
class ControllerEndpoint:
    name: str = f(STRING, "0+")
    host: str = f(STRING, "0+")
    port: int = f(UINT16, "0+")
    security_protocol: int = f(INT16, "0+")


@struct
class ControllerFeature:
    name: str = f(STRING, "0+")
    min_supported_version: int = f(INT16, "0+")
    max_supported_version: int = f(INT16, "0+")


@message("0", flexible="0+", api_key=27)
class RegisterControllerRecord:
    controller_id: int = f(INT32, "0+")
    incarnation_id: bytes = f(UUID, "0+")
    zk_migration_ready: bool = f(BOOL, "0+")
    end_points: list[ControllerEndpoint] = f(array(ControllerEndpoint), "0+")
    features: list[ControllerFeature] = f(array(ControllerFeature), "0+")


@message("0", flexible="0+", api_key=10)
class DelegationTokenRecord:
    owner: str = f(STRING, "0+")
    requester: str = f(STRING, "0+")
    renewers: list[str] = f(array(STRING), "0+")
    issue_timestamp: int = f(INT64, "0+")
    max_timestamp: int = f(INT64, "0+")
    expiration_timestamp: int = f(INT64, "0+")
    token_id: str = f(STRING, "0+")


@message("0", flexible="0+", api_key=11)
class UserScramCredentialRecord:
    name: str = f(STRING, "0+")
    mechanism: int = f(INT8, "0+")
    salt: bytes = f(BYTES, "0+")
    stored_key: bytes = f(BYTES, "0+")
    server_key: bytes = f(BYTES, "0+")
    iterations: int = f(INT32, "0+")


@message("0", flexible="0+", api_key=18)
class AccessControlEntryRecord:
    id: bytes = f(UUID, "0+")
    resource_type: int = f(INT8, "0+")
    resource_name: str = f(STRING, "0+")
    pattern_type: int = f(INT8, "0+")
    principal: str = f(STRING, "0+")
    host: str = f(STRING, "0+")
    operation: int = f(INT8, "0+")
    permission_type: int = f(INT8, "0+")


@message("0", flexible="0+", api_key=19)
class RemoveAccessControlEntryRecord:
    id: bytes = f(UUID, "0+")


@message("0", flexible="0+", api_key=21)
class ZkMigrationStateRecord:
    zk_migration_state: int = f(INT8, "0+")


@message("0", flexible="0+", api_key=22)
class RemoveUserScramCredentialRecord:
    name: str = f(STRING, "0+")
    mechanism: int = f(INT8, "0+")


@message("0", flexible="0+", api_key=26)
class RemoveDelegationTokenRecord:
    token_id: str = f(STRING, "0+")


@message("0", flexible="0+", api_key=28)
class ClearElrRecord:
    topic_name: str = f(STRING, "0+")


@message("0", flexible="0+", api_key=29)
class UnregisterControllerRecord:
    controller_id: int = f(INT32, "0+")


METADATA_RECORDS: dict[int, type] = {
    0: RegisterBrokerRecord,
    1: UnregisterBrokerRecord,
    2: TopicRecord,
    3: PartitionRecord,
    4: ConfigRecord,
    5: PartitionChangeRecord,
    7: FenceBrokerRecord,
    8: UnfenceBrokerRecord,
    9: RemoveTopicRecord,
    10: DelegationTokenRecord,
    11: UserScramCredentialRecord,
    12: FeatureLevelRecord,
    14: ClientQuotaRecord,
    15: ProducerIdsRecord,
    17: BrokerRegistrationChangeRecord,
    18: AccessControlEntryRecord,
    19: RemoveAccessControlEntryRecord,
    20: NoOpRecord,
    21: ZkMigrationStateRecord,
    22: RemoveUserScramCredentialRecord,
    23: BeginTransactionRecord,
    24: EndTransactionRecord,
    25: AbortTransactionRecord,
    26: RemoveDelegationTokenRecord,
    27: RegisterControllerRecord,
    28: ClearElrRecord,
    29: UnregisterControllerRecord,
}
"""The class of a metadata record by the key in its framing."""
