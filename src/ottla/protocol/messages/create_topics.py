"""CreateTopics (key 19).

4 lets the broker choose partition count and replication factor by -1 (KIP-464). 5 is flexible and returns the created
topic (KIP-525). 6 may return THROTTLING_QUOTA_EXCEEDED (KIP-599), 7 returns the topic id (KIP-516).
"""

from __future__ import annotations

from ottla.protocol.registry import ApiKey, ApiSpec
from ottla.protocol.schema import BOOL, INT8, INT16, INT32, STRING, UUID, array, f, message, struct


@struct
class CreatableReplicaAssignment:
    partition_index: int = f(INT32, "0+")
    broker_ids: list[int] = f(array(INT32), "0+")


@struct
class CreatableTopicConfig:
    name: str = f(STRING, "0+")
    value: str | None = f(STRING, "0+", nullable="0+", default=None)


@struct
class CreatableTopic:
    name: str = f(STRING, "0+")
    num_partitions: int = f(INT32, "0+")
    replication_factor: int = f(INT16, "0+")
    assignments: list[CreatableReplicaAssignment] = f(array(CreatableReplicaAssignment), "0+")
    configs: list[CreatableTopicConfig] = f(array(CreatableTopicConfig), "0+")


@message("2-7", flexible="5+")
class CreateTopicsRequest:
    topics: list[CreatableTopic] = f(array(CreatableTopic), "0+")
    timeout_ms: int = f(INT32, "0+", default=60000)
    validate_only: bool = f(BOOL, "0+")


@struct
class CreatableTopicConfigs:
    name: str = f(STRING, "0+")
    value: str | None = f(STRING, "0+", nullable="0+", default=None)
    read_only: bool = f(BOOL, "0+")
    config_source: int = f(INT8, "0+", default=-1)
    is_sensitive: bool = f(BOOL, "0+")


@struct
class CreatableTopicResult:
    name: str = f(STRING, "0+")
    topic_id: bytes = f(UUID, "7+", ignorable=True)
    error_code: int = f(INT16, "0+")
    error_message: str | None = f(STRING, "0+", nullable="0+", default=None)
    topic_config_error_code: int = f(INT16, "5+", tag=0, ignorable=True)
    num_partitions: int = f(INT32, "5+", default=-1, ignorable=True)
    replication_factor: int = f(INT16, "5+", default=-1, ignorable=True)
    configs: list[CreatableTopicConfigs] | None = f(
        array(CreatableTopicConfigs), "5+", nullable="5+", default=None, ignorable=True
    )


@message("2-7", flexible="5+")
class CreateTopicsResponse:
    throttle_time_ms: int = f(INT32, "0+")
    topics: list[CreatableTopicResult] = f(array(CreatableTopicResult), "0+")


SPEC = ApiSpec(ApiKey.CREATE_TOPICS, CreateTopicsRequest, CreateTopicsResponse)
