"""Fetch sessions: ids, epochs, changes, forgotten partitions, eviction (KIP-227)."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.common.errors import ErrorCode, KafkaError
from ottla.protocol.fetch import FetchPartition
from ottla.replica.fetch_session import FINAL_EPOCH, INITIAL_EPOCH, MAX_EPOCH, FetchContext, FetchSessionCache
from ottla.replica.purgatory import DelayedOperation, Purgatory, Watch

from .manual_loop import ManualLoop


def wanted(partition: int, fetch_offset: int = 0, current_leader_epoch: int = -1) -> FetchPartition:
    """A partition of a request."""
    return FetchPartition(partition, current_leader_epoch, fetch_offset, -1, -1, 1 << 20)


class SeededRng:
    def __init__(self) -> None:
        self._random = random.Random(1)

    def random_bytes(self, count: int) -> bytes:
        return self._random.randbytes(count)

    def randrange(self, stop: int) -> int:
        return self._random.randrange(stop)


def unexpected(where: str, error: Exception) -> None:
    raise AssertionError(where) from error


def quiet_purgatory() -> Purgatory:
    return Purgatory(ManualLoop(), unexpected)


class Client:
    """Calls the cache like a consumer."""

    def __init__(self, slots: int = 10) -> None:
        self.loop = ManualLoop()
        self.purgatory = Purgatory(self.loop, unexpected)
        self.cache = FetchSessionCache(slots, SeededRng(), self.purgatory)
        self.now_s = 0.0

    def ask(
        self,
        session_id: int,
        epoch: int,
        topics: list[tuple[str | bytes, list[FetchPartition]]] | None = None,
        forgotten: list[tuple[str | bytes, list[int]]] | None = None,
        ids: bool = False,
        privileged: bool = False,
    ) -> FetchContext:
        return self.cache.open(
            session_id,
            epoch,
            topics or [],
            forgotten or [],
            uses_topic_ids=ids,
            privileged=privileged,
            now_s=self.now_s,
        )


def keys(context: FetchContext) -> list[tuple[str | bytes, int]]:
    return [(partition.topic, partition.index) for partition in context.partitions]


def refused(client: Client, *arguments: object, **named: object) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        client.ask(*arguments, **named)  # type: ignore[arg-type]
    return caught.value.code


def test_a_session_is_opened_continued_changed_and_closed() -> None:
    client = Client()
    first = client.ask(0, 0, [("t", [wanted(0), wanted(1)])])
    assert first.session_id != 0
    assert not first.incremental
    assert keys(first) == [("t", 0), ("t", 1)]

    second = client.ask(first.session_id, 1)
    assert second.incremental
    assert keys(second) == [("t", 0), ("t", 1)]

    third = client.ask(first.session_id, 2, [("t", [wanted(1, fetch_offset=7)]), ("u", [wanted(0)])], [("t", [0])])
    assert keys(third) == [("t", 1), ("u", 0)]
    assert third.partitions[0].fetch_offset == 7

    closing = client.ask(first.session_id, FINAL_EPOCH, [("t", [wanted(0)])])
    assert closing.session_id == 0
    assert keys(closing) == [("t", 0)]
    assert refused(client, first.session_id, 3) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_wrong_session_epoch_is_rejected_without_effect() -> None:
    client = Client()
    session_id = client.ask(0, 0, [("t", [wanted(0)])]).session_id
    assert refused(client, session_id, 2) == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert client.ask(session_id, 1).incremental
    assert refused(client, session_id, 1) == ErrorCode.INVALID_FETCH_SESSION_EPOCH


def test_the_epoch_wraps_to_one() -> None:
    client = Client()
    context = client.ask(0, 0, [("t", [wanted(0)])])
    assert context.session is not None
    context.session.epoch = MAX_EPOCH
    client.ask(context.session_id, MAX_EPOCH)
    assert client.ask(context.session_id, 1).incremental


def test_names_and_ids_do_not_mix_in_one_session() -> None:
    client = Client()
    session_id = client.ask(0, 0, [("t", [wanted(0)])]).session_id
    assert refused(client, session_id, 1, ids=True) == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_a_session_without_partitions_ends() -> None:
    client = Client()
    session_id = client.ask(0, 0, [("t", [wanted(0)])]).session_id
    context = client.ask(session_id, 1, [], [("t", [0])])
    assert context.session_id == 0
    assert len(client.cache) == 0


def test_an_initial_request_with_an_id_replaces_that_session() -> None:
    client = Client()
    session_id = client.ask(0, 0, [("t", [wanted(0)])]).session_id
    again = client.ask(session_id, 0, [("t", [wanted(0)])])
    assert again.session_id not in (0, session_id)
    assert len(client.cache) == 1


def test_consumer_without_free_slot_gets_no_session() -> None:
    client = Client(slots=2)
    kept = [client.ask(0, 0, [("t", [wanted(0)])]).session_id for _ in range(2)]
    assert client.ask(0, 0, [("t", [wanted(0), wanted(1)])]).session_id == 0
    client.now_s = 121.0
    client.ask(kept[0], 1)
    assert client.ask(0, 0, [("t", [wanted(0)])]).session_id != 0
    assert refused(client, kept[1], 1) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_session_eviction_prefers_larger_and_follower_sessions() -> None:
    client = Client(slots=2)
    small = client.ask(0, 0, [("t", [wanted(0)])]).session_id
    big = client.ask(0, 0, [("t", [wanted(0), wanted(1)])]).session_id
    client.now_s = 100.0
    client.ask(small, 1)
    client.ask(big, 1)
    client.now_s = 121.0
    assert client.ask(0, 0, [("t", [wanted(0)])]).session_id == 0
    bigger = client.ask(0, 0, [("t", [wanted(index) for index in range(3)])]).session_id
    assert bigger != 0
    assert refused(client, small, 2) == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert client.ask(0, 0, [("t", [wanted(0)])], privileged=True).session_id != 0
    assert client.cache.evictions == 2


def test_no_slots_means_no_sessions() -> None:
    assert Client(slots=0).ask(0, 0, [("t", [wanted(0)])]).session_id == 0


@pytest.mark.parametrize("epoch", [INITIAL_EPOCH, FINAL_EPOCH])
def test_the_last_mention_of_a_partition_counts(epoch: int) -> None:
    mentions: list[tuple[str | bytes, list[FetchPartition]]] = [("a", [wanted(0), wanted(1), wanted(0, 5)])]
    mentions += [("b", [wanted(0)]), ("a", [wanted(1, fetch_offset=6), wanted(2)])]
    found = Client().ask(0, epoch, mentions)
    assert keys(found) == [("a", 0), ("a", 1), ("a", 2), ("b", 0)]
    assert [partition.fetch_offset for partition in found.partitions] == [5, 6, 0, 0]


def test_incremental_response_contains_only_changes() -> None:
    client = Client()
    partition = client.ask(0, 0, [("t", [wanted(0)])]).partitions[0]
    assert partition.accept(0, 5, 0, has_records=False)
    assert not partition.accept(0, 5, 0, has_records=False)
    assert partition.accept(0, 5, 0, has_records=True)
    assert partition.accept(0, 6, 0, has_records=False)
    assert partition.accept(0, 6, 3, has_records=False)
    assert partition.accept(6, -1, -1, has_records=False)
    assert partition.accept(0, 6, 3, has_records=False), "recovery from an error is news"
    assert not partition.accept(0, 6, 3, has_records=False)


def test_partition_of_a_new_leader_epoch_is_news_once() -> None:
    """A follower drops the response to a fetch of an earlier epoch, so it needs the same offsets again."""
    client = Client()
    first = client.ask(0, 0, [("t", [wanted(0, current_leader_epoch=4)])])
    partition = first.partitions[0]
    assert partition.accept(0, 5, 0, has_records=False)
    client.ask(first.session_id, 1, [("t", [wanted(0, current_leader_epoch=4)])])
    assert not partition.accept(0, 5, 0, has_records=False)
    client.ask(first.session_id, 2, [("t", [wanted(0, current_leader_epoch=5)])])
    assert partition.accept(0, 5, 0, has_records=False)
    assert not partition.accept(0, 5, 0, has_records=False)


def test_partition_is_news_when_an_error_kept_its_offsets() -> None:
    client = Client()
    partition = client.ask(0, 0, [("t", [wanted(0)])]).partitions[0]
    partition.accept(0, 6, 3, has_records=False)
    partition.accept(9, 6, 3, has_records=False)
    assert partition.accept(0, 6, 3, has_records=False)


def test_served_partitions_queue_up_behind_the_others() -> None:
    client = Client()
    first = client.ask(0, 0, [("t", [wanted(0), wanted(1), wanted(2)])])
    assert first.session is not None
    first.session.move_to_end([first.partitions[0]])
    assert keys(client.ask(first.session_id, 1)) == [("t", 1), ("t", 2), ("t", 0)]


def test_idle_partition_is_read_after_touch_or_request() -> None:
    client = Client()
    first = client.ask(0, 0, [("t", [wanted(index) for index in range(4)])])
    watches = [Watch() for _ in range(4)]
    for partition, watch in zip(first.partitions, watches, strict=True):
        partition.rest(watch)
    idle = client.ask(first.session_id, 1)
    assert (keys(idle), idle.is_empty) == ([], False)
    client.purgatory.touch(watches[2])
    client.purgatory.touch(watches[2])
    named = client.ask(first.session_id, 2, [("t", [wanted(1, fetch_offset=3)])])
    assert keys(named) == [("t", 2), ("t", 1)]
    assert watches[2].subscribers is None
    named.partitions[1].rest(watches[1])
    assert keys(client.ask(first.session_id, 3)) == [("t", 2)]


def test_forgotten_partition_is_unsubscribed() -> None:
    client = Client()
    first = client.ask(0, 0, [("t", [wanted(0), wanted(1)])])
    watches = [Watch(), Watch()]
    for partition, watch in zip(first.partitions, watches, strict=True):
        partition.rest(watch)
    client.ask(first.session_id, 1, [], [("t", [0])])
    assert watches[0].subscribers is None
    client.ask(first.session_id, FINAL_EPOCH)
    assert watches[1].subscribers is None
    first.partitions[0].rest(watches[0])
    assert watches[0].subscribers is None, "a read after the end subscribes to no watch"


def test_idle_partition_reports_last_use_of_its_session() -> None:
    client = Client()
    first = client.ask(0, 0, [("t", [wanted(index) for index in range(4)])], privileged=True)
    touched, named, forgotten, resting = first.partitions
    watch = Watch()
    for partition in first.partitions:
        partition.rest(watch if partition is touched else Watch())
    client.now_s = 10.0
    client.ask(first.session_id, 1)
    assert {partition.heard_s for partition in first.partitions} == {10.0}
    client.purgatory.touch(watch)
    client.now_s = 20.0
    client.ask(first.session_id, 2, [("t", [wanted(1)])], [("t", [2])])
    client.now_s = 30.0
    client.ask(first.session_id, 3)
    assert [each.heard_s for each in (touched, named, forgotten, resting)] == [10.0, 10.0, 10.0, 30.0]
    client.ask(first.session_id, FINAL_EPOCH)
    client.now_s = 40.0
    assert resting.heard_s == 30.0


class SessionWaiter(DelayedOperation):
    """A fetch that waits at its session."""

    __slots__ = ("tried",)

    def __init__(self) -> None:
        super().__init__()
        self.tried: list[bool] = []

    def try_complete(self, force: bool) -> bool:
        self.tried.append(force)
        return True


def test_touch_or_session_end_wakes_waiting_fetch() -> None:
    client = Client()
    first = client.ask(0, 0, [("t", [wanted(0), wanted(1)])])
    assert first.session is not None
    watches = [Watch(), Watch()]
    for expected in (False, True):
        for partition, watch in zip(first.session.partitions.values(), watches, strict=True):
            partition.rest(watch)
        waiter = SessionWaiter()
        client.purgatory.park(waiter, [first.session.watch], 1.0)
        if expected:
            client.ask(first.session_id, FINAL_EPOCH)
        else:
            client.purgatory.touch(watches[0])
            client.purgatory.touch(watches[1])
        client.loop.turn()
        assert waiter.tried == [expected]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), st.booleans()), max_size=30))
def test_the_set_follows_a_model(steps: list[tuple[int, bool]]) -> None:
    client = Client()
    context = client.ask(0, 0, [("keep", [wanted(0)])])
    model = {("keep", 0)}
    for epoch, (index, add) in enumerate(steps, start=1):
        if add:
            context = client.ask(context.session_id, epoch, [("t", [wanted(index)])])
            model.add(("t", index))
        else:
            context = client.ask(context.session_id, epoch, [], [("t", [index])])
            model.discard(("t", index))
        assert set(keys(context)) == model


def test_partitions_are_bounded_for_a_session() -> None:
    cache = FetchSessionCache(10, SeededRng(), quiet_purgatory())
    asked = [("t", [wanted(index) for index in range(100)])]
    context = cache.open(0, 0, asked, [], uses_topic_ids=False, privileged=False, now_s=0.0, max_partitions=100)
    more = [("t", [wanted(100)])]
    options: dict[str, Any] = {"uses_topic_ids": False, "privileged": False, "now_s": 0.0}
    with pytest.raises(KafkaError) as refused:
        cache.open(context.session_id, 1, more, [], **options, max_partitions=100)
    assert refused.value.code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert (len(cache), cache.partition_count()) == (0, 0)
    full = cache.open(0, 0, asked + more, [], **options, max_partitions=100)
    assert (full.session_id, len(full.partitions)) == (0, 101), "served, without a session"


def test_oversized_session_works_while_it_does_not_grow() -> None:
    """The limit shrank with deleted topics."""
    cache = FetchSessionCache(10, SeededRng(), quiet_purgatory())
    asked = [("t", [wanted(index) for index in range(100)])]
    options: dict[str, Any] = {"uses_topic_ids": False, "privileged": False, "now_s": 0.0}
    session_id = cache.open(0, 0, asked, [], **options, max_partitions=100).session_id
    assert len(cache.open(session_id, 1, asked, [("t", [0])], **options, max_partitions=5).partitions) == 99


def test_partitions_are_bounded_over_all_sessions() -> None:
    cache = FetchSessionCache(10, SeededRng(), quiet_purgatory(), max_partitions=250)
    options: dict[str, Any] = {"uses_topic_ids": False, "privileged": False, "now_s": 0.0}
    asked = [("t", [wanted(index) for index in range(100)])]
    ids = [cache.open(0, 0, asked, [], **options).session_id for _ in range(3)]
    assert [session_id != 0 for session_id in ids] == [True, True, False]
    assert cache.partition_count() == 200
    with pytest.raises(KafkaError):
        cache.open(ids[0], 1, [("u", [wanted(index) for index in range(60)])], [], **options)
    assert cache.partition_count() == 100
    cache.open(ids[1], -1, [], [], **options)
    assert cache.partition_count() == 0
