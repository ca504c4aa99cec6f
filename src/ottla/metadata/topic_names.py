"""Valid topic names, and topic keys in requests."""

from __future__ import annotations

import re

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.kafka.ids import Uuid
from ottla.storage.files.names import METADATA_TOPIC

CLUSTER_METADATA_TOPIC = METADATA_TOPIC

TopicKey = str | Uuid
"""A topic in a request: its name, or its id in newer versions of many APIs (KIP-516)."""

MAX_NAME_LENGTH = 249
_LEGAL = re.compile(r"[a-zA-Z0-9._-]+", re.ASCII)


def validate_topic_name(name: str) -> None:
    """Raises KafkaError INVALID_TOPIC_EXCEPTION, in Apache Kafka's words, for an invalid name."""
    if not name:
        problem = "the empty string is not allowed"
    elif name in (".", ".."):
        problem = f"'{name}' is not allowed"
    elif len(name) > MAX_NAME_LENGTH:
        shown = name[:MAX_NAME_LENGTH]
        problem = f"the length of '{shown}' is longer than the max allowed length {MAX_NAME_LENGTH}"
    elif not _LEGAL.fullmatch(name):
        problem = f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    else:
        return
    raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {problem}")


def unknown_topic(topic: TopicKey) -> ErrorCode:
    """Return the error code for a missing topic."""
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if isinstance(topic, str) else ErrorCode.UNKNOWN_TOPIC_ID


def unknown_name(name: str) -> KafkaError:
    """Return the error, with message, for a missing topic or an invalid name."""
    try:
        validate_topic_name(name)
    except KafkaError as error:
        return error
    return KafkaError(unknown_topic(name), "This server does not host this topic-partition.")


def collision_form(name: str) -> str:
    """Return the form in metric names, which contain no dots; a topic with the form of another is rejected."""
    return name.replace(".", "_")
