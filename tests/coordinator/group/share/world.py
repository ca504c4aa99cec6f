"""Share groups of one shard on virtual time; `share_state` is a share coordinator in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.kafka.share_state import SharePartitionKey
from ottla.coordinator.group.modern.share.group import ShareGroup
from ottla.coordinator.group.modern.share.work import (
    DeletedState,
    InitializedState,
    ShareHeartbeat,
    StateDeletion,
    StateInitialization,
)
from ottla.metadata.image import MetadataImage, PartitionImage, TopicImage
from ottla.protocol.messages.share_group_heartbeat import Assignment, ShareGroupHeartbeatRequest

from ..consumer.world import CLIENT, GROUP, World

TopicCounts = Mapping[str, int | tuple[int, int]]
"""Partitions by name, or (partitions, generation): a topic that was created again has another id."""


def share_topic_id(name: str, generation: int = 0) -> bytes:
    return name.encode().ljust(15, b"\0") + bytes([generation])


def share_image(topics: TopicCounts, offset: int) -> MetadataImage:
    images = {}
    for name, value in topics.items():
        count, generation = value if isinstance(value, tuple) else (value, 0)
        partitions = {number: PartitionImage((0,), (0,), 0, 0, 0) for number in range(count)}
        images[name] = TopicImage(name, share_topic_id(name, generation), partitions)
    return MetadataImage(offset=offset, topics=images, topics_by_id={each.topic_id: each for each in images.values()})


class ShareWorld(World):
    """One shard, its metadata, its log, and the state in the share coordinator."""

    def __init__(self, topics: TopicCounts, **config: Any) -> None:
        super().__init__({})
        self.set_config(**config)
        self.initializations: list[StateInitialization] = []
        self.share_state: dict[SharePartitionKey, tuple[int, int]] = {}
        """State epoch and start offset."""
        self.set_topics(topics)

    def set_topics(self, topics: TopicCounts) -> list[StateDeletion]:
        """Change the metadata; return the deletions that result."""
        before = self.image
        self.image = share_image(topics, before.offset + 1)
        names = {*before.topics, *self.image.topics}
        changed = frozenset(name for name in names if before.topics.get(name) != self.image.topics.get(name))
        self.shard.share.image_changed(changed)
        gone = frozenset(before.topics_by_id) - frozenset(self.image.topics_by_id)
        deletions: list[StateDeletion] = self.run(lambda: self.shard.share_states.topics_deleted(gone)) if gone else []
        return deletions

    # -- members -------------------------------------------------------------------------------------------------------

    def beat(self, member_id: str, member_epoch: int, topics: Sequence[str] | None = None, **fields: Any) -> Any:
        """Send a heartbeat and return its response. Raises KafkaError."""
        names = None if topics is None else list(topics)
        request = ShareGroupHeartbeatRequest(
            group_id=fields.pop("group_id", GROUP),
            member_id=member_id,
            member_epoch=member_epoch,
            subscribed_topic_names=names,
            **fields,
        )
        result: ShareHeartbeat = self.run(lambda: self.shard.share.heartbeat(CLIENT, request))
        if result.initialization is not None:
            self.initializations.append(result.initialization)
        return result.response

    def subscribe(self, member_id: str, *topics: str) -> Any:
        """Join; return the response."""
        return self.beat(member_id, 0, topics or ("foo",))

    def error_of(self, *arguments: Any, **fields: Any) -> ErrorCode:
        """Return the error code of a heartbeat that fails."""
        try:
            self.beat(*arguments, **fields)
        except KafkaError as error:
            return error.code
        return ErrorCode.NONE

    def converge(self, *member_ids: str) -> dict[str, dict[str, list[int]]]:
        """Do the requested initializations and send heartbeats until nothing changes; return assignments by topic."""
        for _ in range(4):
            self.initialize()
            self.time.advance(1.0)
            for member_id in member_ids:
                self.beat(member_id, self.share_group.member(member_id).member_epoch)
        return {member_id: self.assigned(member_id) for member_id in member_ids}

    def assigned(self, member_id: str) -> dict[str, list[int]]:
        """Return the assigned partitions of a member by topic."""
        return {
            topic_id.rstrip(b"\0\1\2").decode(): sorted(numbers)
            for topic_id, numbers in self.share_group.member(member_id).assigned.items()
        }

    # -- share coordinator ---------------------------------------------------------------------------------------------

    def initialize(self, failed: frozenset[SharePartitionKey] = frozenset()) -> list[StateInitialization]:
        """Do the requested initializations, except of `failed` keys; return them."""
        done, self.initializations = self.initializations, []
        for each in done:
            keys = frozenset(each.start_offsets) - failed
            for key in keys:
                self.share_state[key] = (each.state_epoch, each.start_offsets[key])
            outcome = InitializedState(each.group_id, keys, failed & each.start_offsets.keys())
            self.run(lambda outcome=outcome: self.shard.share_states.initialized(outcome))  # type: ignore[misc]
        return done

    def delete(self, deletion: StateDeletion) -> None:
        """Do a deletion."""
        for keys in deletion.keys.values():
            for key in keys:
                self.share_state.pop(key, None)
        self.run(lambda: self.shard.share_states.deleted(DeletedState(deletion.group_id, frozenset(deletion.keys))))

    # -- queries -------------------------------------------------------------------------------------------------------

    @property
    def share_group(self) -> ShareGroup:
        group = self.shard.context.groups.get(GROUP)
        assert isinstance(group, ShareGroup)
        return group


def partitions_of(assignment: Assignment | None) -> dict[str, list[int]] | None:
    """Return the partitions of a response by topic; None if it has none."""
    if assignment is None:
        return None
    return {each.topic_id.rstrip(b"\0\1\2").decode(): list(each.partitions) for each in assignment.topic_partitions}


def state_of(group: ShareGroup) -> dict[str, Any]:
    """Everything that the log must restore."""
    return {
        "members": dict(group.members),
        "targets": {name: dict(target) for name, target in group.targets.items()},
        "topics": dict(group.topic_subscribers),
        "state": group.state,
        "epochs": (group.group_epoch, group.assignment_epoch, group.assignment_timestamp_ms, group.metadata_hash),
        "bytes": group.held_bytes,
    }
