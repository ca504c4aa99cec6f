"""A thread for blocking calls beside an event loop."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


class Worker:
    """A `BlockingPool` with one thread."""

    def __init__(self, post: Callable[..., object], name: str) -> None:
        self._post = post
        self._executor = ThreadPoolExecutor(1, name)

    def submit(self, work: Callable[[], T], done: Callable[[T | None, BaseException | None], None]) -> None:
        def run() -> None:
            try:
                result, error = work(), None
            except BaseException as caught:
                result, error = None, caught
            self._post(done, result, error)

        self._executor.submit(run)

    def close(self) -> None:
        self._executor.shutdown()
