"""Groups that change their protocol while they have members (KIP-848)."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.scale import size

from ottla.common.errors import ErrorCode, KafkaError
from ottla.coordinator.group.classic.group import ClassicGroup
from ottla.coordinator.group.classic.member import ClassicGroupMember
from ottla.coordinator.group.group import GroupType
from ottla.coordinator.group.modern.consumer.group import ConsumerGroup
from ottla.coordinator.group.modern.consumer.member import MemberState
from ottla.coordinator.runtime import CoordinatorResult

from .classic_client import ClassicClient
from .world import GROUP, Member, World, as_dict, topic_id


@pytest.fixture
def world() -> World:
    world = World({"foo": 6})
    world.set_config(group_consumer_assignment_interval_ms=0, group_initial_rebalance_delay_ms=0)
    return world


def settle(world: World, *clients: ClassicClient | Member) -> None:
    """Step all clients until nothing changes any more."""
    for _ in range(8):
        for client in clients:
            if isinstance(client, ClassicClient):
                client.step()
            else:
                client.heartbeat()
                client.apply()
        world.time.advance(3)


def reads(client: ClassicClient | Member) -> set[tuple[str, int]]:
    if isinstance(client, ClassicClient):
        return set(client.owns)
    return {(each.rstrip(b"\0").decode(), partition) for each, partition in client.owns}


def group_type(world: World) -> GroupType:
    return world.shard.context.groups.get(GROUP).type


def classic_pair(world: World, cooperative: bool = False) -> tuple[ClassicClient, ClassicClient]:
    first, second = ClassicClient(world, ["foo"]), ClassicClient(world, ["foo"])
    settle(world, first, second)
    if cooperative:
        # The leader of these tests assigns like an eager one, which is correct while no member owns partitions.
        for client in (first, second):
            client.cooperative = True
    assert group_type(world) is GroupType.CLASSIC
    assert len(first.owns | second.owns) == 6
    return first, second


# -- upgrade --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("cooperative", [False, True])
def test_upgrade_does_not_interrupt_members(world: World, cooperative: bool) -> None:
    if cooperative:
        first, second = ClassicClient(world, ["foo"], True), ClassicClient(world, ["foo"], True)
        settle(world, first, second)
    else:
        first, second = classic_pair(world)
    before = {client.member_id: reads(client) for client in (first, second)}
    newcomer = Member(world, "new", ["foo"])
    newcomer.heartbeat()
    assert group_type(world) is GroupType.CONSUMER
    assert {client.member_id: reads(client) for client in (first, second)} == before
    assert world.group.members[first.member_id].uses_classic_protocol
    described = {each.member_id: each.member_type for each in world.describe().members}
    assert described == {first.member_id: 0, second.member_id: 0, "new": 1}
    settle(world, first, second, newcomer)
    assert [len(reads(client)) for client in (first, second, newcomer)] == [2, 2, 2]
    assert reads(first) <= before[first.member_id], "nothing moved between those that were there"
    assert len(reads(first) | reads(second) | reads(newcomer)) == 6
    assert world.group.state_name() == "Stable"


def test_upgrade_keeps_unrevoked_partitions_of_members(world: World) -> None:
    """Its assignment no longer contains it, and it has not rejoined without it (simulation, seed 344)."""
    first = ClassicClient(world, ["foo"], cooperative=True)
    settle(world, first)
    assert len(reads(first)) == 6
    second = ClassicClient(world, ["foo"], cooperative=True)
    second.step()
    first.step()
    first.step()  # the leader of these tests assigns the others' part at once; a real one withholds it
    group = world.shard.context.groups.get(GROUP)
    assert isinstance(group, ClassicGroup)
    group.members[second.member_id].assignment = b""
    second.owns = set()
    first_owns = {partition for _, partition in reads(first)}
    first.owns = {("foo", partition) for partition in range(6)}
    newcomer = Member(world, "new", ["foo"])
    newcomer.heartbeat()
    newcomer.apply()
    assert not reads(newcomer) & {("foo", partition) for partition in range(6)}
    member = world.group.members[first.member_id]
    assert member.state is MemberState.UNREVOKED_PARTITIONS
    assert {frozenset(each) for each in member.pending_revocation.values()} == {frozenset(range(6)) - first_owns}
    first.heartbeat()
    assert first.error == ErrorCode.REBALANCE_IN_PROGRESS
    settle(world, first, second, newcomer)
    assert [len(reads(client)) for client in (first, second, newcomer)] == [2, 2, 2]


def test_offsets_and_members_survive_a_restart_after_the_upgrade(world: World) -> None:
    first, second = classic_pair(world)
    newcomer = Member(world, "new", ["foo"])
    newcomer.heartbeat()
    members = dict(world.group.members)
    world.restart()
    assert dict(world.group.members) == members
    settle(world, first, second, newcomer)
    assert len(reads(first) | reads(second) | reads(newcomer)) == 6


def test_empty_classic_group_is_replaced(world: World) -> None:
    client = ClassicClient(world, ["foo"])
    settle(world, client)
    client.leave()
    response = world.join("new")
    assert as_dict(response.assignment) == {"foo": [0, 1, 2, 3, 4, 5]}
    assert group_type(world) is GroupType.CONSUMER


@pytest.mark.promise("G2")
@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("empties", [False, True])
def test_epochs_continue_in_an_emptied_group(world: World, empties: bool, restarts: bool) -> None:
    """A member has its id for life. If it reused the epoch in which it was removed, its old requests would be accepted,
    although other members owned its partitions meanwhile (simulation, seed 4029)."""
    zombie_epoch = world.join("m").member_epoch
    world.heartbeat(member_id="m", member_epoch=-1)
    client = ClassicClient(world, ["foo"])
    client.join()  # creates the classic group
    assert group_type(world) is GroupType.CLASSIC
    if restarts:
        world.restart()
    settle(world, client)
    assert len(reads(client)) == 6
    assert client.generation_id > zombie_epoch
    if empties:
        client.leave()
    if restarts:
        world.restart()
    assert world.join("m").member_epoch > client.generation_id
    if restarts:
        world.restart()
    for past in (
        world.group.validate_offset_commit("m", None, zombie_epoch, 9),
        world.group.validate_transactional_offset_commit("m", None, zombie_epoch),
    ):
        assert past is not None
        with pytest.raises(KafkaError) as error:
            past("foo", topic_id("foo"), 0)
        assert error.value.code is ErrorCode.STALE_MEMBER_EPOCH


def test_offsets_only_group_is_replaced_in_epoch_1(world: World) -> None:
    """No member may be in epoch 0, which means joining."""
    simple = ClassicGroup(GROUP, world.time)
    world.run(lambda: CoordinatorResult([simple.empty_metadata_record()]))
    world.shard.context.groups.put(simple)
    assert world.join("m", subscribed_topic_names=[]).member_epoch == 1
    world.restart()
    assert world.heartbeat(member_id="m", member_epoch=1).member_epoch == 1


def test_upgrade_answers_pending_classic_joins(world: World) -> None:
    first, second = classic_pair(world)
    third = ClassicClient(world, ["foo"])
    third.step()
    assert third.waiting
    newcomer = Member(world, "new", ["foo"])
    newcomer.heartbeat()
    assert not third.waiting
    assert third.error == ErrorCode.REBALANCE_IN_PROGRESS
    settle(world, first, second, third, newcomer)
    assert len(reads(first) | reads(second) | reads(third) | reads(newcomer)) == 6


def test_a_failed_upgrade_leaves_the_classic_group(world: World) -> None:
    first, second = classic_pair(world)
    world.appends = False
    newcomer = Member(world, "new", ["foo"])
    newcomer.heartbeat()
    world.appends = True
    assert newcomer.error is ErrorCode.NOT_COORDINATOR
    assert group_type(world) is GroupType.CLASSIC
    settle(world, first, second)
    assert len(first.owns | second.owns) == 6


@pytest.mark.parametrize(("policy", "upgrades"), [("disabled", False), ("downgrade", False), ("upgrade", True)])
def test_policy_controls_upgrades(world: World, policy: str, upgrades: bool) -> None:
    classic_pair(world)
    world.set_config(group_consumer_migration_policy=policy)
    if upgrades:
        world.join("new")
        return
    with pytest.raises(KafkaError) as error:
        world.join("new")
    assert error.value.code is ErrorCode.GROUP_ID_NOT_FOUND
    assert error.value.message == (
        f"Cannot upgrade classic group {GROUP} to consumer group because online upgrade is disabled."
    )


@pytest.mark.parametrize("metadata", [b"", b"\0", b"\0\1\0\0", b"\xff\xff"])
def test_groups_with_undecodable_metadata_stay_classic(world: World, metadata: bytes) -> None:
    first, _ = classic_pair(world)
    group = world.shard.context.groups.get(GROUP)
    assert isinstance(group, ClassicGroup)
    group.members[first.member_id].protocols = {"range": metadata}
    with pytest.raises(KafkaError) as error:
        world.join("new")
    assert error.value.code is ErrorCode.GROUP_ID_NOT_FOUND
    assert "malformed" in error.value.message
    assert group_type(world) is GroupType.CLASSIC


def test_groups_of_other_types_stay_classic(world: World) -> None:
    group = ClassicGroup(GROUP, world.time)
    group.add(ClassicGroupMember("worker", None, "c", "h", 1_000, 1_000, "connect", {"sessioned": b""}))
    group.transition_to(type(group.state).PREPARING_REBALANCE)
    world.shard.context.groups.put(group)
    with pytest.raises(KafkaError) as error:
        world.join("new")
    assert error.value.code is ErrorCode.GROUP_ID_NOT_FOUND
    assert "does not use the consumer embedded protocol" in error.value.message


# -- members of the classic protocol in a consumer group ------------------------------------------------------------


def test_a_classic_member_joins_a_consumer_group(world: World) -> None:
    member = Member(world, "a", ["foo"])
    settle(world, member)
    client = ClassicClient(world, ["foo"])
    settle(world, member, client)
    assert (len(reads(member)), len(reads(client))) == (3, 3)
    assert group_type(world) is GroupType.CONSUMER
    client.leave()
    settle(world, member)
    assert len(reads(member)) == 6


def test_cooperative_member_reads_during_revocation(world: World) -> None:
    client = ClassicClient(world, ["foo"], cooperative=True)
    member = Member(world, "a", ["foo"])
    member.heartbeat()
    settle(world, member, client)
    member.leave()  # the group would become classic again
    world.set_config(group_consumer_migration_policy="upgrade")
    client.step()
    other = Member(world, "b", ["foo"])
    settle(world, client, other)
    kept = set(client.owns)
    third = Member(world, "c", ["foo"])
    third.heartbeat()
    client.step()
    assert client.error == ErrorCode.REBALANCE_IN_PROGRESS
    assert client.owns == kept
    client.step()
    assert client.owns < kept
    assert world.group.members[client.member_id].state is MemberState.UNREVOKED_PARTITIONS
    settle(world, client, other, third)
    assert len(reads(client) | reads(other) | reads(third)) == 6


def test_errors_of_classic_members(world: World) -> None:
    member = Member(world, "a", ["foo"])
    client = ClassicClient(world, ["foo"], instance_id="i")
    settle(world, member, client)
    client.generation_id += 1
    client.heartbeat()
    assert client.error == ErrorCode.ILLEGAL_GENERATION
    stranger = ClassicClient(world, ["foo"])
    stranger.member_id, stranger.generation_id = "a", world.group.members["a"].member_epoch
    stranger.heartbeat()
    assert stranger.error == ErrorCode.UNKNOWN_MEMBER_ID, "a speaks the consumer protocol"
    stranger.member_id, stranger.generation_id, stranger.instance_id = "x", 1, "i"
    stranger.heartbeat()
    assert stranger.error == ErrorCode.FENCED_INSTANCE_ID


def test_classic_member_needs_a_common_protocol(world: World) -> None:
    member = Member(world, "a", ["foo"])
    client = ClassicClient(world, ["foo"])
    settle(world, member, client)
    other = ClassicClient(world, ["foo"], cooperative=True)
    other.step()
    assert other.error == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    world.set_config(group_consumer_migration_policy="disabled")
    other = ClassicClient(world, ["foo"])
    other.step()
    assert other.error == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_classic_member_without_rejoin_is_removed(world: World) -> None:
    client = ClassicClient(world, ["foo"])
    member = Member(world, "a", ["foo"])
    settle(world, member, client)
    world.change_topics({"foo": 8})
    member.heartbeat()
    for _ in range(6):
        client.heartbeat()
        assert client.error == ErrorCode.REBALANCE_IN_PROGRESS
        member.heartbeat()
        world.time.advance(5)
    assert list(world.group.members) == ["a"]


# -- downgrade ------------------------------------------------------------------------------------------------------


def test_last_consumer_member_leaving_downgrades(world: World) -> None:
    first, second = classic_pair(world)
    newcomer = Member(world, "new", ["foo"])
    settle(world, first, second, newcomer)
    newcomer.leave()
    assert group_type(world) is GroupType.CLASSIC
    settle(world, first, second)
    assert [len(reads(client)) for client in (first, second)] == [3, 3]
    world.restart()
    assert group_type(world) is GroupType.CLASSIC
    assert set(dict.fromkeys(world.log))
    settle(world, first, second)
    assert [len(reads(client)) for client in (first, second)] == [3, 3]


def test_session_expiry_may_downgrade(world: World) -> None:
    first, second = classic_pair(world)
    newcomer = Member(world, "new", ["foo"])
    settle(world, first, second, newcomer)
    for _ in range(10):
        world.time.advance(5)
        first.step()
        second.step()
    assert group_type(world) is GroupType.CLASSIC
    settle(world, first, second)
    assert len(reads(first) | reads(second)) == 6


def test_without_downgrades_the_group_stays(world: World) -> None:
    first, second = classic_pair(world)
    newcomer = Member(world, "new", ["foo"])
    settle(world, first, second, newcomer)
    world.set_config(group_consumer_migration_policy="upgrade")
    newcomer.leave()
    assert group_type(world) is GroupType.CONSUMER
    settle(world, first, second)
    assert [len(reads(client)) for client in (first, second)] == [3, 3]


def test_a_failed_downgrade_leaves_the_consumer_group(world: World) -> None:
    first, second = classic_pair(world)
    newcomer = Member(world, "new", ["foo"])
    settle(world, first, second, newcomer)
    members = dict(world.group.members)
    world.appends = False
    newcomer.leave()
    world.appends = True
    assert newcomer.error is ErrorCode.NOT_COORDINATOR
    assert dict(world.group.members) == members
    newcomer.abandon()
    settle(world, first, second, newcomer)
    assert [len(reads(client)) for client in (first, second, newcomer)] == [2, 2, 2]


@pytest.mark.parametrize("by_itself", [True, False])
def test_sessions_expire_after_a_failed_downgrade(world: World, by_itself: bool) -> None:
    """The downgrade cancels the timers of all members (simulation, seed 182)."""
    first, second = classic_pair(world)
    newcomer = Member(world, "new", ["foo"])
    settle(world, first, second, newcomer)
    world.appends = False
    if by_itself:
        newcomer.leave()
    else:
        for _ in range(10):
            first.heartbeat()
            second.heartbeat()
            world.time.advance(5)
    world.appends = True
    assert len(world.group.members) == 3
    world.set_config(group_consumer_migration_policy="upgrade")
    world.time.advance(46)
    assert not world.group.members, "no member sent a heartbeat"


def test_join_committed_after_downgrade_leaves_no_timer(world: World) -> None:
    """It would remove a live member when the group is a consumer group again (simulation, cluster seed 701106)."""
    first, second = classic_pair(world)
    newcomer = Member(world, "new", ["foo"])
    settle(world, first, second, newcomer)
    world.uncommitted = []
    first.join()
    newcomer.leave()
    assert group_type(world) is GroupType.CLASSIC
    written, world.uncommitted = world.uncommitted, None
    for committed in written:
        committed(None)
    settle(world, first, second)
    assert group_type(world) is GroupType.CLASSIC
    Member(world, "newer", ["foo"]).heartbeat()
    assert group_type(world) is GroupType.CONSUMER
    first.heartbeat()
    second.heartbeat()
    world.time.advance(8)  # 32 s after the commit; less than a session
    assert first.member_id in world.group.members


def test_load_resumes_an_incomplete_downgrade(world: World) -> None:
    """The log only contains the assignments from the consumer group (simulation, seed 366)."""
    member = Member(world, "a", ["foo"])
    settle(world, member)
    client = ClassicClient(world, ["foo"])
    client.step()
    assert not client.owns
    member.leave()
    assert group_type(world) is GroupType.CLASSIC
    world.restart()
    client.heartbeat()
    assert client.error == ErrorCode.REBALANCE_IN_PROGRESS
    settle(world, client)
    assert len(client.owns) == 6
    world.restart()
    client.heartbeat()
    assert client.error == ErrorCode.NONE, "the leader's assignment is retained"


def test_downgraded_group_without_rejoining_members_empties(world: World) -> None:
    member = Member(world, "a", ["foo"])
    settle(world, member)
    ClassicClient(world, ["foo"]).step()
    member.leave()
    world.restart()
    world.time.advance(40)
    assert world.shard.context.groups.get(GROUP).is_empty()


def test_classic_return_of_static_member_completes_revocation(world: World) -> None:
    """Without a rebalance, partitions that another member has yet to revoke would have no owner."""
    first = ClassicClient(world, ["foo"], cooperative=True)
    static = Member(world, "static", ["foo"], instance_id="i")
    settle(world, static)
    first.step()
    assert not first.owns, "it waits for the static member to give up"
    static.leave(-2)
    back = ClassicClient(world, ["foo"], cooperative=True, instance_id="i")
    back.step()
    assert group_type(world) is GroupType.CLASSIC
    settle(world, first, back)
    assert len(reads(first) | reads(back)) == 6


def test_classic_member_with_late_response_expires(world: World) -> None:
    member = Member(world, "a", ["foo"])
    settle(world, member)
    client = ClassicClient(world, ["foo"])
    client.member_id = "late"
    world.commits = False
    client.join()
    world.commits = True
    assert client.error == ErrorCode.REQUEST_TIMED_OUT
    assert "late" in world.group.members
    for _ in range(4):
        world.time.advance(5)
        member.heartbeat()
    assert list(world.group.members) == ["a"]


def test_static_member_rejoins_with_classic_protocol(world: World) -> None:
    first = ClassicClient(world, ["foo"])
    static = Member(world, "static", ["foo"], instance_id="i")
    settle(world, static, first)
    had = reads(static)
    static.leave(-2)
    back = ClassicClient(world, ["foo"], instance_id="i")
    back.step()
    assert group_type(world) is GroupType.CLASSIC
    assert reads(back) == had
    settle(world, first, back)
    assert len(reads(first) | reads(back)) == 6


def test_a_static_member_moves_from_classic_to_consumer(world: World) -> None:
    client = ClassicClient(world, ["foo"], instance_id="i")
    settle(world, client)
    member = Member(world, "static", ["foo"], instance_id="i")
    member.heartbeat()
    member.apply()
    assert list(world.group.members) == ["static"]
    assert {partition for _, partition in reads(member)} == {0, 1, 2, 3, 4, 5}
    client.heartbeat()
    assert client.error in (ErrorCode.FENCED_INSTANCE_ID, ErrorCode.UNKNOWN_MEMBER_ID)


# -- random lives ---------------------------------------------------------------------------------------------------

numbers = st.integers(0, 40)


class MixedLife(RuleBasedStateMachine):
    """Members of both protocols join and leave, and the group changes its type accordingly. Each partition has one
    reader, and no member returns in an earlier epoch of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.clients: list[ClassicClient | Member] = []
        self.counter = 0
        self.epochs: dict[str, int] = {}
        """Last epoch of each member of the consumer protocol, while the group exists."""

    @initialize(interval_ms=st.sampled_from((0, 1_000)), policy=st.sampled_from(("bidirectional", "upgrade")))
    def begin(self, interval_ms: int, policy: str) -> None:
        self.world = World({"foo": 5, "bar": 3})
        self.world.set_config(
            group_consumer_assignment_interval_ms=interval_ms,
            group_consumer_migration_policy=policy,
            group_initial_rebalance_delay_ms=0,
        )

    def pick(self, number: int) -> ClassicClient | Member:
        return self.clients[number % len(self.clients)]

    @rule(classic=st.booleans(), topics=st.sampled_from((["foo"], ["foo", "bar"])))
    def join(self, classic: bool, topics: list[str]) -> None:
        if len(self.clients) >= 5:
            return
        self.counter += 1
        client = ClassicClient(self.world, topics) if classic else Member(self.world, f"m{self.counter}", topics)
        self.clients.append(client)
        self.continue_client(client)

    @precondition(lambda self: self.clients)
    @rule(beats=st.lists(st.tuples(numbers, st.sampled_from((0.0, 0.0, 1.0, 3.0))), min_size=1, max_size=15))
    def beats(self, beats: list[tuple[int, float]]) -> None:
        for number, seconds in beats:
            self.continue_client(self.pick(number))
            self.one_reader_a_partition()
            self.world.time.advance(seconds)
            self.one_reader_a_partition()

    def continue_client(self, client: ClassicClient | Member) -> None:
        if self.world.shard.context.groups.find(GROUP) is None:
            self.epochs.clear()
        if isinstance(client, ClassicClient):
            client.step()
            return
        joins = client.epoch == 0
        client.heartbeat()
        client.apply()
        if client.epoch:
            last = self.epochs.get(client.member_id, 0)
            assert client.epoch > last if joins else client.epoch >= last
            self.epochs[client.member_id] = client.epoch

    @precondition(lambda self: self.clients)
    @rule(number=numbers, crash=st.booleans())
    def goes(self, number: int, crash: bool) -> None:
        client = self.pick(number)
        if isinstance(client, ClassicClient) and client.waiting:
            return
        if not crash:
            client.leave()
        self.clients.remove(client)

    @rule(seconds=st.sampled_from((5.0, 11.0, 46.0)))
    def time_passes(self, seconds: float) -> None:
        self.world.time.advance(seconds)

    @rule(foo=st.integers(5, 8))
    def topics_change(self, foo: int) -> None:
        self.world.change_topics({"foo": max(foo, self.world.topics["foo"]), "bar": 3})

    @rule()
    def coordinator_restarts(self) -> None:
        self.world.restart()

    @precondition(lambda self: self.clients)
    @rule(number=numbers)
    def append_fails(self, number: int) -> None:
        self.world.appends = False
        self.continue_client(self.pick(number))
        self.world.appends = True

    @invariant()
    def one_reader_a_partition(self) -> None:
        group = self.world.shard.context.groups.find(GROUP)
        if not isinstance(group, ConsumerGroup | ClassicGroup):
            return
        readers: dict[tuple[str, int], str] = {}
        for client in self.clients:
            known = group.members.get(client.member_id)
            if known is None:
                continue
            if isinstance(client, ClassicClient) and not self.is_current(group, client):
                continue  # from an earlier generation: it may not commit, and its next heartbeat fails
            for partition in reads(client):
                assert partition not in readers, f"{partition}: {client.member_id} and {readers[partition]}"
                readers[partition] = client.member_id

    def is_current(self, group: ConsumerGroup | ClassicGroup, client: ClassicClient) -> bool:
        if isinstance(group, ClassicGroup):
            return client.generation_id == group.generation_id and group.state_name() == "Stable"
        member = group.members[client.member_id]
        return member.uses_classic_protocol

    def teardown(self) -> None:
        if not hasattr(self, "world") or not self.clients:
            return
        world = self.world
        world.time.advance(60)
        for _ in range(30):
            for client in self.clients:
                self.continue_client(client)
                self.one_reader_a_partition()
            world.time.advance(2)
        group = world.shard.context.groups.get(GROUP)
        assert group.state_name() == "Stable"
        assert sum(len(reads(client)) for client in self.clients) == len(
            {
                (name, partition)
                for client in self.clients
                for name in client.topics
                for partition in range(world.topics[name])
            }
        )
        self.one_reader_a_partition()


MixedLife.TestCase.settings = settings(
    max_examples=size(10, 100), stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)
TestMixedLife = MixedLife.TestCase
