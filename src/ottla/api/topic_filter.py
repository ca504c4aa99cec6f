"""Which topics a consumer reads, by regular expressions, as Kafka's own clients and its first consumers have it.

An expression is Python's and has to match the whole name. Internal topics are never matched
(`exclude.internal.topics`); who wants one subscribes to its name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from ottla.common.kafka.internal_topics import INTERNAL_TOPICS


@dataclass(frozen=True, slots=True)
class TopicFilter:
    """Topics whose name `allow` matches and `deny` does not."""

    allow: str | re.Pattern[str] = ".*"
    deny: str | re.Pattern[str] | None = None

    def __post_init__(self) -> None:
        """Raises re.error for an expression that is none."""
        re.compile(self.allow)
        if self.deny is not None:
            re.compile(self.deny)

    def matches(self, topic: str) -> bool:
        """Whether a topic of that name is read."""
        if topic in INTERNAL_TOPICS or re.fullmatch(self.allow, topic) is None:
            return False
        return self.deny is None or re.fullmatch(self.deny, topic) is None

    def chosen(self, topics: Iterable[str]) -> list[str]:
        """Those that match, in the order of their names."""
        return sorted(topic for topic in topics if self.matches(topic))
