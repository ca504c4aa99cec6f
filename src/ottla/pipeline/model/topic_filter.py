"""Selection of topics by a regular expression, as in Kafka's consumer."""

from __future__ import annotations

from collections.abc import Callable

from ottla.client.wire.model import TopicInfo
from ottla.common.errors import KafkaError, OperatorError
from ottla.common.kafka.patterns import compile_pattern


def topic_filter(pattern: str, option: str) -> Callable[[TopicInfo], bool]:
    """A function that is true for topics whose whole name matches the pattern in RE2 syntax; internal topics never do.

    `option` begins the message of the OperatorError that is raised for an invalid pattern.
    """
    try:
        matches = compile_pattern(pattern, option)
    except KafkaError as error:
        raise OperatorError(error.message.rstrip(".")) from error
    return lambda topic: not topic.is_internal and matches(topic.name.encode()) is not None
