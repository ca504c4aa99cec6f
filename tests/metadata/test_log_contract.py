"""Contract of `MetadataLog`, of both implementations: a quorum, and ZooKeeper.

`log_world.Member` and `LogWorld` check at every event what always holds: the order and the completeness of published
images, one active node per epoch, and that it has every acknowledged change.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count, pairwise

import pytest

from ottla.common.config.config_def import ConfigResourceType
from ottla.common.errors import ErrorCode, InvariantError, KafkaError
from ottla.metadata.image import MetadataImage
from ottla.metadata.log import NO_NODE, LeaderAndEpoch
from ottla.metadata.records import versioned
from ottla.protocol.messages.metadata_records import ConfigRecord, PartitionChangeRecord
from ottla.zookeeper import term_log

from .log_world import NODES, LogWorld, Member, Outcomes, code_of, content, topic_records
from .quorum_log_world import QuorumLogWorld
from .zookeeper_log_world import ZooKeeperLogWorld

MakeWorld = Callable[[int], LogWorld]

MAY_REFUSE = {ErrorCode.NOT_CONTROLLER, ErrorCode.BROKER_NOT_AVAILABLE, ErrorCode.KAFKA_STORAGE_ERROR}
"""Codes of a submission that was not acknowledged."""


@pytest.fixture(params=[QuorumLogWorld, ZooKeeperLogWorld], ids=["quorum", "zookeeper"])
def make_world(request: pytest.FixtureRequest) -> MakeWorld:
    make: MakeWorld = request.param
    return make


@pytest.fixture
def world(make_world: MakeWorld) -> LogWorld:
    """Three nodes that agree, and four brokers."""
    world = make_world(1)
    world.together()
    return world


def created(world: LogWorld, *names: str) -> None:
    """Each in a submission of its own, acknowledged."""
    for name in names:
        outcomes = world.settled().create(name)
        world.answered(outcomes)
        assert outcomes == [None]


def followers(world: LogWorld) -> list[Member]:
    return [member for member in world.running if member is not world.active]


def topics(member: Member) -> list[str]:
    return sorted(member.image.topics)


class Listener:
    """Implements `LeadershipListener`."""

    def __init__(self) -> None:
        self.heard: list[tuple[LeaderAndEpoch, bool]] = []

    def on_leader_change(self, leader: LeaderAndEpoch, active: bool) -> None:
        """See `LeadershipListener`."""
        self.heard.append((leader, active))


class TestSubmissions:
    def test_submissions_are_answered_in_order(self, world: LogWorld) -> None:
        member = world.settled()
        answered: list[tuple[str, int]] = []
        names = [f"t{number:02}" for number in range(20)]

        def create(name: str) -> None:
            member.create(name, then=lambda _error: answered.append((name, len(member.image.topics))))

        for name in names:
            create(name)
        world.until(lambda: len(answered) == len(names))
        assert answered == [(name, number + 1) for number, name in enumerate(names)], "each at its own image"

    def test_every_node_publishes_each_image_in_order(self, world: LogWorld) -> None:
        created(world, *(f"t{number}" for number in range(5)))
        active = world.together()
        assert content(active.log.latest) == content(active.image)
        for member in world.running:
            assert content(member.image) == content(active.image)
            assert [old.offset for old, new in pairwise(member.images) if new.offset <= old.offset] == []

    def test_records_of_one_submission_appear_together(self, world: LogWorld) -> None:
        outcomes = world.settled().create("a", "b", "c")
        world.until(lambda: outcomes)
        world.together()
        for member in world.running:
            assert {len(image.topics) for image in member.images} == {0, 3}

    def test_latest_includes_unanswered_submissions(self, world: LogWorld) -> None:
        member = world.settled()
        before = member.log.next_offset
        outcomes = member.create("a")
        assert (outcomes, list(member.log.latest.topics), topics(member)) == ([], ["a"], [])
        assert member.log.next_offset == before + len(topic_records("a"))
        world.until(lambda: outcomes)
        assert member.image.offset == before + 1

    def test_empty_submission_waits_for_earlier_ones(self, world: LogWorld) -> None:
        member = world.settled()
        answered: list[str] = []
        member.create("a", then=lambda _error: answered.append("a"))
        member.submit([], lambda _error: answered.append("empty"))
        member.create("b", then=lambda _error: answered.append("b"))
        world.until(lambda: len(answered) == 3)
        assert answered == ["a", "empty", "b"]

    def test_submission_from_a_callback_is_accepted(self, world: LogWorld) -> None:
        member = world.settled()
        answered: list[str] = []

        def first(_error: BaseException | None) -> None:
            answered.append("a")
            member.create("c", then=lambda _error: answered.append("c"))

        member.create("a", then=first)
        member.create("b", then=lambda _error: answered.append("b"))
        world.until(lambda: len(answered) == 3)
        assert answered == ["a", "b", "c"]
        assert topics(world.together()) == ["a", "b", "c"]

    def test_records_that_do_not_fit_change_nothing(self, world: LogWorld) -> None:
        member = world.settled()
        latest = member.log.latest
        stray = versioned(PartitionChangeRecord(partition_id=0, topic_id=b"?" * 16, leader=1))
        with pytest.raises(InvariantError):
            member.submit([*topic_records("a"), stray])
        assert member.log.latest is latest
        created(world, "b")
        assert topics(world.together()) == ["b"]

    @pytest.mark.parametrize(
        ("sizes", "code"),
        [([30_000] * 300, ErrorCode.RECORD_LIST_TOO_LARGE), ([40_000], ErrorCode.INVALID_REQUEST)],
        ids=["batch", "value"],
    )
    def test_records_that_no_log_can_hold_are_refused(self, world: LogWorld, sizes: list[int], code: ErrorCode) -> None:
        member = world.together()
        latest = member.log.latest
        settings = [
            ConfigRecord(resource_type=ConfigResourceType.TOPIC, resource_name="a", name=f"s{number}", value="v" * size)
            for number, size in enumerate(sizes)
        ]
        outcomes = member.submit([*topic_records("a"), *map(versioned, settings)])
        assert [code_of(error) for error in outcomes] == [code]
        assert member.log.latest is latest
        created(world, "b")
        assert topics(world.together()) == ["b"]
        assert world.active is member, "a refusal ends no term"

    def test_passive_node_refuses_submissions(self, world: LogWorld) -> None:
        for member in followers(world):
            for outcomes in (member.create("a"), member.submit([])):
                assert [code_of(error) for error in outcomes] == [ErrorCode.NOT_CONTROLLER]
        assert not world.together().image.topics

    def test_bootstrap_records_are_those_of_the_first_image(self, world: LogWorld) -> None:
        member = world.settled()
        if not member.log.bootstrap:  # a quorum forgets them once they are written
            assert isinstance(world, QuorumLogWorld)
            return
        levels = {each.message.name: each.message.feature_level for each in member.log.bootstrap}
        assert dict(member.image.features) == levels

    def test_voters_are_named_only_where_there_are_any(self, world: LogWorld) -> None:
        member = world.settled()
        if member.log.kraft_version:
            member.log.name_voters()
        else:
            for call in (member.log.check_voters, member.log.name_voters):
                with pytest.raises(KafkaError) as caught:
                    call()
                assert caught.value.code is ErrorCode.INVALID_UPDATE_VERSION
        assert world.together() is member


class TestLeadership:
    def test_one_node_is_active_and_all_know_it(self, world: LogWorld) -> None:
        active = world.together()
        assert [member for member in world.running if member.active] == [active]
        for member in world.running:
            assert member.log.leader == LeaderAndEpoch(active.node_id, active.epoch)
            assert member.log.leader_endpoint() is not None
            assert member.controller.active is (member is active)

    def test_late_listener_hears_the_present_leader_at_once(self, world: LogWorld) -> None:
        world.together()
        for member in world.running:
            late = Listener()
            member.log.listen(late)
            assert late.heard == [(member.log.leader, member.active)]

    def test_each_change_of_the_leader_is_heard_once(self, world: LogWorld) -> None:
        for _ in range(4):
            killed = world.together()
            world.kill(killed.node_id)
            world.together()
            world.start(killed.node_id)
        world.together()
        begun = [(leader.epoch, each) for each in world.lives for leader, active in each.leaders if active]
        assert sorted(begun, key=lambda term: term[0]) == sorted(world.active_in.items()), "each term began once"
        for member in world.lives:
            for (leader, is_active), (_, was_active) in pairwise(reversed(member.leaders)):
                assert not (is_active and was_active), f"{leader} follows a term without an end"

    def test_new_leader_accepts_submissions_at_once(self, world: LogWorld) -> None:
        outcomes: list[Outcomes] = []

        class Starter:
            def __init__(self, member: Member) -> None:
                self.member = member

            def on_leader_change(self, _leader: LeaderAndEpoch, active: bool) -> None:
                if active:
                    outcomes.append(self.member.create("first"))

        for member in followers(world):
            member.log.listen(Starter(member))
        world.kill(world.settled().node_id)
        assert "first" in world.together().image.topics
        assert outcomes == [[None]]

    def test_stopping_leader_hands_over_without_a_timeout(self, world: LogWorld) -> None:
        created(world, "a")
        leaving = world.settled()
        pending = [leaving.create(name) for name in ("b", "c")]
        stopped: Outcomes = []
        leaving.process.run(leaving.log.stop, stopped.append)
        world.until(lambda: stopped and world.active not in (None, leaving), within_s=1.0)
        assert stopped == [None]
        leaving.log.close()
        assert all(code_of(error) in {None, *MAY_REFUSE} for (error,) in pending), "each was answered"
        assert code_of(leaving.create("late")[0]) in MAY_REFUSE
        assert "late" not in world.settled().image.topics

    def test_follower_that_stops_changes_no_leader(self, world: LogWorld) -> None:
        active = world.together()
        world.stop(followers(world)[0].node_id)
        created(world, "a")
        assert world.together() is active


class TestFencing:
    def test_paused_leader_writes_nothing_after_its_successor(self, world: LogWorld) -> None:
        created(world, "a")
        paused = world.together()
        paused.process.pause()
        late = paused.create("late")
        world.until(lambda: world.active not in (None, paused))
        created(world, "b")
        paused.process.resume()
        world.until(lambda: late)
        assert code_of(late[0]) is ErrorCode.NOT_CONTROLLER
        world.run(5.0)
        assert topics(world.together()) == ["a", "b"]
        assert not paused.active

    def test_isolated_leader_acknowledges_nothing(self, world: LogWorld) -> None:
        created(world, "a")
        isolated = world.together()
        world.isolate(isolated.node_id, 10.0)
        late = isolated.create("late")
        world.until(lambda: late)
        assert code_of(late[0]) is ErrorCode.NOT_CONTROLLER
        world.until(lambda: world.active not in (None, isolated))
        created(world, "b")
        world.run(10.0)
        assert set(topics(world.together())) - {"late"} == {"a", "b"}

    def test_pending_submissions_are_answered_when_a_term_ends(self, world: LogWorld) -> None:
        deposed = world.together()
        world.isolate(deposed.node_id, 10.0)
        pending = [deposed.create(f"t{number}") for number in range(5)] + [deposed.submit([])]
        world.until(lambda: all(pending))
        assert [code_of(error) for (error,) in pending] == [ErrorCode.NOT_CONTROLLER] * 6
        assert not deposed.log.latest.topics, "without a term nothing is uncommitted"

    @pytest.mark.parametrize("delay_ms", [0, 1, 2, 4, 6, 8, 10, 15, 20])
    def test_unknown_outcome_is_all_or_nothing(self, world: LogWorld, delay_ms: int) -> None:
        created(world, "before")
        dying = world.together()
        outcomes = dying.create("a", "b", "c")
        world.run(delay_ms / 1000)
        world.kill(dying.node_id)
        found = set(topics(world.together())) - {"before"}
        assert found in ({"a", "b", "c"}, set())
        if not found:
            assert outcomes != [None], "it was acknowledged"


class TestReplay:
    def test_restarted_node_has_the_image_of_the_others(self, world: LogWorld) -> None:
        created(world, "a", "b")
        away = followers(world)[0]
        world.kill(away.node_id)
        created(world, "c")
        deleted = world.settled().delete("a")
        world.until(lambda: deleted)
        world.start(away.node_id)
        active = world.together()
        assert content(world.members[away.node_id].image) == content(active.image)
        assert topics(world.members[away.node_id]) == ["b", "c"]

    def test_restart_of_all_nodes_keeps_the_image(self, world: LogWorld) -> None:
        created(world, *(f"t{number}" for number in range(8)))
        before = world.together().image
        for node_id in NODES:
            world.kill(node_id)
        world.start(*NODES)
        world.until(lambda: world.active)
        after = world.together().image
        assert after.offset >= before.offset
        assert (after.topics, after.configs, after.features) == (before.topics, before.configs, before.features)

    def test_first_image_of_a_life_is_complete(self, world: LogWorld) -> None:
        """Components of the broker would delete the partitions of topics that an image lacks."""
        names = [f"t{number}" for number in range(8)]
        created(world, *names)
        world.together()
        for node_id in NODES:
            world.kill(node_id)
        world.start(*NODES)
        world.together()
        for node_id in NODES:
            assert set(names) <= set(world.members[node_id].images[0].topics)

    def test_node_far_behind_loads_a_snapshot(self, world: LogWorld, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(term_log, "MAX_BYTES", 500)
        created(world, "early")
        away = followers(world)[0]
        world.kill(away.node_id)
        numbers = count()
        for _ in range(60):
            created(world, f"t{next(numbers)}")
        deleted = world.settled().delete("early")
        world.until(lambda: deleted and world.forces_snapshot())
        world.start(away.node_id)
        active = world.together()
        assert content(world.members[away.node_id].image) == content(active.image)
        created(world, "after")
        world.together()
        assert "after" in world.members[away.node_id].image.topics

    def test_node_cut_off_for_long_catches_up(self, world: LogWorld, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(term_log, "MAX_BYTES", 500)
        created(world, "early")
        away = followers(world)[0]
        world.isolate(away.node_id, 20.0)
        deleted = world.settled().delete("early")
        world.until(lambda: deleted)
        created(world, *(f"t{number}" for number in range(40)))
        world.run(20.0)
        active = world.together()
        assert content(away.image) == content(active.image)
        assert "early" not in away.image.topics

    def test_image_of_a_snapshot_equals_the_live_one(self, world: LogWorld) -> None:
        """Every node is replaced by one that has to load it: nothing of the image is only in memory."""
        created(world, *(f"t{number}" for number in range(30)))
        for node_id in NODES:
            before = world.together().image
            world.kill(node_id)
            world.settled()
            world.start(node_id)
            after = world.together().image
            assert (after.topics, after.configs) == (before.topics, before.configs)


def test_raising_listener_ends_participation(world: LogWorld) -> None:
    """Only some components have applied the image: this node builds no further change on it, another one leads."""
    created(world, "a")
    broken = world.together()

    def fail(_image: MetadataImage, _changes: object) -> None:
        raise RuntimeError("a defect")

    broken.publisher.register(fail)
    outcomes = [broken.submit(topic_records(name)) for name in ("b", "c")]
    with pytest.raises(RuntimeError, match="a defect"):
        world.run(5.0)
    assert [type(error) for error in broken.failures] == [RuntimeError]
    broken.failures.clear()
    assert all(code_of(error) in MAY_REFUSE for (error,) in outcomes), "each was answered, and none acknowledged"
    assert code_of(broken.submit(topic_records("d"))[0]) in MAY_REFUSE
    world.kill(broken.node_id)
    created(world, "e")
    assert {"a", "e"} <= set(topics(world.together())) <= {"a", "b", "c", "e"}


class Schedule:
    """Random submissions and faults; nothing that was acknowledged may be lost."""

    def __init__(self, world: LogWorld) -> None:
        self.world = world
        self.rng = world.rng.fork("schedule")
        self.names = count()
        self.unanswered: list[tuple[Member, Outcomes]] = []

    def step(self) -> None:
        world, rng = self.world, self.rng
        world.run(rng.uniform(0.0, 0.3))
        dice, active = rng.randrange(100), world.active
        if dice < 10:
            target = active if active is not None and rng.chance(0.5) else rng.choice([*world.members.values()])
            self.fault(target)
        elif active is not None:
            common = sorted(world.acknowledged & set(active.log.latest.topics))
            if dice < 30 and common:
                self.unanswered.append((active, active.delete(rng.choice(common))))
            else:
                names = [f"t{next(self.names)}" for _ in range(1 + rng.randrange(3))]
                self.unanswered.append((active, active.create(*names)))

    def fault(self, member: Member) -> None:
        world, node_id = self.world, member.node_id
        if not member.process.alive:
            world.start(node_id)
            return
        kind = self.rng.randrange(3)
        if kind == 0:
            world.kill(node_id)
        elif kind == 1 and member.process.paused is None:
            member.process.pause()
            world.loop.call_later(self.rng.uniform(0.1, 4.0), member.process.resume)
        elif kind == 2:
            world.isolate(node_id, self.rng.uniform(0.1, 4.0))

    def end(self) -> None:
        world = self.world
        world.run(10.0)
        world.start(*(node_id for node_id, member in world.members.items() if not member.process.alive))
        active = world.together()
        world.until(lambda: all(outcomes for member, outcomes in self.unanswered if member.process.alive))
        codes = {code_of(error) for _, outcomes in self.unanswered for error in outcomes}
        assert codes <= {None, ErrorCode.NOT_CONTROLLER}
        assert world.acknowledged <= set(active.image.topics)
        assert active.log.leader == (active.node_id, max(world.active_in))
        assert NO_NODE not in {member.log.leader.leader_id for member in world.running}


@pytest.mark.parametrize("seed", range(1, 4))
def test_no_acknowledged_change_is_lost_under_faults(make_world: MakeWorld, seed: int) -> None:
    world = make_world(seed)
    schedule = Schedule(world)
    for _ in range(200):
        schedule.step()
    schedule.end()
    assert len(world.active_in) > 2
    assert len(world.acknowledged) > 5
