"""The end of a controlled shutdown: with the controller's permission, or without."""

from __future__ import annotations

import pytest

from ottla.common.errors import ErrorCode, KafkaError
from ottla.protocol.messages.broker_heartbeat import BrokerHeartbeatResponse
from ottla.server.lifecycle.controlled_shutdown import SILENCE_S, TIMEOUT_S, ControlledShutdown

from .virtual_time import VirtualTime

BUSY, LET_GO = BrokerHeartbeatResponse(), BrokerHeartbeatResponse(should_shut_down=True)
GONE = ConnectionError("gone")


def test_shutdown_ends_on_permission_or_unknown_broker() -> None:
    shutdown = ControlledShutdown(VirtualTime())
    assert not shutdown.is_over(BUSY, None)
    assert shutdown.is_over(LET_GO, None)
    assert shutdown.is_over(None, KafkaError(ErrorCode.STALE_BROKER_EPOCH, ""))


def test_shutdown_ends_after_uninterrupted_silence() -> None:
    time = VirtualTime()
    shutdown = ControlledShutdown(time)
    for answer, after_s in ((None, SILENCE_S - 1), (BUSY, 1), (None, SILENCE_S - 1)):
        time.run(after_s)
        assert not shutdown.is_over(answer, None if answer else GONE)
    assert not shutdown.is_over(None, KafkaError(ErrorCode.NOT_CONTROLLER, ""))
    time.run(1)
    assert shutdown.is_over(None, GONE)


@pytest.mark.parametrize("answer", [BUSY, None])
def test_it_waits_for_the_controller_up_to_a_limit(answer: BrokerHeartbeatResponse | None) -> None:
    time = VirtualTime()
    shutdown = ControlledShutdown(time)
    while time.now < TIMEOUT_S - 1:
        time.run(1)
        assert not shutdown.is_over(BUSY, None)
    time.run(1)
    assert shutdown.is_over(answer, None if answer else GONE)
