"""Any order of events from brokers, operators and time: the invariants of `world.check_image` and `check_step` hold.

In addition, once all brokers are back and leaders admit all replicas, every partition has a leader and a complete ISR.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from tests.scale import size

from ottla.common.errors import ErrorCode, KafkaError
from ottla.controller.elections import PREFERRED, UNCLEAN, balance_leaders, handle_elect_leaders
from ottla.controller.reassignments import handle_alter_partition_reassignments, is_reassigning
from ottla.metadata.image import NO_LEADER
from ottla.metadata.records import versioned
from ottla.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.protocol.messages.elect_leaders import ElectLeadersRequest
from ottla.protocol.messages.metadata_records import FeatureLevelRecord

from .world import World, check_image

BROKERS = (1, 2, 3, 4)
brokers = st.sampled_from(BROKERS)
some_brokers = st.lists(brokers, min_size=1, max_size=4, unique=True)
EXPECTED = (
    ErrorCode.DUPLICATE_BROKER_REGISTRATION,
    ErrorCode.STALE_BROKER_EPOCH,
    ErrorCode.BROKER_ID_NOT_REGISTERED,
    ErrorCode.INVALID_REQUEST,
)


class ControllerModel(RuleBasedStateMachine):
    """Four brokers, some topics, one controller."""

    @initialize(min_isr=st.integers(1, 3), unclean=st.booleans(), elr=st.booleans())
    def begin(self, min_isr: int, unclean: bool, elr: bool) -> None:
        self.world = World(min_insync_replicas=str(min_isr), unclean_leader_election_enable=str(unclean).lower())
        if not elr:
            level = FeatureLevelRecord(name="eligible.leader.replicas.version", feature_level=0)
            self.world.apply([versioned(level)])
        self.elr = self.world.elr_enabled = elr
        self.topics = 0
        self.world.join(*BROKERS)

    def check(self) -> None:
        if self.elr:
            check_image(self.world.image)

    def partitions(self) -> list[tuple[str, int]]:
        return [(topic.name, index) for topic in self.world.image.topics.values() for index in topic.partitions]

    @precondition(lambda self: self.topics < 3)
    @rule(placements=st.lists(some_brokers, min_size=1, max_size=3))
    def create(self, placements: list[list[int]]) -> None:
        size = min(len(placement) for placement in placements)
        active = {broker.broker_id for broker in self.world.image.active_brokers()}
        placements = [placement[:size] for placement in placements]
        registered = self.world.image.brokers.keys()
        if all(set(placement) & active and set(placement) <= registered for placement in placements):
            self.topics += 1
            self.world.create(f"t{self.topics}", *placements)

    @rule(broker_id=brokers, clean=st.booleans())
    def register(self, broker_id: int, clean: bool) -> None:
        self.expected(lambda: self.world.register(broker_id, clean=clean))

    @rule(broker_id=brokers, want_fence=st.booleans(), want_shut_down=st.booleans(), behind=st.integers(0, 3))
    def heartbeat(self, broker_id: int, want_fence: bool, want_shut_down: bool, behind: int) -> None:
        offset = self.world.image.offset - behind
        self.expected(
            lambda: self.world.heartbeat(broker_id, offset=offset, want_fence=want_fence, want_shut_down=want_shut_down)
        )

    @rule(gone=some_brokers)
    def silence(self, gone: list[int]) -> None:
        self.expected(lambda: self.world.silence(*gone))

    @rule(broker_id=brokers)
    def unregister(self, broker_id: int) -> None:
        self.expected(lambda: self.world.unregister(broker_id))

    @precondition(lambda self: self.topics)
    @rule(data=st.data(), members=some_brokers)
    def alter_partition(self, data: st.DataObject, members: list[int]) -> None:
        name, index = data.draw(st.sampled_from(self.partitions()))
        if self.world.partition(name, index).leader != NO_LEADER:
            self.expected(lambda: self.world.alter_partition(members, name, index))

    @precondition(lambda self: self.topics)
    @rule(data=st.data(), replicas=st.none() | some_brokers)
    def reassign(self, data: st.DataObject, replicas: list[int] | None) -> None:
        name, index = data.draw(st.sampled_from(self.partitions()))
        item = ReassignablePartition(partition_index=index, replicas=replicas)
        request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name=name, partitions=[item])])
        self.expected(
            lambda: self.world.run(lambda image, context: handle_alter_partition_reassignments(image, request, context))
        )

    @rule(kind=st.sampled_from([PREFERRED, UNCLEAN]))
    def elect(self, kind: int) -> None:
        request = ElectLeadersRequest(election_type=kind, topic_partitions=None)
        self.expected(lambda: self.world.run(lambda image, context: handle_elect_leaders(image, request, context)))

    @rule()
    def balance(self) -> None:
        self.world.apply(balance_leaders(self.world.image, self.world.context(), 100).records)
        self.check()

    @rule()
    def another_controller(self) -> None:
        self.world.heartbeats.reset(self.world.image, self.world.now_ms)

    def expected(self, call: object) -> None:
        """Run it; a rejection is accepted."""
        try:
            call()  # type: ignore[operator]
        except KafkaError as error:
            if error.code not in EXPECTED:
                raise
        except KeyError:
            pass  # a broker that never registered has no epoch to send
        self.check()

    def teardown(self) -> None:
        """All brokers return after a clean or unclean stop, and leaders admit all replicas to the ISR."""
        world = getattr(self, "world", None)
        if world is None:
            return
        world.silence(*BROKERS)
        world.join(*BROKERS)
        for name, index in self.partitions():
            for _ in range(3):
                partition = world.partition(name, index)
                if partition.leader == NO_LEADER:
                    break
                members = [broker_id for broker_id in partition.replicas if broker_id in world.image.brokers]
                world.alter_partition(members, name, index)
            partition = world.partition(name, index)
            assert partition.leader != NO_LEADER, (name, index, partition)
            assert set(partition.isr) == set(partition.replicas), (name, index, partition)
            assert not is_reassigning(partition), (name, index, partition)
        self.check()


ControllerModel.TestCase.settings = settings(max_examples=size(6, 60), stateful_step_count=40, deadline=None)
TestControllerModel = ControllerModel.TestCase
