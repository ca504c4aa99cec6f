"""Topics that belong to the broker itself: how they are created when a client first needs them.

Settings are those of Apache Kafka. Unless the operator set it, the replication factor is min(3, live brokers); a value
that is set is enforced, so that nobody gets fewer replicas than asked for (architecture.md 6).
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.common.broker_configs import BrokerConfig
from ottla.common.errors import ErrorCode, InvariantError, KafkaError
from ottla.controller.result import ControllerContext, ControllerResult
from ottla.controller.topics import handle_create_topics
from ottla.metadata.image import MetadataImage
from ottla.metadata.topic_names import GROUP_METADATA_TOPIC
from ottla.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from ottla.server.context import BrokerContext

BROKER_DEFAULT = -1
MAX_DEFAULT_REPLICAS = 3


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


def create_internal_topic(context: BrokerContext, name: str, done: Callable[[KafkaError | None], None]) -> None:
    """Make the topic unless it is there, then `done(None)`, or `done(why not)`; possibly before this returns."""

    def create(image: MetadataImage, controller: ControllerContext) -> ControllerResult[CreateTopicsResponse]:
        topics = [] if name in image.topics else [topic_to_create(name, image, controller.config)]
        return handle_create_topics(image, CreateTopicsRequest(topics=topics), controller)

    def created(response: CreateTopicsResponse | None, error: BaseException | None) -> None:
        if isinstance(error, KafkaError):
            done(error)
        elif error is not None or response is None:
            raise InvariantError(f"the creation of {name} has no outcome") from error
        else:
            failed = [topic for topic in response.topics if topic.error_code]
            done(KafkaError(ErrorCode(failed[0].error_code), failed[0].error_message or "") if failed else None)

    context.controller.submit(create, created)
