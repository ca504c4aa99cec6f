"""Blocking work of a call on the loop, moved to the pool: reads of cold pages, and decompression of batches.

A call that is given `Known` never blocks. Instead it raises `WouldBlock`. The caller runs that work by `run_off_loop`,
parks its request meanwhile, and repeats the call, which now finds the outcome. No state of the interrupted call
remains, so the repeated call sees every change in between (a truncation, a deleted topic).

Invariant: each repetition knows at least one more outcome, so the number of repetitions is bounded by the outcomes that
the call needs.

Opening files and reading directory entries cannot be tried without blocking, and stay on the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, Protocol, TypeVar

from ottla.common.errors import ErrorCode, KafkaError, without_frames
from ottla.common.platform.clock import BlockingPool
from ottla.record.compression import DEFAULT_MAX_BYTES

T = TypeVar("T")

Known = dict[Hashable, Any]
"""Outcomes of off-loop work for one request: a result or an exception."""


BYTES_PER_TURN = 4 * 1024 * 1024
"""Decompressed bytes that fit into one turn of the pool's computing share; more need long turns."""


class DecompressionSliceExceeded(Exception):
    """A batch decompresses to more than a turn permits; no work was done."""


class Pin(Protocol):
    """A file that stays open while the pool reads from it."""

    def unpin(self) -> None: ...


class WouldBlock(Exception):
    """`work` has to run in the pool before the call can be repeated."""

    def __init__(
        self,
        key: Hashable,
        work: Callable[[], object],
        *,
        pin: Pin | None = None,
        computes: bool = False,
        long: bool = False,
    ) -> None:
        """`pin` is released once `work` is done.

        `computes`: it needs CPU rather than the disk, and more than one turn of it if it is `long`.
        """
        super().__init__("this call would block the loop")
        self.key = key
        self.pin = pin
        self.computes = computes
        self.long = long
        self._work = work

    def attempt(self) -> object:
        """Run in the pool: returns the result or the exception."""
        try:
            return self._work()
        except Exception as error:
            return without_frames(error)


def known_result(known: Known | None, key: Hashable, work: Callable[[int], T]) -> T:
    """The result of `work(max_bytes)`, which decompresses to that many bytes: computed here without `known`, else
    looked up there. Raises WouldBlock, twice where a turn is too short for it, and what `work` raises."""
    if known is None:
        return work(DEFAULT_MAX_BYTES)
    if key not in known:
        raise WouldBlock(key, lambda: _in_a_turn(work), computes=True)
    outcome = known[key]
    if isinstance(outcome, DecompressionSliceExceeded):
        raise WouldBlock(key, lambda: work(DEFAULT_MAX_BYTES), computes=True, long=True)
    if isinstance(outcome, Exception):
        raise outcome
    result: T = outcome
    return result


def _in_a_turn(work: Callable[[int], T]) -> T:
    try:
        return work(BYTES_PER_TURN)
    except KafkaError as error:
        if error.code == ErrorCode.MESSAGE_TOO_LARGE:
            raise DecompressionSliceExceeded from None
        raise


def run_off_loop(needed: Sequence[WouldBlock], known: Known, pool: BlockingPool, then: Callable[[], None]) -> None:
    """Run all `needed` work in one pool job, store the outcomes in `known`, and call `then()` on the loop."""

    def done(outcomes: list[object] | None, error: BaseException | None) -> None:
        for number, one in enumerate(needed):
            if one.pin is not None:
                one.pin.unpin()
            known[one.key] = error if outcomes is None else outcomes[number]
        then()

    pool.submit(lambda: [one.attempt() for one in needed], done)
