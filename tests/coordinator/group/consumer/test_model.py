"""Random lives of consumer groups: one owner per partition at every step, and eventually each member has its share.

Members join, leave, crash, pause, change their subscriptions and lose messages; topics are created, deleted and
extended; appends fail; the coordinator restarts from its compacted log.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.scale import size

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.kafka.ids import Uuid
from ottla.coordinator.group.modern.consumer.group import ConsumerGroup
from ottla.coordinator.group.modern.consumer.member import MemberState

from .world import GROUP, Member, World

TOPICS = ("foo", "bar", "zap")
subscriptions = st.lists(st.sampled_from(TOPICS), min_size=1, unique=True)
patterns = st.sampled_from((None, "ba.*", "(foo|zap)", "n.*"))
names = st.integers(0, 40)
losses = st.sampled_from(("", "", "", "", "request", "response"))


def state_of(group: ConsumerGroup) -> dict[str, Any]:
    """Everything that the log must restore."""
    return {
        "members": dict(group.members),
        "static": dict(group.static_members),
        "targets": {name: dict(target) for name, target in group.targets.items()},
        "owners": dict(group.owners),
        "topics": dict(group.topic_subscribers),
        "patterns": dict(group.regex_subscribers),
        "regexes": dict(group.regexes),
        "epochs": (group.group_epoch, group.assignment_epoch, group.assignment_timestamp_ms, group.metadata_hash),
    }


class GroupLife(RuleBasedStateMachine):
    """`members` are the running clients, paused ones included."""

    def __init__(self) -> None:
        super().__init__()
        self.members: list[Member] = []
        self.counter = 0

    @initialize(interval_ms=st.sampled_from((0, 1_000)), assignor=st.sampled_from(("uniform", "range")))
    def begin(self, interval_ms: int, assignor: str) -> None:
        self.world = World({"foo": 5, "bar": 3})
        both = {"uniform": ("uniform", "range"), "range": ("range", "uniform")}
        self.world.set_config(
            group_consumer_assignment_interval_ms=interval_ms, group_consumer_assignors=both[assignor]
        )

    def pick(self, number: int) -> Member:
        return self.members[number % len(self.members)]

    # -- clients -------------------------------------------------------------------------------------------------------

    @rule(topics=subscriptions, regex=patterns, static=st.booleans())
    def join(self, topics: list[str], regex: str | None, static: bool) -> None:
        if len(self.members) >= 6:
            return
        self.counter += 1
        instance_id = f"instance-{self.counter % 3}" if static else None
        if any(each.instance_id == instance_id for each in self.members if instance_id):
            return
        member = Member(self.world, f"member-{self.counter}", topics, instance_id, regex)
        self.members.append(member)
        member.heartbeat()

    @precondition(lambda self: self.members)
    @rule(beats=st.lists(st.tuples(names, losses, st.booleans()), min_size=1, max_size=12))
    def heartbeats(self, beats: list[tuple[int, str, bool]]) -> None:
        """The most frequent event: a member sends a heartbeat, and may or may not poll."""
        for number, lost, applies in beats:
            member = self.pick(number)
            member.heartbeat(lose_request=lost == "request", lose_response=lost == "response")
            if applies:
                member.apply()
            self.one_reader_a_partition()

    @rule(applies=st.booleans())
    def all_members_heartbeat(self, applies: bool) -> None:
        for member in self.members:
            member.heartbeat()
            if applies:
                member.apply()

    @precondition(lambda self: self.members)
    @rule(number=names, what=st.sampled_from(("leave", "crash", "resubscribe", "forget", "restart")), data=st.data())
    def something_happens_to_a_member(self, number: int, what: str, data: st.DataObject) -> None:
        member = self.pick(number)
        if what == "leave":
            member.leave()
            self.members.remove(member)
        elif what == "crash":
            self.members.remove(member)
        elif what == "resubscribe":
            member.resubscribe(data.draw(subscriptions))
        elif what == "forget":
            member.abandon()
        elif member.instance_id is not None:
            self.restart_static_member(member, same_id=data.draw(st.booleans()))

    def restart_static_member(self, member: Member, same_id: bool) -> None:
        member.leave(-2)
        if not same_id:
            self.counter += 1
            member.member_id = f"member-{self.counter}"
        member.full = True
        member.heartbeat()

    # -- the rest of the world -----------------------------------------------------------------------------------------

    @rule(seconds=st.sampled_from((0.5, 1.0, 5.0, 11.0, 31.0, 46.0)))
    def time_passes(self, seconds: float) -> None:
        self.world.time.advance(seconds)

    @rule(foo=st.integers(4, 9), bar=st.sampled_from((0, 3, 4)), zap=st.sampled_from((0, 2)), new=st.booleans())
    def topics_change(self, foo: int, bar: int, zap: int, new: bool) -> None:
        old = self.world.topics
        topics = {"foo": max(foo, old.get("foo", 0))}
        if bar:
            topics["bar"] = max(bar, old.get("bar", 0))
        if zap:
            topics["zap"] = zap
        if new or "new" in old:
            topics["new"] = 1
        self.world.change_topics(topics)

    @rule(number=names, what=st.sampled_from(("restart", "append fails")))
    def something_happens_to_the_coordinator(self, number: int, what: str) -> None:
        """Neither changes the state of the group."""
        before = self.state()
        if what == "restart":
            self.world.restart()
        elif self.members:
            self.world.appends = False
            self.pick(number).heartbeat()
            self.world.appends = True
        assert before == self.state()

    def state(self) -> dict[str, Any] | None:
        found = self.world.shard.context.groups.find(GROUP)
        return None if found is None else state_of(self.world.group)

    # -- invariants ----------------------------------------------------------------------------------------------------

    @invariant()
    def one_reader_a_partition(self) -> None:
        found = self.world.shard.context.groups.find(GROUP)
        if found is None:
            return
        readers: dict[tuple[Uuid, int], str] = {}
        for member in self.members:
            if member.member_id not in self.world.group.members:
                continue  # expired: its commits are rejected, and the next heartbeat fails
            for partition in member.owns:
                assert partition not in readers, f"{partition}: {member.member_id} and {readers[partition]}"
                readers[partition] = member.member_id

    @invariant()
    def owners_are_those_of_the_members(self) -> None:
        found = self.world.shard.context.groups.find(GROUP)
        if found is None:
            return
        group = self.world.group
        owners: dict[tuple[Uuid, int], str] = {}
        for member_id, member in group.members.items():
            for has in (member.assigned, member.pending_revocation):
                for each, partitions in has.items():
                    assert partitions
                    for partition in partitions:
                        assert (each, partition) not in owners
                        owners[each, partition] = member_id
        assert owners == dict(group.owners)
        assert group.held_bytes == sum(member.held_bytes for member in group.members.values())
        assert group.targets.keys() <= group.members.keys()
        assert dict(group.static_members) == {
            member.instance_id: member_id for member_id, member in group.members.items() if member.instance_id
        }

    @invariant()
    def a_reader_may_commit(self) -> None:
        """A member that reads a partition in its current or previous epoch may commit."""
        found: Any = self.world.shard.context.groups.find(GROUP)
        for member in self.members:
            if found is None or member.member_id not in found.members or member.epoch <= 0 or member.error:
                continue
            check = found.validate_offset_commit(member.member_id, member.instance_id, member.epoch, 9)
            for each, partition in member.owns - member.to_revoke:
                if check is not None and found.members[member.member_id].owns(each, partition):
                    check("topic", each, partition)

    def teardown(self) -> None:
        """Without faults the group becomes stable: every member reads exactly its target, and all partitions are
        assigned."""
        if not hasattr(self, "world") or not self.members:
            return
        world = self.world
        world.time.advance(60)  # crashed members expire
        for _ in range(12):
            for member in self.members:
                member.heartbeat()
                self.one_reader_a_partition()
                member.apply()
                self.one_reader_a_partition()
            world.time.advance(5)
        group = world.group
        assert group.state_name() == "Stable"
        assert {each.member_id for each in self.members} == set(group.members)
        read: set[tuple[Uuid, int]] = set()
        wanted: set[tuple[Uuid, int]] = set()
        for member in self.members:
            known = group.members[member.member_id]
            assert known.state is MemberState.STABLE
            assert member.epoch == known.member_epoch == group.group_epoch == group.assignment_epoch
            target = group.targets[member.member_id]
            assert member.owns == {(each, partition) for each, partitions in target.items() for partition in partitions}
            assert not member.owns & read
            read |= member.owns
            for name in group.subscribed_topics(known):
                topic = world.image.topic(name)
                if topic is not None:
                    wanted |= {(topic.topic_id, partition) for partition in topic.partitions}
        assert read == wanted
        for member in self.members:
            member.heartbeat()
            assert not world.last_records, "a group at rest writes nothing"


GroupLife.TestCase.settings = settings(
    max_examples=size(10, 100), stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
TestGroupLife = GroupLife.TestCase


def test_failed_append_fails_the_heartbeat() -> None:
    world = World({"foo": 1})
    world.appends = False
    with pytest.raises(KafkaError) as error:
        world.join("a")
    assert error.value.code is ErrorCode.NOT_COORDINATOR
    assert world.shard.context.groups.find(GROUP) is None
