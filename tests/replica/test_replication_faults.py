"""Random schedules over three brokers' replicas: partitions, kills, power failures and elections; then recovery.

Any broker may die as long as each partition retains a live member of its ISR, from which the next leader is elected.
Under that rule no record acknowledged with acks=all is lost, no record that a consumer read changes, and all copies
become equal, regardless of losses on dead brokers.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.scale import size

from ottla.common.errors import ErrorCode
from ottla.record.batch import iter_batches

from .world import ProduceAnswer, World

NODES = (1, 2, 3)
PAIRS = [frozenset(pair) for pair in ((1, 2), (1, 3), (2, 3))]
nodes = st.sampled_from(NODES)

ACTIONS = st.one_of(
    st.tuples(st.just("produce"), nodes, st.integers(1, 4)),
    st.tuples(st.just("produce_to_leader"), st.sampled_from((-1, -1, 1)), st.integers(1, 4)),
    st.tuples(st.just("produce_to_leader"), st.sampled_from((-1, -1, 1)), st.integers(1, 4)),
    st.tuples(st.just("wait"), st.sampled_from((0.002, 0.01, 0.1, 1.0, 40.0)), st.just(0)),
    st.tuples(st.just("cut"), st.sampled_from(PAIRS), st.just(0)),
    st.tuples(st.just("heal"), st.sampled_from(PAIRS), st.just(0)),
    st.tuples(st.just("deaf"), nodes, st.just(0)),
    st.tuples(st.just("hear"), nodes, st.just(0)),
    st.tuples(st.just("elect"), nodes, st.just(0)),
    st.tuples(st.just("kill"), nodes, st.booleans()),
    st.tuples(st.just("start"), nodes, st.just(0)),
    st.tuples(st.just("consume"), nodes, st.just(0)),
    st.tuples(st.just("flush"), nodes, st.just(0)),
    st.tuples(st.just("delete_records"), st.integers(0, 30), st.just(0)),
)


class Run:
    """One schedule, and the responses that clients got in it."""

    def __init__(self, fakes: Any) -> None:
        self.world = World(fakes, min_insync_replicas="2", segment_bytes="600")
        for node in NODES:
            self.world.start(node)
        self.world.create_topic()
        self.values = 0
        self.waiting: list[tuple[ProduceAnswer, list[bytes]]] = []
        self.acknowledged: dict[int, bytes] = {}
        self.served: dict[int, bytes] = {}
        self.deleted = 0

    def leader(self) -> int:
        return self.world.state().leader

    def produce(self, node: int, count: int, acks: int = -1) -> None:
        if node not in self.world.nodes:
            return
        values = [b"%d" % (self.values + number) for number in range(count)]
        self.values += count
        answer = self.world.produce(node, *values, acks=acks, timeout_ms=20_000)
        if acks == -1:
            self.waiting.append((answer, values))

    def produce_to_leader(self, acks: int, count: int) -> None:
        self.produce(self.leader(), count, acks)

    def wait(self, seconds: float, _: int) -> None:
        self.world.loop.run_for(seconds)

    def cut(self, pair: frozenset[int], _: int) -> None:
        self.world.cuts.add(pair)

    def heal(self, pair: frozenset[int], _: int) -> None:
        self.world.cuts.discard(pair)

    def deaf(self, node: int, _: int) -> None:
        self.world.deaf.add(node)

    def hear(self, node: int, _: int) -> None:
        self.world.deaf.discard(node)
        self.world.deliver_metadata()

    def elect(self, node: int, _: int) -> None:
        if node in self.world.nodes and node in self.world.state().isr:
            self.world.change(leader=node, bump=True)

    def kill(self, node: int, power: bool) -> None:
        state = self.world.state()
        isr = tuple(member for member in state.isr if member != node)
        live = [member for member in isr if member in self.world.nodes]
        if node not in self.world.nodes or not live:
            return
        self.world.kill(node, power=power)
        self.world.fence(node)
        leader = live[0] if state.leader == node else state.leader
        self.world.change(isr=isr, leader=leader)
        # A request to the dead broker is never answered.
        self.waiting = [item for item in self.waiting if item[0].there or item[0].node_id != node]

    def start(self, node: int, _: int) -> None:
        if node not in self.world.nodes:
            self.world.deaf.discard(node)
            self.world.start(node)

    def flush(self, node: int, _: int) -> None:
        if node in self.world.nodes:
            self.world.nodes[node].partition().log.flush()

    def delete_records(self, before: int, _: int) -> None:
        partition = self.world.nodes[self.leader()].partition()
        if partition.is_leader and partition.log.log_start_offset < before <= partition.high_watermark:
            partition.delete_records(before)
            self.deleted = max(self.deleted, before)

    def consume(self, node: int, _: int) -> None:
        """Read all records visible to a consumer there; records seen before are unchanged."""
        if node not in self.world.nodes:
            return
        partition = self.world.nodes[node].partition()
        start, end = partition.log.log_start_offset, partition.high_watermark
        for offset, value in contents(self.world.nodes[node].log_bytes(start, end)).items():
            if offset >= start:
                assert self.served.setdefault(offset, value) == value, f"offset {offset} changed"

    def collect(self) -> None:
        for answer, values in [item for item in self.waiting if item[0].there]:
            code, base_offset = answer.result()
            if code == ErrorCode.NONE:
                self.acknowledged.update({base_offset + number: value for number, value in enumerate(values)})
        self.waiting = [item for item in self.waiting if not item[0].there]

    def calm(self) -> None:
        """End all faults: all replicas must get in sync, with all acknowledged records."""
        self.world.cuts.clear()
        self.world.deaf.clear()
        for node in NODES:
            self.start(node, 0)
        self.world.deliver_metadata()
        self.world.settle(*NODES)
        self.produce_to_leader(-1, 1)
        self.world.loop.run_until(lambda: all(answer.there for answer, _ in self.waiting))
        self.collect()
        self.world.settle(*NODES)
        leader = self.world.nodes[self.leader()]
        log = leader.partition().log
        stored = contents(leader.log_bytes(log.log_start_offset, log.log_end_offset))
        assert log.log_start_offset <= self.deleted
        for promised in (self.acknowledged, self.served):
            for offset, value in promised.items():
                if offset >= log.log_start_offset:
                    assert stored.get(offset) == value, f"offset {offset} held {value!r}"


def contents(data: bytes) -> dict[int, bytes]:
    return {
        batch.base_offset + number: record.value or b""
        for batch in iter_batches(data)
        for number, record in enumerate(batch.records())
    }


@pytest.mark.parametrize("part", range(2))
def test_nothing_promised_is_lost_and_all_copies_are_equal(fakes: Any, part: int) -> None:
    @settings(max_examples=size(6, 60), deadline=None, derandomize=part == 0, suppress_health_check=list(HealthCheck))
    @given(st.lists(ACTIONS, min_size=20, max_size=60))
    def check(schedule: list[tuple[str, Any, Any]]) -> None:
        run = Run(fakes)
        for name, first, second in schedule:
            getattr(run, name)(first, second)
            run.collect()
        run.calm()

    check()


def test_diverged_follower_ends_inside_first_batch_of_leader(fakes: Any) -> None:
    """Deleting records dropped the epoch at the leader that would have shown the divergence."""
    run = Run(fakes)
    for name, first, second in (
        ("produce", 1, 1),  # the follower-to-be has offset 0 in the first epoch
        ("elect", 3, 0),
        ("kill", 1, False),
        *[("wait", 0.002, 0)] * 5,
        ("produce", 3, 2),  # a batch of offsets 0 and 1
        ("wait", 0.002, 0),
        ("wait", 0.002, 0),
        ("delete_records", 1, 0),
    ):
        getattr(run, name)(first, second)
        run.collect()
    run.calm()
