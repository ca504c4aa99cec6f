"""Blocking steps of a mechanism, off the loop: the waiting connection, and the results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ottla.common.platform.channel import Channel, Part
from ottla.common.platform.endpoint import ListenerInfo
from ottla.metrics.registry import MetricsRegistry
from ottla.protocol.header import decode_response, encode_request
from ottla.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from ottla.protocol.messages.sasl_handshake import SaslHandshakeRequest
from ottla.protocol.registry import ApiKey
from ottla.security.sasl.plain import PlainClient, PlainServer
from ottla.security.sasl.session import MechanismOffer
from ottla.server.requests.authentication import AuthenticationMetrics, ListenerAuthentication

ANN, WRONG = PlainClient("ann", "secret").first(), PlainClient("ann", "wrong").first()


class World:
    """A connection behind a gate, with a loop and a pool that run due work on the test's command."""

    def __init__(self) -> None:
        self.id, self.client_host, self.listener, self.principal = 1, "h", ListenerInfo("X", "SASL_PLAINTEXT"), ""
        self.closed = False
        self.answers: list[bytes] = []
        self.in_pool: list[tuple[Callable[[], Any], Callable[[Any, BaseException | None], None]]] = []
        self.late: list[Callable[[], object]] = []
        self.metrics = AuthenticationMetrics(MetricsRegistry())
        offer = MechanismOffer(lambda: PlainServer({"ann": "secret"}), 0, blocks=True)
        self.gate = ListenerAuthentication(
            {"PLAIN": offer},
            self,
            clock=self,
            scheduler=self,
            pool=self,
            metrics=self.metrics,
            failure_delay_ms=100,
            max_request_bytes=16_384,
        ).gate()

    # the pool, the loop and its clock

    def submit(self, work: Callable[[], Any], done: Callable[[Any, BaseException | None], None]) -> None:
        self.in_pool.append((work, done))

    def call_later(self, delay: float, callback: Callable[..., Any], *args: Any) -> World:
        self.late.append(lambda: callback(*args))
        return self

    def call_soon(self, callback: Callable[..., Any], *args: Any) -> World:
        return self.call_later(0, callback, *args)

    def cancel(self) -> None:
        raise AssertionError("nothing ends")

    def time_ms(self) -> int:
        return 0

    def monotonic(self) -> float:
        return 0.0

    # the connection

    def respond(self, parts: list[Part]) -> None:
        self.answers.append(b"".join(parts))  # type: ignore[arg-type]

    def mute(self, duration_s: float, *, restart: bool = False, more: Callable[[], float] | None = None) -> None:
        raise AssertionError("no client is above a quota")

    def close(self, reason: str) -> None:
        self.closed = True

    def identified(self, principal: str) -> None:
        self.principal = principal

    # the dispatcher for authenticated clients

    def handle(self, channel: Channel, buffer: bytearray, start: int, end: int) -> list[Part] | None:
        return [b"served"]

    def connection_closed(self, channel: Channel) -> None:
        """Nothing is parked."""

    # actions of the test

    def send(self, frame: bytes) -> None:
        parts = self.gate.handle(self, bytearray(frame), 0, len(frame))
        if parts is not None:
            self.respond(parts)

    def shake_hands(self, version: int) -> None:
        self.send(encode_request(ApiKey.SASL_HANDSHAKE, version, 1, "c", SaslHandshakeRequest(mechanism="PLAIN"))[4:])
        assert decode_response(ApiKey.SASL_HANDSHAKE, version, self.answers.pop()[4:])[1].error_code == 0

    def show(self, token: bytes) -> None:
        self.send(encode_request(ApiKey.SASL_AUTHENTICATE, 2, 7, "c", SaslAuthenticateRequest(auth_bytes=token))[4:])
        assert self.answers == [], "the loop does not wait"

    def work(self) -> None:
        """Run the submitted work of the pool."""
        ((take, done),) = self.in_pool
        self.in_pool.clear()
        try:
            result = take()
        except Exception as error:
            done(None, error)
        else:
            done(result, None)

    def response(self) -> Any:
        correlation_id, response = decode_response(ApiKey.SASL_AUTHENTICATE, 2, self.answers.pop()[4:])
        assert correlation_id == 7
        return response


@pytest.fixture
def world() -> World:
    return World()


def test_a_step_that_may_wait_is_taken_off_the_loop(world: World) -> None:
    world.shake_hands(1)
    world.show(ANN)
    assert (world.principal, world.gate.open) == ("", False)
    world.work()
    assert world.response().error_code == 0
    assert (world.principal, world.gate.open, world.metrics.succeeded.value) == ("User:ann", True, 1)
    world.send(b"any request")
    assert world.answers == [b"served"]


def test_a_bare_token_too(world: World) -> None:
    world.shake_hands(0)
    world.send(ANN)
    assert world.answers == []
    world.work()
    assert world.answers == [bytes(4)]
    assert world.principal == "User:ann"


@pytest.mark.parametrize("version", [0, 1])
def test_failed_step_is_answered_after_the_delay(world: World, version: int) -> None:
    world.shake_hands(version)
    if version:
        world.show(WRONG)
    else:
        world.send(WRONG)
    world.work()
    assert (world.answers, world.principal, world.gate.open, world.closed) == ([], "", False, False)
    ((refuse),) = world.late
    refuse()
    assert world.closed
    if version:
        assert world.response().error_code == 58
    else:
        assert world.answers == [b""]
    assert world.metrics.failed.value == 1


def test_step_with_an_internal_error_does_not_authenticate(world: World) -> None:
    world.shake_hands(1)
    world.show(ANN)
    ((_, done),) = world.in_pool
    with pytest.raises(MemoryError):
        done(None, MemoryError())
    assert (world.closed, world.answers, world.principal, world.gate.open) == (True, [], "", False)
