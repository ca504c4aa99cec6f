"""Group offsets: read in the source, translated, committed in the target.

As in Apache Kafka's MirrorMaker 2, only for groups without members in the target, and never backwards, since a consumer
in the target may have advanced.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from ottla.client.admin.cluster import Cluster
from ottla.client.wire.outage import Notify
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.kafka.topic_partition import TopicPartition
from ottla.mirror.routes import Route
from ottla.mirror.translation import RouteMap, Translation, translate

OF_CONSUMERS = frozenset({"consumer", ""})
"""Protocol types of groups with committed offsets, including those of KIP-848 and groups without members."""


class GroupMirror:
    """Copies group offsets. Its only state are the messages that it has sent."""

    def __init__(self, pattern: re.Pattern[str], notify: Notify) -> None:
        self._pattern = pattern
        self._notify = notify
        self._reported: set[str] = set()

    def carry(
        self, source: Cluster, target: Cluster, maps: Mapping[Route, RouteMap], ends: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """Copy translatable offsets; returns the smallest source offset of all groups by partition.

        No group is moved beyond `ends` of the target. Raises KafkaError, BrokerUnreachable.
        """
        least: dict[TopicPartition, int] = {}
        for listing in source.groups.find():
            if listing.protocol_type not in OF_CONSUMERS or not self._pattern.fullmatch(listing.group_id):
                continue
            offsets = source.groups.offsets(listing.group_id, stable=True)
            committed = {key: found.offset for key, found in offsets.items()}
            for key, offset in committed.items():
                least[key] = min(offset, least.get(key, offset))
            self._carry_one(target, listing.group_id, translate(committed, maps), ends)
        return least

    def _carry_one(
        self, target: Cluster, group_id: str, translation: Translation, ends: Mapping[TopicPartition, int]
    ) -> None:
        for topic in sorted(translation.behind):
            self._notify_once(
                f"group {group_id!r} is at an offset of topic {topic!r} before the first one with an offset mapping: "
                "its offsets there are copied once it has passed that offset"
            )
        if not translation.offsets:
            return
        there = target.groups.offsets(group_id, stable=True)
        wanted = {key: min(offset, ends.get(key, offset)) for key, offset in translation.offsets.items()}
        ahead = {key: offset for key, offset in wanted.items() if key not in there or there[key].offset < offset}
        if not ahead:
            return
        try:
            target.groups.commit_offsets(group_id, ahead)
        except KafkaError as error:
            if error.code != ErrorCode.UNKNOWN_MEMBER_ID:
                raise
            self._notify_once(f"group {group_id!r} has members in the target: its offsets are not copied for now")

    def _notify_once(self, sentence: str) -> None:
        if sentence not in self._reported:
            self._reported.add(sentence)
            self._notify(sentence)
