"""Producer ids for idempotent producers, out of blocks that the controller has committed (KIP-730).

An id is given out at most once: a block is used only after its record is committed, and what is left of it when the
broker ends is forgotten. The next block is asked for when the current one is used up; who comes meanwhile waits, and
the waiting are bounded by the connections.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from ottla.controller.producer_ids import ProducerIdBlock

Receiver = Callable[["int | None", "BaseException | None"], None]


class BlockRequest(Protocol):
    """Asks the controller for a block; the answer comes once it is committed."""

    def __call__(self, done: Callable[[ProducerIdBlock | None, BaseException | None], None]) -> None: ...


class ProducerIdSource:
    """Hands out producer ids for one broker."""

    __slots__ = ("_end", "_next", "_request_block", "_requested", "_waiting")

    def __init__(self, request_block: BlockRequest) -> None:
        self._request_block = request_block
        self._next = 0
        self._end = 0
        self._requested = False
        self._waiting: list[Receiver] = []

    def next_id(self, receiver: Receiver) -> None:
        """Call `receiver(id, None)` now or later, or `receiver(None, error)` when the controller refused."""
        if self._next < self._end:
            self._next += 1
            receiver(self._next - 1, None)
            return
        self._waiting.append(receiver)
        if not self._requested:
            self._requested = True
            self._request_block(self._block_came)

    def _block_came(self, block: ProducerIdBlock | None, error: BaseException | None) -> None:
        self._requested = False
        waiting, self._waiting = self._waiting, []
        if block is None:
            for receiver in waiting:
                receiver(None, error)
            return
        self._next, self._end = block.first, block.end
        for receiver in waiting:
            self.next_id(receiver)
