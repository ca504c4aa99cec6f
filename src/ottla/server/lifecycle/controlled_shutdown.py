"""Controlled shutdown: a stopping broker requests it by heartbeats, and the controller moves its leaderships (KIP-143).

The controller moves them only to brokers known to be alive. A dead broker delays the shutdown until its session ends.
A broker stops without the move if the controller no longer knows it, or does not answer for a while.
"""

from __future__ import annotations

import logging

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.platform.clock import Clock
from ottla.protocol.messages.broker_heartbeat import BrokerHeartbeatResponse

logger = logging.getLogger(__name__)

SILENCE_S = 5.0
"""A broker without a controller's response for this long stops: possibly all nodes stop together."""
TIMEOUT_S = 60.0


class ControlledShutdown:
    """State of a controlled shutdown."""

    __slots__ = ("_clock", "_deadline_s", "_heard_s")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._heard_s = clock.monotonic()
        self._deadline_s = self._heard_s + TIMEOUT_S

    def is_over(self, response: BrokerHeartbeatResponse | None, error: BaseException | None) -> bool:
        """Whether the broker stops now, after a heartbeat's response or failure; otherwise it sends another."""
        now_s = self._clock.monotonic()
        if response is not None:
            self._heard_s = now_s
            return response.should_shut_down or now_s >= self._deadline_s
        if isinstance(error, KafkaError) and error.code is ErrorCode.STALE_BROKER_EPOCH:
            return True
        if now_s - self._heard_s < SILENCE_S and now_s < self._deadline_s:
            return False
        logger.warning("controlled shutdown failed: no controller answers; stopping without moving leaderships")
        return True
