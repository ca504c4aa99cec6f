"""A broker joins, stays in and leaves the cluster, under all responses and failures of the controller."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ottla.common.config.feature_levels import DIRECTORY_ASSIGNMENT, METADATA_VERSION
from ottla.common.errors import ErrorCode, KafkaError, NotJoinedInTimeError, OperatorError
from ottla.common.platform.endpoint import Endpoint
from ottla.metadata.delta import MetadataChanges
from ottla.metadata.image import EMPTY_IMAGE, BrokerImage
from ottla.metadata.publisher import MetadataPublisher
from ottla.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from ottla.protocol.messages.broker_registration import BrokerRegistrationRequest, BrokerRegistrationResponse
from ottla.server.lifecycle.controlled_shutdown import SILENCE_S
from ottla.server.lifecycle.lifecycle import BrokerIdentity, BrokerLifecycle

from .virtual_time import VirtualTime

EPOCH = 40


class Controller:
    """Stores requests until the test answers. Implements `ControllerRequests`."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, Any]] = []

    def send(self, message: object, done: Any, timeout_s: float) -> None:
        assert not self.asked, "one request at a time"
        self.asked.append((message, done))

    def answer(self, response: object | None, error: BaseException | None = None) -> Any:
        """Answer the request in flight; returns the request."""
        ((message, done),) = self.asked
        self.asked.clear()
        done(response, error)
        return message


class World:
    """One broker's lifecycle."""

    def __init__(self) -> None:
        self.time = VirtualTime()
        self.controller = Controller()
        self.publisher = MetadataPublisher()
        self.events: list[object] = []
        self.noted: list[int] = []
        self.cordoned: list[bytes] = []
        identity = BrokerIdentity(
            node_id=1,
            cluster_id="c",
            incarnation_id=b"I" * 16,
            log_dirs=[b"D" * 16, b"E" * 16],
            offline_log_dirs=[],
            cordoned=lambda: self.cordoned,
            endpoints=[Endpoint("PLAINTEXT", "PLAINTEXT", "h", 9092)],
            rack="r",
            previous_broker_epoch=7,
        )
        self.incarnations = iter([b"J" * 16, b"K" * 16, b"L" * 16, b"M" * 16])
        self.lifecycle = BrokerLifecycle(
            identity,
            self.controller,
            self.publisher,
            new_incarnation_id=lambda: next(self.incarnations),
            registered_again=self.noted.append,
            clock=self.time,
            scheduler=self.time,
            heartbeat_interval_ms=2000,
            session_timeout_ms=9000,
            registration_timeout_ms=60_000,
        )
        self.lifecycle.start(lambda error: self.events.append(error or "caught up"))

    def publish(self, offset: int) -> None:
        self.publisher.publish(replace(EMPTY_IMAGE, offset=offset), MetadataChanges())
        self.time.run()

    def heard(self, *, fenced: bool, should_shut_down: bool = False) -> BrokerHeartbeatRequest:
        response = BrokerHeartbeatResponse(is_caught_up=True, is_fenced=fenced, should_shut_down=should_shut_down)
        request = self.controller.answer(response)
        assert isinstance(request, BrokerHeartbeatRequest)
        return request

    def registered(self, epoch: int = EPOCH) -> BrokerRegistrationRequest:
        request = self.controller.answer(BrokerRegistrationResponse(broker_epoch=epoch))
        assert isinstance(request, BrokerRegistrationRequest)
        return request

    def serve(self) -> None:
        """Run until the broker is unfenced."""
        self.registered()
        self.publish(EPOCH)
        self.heard(fenced=True)
        self.lifecycle.serve(lambda error: self.events.append(error or "unfenced"))
        self.heard(fenced=False)
        assert self.events == ["caught up", "unfenced"]
        self.events.clear()


@pytest.fixture
def world() -> World:
    return World()


def test_from_registration_to_service(world: World) -> None:
    request = world.registered()
    assert (request.broker_id, request.rack, request.previous_broker_epoch) == (1, "r", 7)
    assert world.heard(fenced=True).want_fence
    assert world.events == [], "its registration has not arrived here yet"
    world.publish(EPOCH - 1)
    assert world.events == []
    world.publish(EPOCH)
    assert world.events == ["caught up"]
    world.lifecycle.serve(lambda error: world.events.append(error or "unfenced"))
    last = world.heard(fenced=False)
    assert (last.broker_epoch, last.current_metadata_offset, last.want_fence) == (EPOCH, EPOCH, False)
    assert world.events == ["caught up", "unfenced"]
    assert not world.lifecycle.fenced


def test_a_registration_names_the_protocol_of_voters(world: World) -> None:
    """Apache Kafka's active controller registers no broker without it if the log contains the voters."""
    levels = {
        feature.name: (feature.min_supported_version, feature.max_supported_version)
        for feature in world.registered().features
    }
    assert levels["kraft.version"] == (0, 1)


def test_lost_heartbeat_is_sent_again_soon(world: World) -> None:
    world.serve()
    world.time.run(1.9)
    assert world.controller.asked == []
    world.time.run(0.2)
    world.controller.answer(None, ConnectionError("gone"))
    world.time.run(0.2)
    assert not world.heard(fenced=False).want_fence


def test_fenced_broker_requests_unfencing(world: World) -> None:
    world.serve()
    world.time.run(2.1)
    world.heard(fenced=True)
    assert world.lifecycle.fenced
    world.time.run(0.2)
    assert not world.heard(fenced=False).want_fence
    assert not world.lifecycle.fenced


def test_a_broker_that_was_unregistered_registers_again(world: World) -> None:
    world.serve()
    world.time.run(2.1)
    world.controller.answer(None, KafkaError(ErrorCode.STALE_BROKER_EPOCH))
    request = world.registered(50)
    assert bytes(request.incarnation_id) == b"J" * 16
    assert request.previous_broker_epoch == EPOCH, "it continues with its data: nothing was lost"
    assert world.lifecycle.broker_epoch == 50
    assert world.noted == [50], "so that the next start knows the incarnation that ran here"
    assert world.heard(fenced=False).broker_epoch == 50


def test_broker_shut_down_by_a_foreign_request_registers_again(world: World, caplog: Any) -> None:
    """Any client that knows the epoch, which is public, can request a controlled shutdown of the broker."""
    world.serve()
    epoch, pauses = EPOCH, []
    for incarnation in (b"J", b"K", b"L", b"M"):
        world.time.run(2.1)
        world.heard(fenced=True, should_shut_down=True)
        before = world.time.now
        while not world.controller.asked:
            world.time.run(0.05)
        pauses.append(world.time.now - before)
        epoch += 10
        request = world.registered(epoch)
        assert (bytes(request.incarnation_id), request.previous_broker_epoch) == (incarnation * 16, epoch - 10)
        heartbeat = world.heard(fenced=False)
        assert (heartbeat.broker_epoch, heartbeat.want_fence, heartbeat.want_shut_down) == (epoch, False, False)
        assert not world.lifecycle.fenced
    assert pauses[0] == 0
    assert pauses == sorted(set(pauses)), "growing delays"
    assert caplog.text.count("received a shutdown request") == 1, "logged once"


def test_final_refusal_does_not_end_a_running_broker(world: World) -> None:
    world.serve()
    world.time.run(2.1)
    world.controller.answer(None, KafkaError(ErrorCode.STALE_BROKER_EPOCH))
    world.controller.answer(None, KafkaError(ErrorCode.UNSUPPORTED_VERSION, "no"))
    world.time.run(1)
    world.registered(50)
    assert world.heard(fenced=False).broker_epoch == 50


def failure_at_the_deadline(world: World, error: BaseException) -> object:
    """The outcome of a start whose registrations all fail with `error`."""
    for _ in range(500):
        if world.controller.asked:
            world.controller.answer(None, error)
        world.time.run(0.15)
        if world.events:
            break
    ((failure),) = world.events
    assert 60 <= world.time.now < 61.1
    return failure


@pytest.mark.parametrize(
    "error",
    [
        ConnectionError("x"),
        TimeoutError("x"),
        KafkaError(ErrorCode.NOT_CONTROLLER),
        KafkaError(ErrorCode.REQUEST_TIMED_OUT),
    ],
)
def test_registration_is_tried_until_the_time_is_over(world: World, error: BaseException) -> None:
    failure = failure_at_the_deadline(world, error)
    assert isinstance(failure, NotJoinedInTimeError)
    assert not isinstance(failure, OperatorError), "systemd may start it again"
    assert "controller.quorum.bootstrap.servers" in str(failure)


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.BROKER_ID_NOT_REGISTERED,
        ErrorCode.DUPLICATE_BROKER_REGISTRATION,
    ],
)
def test_refusals_until_the_deadline_need_an_operator(world: World, code: ErrorCode) -> None:
    assert isinstance(failure_at_the_deadline(world, KafkaError(code)), OperatorError)


def test_another_broker_with_this_id(world: World, caplog: Any) -> None:
    tries = 0
    while not world.events:
        assert world.time.now < 70
        if world.controller.asked:
            tries += 1
            world.controller.answer(None, KafkaError(ErrorCode.DUPLICATE_BROKER_REGISTRATION, "alive"))
        world.time.run(0.05)
    assert "node.id 1" in str(world.events[0])
    assert 55 < tries < 70, "after the first few it retries once a second"
    assert caplog.text.count("is still active") == 1, "logged once"


def test_session_of_a_killed_broker_is_awaited_and_logged_once(world: World, caplog: Any) -> None:
    for _ in range(4):
        world.controller.answer(None, KafkaError(ErrorCode.DUPLICATE_BROKER_REGISTRATION, "alive"))
        world.time.run(1.1)
    world.registered()
    world.publish(EPOCH)
    assert world.events == ["caught up"]
    assert caplog.text.count("is still active") == 1


@pytest.mark.parametrize("code", [ErrorCode.INCONSISTENT_CLUSTER_ID, ErrorCode.UNSUPPORTED_VERSION])
def test_final_refusal_ends_the_start_at_once(world: World, code: ErrorCode) -> None:
    world.controller.answer(None, KafkaError(code, "no"))
    assert isinstance(world.events[0], OperatorError)
    world.time.run(100)
    assert world.controller.asked == []


def test_failed_directory_is_in_every_heartbeat(world: World) -> None:
    assert world.registered().log_dirs == [b"D" * 16, b"E" * 16]
    world.publish(EPOCH)
    world.heard(fenced=True)
    world.lifecycle.serve(lambda error: None)
    assert world.heard(fenced=False).offline_log_dirs == []
    world.lifecycle.directory_failed(b"E" * 16)
    assert world.heard(fenced=False).offline_log_dirs == [b"E" * 16]
    world.time.run(2.0)
    assert world.heard(fenced=False, should_shut_down=True).offline_log_dirs == [b"E" * 16]
    assert world.registered(EPOCH + 1).log_dirs == [b"D" * 16]


def test_cordoned_directories_are_reported_with_known_configs(world: World) -> None:
    world.cordoned = [b"E" * 16]
    world.registered()
    world.publish(EPOCH)
    assert world.heard(fenced=True).cordoned_log_dirs is None
    world.lifecycle.serve(lambda error: None)
    assert world.heard(fenced=False).cordoned_log_dirs == [b"E" * 16]
    world.cordoned = []
    world.time.run(2.0)
    assert world.heard(fenced=False).cordoned_log_dirs == []


class TestShutdown:
    def begin(self, world: World) -> None:
        world.serve()
        world.lifecycle.shut_down(lambda error: world.events.append(error or "let go"))

    def test_waits_until_the_leaderships_have_moved(self, world: World) -> None:
        self.begin(world)
        for _ in range(3):
            assert world.heard(fenced=False).want_shut_down
            assert world.events == []
            world.time.run(0.15)
        world.heard(fenced=True, should_shut_down=True)
        assert world.events == ["let go"]
        world.time.run(100)
        assert world.controller.asked == [], "no further requests"

    def test_shutdown_ends_when_no_controller_answers(self, world: World) -> None:
        self.begin(world)
        while not world.events:
            world.controller.answer(None, ConnectionError("gone"))
            world.time.run(0.1)
        assert SILENCE_S <= world.time.now < SILENCE_S + 1

    def test_a_broker_that_never_served_just_ends(self, world: World) -> None:
        world.lifecycle.shut_down(lambda error: world.events.append(error or "let go"))
        assert world.events == ["let go"]


def test_directories_are_registered_at_a_supporting_level(world: World) -> None:
    world.serve()

    def publish(offset: int, level: int, *log_dirs: bytes) -> None:
        broker = BrokerImage(1, EPOCH, b"I" * 16, (), {}, None, False, False, log_dirs)
        image = replace(EMPTY_IMAGE, offset=offset, brokers={1: broker}, features={METADATA_VERSION: level})
        world.publisher.publish(image, MetadataChanges())
        world.time.run()

    publish(EPOCH + 1, DIRECTORY_ASSIGNMENT - 1)
    assert world.controller.asked == [], "this level does not support directories"
    publish(EPOCH + 2, DIRECTORY_ASSIGNMENT)
    request = world.registered()
    assert (request.incarnation_id, request.log_dirs) == (b"I" * 16, [b"D" * 16, b"E" * 16])
    world.heard(fenced=False)
    publish(EPOCH + 3, DIRECTORY_ASSIGNMENT, b"D" * 16, b"E" * 16)
    assert world.controller.asked == []
    assert not world.lifecycle.fenced


def test_heartbeat_in_flight_does_not_delay_the_report(world: World) -> None:
    world.serve()
    world.time.run(2.0)
    broker = BrokerImage(1, EPOCH, b"I" * 16, (), {}, None, False, False, ())
    image = replace(EMPTY_IMAGE, offset=EPOCH + 1, brokers={1: broker}, features={METADATA_VERSION: 25})
    world.publisher.publish(image, MetadataChanges())
    world.time.run()
    world.heard(fenced=False)
    assert world.registered().incarnation_id == b"I" * 16


def test_heartbeat_follows_the_shutdown_of_another_broker(world: World) -> None:
    """The controller waits for it: otherwise every controlled shutdown would take two heartbeat intervals longer."""

    def publish(offset: int, *, fenced: bool = False, changes: MetadataChanges) -> None:
        broker = BrokerImage(2, EPOCH, b"I" * 16, (), {}, None, fenced, True, ())
        world.publisher.publish(replace(EMPTY_IMAGE, offset=offset, brokers={2: broker}), changes)
        world.time.run()

    world.serve()
    publish(EPOCH + 1, changes=MetadataChanges(brokers_changed=True))
    publish(EPOCH + 2, changes=MetadataChanges())
    assert world.heard(fenced=False).current_metadata_offset == EPOCH + 1
    assert world.heard(fenced=False).current_metadata_offset == EPOCH + 2, "a request in flight was too old"
    assert world.controller.asked == []
    publish(EPOCH + 3, fenced=True, changes=MetadataChanges(brokers_changed=True))
    publish(EPOCH + 4, changes=MetadataChanges())
    assert world.controller.asked == []
    world.time.run(2.0)
    assert world.heard(fenced=False).current_metadata_offset == EPOCH + 4
