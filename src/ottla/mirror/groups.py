"""Offsets of groups carried over: read in the source, translated, committed in the target.

As Apache Kafka's MirrorMaker 2 does it: for groups without members in the target only, and never backwards, since
whoever read on there knows better.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from ottla.client.admin.cluster import Cluster
from ottla.client.wire.model import Position
from ottla.client.wire.outage import Tell
from ottla.common.errors import ErrorCode, KafkaError
from ottla.mirror.routes import Route
from ottla.mirror.translation import RouteMap, Translation, translate

OF_CONSUMERS = frozenset({"consumer", ""})
"""The protocol types of groups that commit offsets: also those of KIP-848, and those that never had members."""


class GroupMirror:
    """Remembers only what it told already."""

    def __init__(self, pattern: re.Pattern[str], tell: Tell) -> None:
        self._pattern = pattern
        self._tell = tell
        self._told: set[str] = set()

    def carry(
        self, source: Cluster, target: Cluster, maps: Mapping[Route, RouteMap], ends: Mapping[Position, int]
    ) -> dict[Position, int]:
        """Carry over what can be told; the least offset of the source that any group stands at, by partition.

        No group goes beyond `ends` of the target. Raises KafkaError, BrokerUnreachable.
        """
        least: dict[Position, int] = {}
        for listing in source.groups():
            if listing.protocol_type not in OF_CONSUMERS or not self._pattern.fullmatch(listing.group_id):
                continue
            offsets = source.group_offsets(listing.group_id, stable=True)
            committed = {key: found.offset for key, found in offsets.items()}
            for key, offset in committed.items():
                least[key] = min(offset, least.get(key, offset))
            self._carry_one(target, listing.group_id, translate(committed, maps), ends)
        return least

    def _carry_one(
        self, target: Cluster, group_id: str, translation: Translation, ends: Mapping[Position, int]
    ) -> None:
        for topic in sorted(translation.behind):
            self._tell_once(
                f"group {group_id!r} stands in topic {topic!r} before where this mirror began to keep what lies where: "
                "its offsets there are carried over once it is past that"
            )
        if not translation.offsets:
            return
        there = target.group_offsets(group_id, stable=True)
        wanted = {key: min(offset, ends.get(key, offset)) for key, offset in translation.offsets.items()}
        ahead = {key: offset for key, offset in wanted.items() if key not in there or there[key].offset < offset}
        if not ahead:
            return
        try:
            target.commit_group_offsets(group_id, ahead)
        except KafkaError as error:
            if error.code != ErrorCode.UNKNOWN_MEMBER_ID:
                raise
            self._tell_once(f"group {group_id!r} has members in the target: its offsets are not carried over meanwhile")

    def _tell_once(self, sentence: str) -> None:
        if sentence not in self._told:
            self._told.add(sentence)
            self._tell(sentence)
