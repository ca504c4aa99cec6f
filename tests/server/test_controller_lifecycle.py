"""Registration of a controller under all responses and failures of the active one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ottla.common.config.feature_levels import CONTROLLER_REGISTRATION, METADATA_VERSION, METADATA_VERSION_LEVEL
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.platform.endpoint import Endpoint
from ottla.metadata.delta import MetadataChanges
from ottla.metadata.image import EMPTY_IMAGE, ControllerImage
from ottla.metadata.publisher import MetadataPublisher
from ottla.protocol.messages.controller_registration import ControllerRegistrationResponse
from ottla.server.lifecycle.controller_lifecycle import MAX_RETRY_S, ControllerLifecycle

from .virtual_time import VirtualTime

INCARNATION = b"I" * 16


class World:
    """One controller, and a scripted active one. Implements `ControllerRequests`."""

    def __init__(self) -> None:
        self.time = VirtualTime()
        self.publisher = MetadataPublisher()
        self.asked: list[Any] = []
        self.requests = 0
        self.registered: list[bool] = []
        endpoints = [Endpoint("CONTROLLER", "PLAINTEXT", "h", 9093)]
        self.lifecycle = ControllerLifecycle(7, INCARNATION, endpoints, self, self.publisher, self.time)
        self.lifecycle.start(lambda: self.registered.append(True))

    def send(self, message: object, done: Any, timeout_s: float) -> None:
        assert not self.asked, "one request at a time"
        self.requests += 1
        self.asked.append(done)

    def answer(self, error: BaseException | None = None) -> None:
        self.asked.pop()(None if error else ControllerRegistrationResponse(), error)

    def publish(self, offset: int, incarnation_id: bytes | None = None, level: int = METADATA_VERSION_LEVEL) -> None:
        known = {} if incarnation_id is None else {7: ControllerImage(7, incarnation_id, (), {})}
        features = {METADATA_VERSION: level}
        image = replace(EMPTY_IMAGE, offset=offset, controllers=known, features=features)
        self.publisher.publish(image, MetadataChanges())
        self.time.run()


@pytest.fixture
def world() -> World:
    return World()


def test_registration_starts_and_ends_with_the_metadata(world: World) -> None:
    assert world.requests == 0
    world.publish(1)
    assert world.requests == 1
    world.publish(2)
    world.answer()
    assert world.registered == [], "its registration has not arrived here yet"
    world.publish(3, INCARNATION)
    assert world.registered == [True]
    world.time.run(60.0)
    assert world.requests == 1


def test_it_takes_the_place_of_the_incarnation_before_it(world: World) -> None:
    world.publish(1, b"O" * 16)
    assert world.requests == 1


def test_registration_is_retried_with_growing_delays(world: World) -> None:
    world.publish(1)
    for _ in range(12):
        world.answer(KafkaError(ErrorCode.NOT_CONTROLLER))
        world.time.run(MAX_RETRY_S)
    assert world.requests == 13
    world.answer()
    world.publish(2, INCARNATION)
    assert world.registered == [True]


def test_lost_registration_is_repeated(world: World) -> None:
    world.publish(1)
    world.answer()
    world.time.run(MAX_RETRY_S)
    assert world.requests == 2


def test_no_request_is_sent_after_the_end(world: World) -> None:
    world.publish(1)
    world.lifecycle.end()
    world.answer(ConnectionError())
    world.time.run(60.0)
    world.publish(2)
    assert world.requests == 1


def test_registration_waits_for_a_level_with_controllers(world: World) -> None:
    world.publish(1, level=CONTROLLER_REGISTRATION - 1)
    assert (world.requests, world.registered) == (0, [True])
    world.publish(2, level=CONTROLLER_REGISTRATION)
    assert world.requests == 1
