"""Dead-letter settings of a share group, and the check of its dead-letter topic before each write (KIP-1191).

As in Apache Kafka the settings of group, topic and brokers are compared when a dead letter is written, not when they
are set: each of them may change alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ottla.common.config.broker_configs import BrokerConfig
from ottla.common.config.config_keys_share_groups import DEAD_LETTER_AUTO_CREATE, DEAD_LETTER_PREFIX
from ottla.common.config.group_configs import (
    ARCHIVE,
    DEAD_LETTER_COPY_HEADERS,
    DEAD_LETTER_COPY_RECORD,
    DEAD_LETTER_ON_FAILURE,
)
from ottla.common.config.topic_configs import DEAD_LETTERS_ENABLE
from ottla.metadata.image import MetadataImage
from ottla.server.coordination.dead_letter_source import CopiedParts
from ottla.server.coordination.share_settings import dead_letter_topic, group_value

if TYPE_CHECKING:
    from ottla.protocol.messages.create_topics import CreatableTopic


class DeadLetterSettings(NamedTuple):
    """Settings of a group that has a dead-letter topic."""

    topic: str
    copied: CopiedParts
    archives: bool
    """Whether a record is archived if its dead letter can't be written."""


def dead_letter_settings(image: MetadataImage, group_id: str) -> DeadLetterSettings | None:
    """Return the settings of a group; None without a dead-letter topic."""
    topic = dead_letter_topic(image, group_id)
    if not topic:
        return None
    own = image.group_configs(group_id)
    copied = CopiedParts(
        key_and_value=bool(group_value(own, DEAD_LETTER_COPY_RECORD)),
        headers=bool(group_value(own, DEAD_LETTER_COPY_HEADERS)),
    )
    return DeadLetterSettings(topic, copied, group_value(own, DEAD_LETTER_ON_FAILURE) == ARCHIVE)


def topic_problem(image: MetadataImage, config: BrokerConfig, name: str) -> str | None:
    """Return why dead letters can't be written to the topic, and the remedy; None if they can, or it can be created.

    The checks are those of Apache Kafka, and that the topic is not compacted: dead letters of one key are all kept.
    """
    topic = image.topic(name)
    if name.startswith("__"):
        return f"the dead-letter topic {name} is internal; set errors.deadletterqueue.topic.name to another topic"
    if topic is None and not config.get_bool(DEAD_LETTER_AUTO_CREATE):
        return f"the dead-letter topic {name} does not exist; create it with {DEAD_LETTERS_ENABLE}=true"
    prefix = config.get_str(DEAD_LETTER_PREFIX) or ""
    if not name.startswith(prefix):
        return f"the name of the dead-letter topic {name} does not start with {prefix!r} ({DEAD_LETTER_PREFIX})"
    if topic is None:
        return None
    properties = config.topic_properties(image.topic_configs(name))
    if properties[DEAD_LETTERS_ENABLE].lower() != "true":
        return f"the dead-letter topic {name} does not permit it; set {DEAD_LETTERS_ENABLE}=true for the topic"
    if "compact" in properties["cleanup.policy"]:
        return f"the dead-letter topic {name} is compacted; set cleanup.policy=delete for the topic"
    return None


def creation_of(name: str) -> CreatableTopic:
    """Return the dead-letter topic of a CreateTopics request, as in Apache Kafka."""
    from ottla.protocol.messages.create_topics import (  # imported here: once for a topic
        CreatableTopic,
        CreatableTopicConfig,
    )

    configs = {DEAD_LETTERS_ENABLE: "true", "message.timestamp.type": "CreateTime"}
    return CreatableTopic(
        name=name,
        num_partitions=-1,
        replication_factor=-1,
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
    )
