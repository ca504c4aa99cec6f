"""Producer ids for idempotent producers, from blocks that the controller has committed (KIP-730).

An id is used at most once: a block is used only after its record is committed, and its unused rest is dropped when the
broker ends. The next block is requested when the current one is used up; requests wait meanwhile, bounded by the
number of connections.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from ottla.common.errors import ErrorCode, KafkaError
from ottla.server.requests.forwarding import ControllerChannel

if TYPE_CHECKING:
    from ottla.protocol.messages.allocate_producer_ids import AllocateProducerIdsResponse

Receiver = Callable[["int | None", "BaseException | None"], None]

TIMEOUT_S = 5.0


class ProducerIdSource:
    """Allocates producer ids for one broker."""

    __slots__ = ("_broker_epoch", "_controller", "_end", "_next", "_node_id", "_requested", "_waiting")

    def __init__(self, controller: ControllerChannel, node_id: int, broker_epoch: Callable[[], int]) -> None:
        self._controller = controller
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._next = 0
        self._end = 0
        self._requested = False
        self._waiting: list[Receiver] = []

    def next_id(self, receiver: Receiver) -> None:
        """Call `receiver(id, None)` now or later, or `receiver(None, error)` if the controller refused."""
        from ottla.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest  # imported here

        if self._next < self._end:
            self._next += 1
            receiver(self._next - 1, None)
            return
        self._waiting.append(receiver)
        if not self._requested:
            self._requested = True
            request = AllocateProducerIdsRequest(broker_id=self._node_id, broker_epoch=self._broker_epoch())
            self._controller.send_until(request, self._block_came, TIMEOUT_S)

    def _block_came(self, block: AllocateProducerIdsResponse | None, error: BaseException | None) -> None:
        self._requested = False
        waiting, self._waiting = self._waiting, []
        if block is None:
            if isinstance(error, KafkaError) and error.code is ErrorCode.REQUEST_TIMED_OUT:
                # An error that clients retry.
                error = KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, error.message)
            for receiver in waiting:
                receiver(None, error)
            return
        self._next, self._end = block.producer_id_start, block.producer_id_start + block.producer_id_len
        for receiver in waiting:
            self.next_id(receiver)
