"""Random changes to valid records of internal topics: partitions load, and every group and id works afterwards."""

from __future__ import annotations

import struct
from random import Random
from typing import Any

import pytest

from ottla.common.errors import ErrorCode
from ottla.coordinator.group.context import RequestContext
from ottla.coordinator.runtime import CoordinatorState
from ottla.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.record.batch import iter_batches
from ottla.record.builder import RecordData, build_batch
from ottla.record.control import end_transaction_marker

from ..coordinator.answers import Answer
from ..coordinator.group.conversation import Conversation as Groups
from ..coordinator.runtime.harness import VirtualTime
from ..coordinator.transaction.conversation import Conversation as Transactions

ROUNDS = 150
EXTREMES = {
    ">b": (-1, 0, 3, 7, 127, -128),
    ">h": (-1, 0, 1, 9, 32767, -32768),
    ">i": (-1, 0, 1, 2**31 - 1, -(2**31)),
    ">q": (-1, 0, 1, 2**31 - 1, 2**63 - 1, -(2**63)),
}
Stored = tuple[bytes | None, bytes | None]


def changed(rng: Random, data: bytes) -> bytes:
    """Up to three changes: an integer of any width becomes an extreme, bits flip, the end is cut off or grows."""
    out = bytearray(data)
    for _ in range(rng.randrange(1, 4)):
        kind = rng.choice([*EXTREMES, "flip", "cut", "grow"])
        if kind == "cut":
            del out[rng.randrange(len(out) + 1) :]
        elif kind == "grow":
            out += rng.randbytes(rng.randrange(1, 9))
        elif kind == "flip" and out:
            out[rng.randrange(len(out))] ^= 1 << rng.randrange(8)
        elif kind in EXTREMES and len(out) >= struct.calcsize(kind):
            struct.pack_into(kind, out, rng.randrange(len(out) - struct.calcsize(kind) + 1), rng.choice(EXTREMES[kind]))
    return bytes(out)


def hostile(rng: Random, valid: list[Stored]) -> list[RecordData]:
    """A few records: possibly valid, changed, or joined from halves of two."""
    records = []
    for _ in range(rng.randrange(1, 6)):
        key, value = rng.choice(valid)
        if rng.random() < 0.1:
            value = rng.choice([None, rng.choice(valid)[1]])
        if key is not None and rng.random() < 0.2:
            key = rng.choice([None, changed(rng, key)])
        if value is not None and rng.random() < 0.8:
            value = changed(rng, value)
        records.append(RecordData(0, key, value))
    return records


def stored(talk: Groups | Transactions) -> list[Stored]:
    return [
        (record.key, record.value)
        for raw in talk.log.batches[0]
        for batch in iter_batches(raw)
        if not batch.is_control
        for record in batch.records()
    ]


def heartbeat(talk: Groups, group: str, member: str, epoch: int, **subscription: object) -> None:
    request = ConsumerGroupHeartbeatRequest(
        group_id=group, member_id=member, member_epoch=epoch, rebalance_timeout_ms=30_000, topic_partitions=[]
    )
    for name, value in subscription.items():
        setattr(request, name, value)
    answer: Answer[Any] = Answer()
    talk.coordinator.consumer_group_heartbeat(RequestContext("client", "/1", 1), request, answer)
    talk.time.settle()


def history_of_groups() -> list[Stored]:
    """Groups of every type in several states, with offsets."""
    talk = Groups()
    talk.stable_group(2, group="classic")
    talk.static_group("a", "b", group="static")
    talk.commit({("t", 0): 5, ("u", 1): 7}, group="simple", metadata="text")
    talk.commit({("t", 0): 5}, group="expiring", retention_ms=5000, version=2)
    for member in ("m1", "m2"):
        heartbeat(talk, "consumer", member, 0, subscribed_topic_names=["t", "u"])
    heartbeat(talk, "regex", "m3", 0, subscribed_topic_names=[], subscribed_topic_regex="t.*")
    talk.time.advance(3)
    for member in ("m1", "m2"):
        heartbeat(talk, "consumer", member, 1)
    talk.time.advance(8)
    return stored(talk)


GROUPS = ("classic", "static", "simple", "consumer", "regex", "new")


def use_groups(talk: Groups) -> None:
    """Requests of members and tools to groups, until sessions expire; the conversation asserts that nothing breaks."""
    listed = talk.list_groups()
    for group in listed:
        talk.offsets(("t", 0), ("u", 1), group=group)
        talk.describe(group)
    for _ in range(2):
        for group in GROUPS:
            talk.join(group=group)
            for epoch, member in enumerate(("m0", "m1")):
                heartbeat(talk, group, member, epoch, subscribed_topic_names=["t"])
            talk.commit({("t", 0): 9}, group=group)
        talk.time.advance(700)
    talk.delete_groups(*listed)
    assert not talk.defects


@pytest.mark.promise("G5")
def test_changed_group_records_never_stop_a_partition(fuzz_seed):
    valid = history_of_groups()
    skipped = 0
    for number in range(ROUNDS):
        rng = Random(f"{fuzz_seed} {number}")
        talk = Groups()
        for key, value in valid if rng.random() < 0.5 else ():
            talk.log.put(0, build_batch([RecordData(0, key, value)]))
        pending = rng.random() < 0.3
        producer: dict[str, Any] = {"producer_id": 7, "producer_epoch": 3, "base_sequence": 0} if pending else {}
        talk.log.put(0, build_batch(hostile(rng, valid), is_transactional=pending, **producer))
        if pending and rng.random() < 0.5:
            marker = end_transaction_marker(
                commit=True, timestamp_ms=0, producer_id=7, producer_epoch=3, coordinator_epoch=1
            )
            talk.log.put(0, marker)
        talk.log.high_watermark[0] = talk.log.end[0]
        talk.time = talk.log.time = VirtualTime()
        try:
            talk.start()
            assert talk.runtime.state(0) is CoordinatorState.ACTIVE
            skipped += talk.runtime.statistics.records_skipped
            use_groups(talk)
        except Exception as error:
            raise AssertionError(f"{fuzz_seed}, round {number}: {talk.defects}") from error
    assert skipped > ROUNDS / 2, fuzz_seed


@pytest.mark.parametrize("level", [0, 2])
def test_changed_transaction_records_never_stop_an_id(fuzz_seed, level):
    past = Transactions(level)
    for name in ("a", "b", "c"):
        producer = past.producer(name)
        past.add(producer, ("t", 0), ("u", 1), transactional_id=name)
        if name != "c":
            past.end(producer, transactional_id=name, version=5 if level else 3)
    valid = stored(past)
    skipped = 0
    for number in range(ROUNDS):
        rng = Random(f"{fuzz_seed} {number}")
        talk = Transactions(level)
        talk.log.put(0, build_batch(hostile(rng, valid)))
        talk.log.high_watermark[0] = talk.log.end[0]
        try:
            talk.restart()
            assert talk.runtime.state(0) is CoordinatorState.ACTIVE
            skipped += talk.runtime.statistics.records_skipped
            talk.time.advance(120)
            for name in ("a", "b", "c", "new"):
                talk.init(name)  # aborts open transactions
                talk.time.advance(5)
                answer = talk.init(name)
                assert answer.error is ErrorCode.NONE
                assert answer.producer[0] >= 0
                talk.add(answer.producer, transactional_id=name)
            talk.list()
            talk.describe("a", "b", "c")
            talk.time.advance(120)
            assert not talk.defects
        except Exception as error:
            raise AssertionError(f"{fuzz_seed}, round {number}: {talk.defects}") from error
    assert skipped > ROUNDS / 2, fuzz_seed
