"""Context and result of controller handlers.

A handler is a pure function of an image and a request. It returns the records of the change, and the response to send
once they are committed. Records of one result are appended in one batch and so take effect together.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

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
"""Maximum number of records of one request, as in Apache Kafka: limits batch, memory and time on the loop."""
SLICE = 2_000
"""Leader changes of one batch."""
RECORDS_PER_TURN = 500
"""Records that one turn of the loop replays and encodes, some 5 ms: larger decisions take several turns."""


class ControllerContext(NamedTuple):
    """Inputs of handlers besides image and request."""

    config: BrokerConfig
    """Static and dynamic settings of the broker in this process, which are also the controller's."""
    new_uuid: Callable[[], Uuid]
    cluster_id: str
    """In `meta.properties`."""
    heartbeats: BrokerHeartbeats
    now_ms: int
    """Monotonic clock."""
    time_ms: int
    """Milliseconds since the Unix epoch."""
    tokens: TokenIndex
    next_offset: int
    """Offset of the result's first record."""
    kraft_version: int
    """Level of kraft.version in the metadata log, which no feature record sets."""
    check_voters: Callable[[], None]
    """Raises KafkaError INVALID_UPDATE_VERSION unless the metadata log can name the voters."""
    mutation: Mutation = UNCHARGED
    """Quota account for created and deleted partitions."""

    def min_isr(self, image: MetadataImage, topic: str, partition: PartitionImage) -> int:
        """Return the number of in-sync replicas that acks=all requires; never more than the replicas."""
        text = image.topic_configs(topic).get(MIN_ISR)
        value = self.config.topic_defaults[MIN_ISR] if text is None else text
        return min(int(str(value)), len(partition.replicas))

    def unclean_election(self, image: MetadataImage, topic: str) -> bool:
        """Return whether unclean leader election is enabled for the topic."""
        text = image.topic_configs(topic).get(UNCLEAN_ELECTION)
        value = self.config.topic_defaults[UNCLEAN_ELECTION] if text is None else text
        return str(value).strip().lower() == "true"


class ControllerResult(NamedTuple, Generic[Response]):
    """Records to append, and the response once they are committed."""

    records: list[ApiMessageAndVersion]
    response: Response
    again: bool = False
    """The records are one slice: once they are committed the operation runs again, and this response is dropped."""
    names_voters: bool = False
    """The metadata log has to name the voters before the records."""


class ControllerOperation(Protocol[Response]):
    """A step that the controller runs in its order, on the newest image.

    Implementations: a `ControllerDecision` with its request, in `controller.requests.operation_of`,
    `server.requests.controller_requests.controller_api` and `server.requests.forwarding`; the upkeep of
    `controller.driver`, and the changes that `controller.znode_requests` and `controller.migration` read from
    ZooKeeper.
    """

    def __call__(self, image: MetadataImage, context: ControllerContext, /) -> ControllerResult[Response]:
        """Return records and response. Raises KafkaError, which is the response then."""


class ControllerDecision(Protocol):
    """The pure rule of a request.

    Implementations: the functions `handle_*` in `controller.acls`, `controller.client_quotas`, `controller.configs`,
    `controller.delegation_tokens`, `controller.directories`, `controller.elections`, `controller.features`,
    `controller.producer_ids`, `controller.reassignments`, `controller.registration`, `controller.replication`,
    `controller.scram_credentials` and `controller.topics`. The row of the API names its function.
    """

    def __call__(self, image: MetadataImage, message: Any, context: ControllerContext, /) -> ControllerResult[Any]:
        """Return records and response. Raises KafkaError."""


def check_record_count(count: int, problem: str = "Unable to perform excessively large batch operation.") -> None:
    """Raises KafkaError POLICY_VIOLATION when a request would cause more than MAX_RECORDS_PER_USER_OP records."""
    if count > MAX_RECORDS_PER_USER_OP:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, problem)


def elr_enabled(image: MetadataImage) -> bool:
    """Return whether eligible leader replicas are enabled (KIP-966)."""
    return image.features.get(ELIGIBLE_LEADER_REPLICAS_VERSION, 0) > 0
