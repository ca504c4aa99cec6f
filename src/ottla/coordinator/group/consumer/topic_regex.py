"""Regular expressions that members subscribe by: checked and matched by RE2 (KIP-848).

RE2 matches in time linear in the name, whatever the pattern, and refuses patterns that would need too much memory, so
a hostile pattern costs no more than a long one. Apache Kafka uses RE2/J, a port of the engine with the same syntax. A
pattern must match the whole name of a topic.

Matching a group's patterns against all topics is work without a bound that is known beforehand, so it is done in steps
that are bounded in calls of the engine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ottla.common.errors import ErrorCode, KafkaError
from ottla.coordinator.group.consumer.group import ResolvedRegex

MAX_PATTERN_BYTES = 32_767
"""A longer pattern is refused: it is part of a record key, whose strings have 16-bit lengths."""

MAX_PROGRAM_BYTES = 1 << 20
"""What the compiled pattern and its caches may take; an eighth of RE2's default. RE2 keeps the last 128 patterns."""

MATCHES_PER_STEP = 500
"""Calls of the engine in one step: one millisecond for usual patterns, up to eight for the worst."""

SHOWN_CHARACTERS = 200
"""How much of a pattern an error message repeats."""

Matcher = Callable[[bytes], object]
"""Takes the name as UTF-8, which saves the engine's wrapper a conversion."""


def compile_regex(pattern: str) -> Matcher:
    """A function that is true for names that match. Raises KafkaError INVALID_REGULAR_EXPRESSION."""
    encoded = pattern.encode()
    if len(encoded) > MAX_PATTERN_BYTES:
        raise KafkaError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex has {len(encoded)} bytes, more than {MAX_PATTERN_BYTES}.",
        )
    import re2  # here, since only few groups subscribe by a pattern and each import delays the start

    options = re2.Options()
    options.log_errors = False
    options.max_mem = MAX_PROGRAM_BYTES
    try:
        matcher: Matcher = re2.compile(encoded, options).fullmatch
    except re2.error as error:
        raise KafkaError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex `{pattern[:SHOWN_CHARACTERS]}` is not a valid regular expression: "
            f"{_reason(error)[:SHOWN_CHARACTERS]}.",
        ) from error
    return matcher


def _reason(error: Exception) -> str:
    reason = error.args[0] if error.args else "unknown"
    return reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)


class RegexResolution:
    """All patterns of a group against all topics of one metadata image, step by step."""

    __slots__ = ("_matchers", "_names", "_position", "_step", "_timestamp_ms", "_topics", "_version")

    def __init__(self, patterns: Iterable[str], names: Sequence[str], version: int, timestamp_ms: int) -> None:
        """Patterns that don't compile match nothing: they were checked when a member brought them."""
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
        self._version = version
        self._timestamp_ms = timestamp_ms

    def step(self) -> bool:
        """Match some more names; True when all are done."""
        end = self._position + self._step
        names = self._names[self._position : end]
        for pattern, matches in self._matchers.items():
            self._topics[pattern] += [name for name in names if matches(name.encode())]
        self._position = end
        return end >= len(self._names)

    def result(self) -> dict[str, ResolvedRegex]:
        """By pattern, in order."""
        return {
            pattern: ResolvedRegex(frozenset(names), self._version, self._timestamp_ms)
            for pattern, names in self._topics.items()
        }
