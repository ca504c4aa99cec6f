"""Offsets of transactions against a model, with commits, deletions, failing appends and restarts in between.

The model implements Apache Kafka's rule: each offset has the position of its record in the log; a marker commits those
pending offsets that have newer records than the committed ones.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from tests.scale import size

from ottla.common.errors import ErrorCode, KafkaError

from ..conversation import Conversation

Place = tuple[str, tuple[str, int]]
PLACES = [(group, (topic, partition)) for group in ("g", "h") for topic in ("t", "u") for partition in (0, 1)]
PRODUCERS = st.integers(1, 3)


class TransactionalOffsets(RuleBasedStateMachine):
    """`committed` and `pending` contain (offset, position of the record in the log)."""

    @initialize()
    def begin(self) -> None:
        self.talk = Conversation()
        self.committed: dict[Place, tuple[int, int]] = {}
        self.pending: dict[int, dict[Place, tuple[int, int]]] = {1: {}, 2: {}, 3: {}}
        self.number = 0

    @rule(place=st.sampled_from(PLACES), fails=st.booleans())
    def commit(self, place: Place, fails: bool) -> None:
        self.number += 1
        end = self.talk.log.end[0]
        self.plan(fails=fails)
        code = self.talk.commit({place[1]: self.number}, group=place[0]).response.topics[0].partitions[0].error_code
        assert (code != ErrorCode.NONE) == fails
        if not fails:
            self.committed[place] = (self.number, end)

    @rule(places=st.lists(st.sampled_from(PLACES), min_size=1, unique=True), producer_id=PRODUCERS, fails=st.booleans())
    def commit_in_transaction(self, places: list[Place], producer_id: int, fails: bool) -> None:
        group = places[0][0]
        offsets = {}
        for each, partition in places:
            if each == group:
                self.number += 1
                offsets[partition] = self.number
        ordered = sorted(offsets.items())
        end = self.talk.log.end[0]
        self.plan(fails=fails)
        response = self.talk.txn_commit(dict(ordered), producer_id, group=group).response
        assert all((each.error_code != 0) == fails for topic in response.topics for each in topic.partitions)
        if not fails:
            for index, (partition, offset) in enumerate(ordered):
                self.pending[producer_id][group, partition] = (offset, end + index)

    @rule(producer_id=PRODUCERS, committed=st.booleans(), fails=st.booleans())
    def end(self, producer_id: int, committed: bool, fails: bool) -> None:
        self.plan(fails=fails)
        assert (self.talk.end_transaction(producer_id, committed=committed) != ErrorCode.NONE) == fails
        if fails:
            return
        for place, value in self.pending[producer_id].items():
            known = self.committed.get(place)
            if committed and (known is None or known[1] < value[1]):
                self.committed[place] = value
        self.pending[producer_id] = {}

    @rule(place=st.sampled_from(PLACES))
    def delete_offset(self, place: Place) -> None:
        self.talk.delete_offsets(place[1], group=place[0])
        self.forget([place])

    @rule(group=st.sampled_from(["g", "h"]))
    def delete_group(self, group: str) -> None:
        self.talk.delete_groups(group)
        self.forget([place for place in PLACES if place[0] == group])

    @rule()
    def restart(self) -> None:
        self.talk.start()

    def plan(self, *, fails: bool) -> None:
        if fails:
            self.talk.log.append_failures.append(KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS))

    def forget(self, places: list[Place]) -> None:
        for place in places:
            self.committed.pop(place, None)
            for pending in self.pending.values():
                pending.pop(place, None)

    @invariant()
    def reads_match_the_model(self) -> None:
        if not hasattr(self, "talk"):
            return
        unstable = {place for pending in self.pending.values() for place in pending}
        for group in ("g", "h"):
            assert self.talk.offsets(group=group) == {
                place[1]: value[0] for place, value in self.committed.items() if place[0] == group
            }
            partitions = [place[1] for place in PLACES if place[0] == group]
            assert self.talk.unstable(*partitions, group=group) == {p for g, p in unstable if g == group}
        assert len(self.talk.shard.offsets) == len(self.committed)


TransactionalOffsets.TestCase.settings = settings(max_examples=size(10, 100), stateful_step_count=30, deadline=None)
TestTransactionalOffsets = TransactionalOffsets.TestCase
