"""The computing share of the pool: turns are counted, no time is measured."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ottla.server.requests.pool_share import COMPUTE_THREADS, PoolShare


class ManualPool:
    """A pool that completes its work on the test's command, oldest first."""

    def __init__(self) -> None:
        self.running: list[tuple[Callable[[], Any], Callable[[Any, BaseException | None], None]]] = []

    def submit(self, work: Callable[[], Any], done: Callable[[Any, BaseException | None], None]) -> None:
        self.running.append((work, done))

    def end(self, number: int = 0) -> None:
        work, done = self.running.pop(number)
        done(work(), None)


class Connection:
    """Has one piece of work in the share at a time, and submits the next as soon as that is done."""

    def __init__(self, share: PoolShare, *, long: bool) -> None:
        self.turns = 0
        self._share = share
        self._long = long
        self.submit()

    def submit(self) -> None:
        (self._share.long if self._long else self._share).submit(lambda: None, self._done)

    def _done(self, result: None, error: BaseException | None) -> None:
        self.turns += 1
        self.submit()


def test_no_more_than_its_part_of_the_threads_is_taken() -> None:
    pool = ManualPool()
    share = PoolShare(pool)
    connections = [Connection(share, long=long) for long in (True, False, True, False)]
    for _ in range(50):
        assert len(pool.running) == COMPUTE_THREADS
        pool.end()
    assert all(connection.turns for connection in connections)


def test_short_work_never_waits_behind_long_work() -> None:
    pool = ManualPool()
    share = PoolShare(pool)
    for _ in range(30):
        Connection(share, long=True)
    assert len(pool.running) == 1, "a thread is reserved for short work"
    honest = Connection(share, long=False)
    for turn in range(5):
        assert honest.turns == turn
        assert len(pool.running) == 2
        pool.end(1)  # the long one continues


def test_connections_take_turns_in_the_pool_share() -> None:
    pool = ManualPool()
    share = PoolShare(pool)
    connections = [Connection(share, long=False) for _ in range(30)]
    longer = [Connection(share, long=True) for _ in range(3)]
    for ended in range(1, 400):
        pool.end(ended % 2)
        for kind in (connections, longer):
            turns = [connection.turns for connection in kind]
            assert max(turns) - min(turns) <= 2
    assert min(connection.turns for connection in connections) >= 5
    assert min(connection.turns for connection in longer) >= 5, "short work does not starve long work either"


def test_an_error_ends_a_turn_like_a_result() -> None:
    pool = ManualPool()
    share = PoolShare(pool)
    seen: list[BaseException | None] = []
    for kind in (share, share.long) * 3:
        kind.submit(lambda: None, lambda _, error: seen.append(error))
    failure = OSError()
    while pool.running:
        pool.running.pop()[1](None, failure)
    assert seen == [failure] * 6
