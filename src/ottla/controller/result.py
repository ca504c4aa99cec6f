"""What a controller handler is given and what it returns.

A handler is a function of an image and a request: it changes nothing, and returns the records that would make the
change together with the response that is due once they are committed. Records of one result are appended in one batch
and so take effect together.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

from ottla.common.config.broker_configs import BrokerConfig
from ottla.common.config.feature_levels import ELIGIBLE_LEADER_REPLICAS_VERSION
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.kafka.ids import Uuid
from ottla.controller.heartbeats import BrokerHeartbeats
from ottla.metadata.image import MetadataImage, PartitionImage
from ottla.metadata.records import ApiMessageAndVersion
from ottla.quota.mutations import UNCHARGED, Mutation
from ottla.security.sasl.tokens import TokenIndex

Response = TypeVar("Response")

MIN_ISR = "min.insync.replicas"
UNCLEAN_ELECTION = "unclean.leader.election.enable"

MAX_RECORDS_PER_USER_OP = 10_000
"""Records that one request may cause, as in Apache Kafka: bounds batch, memory and time on the loop."""


class ControllerContext(NamedTuple):
    """What handlers need beside image and request."""

    config: BrokerConfig
    """Static and dynamic settings of the broker in this process; it is the controller's too."""
    """Of the one data directory (`meta.properties`)."""
    new_uuid: Callable[[], Uuid]
    cluster_id: str
    heartbeats: BrokerHeartbeats
    now_ms: int
    """Of the monotonic clock."""
    time_ms: int
    """Since the Unix epoch."""
    tokens: TokenIndex
    next_offset: int
    """Where the first record of the result will stand."""
    kraft_version: int
    """Of the metadata log, which no record of a feature sets."""
    check_voters: Callable[[], None]
    """Raises KafkaError INVALID_UPDATE_VERSION unless the metadata log could name the voters."""
    mutation: Mutation = UNCHARGED
    """Who is charged for partitions that come and go."""

    def min_isr(self, image: MetadataImage, topic: str, partition: PartitionImage) -> int:
        """How many replicas have to be in sync for acks=all; never more than there are."""
        text = image.topic_configs(topic).get(MIN_ISR)
        value = self.config.topic_defaults[MIN_ISR] if text is None else text
        return min(int(str(value)), len(partition.replicas))

    def unclean_election(self, image: MetadataImage, topic: str) -> bool:
        """Whether the topic prefers to be served over losing nothing."""
        text = image.topic_configs(topic).get(UNCLEAN_ELECTION)
        value = self.config.topic_defaults[UNCLEAN_ELECTION] if text is None else text
        return str(value).strip().lower() == "true"


class ControllerResult(NamedTuple, Generic[Response]):
    """Records to append, and the response once they are committed."""

    records: list[ApiMessageAndVersion]
    response: Response
    again: bool = False
    """The records are only a slice: once they are committed the operation runs again, this response is nobody's."""
    names_voters: bool = False
    """Before the records the metadata log shall name the voters."""


def check_record_count(count: int, problem: str = "Unable to perform excessively large batch operation.") -> None:
    """Raises KafkaError POLICY_VIOLATION when a request would cause more than MAX_RECORDS_PER_USER_OP records."""
    if count > MAX_RECORDS_PER_USER_OP:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, problem)


def elr_enabled(image: MetadataImage) -> bool:
    """Whether eligible leader replicas are kept (KIP-966)."""
    return image.features.get(ELIGIBLE_LEADER_REPLICAS_VERSION, 0) > 0
