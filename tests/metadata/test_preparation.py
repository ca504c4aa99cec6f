"""Decisions with many records, prepared over several turns of the loop, on a quorum and on ZooKeeper."""

from __future__ import annotations

from collections import Counter
from typing import TypeVar

import pytest

from ottla.common.errors import ErrorCode, InvariantError
from ottla.controller.result import ControllerContext, ControllerResult
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import MetadataImage
from ottla.metadata.log import LeaderAndEpoch
from ottla.metadata.records import ApiMessageAndVersion, decode_record, encode_record, versioned
from ottla.protocol.messages.metadata_records import RemoveTopicRecord, TopicRecord
from ottla.quorum.driver import QuorumDriver

from .log_world import LogWorld, Outcomes, code_of, topic_records
from .quorum_log_world import QuorumLogWorld
from .zookeeper_log_world import ZooKeeperLogWorld

PER_TURN = 10
NAMES = [f"t{number:02}" for number in range(30)]
RECORDS = 2 * len(NAMES)


@pytest.fixture(params=[QuorumLogWorld, ZooKeeperLogWorld], ids=["quorum", "zookeeper"])
def world(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> LogWorld:
    """Three nodes that agree, with controllers that prepare ten records a turn."""
    return small_turns(request.param(1), monkeypatch)


World = TypeVar("World", bound=LogWorld)


def small_turns(world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    for module in ("driver", "preparation"):
        monkeypatch.setattr(f"ottla.controller.{module}.RECORDS_PER_TURN", PER_TURN)
    world.together()
    return world


def create_many(_image: MetadataImage, _context: ControllerContext) -> ControllerResult[str]:
    return ControllerResult([record for name in NAMES for record in topic_records(name)], "created")


class Look:
    """An operation without records, which notes the number of topics in its image."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    def __call__(self, image: MetadataImage, _context: ControllerContext) -> ControllerResult[str]:
        self.seen.append(len(image.topics))
        return ControllerResult([], "seen")


def test_many_records_are_prepared_in_bounded_parts(world: LogWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    encoded: Counter[int] = Counter()

    def counted(record: ApiMessageAndVersion) -> bytes:
        encoded[world.loop.events] += 1
        return encode_record(record)

    monkeypatch.setattr("ottla.metadata.log.encode_record", counted)
    member = world.together()
    answers = member.ask(create_many)
    world.answered(answers)
    assert answers == [("created", None)]
    assert set(encoded.values()) == {PER_TURN}
    assert encoded.total() == RECORDS


def test_many_records_appear_together_on_every_node(world: LogWorld) -> None:
    world.answered(world.together().ask(create_many))
    world.together()
    for member in world.running:
        assert {len(image.topics) for image in member.images} == {0, len(NAMES)}


def test_later_decisions_wait_for_a_large_one(world: LogWorld) -> None:
    member, look = world.together(), Look()
    first, second = member.ask(create_many), member.ask(look)
    assert not look.seen
    world.until(lambda: first and second)
    assert look.seen == [len(NAMES)]


def test_large_decision_is_repeated_if_the_log_changed(world: LogWorld) -> None:
    member, look = world.together(), Look()

    def create(image: MetadataImage, context: ControllerContext) -> ControllerResult[str]:
        look(image, context)
        return create_many(image, context)

    answers = member.ask(create)
    member.create("meanwhile")
    world.answered(answers)
    assert answers == [("created", None)]
    assert look.seen == [0, 1]
    assert len(world.together().image.topics) == len(NAMES) + 1


def test_large_decision_fails_when_the_controller_stops(world: LogWorld) -> None:
    member, stopped = world.together(), Outcomes()
    first, second = member.ask(create_many), member.ask(Look())
    member.process.run(member.controller.stop, stopped.append)
    world.until(lambda: first and second and stopped)
    assert [code_of(error) for _, error in (*first, *second)] == [ErrorCode.NOT_CONTROLLER] * 2
    world.kill(member.node_id)
    assert not world.together().image.topics


def test_refused_record_ends_only_its_decision(world: LogWorld) -> None:
    def create_too_long(image: MetadataImage, context: ControllerContext) -> ControllerResult[str]:
        result = create_many(image, context)
        result.records.append(versioned(TopicRecord(name="n" * 40_000, topic_id=b"n" * 16)))
        return result

    member, look = world.together(), Look()
    first, second = member.ask(create_too_long), member.ask(look)
    world.until(lambda: first and second)
    assert [code_of(error) for _, error in first] == [ErrorCode.INVALID_REQUEST]
    assert second == [("seen", None)]
    assert look.seen == [0]


def test_defective_decision_does_not_block_later_ones(world: LogWorld) -> None:
    def remove_unknown(image: MetadataImage, context: ControllerContext) -> ControllerResult[str]:
        result = create_many(image, context)
        result.records.append(versioned(RemoveTopicRecord(topic_id=b"n" * 16)))
        return result

    member, look = world.together(), Look()
    first, second = member.ask(remove_unknown), member.ask(look)
    with pytest.raises(InvariantError):
        world.until(lambda: second)
    world.until(lambda: second)
    assert [code_of(error) for _, error in first] == [ErrorCode.UNKNOWN_SERVER_ERROR]
    assert second == [("seen", None)]


@pytest.fixture
def quorum(monkeypatch: pytest.MonkeyPatch) -> QuorumLogWorld:
    """A quorum with followers that decode and replay ten records a turn."""
    monkeypatch.setattr("ottla.quorum.fetcher.RECORDS_PER_FETCH_TURN", PER_TURN)
    monkeypatch.setattr("ottla.quorum.driver.MESSAGES_PER_TURN", PER_TURN)
    return small_turns(QuorumLogWorld(1), monkeypatch)


def test_followers_replay_many_records_in_bounded_parts(world: LogWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ottla.quorum.driver.MESSAGES_PER_TURN", PER_TURN)
    monkeypatch.setattr("ottla.zookeeper.term_follower.MESSAGES_PER_TURN", PER_TURN)
    replayed: Counter[int] = Counter()
    replay = MetadataDelta.replay

    def counted(delta: MetadataDelta, record: object) -> None:
        replayed[world.loop.events] += 1
        replay(delta, record)

    monkeypatch.setattr(MetadataDelta, "replay", counted)
    world.answered(world.together().ask(create_many))
    world.together()
    assert max(replayed.values()) == PER_TURN
    assert replayed.total() == RECORDS * len(world.running)


def test_followers_decode_many_records_in_bounded_parts(
    quorum: QuorumLogWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded: Counter[int] = Counter()

    def counted(value: bytes) -> ApiMessageAndVersion:
        decoded[quorum.loop.events] += 1
        return decode_record(value)

    monkeypatch.setattr("ottla.quorum.replay.decode_record", counted)
    quorum.answered(quorum.together().ask(create_many))
    quorum.together()
    assert max(decoded.values()) == PER_TURN
    assert decoded.total() == RECORDS * (len(quorum.running) - 1)


def test_follower_drops_the_undecoded_rest_when_the_leader_changes(
    quorum: QuorumLogWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader = quorum.together()
    follower, other = (member for member in quorum.running if member is not leader)
    quorum.kill(other.node_id)
    decoded: list[bytes] = []

    def noted(value: bytes) -> ApiMessageAndVersion:
        decoded.append(value)
        return decode_record(value)

    monkeypatch.setattr("ottla.quorum.replay.decode_record", noted)
    assert isinstance(follower.log, QuorumDriver)
    log, end = follower.log, follower.log.log_end
    leader.ask(create_many)
    quorum.until(lambda: len(decoded) >= 2 * PER_TURN)
    raft = log.raft
    raft.elections.learn(quorum.loop.time(), LeaderAndEpoch(other.node_id, raft.state.epoch + 1), None)
    follower.process.run(log.settle)
    quorum.run(0.05)
    assert log.log_end == end
    assert len(decoded) == 2 * PER_TURN
    assert len(quorum.together().image.topics) in (0, len(NAMES))


@pytest.mark.parametrize("events", [0, 10, 20, 30, 40, 50, 60, 80, 100])
def test_follower_takes_over_while_it_replays(quorum: QuorumLogWorld, events: int) -> None:
    dying = quorum.together()
    answers = dying.ask(create_many)
    end = quorum.loop.events + events
    quorum.loop.run_until(quorum.loop.time() + 1.0, lambda: quorum.loop.events >= end)
    quorum.kill(dying.node_id)
    found = len(quorum.together().image.topics)
    assert found in ((len(NAMES),) if answers else (0, len(NAMES))), "all or nothing; all of an acknowledged one"
