"""Topic selection by regular expressions, like Kafka's clients and its first consumers.

Expressions use Python's syntax and must match the full name. Internal topics never match (`exclude.internal.topics`);
subscribe to them by name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from ottla.common.kafka.internal_topics import INTERNAL_TOPICS


@dataclass(frozen=True, slots=True)
class TopicFilter:
    """Topics that match `allow` and do not match `deny`, by name."""

    allow: str | re.Pattern[str] = ".*"
    deny: str | re.Pattern[str] | None = None

    def __post_init__(self) -> None:
        """Raises re.error for an invalid expression."""
        re.compile(self.allow)
        if self.deny is not None:
            re.compile(self.deny)

    def matches(self, topic: str) -> bool:
        """True if a topic of that name is selected."""
        if topic in INTERNAL_TOPICS or re.fullmatch(self.allow, topic) is None:
            return False
        return self.deny is None or re.fullmatch(self.deny, topic) is None

    def chosen(self, topics: Iterable[str]) -> list[str]:
        """The matching topics, sorted by name."""
        return sorted(topic for topic in topics if self.matches(topic))


Topics = str | TopicFilter | re.Pattern[str] | Iterable[str]
"""A subscription: one topic, a filter, or several topics."""
