"""Topics that nobody created by name: those that a client asks for on demand, and those of the broker itself.

Settings are those of Apache Kafka. Unless the operator set it, the replication factor is min(3, live brokers); a value
that is set is enforced, so that nobody gets fewer replicas than asked for.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from ottla.common.broker_configs import BrokerConfig
from ottla.common.errors import ErrorCode, InvariantError, KafkaError
from ottla.common.logs import RATE_LIMITED
from ottla.controller.reassignments import MAX_DEFAULT_REPLICAS
from ottla.metadata.image import MetadataImage
from ottla.metadata.topic_names import GROUP_METADATA_TOPIC
from ottla.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.server.forwarding import ControllerChannel
from ottla.server.metadata_cache import MetadataCache
from ottla.server.topic_arrivals import TopicArrivals

logger = logging.getLogger(__name__)

BROKER_DEFAULT = -1
MAX_ON_DEMAND = 1000
"""Topics that clients asked for and the controller has not answered for yet."""
CREATION_TIMEOUT_S = 5.0
"""Later requests of the client wait behind this one, so it is not long; the client asks again."""

Problems = dict[str, KafkaError]
"""Why a topic could not be made, by name."""


def topic_to_create(name: str, image: MetadataImage, config: BrokerConfig) -> CreatableTopic:
    """The creation of a topic on demand: with its own settings if it is internal, else with the broker's defaults."""
    if name != GROUP_METADATA_TOPIC:
        return CreatableTopic(name=name, num_partitions=BROKER_DEFAULT, replication_factor=BROKER_DEFAULT)
    settings = {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": str(config.get_int("offsets.topic.segment.bytes")),
    }
    return CreatableTopic(
        name=name,
        num_partitions=config.get_int("offsets.topic.num.partitions"),
        replication_factor=_replication_factor("offsets.topic.replication.factor", image, config),
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in settings.items()],
    )


def _replication_factor(setting: str, image: MetadataImage, config: BrokerConfig) -> int:
    if config.is_set(setting):
        return config.get_int(setting)
    return max(1, min(MAX_DEFAULT_REPLICAS, len(image.active_brokers())))


class TopicCreation:
    """Asks the controller for topics. Owner of those that are under way on demand."""

    __slots__ = ("_arrivals", "_config", "_controller", "_metadata", "on_demand")

    def __init__(
        self, metadata: MetadataCache, controller: ControllerChannel, arrivals: TopicArrivals, config: BrokerConfig
    ) -> None:
        self._metadata = metadata
        self._controller = controller
        self._arrivals = arrivals
        self._config = config
        self.on_demand: set[str] = set()
        """Names that are just being created for clients."""

    def use_config(self, config: BrokerConfig) -> None:
        """Go on with these settings."""
        self._config = config

    def create(self, names: Sequence[str], done: Callable[[Problems], None]) -> None:
        """Make the topics that are not there, wait until this broker knows them, then `done` with what failed, why."""
        image = self._metadata.image
        topics = [topic_to_create(name, image, self._config) for name in names]

        def created(response: CreateTopicsResponse | None, error: BaseException | None) -> None:
            problems: Problems = {}
            if response is None:
                problems = dict.fromkeys(names, _told(error))
            else:
                for topic in response.topics:
                    # Somebody else was faster: it is there.
                    if topic.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                        problems[topic.name] = KafkaError(ErrorCode(topic.error_code), topic.error_message or "")
            there = [name for name in names if name not in problems]
            self._arrivals.wait(self._metadata.image, there, lambda: done(problems))

        self._controller.send_until(CreateTopicsRequest(topics=topics), created, CREATION_TIMEOUT_S)

    def create_on_demand(self, names: Sequence[str]) -> None:
        """Begin to make topics that clients ask for; each is under way once, and at most `MAX_ON_DEMAND` are.

        What is beyond that stays unknown, and the client asks again.
        """
        under_way = self.on_demand
        wanted = [name for name in names if name not in under_way][: MAX_ON_DEMAND - len(under_way)]
        if not wanted:
            return

        def created(problems: Problems) -> None:
            under_way.difference_update(wanted)
            for name, error in problems.items():
                logger.warning("topic %r can't be created on demand: %s", name, error, extra=RATE_LIMITED)

        under_way.update(wanted)
        self.create(wanted, created)


def _told(error: BaseException | None) -> KafkaError:
    if isinstance(error, KafkaError):
        return error
    raise InvariantError("the creation of topics has no outcome") from error
