"""The machine's clock, randomness and thread pool as the broker's arguments."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from functools import partial

import pytest

from ottla.app.clock import SystemClock, SystemRng
from ottla.app.pool import ThreadPool


def test_clock_is_that_of_the_machine():
    clock = SystemClock()
    assert abs(clock.time_ms() - time.time() * 1000) < 1000
    assert clock.monotonic() <= clock.monotonic()


def test_random_numbers_cover_their_range():
    rng = SystemRng()
    assert len(rng.random_bytes(16)) == 16
    assert rng.randrange(1) == 0
    for stop in (2, 3, 7, 256, 257):
        drawn = Counter(rng.randrange(stop) for _ in range(stop * 100))
        assert set(drawn) == set(range(stop))
    with pytest.raises(ValueError, match="positive"):
        rng.randrange(0)


def test_results_and_errors_come_back_on_the_loop():
    async def main() -> None:
        loop = asyncio.get_running_loop()
        pool = ThreadPool(loop, max_threads=3)
        seen = []
        finished = asyncio.Event()

        def done(result, error):
            seen.append((result, error, threading.current_thread()))
            if len(seen) == 21:
                finished.set()

        def fail():
            raise OSError("planted")

        def ran_in(number):
            return number, threading.current_thread()

        for number in range(20):
            pool.submit(partial(ran_in, number), done)
        pool.submit(fail, done)
        await finished.wait()
        here = threading.current_thread()
        assert all(thread is here for _, _, thread in seen)
        assert {result[0] for result, error, _ in seen if error is None} == set(range(20))
        workers = {result[1] for result, error, _ in seen if error is None}
        assert here not in workers
        assert len(workers) <= 3
        assert [str(error) for _, error, _ in seen if error is not None] == ["planted"]
        pool.close()
        with pytest.raises(RuntimeError):
            pool.submit(fail, done)

    asyncio.run(main())


def test_an_idle_thread_is_used_again():
    async def main() -> None:
        loop = asyncio.get_running_loop()
        pool = ThreadPool(loop, max_threads=8)
        workers = set()
        finished = asyncio.Event()

        def done(worker, _):
            workers.add(worker)
            finished.set()

        for _ in range(20):
            finished.clear()
            pool.submit(threading.current_thread, done)
            await finished.wait()
        assert len(workers) == 1
        pool.close()

    asyncio.run(main())


def test_close_finishes_what_was_submitted():
    ran = []

    async def main() -> None:
        pool = ThreadPool(asyncio.get_running_loop(), max_threads=2)
        for number in range(10):
            pool.submit(partial(ran.append, number), lambda result, error: None)
        pool.close()

    asyncio.run(main())
    assert sorted(ran) == list(range(10))
