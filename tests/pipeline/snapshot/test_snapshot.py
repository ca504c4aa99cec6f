"""A snapshot equals the result of plain Python on the same records, regardless of how they are split into runs."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

deltalake = pytest.importorskip("deltalake", reason="needs the extra `pipeline`")

from ottla.pipeline.model.rollback import RolledBackError  # noqa: E402

if TYPE_CHECKING:
    from .world import World


def test_the_latest_value_of_each_key(make_world: Callable[..., World], kind: str) -> None:
    world = make_world(kind)
    world.produce((b"a", b"1"), (b"b", b"1"), (b"a", b"2"))
    world.produce((b"a", b"other partition"), (b"", b"a key of no bytes"), partition=1)
    first = world.snapshot()
    assert (first.records, first.inserted, first.updated, first.deleted) == (5, 4, 0, 0)
    world.check()
    world.produce((b"b", b"2"), (b"a", None), (b"c", None), (b"d", b"1"))
    second = world.snapshot()
    assert (second.records, second.inserted, second.updated, second.deleted) == (4, 1, 1, 1)
    assert second.version is not None
    world.check()
    assert world.snapshot().version is None


def test_rolled_back_snapshot_is_refused(make_world: Callable[..., World]) -> None:
    """Keys without a new record would keep their old values."""
    world = make_world("delta")
    world.produce((b"a", b"1"), (b"b", b"1"))
    first = world.snapshot().version
    world.produce((b"a", b"2"))
    world.snapshot()
    deltalake.DeltaTable(world.path).restore(first)
    for _ in range(2):
        with pytest.raises(
            RolledBackError, match=r"rolled it back below its load of version 2 .*restore version 2, or"
        ):
            world.snapshot()
        world.produce((b"b", b"2"))
    deltalake.DeltaTable(world.path).restore(2)
    world.snapshot()
    world.check()


def test_every_value_with_the_time_it_was_valid(make_world: Callable[..., World], kind: str) -> None:
    world = make_world(kind, history=True)
    world.produce((b"a", b"1"), (b"b", b"1"), (b"a", b"2"))
    world.snapshot()
    world.check()
    world.produce((b"a", b"3"), (b"b", None), (b"b", None), (b"b", b"2"))
    world.produce((b"a", b"earlier"), time=1)
    world.produce((b"a", b"at no known time"), time=-1)
    world.snapshot()
    world.check()
    world.produce((b"a", None))
    world.snapshot()
    world.check()
    assert world.snapshot().version is None


def schedule(world: World, seed: int, runs: int) -> None:
    """Random records in both partitions, with runs in between."""
    source = random.Random(seed)
    for _ in range(runs):
        for _ in range(source.randrange(3)):
            keys = [b"key %d" % source.randrange(8) for _ in range(source.randrange(1, 9))]
            values = [None if source.random() < 0.3 else b"%d" % source.randrange(1000) for _ in keys]
            time = source.choice([0, 0, -1, source.randrange(1, 3_000)])
            world.produce(*zip(keys, values, strict=True), partition=source.randrange(2), time=time)
        world.snapshot(max_bytes_per_task=source.choice([1, 1 << 30]))
        world.check()
        if world.open().exists() and source.random() < 0.2:
            world.compact()
            world.check()


@pytest.mark.promise("P8")
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("history", [False, True])
def test_random_schedules(make_world: Callable[..., World], kind: str, seed: int, history: bool) -> None:
    schedule(make_world(kind, history=history, buckets=3), seed, 6)
