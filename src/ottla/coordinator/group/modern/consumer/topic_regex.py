"""Matching of topic names against subscribed regular expressions, each of which must match the full name (KIP-848).

Matching a group's patterns against all topics has no bound that is known in advance. So it runs in steps with a limited
number of regex engine calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ottla.common.errors import KafkaError
from ottla.common.kafka.patterns import Matcher, compile_pattern
from ottla.coordinator.group.modern.consumer.group import ResolvedRegex

MATCHES_PER_STEP = 500
"""Engine calls in one step: one millisecond for usual patterns, up to eight for the worst."""


def compile_regex(pattern: str) -> Matcher:
    """Return a matcher for topic names. Raises KafkaError INVALID_REGULAR_EXPRESSION."""
    return compile_pattern(pattern, "SubscribedTopicRegex")


class RegexResolution:
    """Matches all patterns of a group against all topics of one metadata image, step by step."""

    __slots__ = ("_matchers", "_may_describe", "_names", "_position", "_step", "_timestamp_ms", "_topics", "_version")

    def __init__(
        self,
        patterns: Iterable[str],
        names: Sequence[str],
        version: int,
        timestamp_ms: int,
        may_describe: Callable[[str], bool] | None = None,
    ) -> None:
        """Patterns that don't compile match nothing: they were validated when a member sent them.

        `may_describe(topic)` returns whether the requesting member may describe a matching topic; None permits all.
        """
        self._matchers: dict[str, Matcher] = {}
        self._topics: dict[str, list[str]] = {}
        for pattern in sorted(patterns):
            self._topics[pattern] = []
            try:
                self._matchers[pattern] = compile_regex(pattern)
            except KafkaError:
                continue
        self._names = names
        self._position = 0
        self._step = max(1, MATCHES_PER_STEP // max(1, len(self._matchers)))
        self._may_describe = may_describe
        self._version = version
        self._timestamp_ms = timestamp_ms

    def step(self) -> bool:
        """Match more names; return True when all are done."""
        end = self._position + self._step
        names = self._names[self._position : end]
        if self._may_describe is not None:
            names = list(filter(self._may_describe, names))
        for pattern, matches in self._matchers.items():
            self._topics[pattern] += [name for name in names if matches(name.encode())]
        self._position = end
        return end >= len(self._names)

    def result(self) -> dict[str, ResolvedRegex]:
        """Return the resolved patterns, sorted by pattern."""
        return {
            pattern: ResolvedRegex(frozenset(names), self._version, self._timestamp_ms)
            for pattern, names in self._topics.items()
        }
