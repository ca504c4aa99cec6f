"""Automatic topic creation: topics requested by clients on demand, and internal topics of the broker.

On-demand topics have this broker's partition and replica counts, which may differ from the controller's;
`coordination.internal_topic` defines the internal ones.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ottla.common.errors import ErrorCode, InvariantError, KafkaError
from ottla.common.logs import RATE_LIMITED
from ottla.server.metadata.metadata_cache import MetadataCache
from ottla.server.metadata.topic_ready_waiters import TopicReadyWaiters
from ottla.server.requests.forwarding import ControllerChannel, RequestOrigin

if TYPE_CHECKING:
    from ottla.protocol.messages.create_topics import CreatableTopic, CreateTopicsResponse

logger = logging.getLogger(__name__)

MAX_REPLICATION_FACTOR = (1 << 15) - 1
"""The field of CreateTopics has two bytes; default.replication.factor has no bound."""
MAX_ON_DEMAND = 1000
"""Maximum of on-demand topics without the controller's response."""
CREATION_TIMEOUT_S = 5.0
"""Later requests of the client wait behind this one, so it is short; the client retries."""

Problems = dict[str, KafkaError]
"""Creation errors by topic name."""


class OnDemandCounts(NamedTuple):
    """Counts of a topic that a client creates by asking for it."""

    partitions: int
    """num.partitions"""
    replication_factor: int
    """default.replication.factor, at most MAX_REPLICATION_FACTOR"""


class TopicCreation:
    """Creates topics through the controller. Owner of the pending on-demand creations."""

    __slots__ = ("_arrivals", "_controller", "_counts", "_metadata", "on_demand")

    def __init__(
        self,
        metadata: MetadataCache,
        controller: ControllerChannel,
        arrivals: TopicReadyWaiters,
        counts: OnDemandCounts,
    ) -> None:
        self._metadata = metadata
        self._controller = controller
        self._arrivals = arrivals
        self._counts = counts
        self.on_demand: set[str] = set()
        """Names being created for clients."""

    def create(
        self, topics: list[CreatableTopic], done: Callable[[Problems], None], client: RequestOrigin | None = None
    ) -> None:
        """Create missing topics, wait until this broker knows them, then call `done` with the errors.

        `client` is charged for them (KIP-599); None for the broker's own topics.
        """
        from ottla.protocol.messages.create_topics import CreateTopicsRequest  # imported here: for missing topics

        names = [topic.name for topic in topics]

        def created(response: CreateTopicsResponse | None, error: BaseException | None) -> None:
            problems: Problems = {}
            if response is None:
                problems = dict.fromkeys(names, _kafka_error(error))
            else:
                for topic in response.topics:
                    # Created concurrently: it exists.
                    code = ErrorCode.for_code(topic.error_code)
                    if code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                        problems[topic.name] = KafkaError(code, topic.error_message or "")
            there = [name for name in names if name not in problems]
            self._arrivals.wait(self._metadata.image, there, lambda: done(problems))

        request = CreateTopicsRequest(topics=topics)
        if client is None:
            self._controller.send_until(request, created, CREATION_TIMEOUT_S)
        else:
            self._controller.create_for(client, request, created)

    def create_on_demand(self, names: Sequence[str], client: RequestOrigin) -> None:
        """Start creating topics that clients requested; each is pending once, and at most `MAX_ON_DEMAND` are.

        Topics beyond that stay unknown, and the client retries.
        """
        from ottla.protocol.messages.create_topics import CreatableTopic  # imported here: for missing topics

        under_way = self.on_demand
        wanted = [name for name in names if name not in under_way][: MAX_ON_DEMAND - len(under_way)]
        if not wanted:
            return

        def created(problems: Problems) -> None:
            under_way.difference_update(wanted)
            for name, error in problems.items():
                logger.warning("auto-creation of topic %r failed: %s", name, error, extra=RATE_LIMITED)

        under_way.update(wanted)
        partitions, replication_factor = self._counts
        self.create(
            [
                CreatableTopic(name=name, num_partitions=partitions, replication_factor=replication_factor)
                for name in wanted
            ],
            created,
            client,
        )


def _kafka_error(error: BaseException | None) -> KafkaError:
    if isinstance(error, KafkaError):
        return error
    raise InvariantError("a topic creation has no outcome") from error
