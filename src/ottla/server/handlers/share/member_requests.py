"""Common parts of ShareFetch and ShareAcknowledge: the member of a request, and its acknowledgements."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.kafka.acl import AclOperation, ResourceType
from ottla.common.kafka.ids import Uuid
from ottla.server.coordination.share_settings import share_settings
from ottla.server.handlers.share.partition_context import SharePartitionContext
from ottla.server.requests.authorization import DENIED_TEXT
from ottla.server.requests.guards import topic_name
from ottla.server.requests.request import Request
from ottla.share.acknowledgements import AcknowledgeType, decisions_of
from ottla.share.sessions import MAX_MEMBER_ID_LENGTH, PartitionId, SessionKey
from ottla.share.settings import ShareSettings

LEADER_ERRORS = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
MAX_BATCHES = 20_000
"""Maximum of acknowledgement batches for one partition: more than the records that may be locked."""


class RequestPartition(Protocol):
    """A partition of a request."""

    partition_index: int
    acknowledgement_batches: list[Any]


class RequestTopic(Protocol):
    """A topic of a request."""

    topic_id: bytes
    partitions: list[Any]


def member_of(context: SharePartitionContext, request: Request, message: Any) -> SessionKey:
    """Return the group and the member of a request.

    Raises KafkaError INVALID_REQUEST, UNSUPPORTED_VERSION and GROUP_AUTHORIZATION_FAILED.
    """
    group_id, member_id = message.group_id, message.member_id
    if not group_id or not member_id or len(member_id) > MAX_MEMBER_ID_LENGTH:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "A share group request needs a group id and a member id.")
    context.check_enabled()
    if not request.allowed(AclOperation.READ, ResourceType.GROUP, group_id):
        raise KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED, DENIED_TEXT)
    return group_id, member_id


def settings_of(context: SharePartitionContext, group_id: str) -> ShareSettings:
    """Return the settings of a group."""
    return share_settings(context.metadata.image, context.config, group_id)


def check_topic(context: SharePartitionContext, request: Request, topic_id: Uuid) -> None:
    """Raise KafkaError unless the requester may read the topic; an unknown id reveals nothing."""
    if request.is_guarded:
        name = topic_name(context.metadata.image, topic_id)
        if name is not None and not request.allowed(AclOperation.READ, ResourceType.TOPIC, name):
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, DENIED_TEXT)


def count_requests(context: SharePartitionContext, attribute: str, topic_ids: Iterable[Uuid]) -> None:
    """Count a request, or its failure, once for each topic; see `ShareStatistics.count_request`."""
    for topic_id in dict.fromkeys(topic_ids):
        context.statistics.count_request(attribute, topic_name(context.metadata.image, topic_id))


class AcknowledgementRound:
    """The acknowledgements of one request: applied at once, and done when all of them are stored."""

    __slots__ = ("_context", "_failed", "_key", "_left", "_renews", "_request", "results", "then")

    def __init__(self, context: SharePartitionContext, request: Request, key: SessionKey, *, renews: bool) -> None:
        self._context = context
        self._request = request
        self._key = key
        self._renews = renews
        self._left = 0
        self._failed: set[Uuid] = set()
        self.then: Callable[[], None] | None = None
        """Called when the last result arrives, unless that was within `begin`."""
        self.results: dict[PartitionId, KafkaError | None] = {}
        """The error of each acknowledged partition, or None."""

    def begin(self, topics: Sequence[RequestTopic]) -> bool:
        """Apply the acknowledgements of all partitions that have any; returns whether `results` are complete."""
        settings = settings_of(self._context, self._key[0])
        for topic in topics:
            for partition in topic.partitions:
                key = (topic.topic_id, partition.partition_index)
                if not partition.acknowledgement_batches or key in self.results:
                    continue
                self.results[key] = None
                self._left += 1
                try:
                    self._apply(key, partition, settings)
                except KafkaError as error:
                    self._done(key, error)
        count_requests(self._context, "acknowledgements", [topic_id for topic_id, _ in self.results])
        return self._left == 0

    def _apply(self, key: PartitionId, partition: RequestPartition, settings: ShareSettings) -> None:
        context = self._context
        batches = partition.acknowledgement_batches
        if len(batches) > MAX_BATCHES:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "A partition has too many acknowledgement batches.")
        decisions = decisions_of(batches, renews=self._renews)
        if (
            self._renews
            and not settings.renew_enabled
            and any(each.type is AcknowledgeType.RENEW for each in decisions)
        ):
            raise KafkaError(ErrorCode.INVALID_REQUEST, "share.renew.acknowledge.enable is false.")
        check_topic(context, self._request, key[0])
        group_id, member_id = self._key
        led = context.partitions.find(group_id, *key)
        if led is None:
            raise KafkaError(ErrorCode.INVALID_RECORD_STATE, "The records were not acquired from this leader.")
        context.partitions.use(led, settings)

        def stored(error: KafkaError | None) -> None:
            if error is None:
                context.statistics.count(decisions)
            self._done(key, error)

        context.partitions.acknowledge(led, member_id, decisions, stored)

    def _done(self, key: PartitionId, error: KafkaError | None) -> None:
        self.results[key] = error
        if error is not None and key[0] not in self._failed:
            self._failed.add(key[0])
            count_requests(self._context, "failed_acknowledgements", (key[0],))
        self._left -= 1
        if self._left == 0 and self.then is not None:
            self.then()


def end_session(context: SharePartitionContext, key: SessionKey) -> None:
    """End the session of a member, and release its records."""
    context.partitions.sessions.remove(key)
    context.partitions.release_member(*key)
