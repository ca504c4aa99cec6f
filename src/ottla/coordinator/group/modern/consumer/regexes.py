"""Resolution of the regular expressions of consumer groups (KIP-848).

Patterns are matched after the heartbeat that requires it, not within it: a shard timer runs small steps. The result is
written as records of its own, and raises the group epoch if the subscribed topics changed. All patterns of a group are
refreshed together, so that new topics cause one rebalance. A refresh starts when one is unresolved, when topics were
created, or after `group.consumer.regex.refresh.interval.ms`, but at most every ten seconds. It excludes topics that the
member that triggered it may not describe, as in Apache Kafka.

Invariant: at most one resolution of a group runs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from enum import Enum

from ottla.coordinator.group.context import ShardContext
from ottla.coordinator.group.modern.consumer.group import UNRESOLVED, ConsumerGroup, ResolvedRegex
from ottla.coordinator.group.modern.consumer.member import ConsumerMember
from ottla.coordinator.group.modern.consumer.topic_regex import RegexResolution, compile_regex
from ottla.coordinator.group.modern.subscribed_topics import metadata_hash
from ottla.coordinator.group.records import GroupRecord
from ottla.coordinator.runtime import EMPTY_RESULT, CoordinatorResult
from ottla.protocol.messages.coordinator_records import (
    ConsumerGroupMetadataKey,
    ConsumerGroupMetadataValue,
    ConsumerGroupRegularExpressionKey,
    ConsumerGroupRegularExpressionValue,
)

MIN_REFRESH_INTERVAL_MS = 10_000


class RegexChange(Enum):
    """Effect of a heartbeat on its member's regular expression."""

    NONE = "none"
    CHANGED = "changed"
    """The new one is not resolved yet; the group epoch rises when it is."""
    CHANGED_AND_RESOLVED = "changed and resolved"
    """Another member has the same one, or the member has none any more."""


def group_epoch_record(group_id: str, group_epoch: int, topics_hash: int) -> GroupRecord:
    """Return the record that raises the group epoch."""
    return GroupRecord(
        ConsumerGroupMetadataKey(group_id=group_id),
        ConsumerGroupMetadataValue(epoch=group_epoch, metadata_hash=topics_hash),
    )


def regex_tombstone(group_id: str, regex: str) -> GroupRecord:
    """Return the tombstone of a regular expression without subscribers."""
    return GroupRecord(ConsumerGroupRegularExpressionKey(group_id=group_id, regular_expression=regex), None)


def unused_regexes(group: ConsumerGroup, leaving: Sequence[ConsumerMember]) -> list[str]:
    """Return the regular expressions without subscribers once these members are removed."""
    counts = Counter(member.subscribed_topic_regex for member in leaving if member.subscribed_topic_regex)
    return sorted(regex for regex, count in counts.items() if group.regex_subscribers.get(regex, 0) <= count)


class RegexSubscriptions:
    """The regular expressions of all groups of one shard."""

    __slots__ = ("_context", "_resolutions", "_topics_version")

    def __init__(self, context: ShardContext) -> None:
        self._context = context
        self._resolutions: dict[str, RegexResolution] = {}
        """Running resolutions by group id."""
        self._topics_version = 0
        """Offset of the last metadata image with new topics."""

    def topics_added(self, version: int) -> None:
        """Report that topics were created, as of this metadata version."""
        self._topics_version = version

    def update(
        self,
        group: ConsumerGroup,
        before: ConsumerMember,
        after: ConsumerMember,
        records: list[GroupRecord],
        may_describe: Callable[[str], bool] | None,
    ) -> RegexChange:
        """Apply a member's change, and start a resolution if required, limited to topics the member `may_describe`.

        Raises KafkaError INVALID_REGULAR_EXPRESSION for a pattern that is new to the group and does not compile.
        """
        old, new = before.subscribed_topic_regex, after.subscribed_topic_regex
        change = RegexChange.NONE
        must_resolve = False
        if old != new:
            change = RegexChange.CHANGED
            if old and group.regex_subscribers.get(old, 0) == 1:
                records.append(regex_tombstone(group.group_id, old))
            if not new:
                change = RegexChange.CHANGED_AND_RESOLVED
            elif new not in group.regex_subscribers:
                compile_regex(new)
                must_resolve = True
            elif new in group.regexes:
                change = RegexChange.CHANGED_AND_RESOLVED
        if must_resolve or group.regex_subscribers:
            self._maybe_resolve(group, (old, new), must_resolve, may_describe)
        return change

    def _maybe_resolve(
        self,
        group: ConsumerGroup,
        change: tuple[str, str],
        must_resolve: bool,
        may_describe: Callable[[str], bool] | None,
    ) -> None:
        old, new = change
        now_ms = self._context.clock.time_ms()
        last_ms = group.last_regex_refresh_ms()
        if group.group_id in self._resolutions or last_ms <= now_ms <= last_ms + MIN_REFRESH_INTERVAL_MS:
            return
        counts = Counter(dict(group.regex_subscribers))
        if old != new:
            counts[old] -= 1
            counts[new] += 1
        patterns = [regex for regex, count in counts.items() if regex and count > 0]
        due = (
            must_resolve
            or any(regex not in group.regexes for regex in patterns)
            or group.last_regex_version() < self._topics_version
            or now_ms > last_ms + self._context.config.group_consumer_regex_refresh_interval_ms
        )
        if not due or not patterns:
            return
        image = self._context.image
        self._resolutions[group.group_id] = RegexResolution(
            patterns, list(image.topics), image.offset, now_ms, may_describe
        )
        self._schedule_step(group.group_id)

    def _schedule_step(self, group_id: str) -> None:
        # If it fails, the next heartbeat finds the patterns unresolved and starts again.
        self._context.timer.schedule(f"consumer-regex\0{group_id}", 0, lambda: self._step(group_id), retry=False)

    def _step(self, group_id: str) -> CoordinatorResult[GroupRecord, None]:
        resolution = self._resolutions.get(group_id)
        if resolution is None:
            return EMPTY_RESULT
        if not resolution.step():
            self._schedule_step(group_id)
            return EMPTY_RESULT
        del self._resolutions[group_id]
        group = self._context.groups.find(group_id)
        if not isinstance(group, ConsumerGroup):
            return EMPTY_RESULT
        return CoordinatorResult(self._resolved(group, resolution.result()))

    def _resolved(self, group: ConsumerGroup, results: dict[str, ResolvedRegex]) -> list[GroupRecord]:
        """Return the records of a finished resolution."""
        records = []
        changed = False
        topics = set(group.topic_subscribers)
        for regex in group.regex_subscribers:
            topics |= results.get(regex, group.regexes.get(regex, UNRESOLVED)).topics
        for regex, resolved in results.items():
            if regex not in group.regex_subscribers:
                continue
            changed = changed or group.regex_topics(regex) != resolved.topics
            records.append(
                GroupRecord(
                    ConsumerGroupRegularExpressionKey(group_id=group.group_id, regular_expression=regex),
                    ConsumerGroupRegularExpressionValue(
                        topics=sorted(resolved.topics), version=resolved.version, timestamp=resolved.timestamp_ms
                    ),
                )
            )
        topics_hash = metadata_hash(topics, self._context.image)
        if changed or topics_hash != group.metadata_hash:
            group_epoch = group.group_epoch + 1
            records.append(group_epoch_record(group.group_id, group_epoch, topics_hash))
            group.topics_checked_at_epoch = group_epoch
        return records

    def unloaded(self) -> None:
        """Drop all running resolutions."""
        self._resolutions.clear()
