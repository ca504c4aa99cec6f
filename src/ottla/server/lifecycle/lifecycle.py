"""Lifecycle of this broker in the cluster: registered, caught up, unfenced, shutting down (KIP-631).

The broker registers as a new incarnation, which the controller fences, and sends heartbeats from then on. Once it has
the metadata of that registration, it opens its partitions. Once it can serve, its heartbeats request to be unfenced. At
the end they request a controlled shutdown, and the controller moves its leaderships first.

Every request is retried until it is answered: an unavailable controller only causes a delay. A running broker registers
again in two cases:
- The metadata level was raised to one that names data directories: it registers them, as the same incarnation.
- The controller no longer knows the incarnation, or received a shutdown request for it that this process did not send.
  The broker registers as a new incarnation with intact data.

A broker that is configured for a migration from ZooKeeper can't register once that migration is final.

Invariant: one request is in flight at a time, so responses arrive in the order of the requests.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from enum import Enum

from ottla.common.config.feature_levels import DIRECTORY_ASSIGNMENT
from ottla.common.errors import RETRIABLE_ERRORS, ErrorCode, KafkaError, NotJoinedInTimeError, OperatorError
from ottla.common.kafka.ids import Uuid
from ottla.common.platform.clock import Clock, Scheduler, TimerHandle
from ottla.common.platform.endpoint import Endpoint
from ottla.common.platform.peer import ControllerRequests
from ottla.metadata.delta import MetadataChanges
from ottla.metadata.image import MetadataImage, ZkMigrationState, metadata_level
from ottla.metadata.publisher import MetadataPublisher
from ottla.metadata.records import REGISTERED_FEATURES
from ottla.metadata.snapshot import endpoint_rows, feature_rows
from ottla.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from ottla.protocol.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    RegistrationFeature,
    RegistrationListener,
)
from ottla.server.lifecycle.controlled_shutdown import ControlledShutdown
from ottla.server.lifecycle.data_directory import migration_is_final

logger = logging.getLogger(__name__)

RETRY_S = 0.1
"""Delay after a failed request, and between heartbeats that wait for another state."""
MAX_RETRY_S = 1.0
"""Maximum delay of refused registrations; it starts at RETRY_S and doubles each time."""
STEADY_S = 60.0
"""A broker that served for this long registers again at once and logs the reason."""
MAX_REQUEST_TIMEOUT_S = 4.5

_FINAL = (ErrorCode.INCONSISTENT_CLUSTER_ID, ErrorCode.UNSUPPORTED_VERSION, ErrorCode.INVALID_REGISTRATION)
"""Registration errors that are not retried."""

_UNREQUESTED_SHUTDOWN = "the controller received a shutdown request for this broker that this process did not send"

Done = Callable[[BaseException | None], None]


class RegistrationRefusedError(NotJoinedInTimeError, OperatorError):
    """The controller refused the registration until the timeout, for a reason that an operator can remove."""


class BrokerIdentity:
    """The identity in a registration, with data directories."""

    __slots__ = (
        "cluster_id",
        "cordoned",
        "endpoints",
        "incarnation_id",
        "log_dirs",
        "migrating",
        "node_id",
        "offline_log_dirs",
        "previous_broker_epoch",
        "rack",
    )

    def __init__(
        self,
        *,
        node_id: int,
        cluster_id: str,
        incarnation_id: Uuid,
        log_dirs: Sequence[Uuid],
        offline_log_dirs: Sequence[Uuid],
        cordoned: Callable[[], Sequence[Uuid]],
        endpoints: Sequence[Endpoint],
        rack: str | None,
        previous_broker_epoch: int,
        migrating: bool = False,
    ) -> None:
        """`cordoned` are the directories that currently take no new replicas (KIP-1066). A `migrating` broker is on
        ZooKeeper too."""
        self.node_id = node_id
        self.cluster_id = cluster_id
        self.incarnation_id = incarnation_id
        self.log_dirs = list(log_dirs)
        self.offline_log_dirs = list(offline_log_dirs)
        self.cordoned = cordoned
        self.endpoints = tuple(endpoints)
        self.rack = rack
        self.previous_broker_epoch = previous_broker_epoch
        self.migrating = migrating

    def renew(self, incarnation_id: Uuid, broker_epoch: int) -> None:
        """Register as another incarnation from now on, with all data of the one of `broker_epoch`."""
        self.incarnation_id = incarnation_id
        self.previous_broker_epoch = broker_epoch

    def registration(self) -> BrokerRegistrationRequest:
        """The registration request of this incarnation."""
        return BrokerRegistrationRequest(
            broker_id=self.node_id,
            cluster_id=self.cluster_id,
            incarnation_id=self.incarnation_id,
            listeners=endpoint_rows(RegistrationListener, self.endpoints),
            features=feature_rows(RegistrationFeature, REGISTERED_FEATURES),
            rack=self.rack,
            log_dirs=list(self.log_dirs),
            previous_broker_epoch=self.previous_broker_epoch,
            is_migrating_zk_broker=self.migrating,
        )


class _Stage(Enum):
    """Stage of the broker."""

    REGISTERING = "registering"
    CATCHING_UP = "waiting for the metadata of its registration"
    RECOVERING = "opening its partitions, fenced"
    UNFENCING = "requesting to be unfenced"
    RUNNING = "serves"
    SHUTTING_DOWN = "requesting a controlled shutdown"
    ENDED = "ended"


class BrokerLifecycle:
    """Owner of registration and heartbeats; all methods run on the loop."""

    __slots__ = (
        "_busy",
        "_clock",
        "_controller",
        "_deadline_s",
        "_done",
        "_identity",
        "_interval_s",
        "_is_heartbeat_due",
        "_new_incarnation_id",
        "_publisher",
        "_refusal",
        "_registered_again",
        "_registration_timeout_s",
        "_renew_s",
        "_retry_s",
        "_scheduler",
        "_serving_since_s",
        "_session_timeout_s",
        "_shutdown",
        "_stage",
        "_stopping_others",
        "_timer",
        "broker_epoch",
        "fenced",
        "given_up",
    )

    def __init__(
        self,
        identity: BrokerIdentity,
        controller: ControllerRequests,
        publisher: MetadataPublisher,
        *,
        new_incarnation_id: Callable[[], Uuid],
        registered_again: Callable[[int], None],
        clock: Clock,
        scheduler: Scheduler,
        heartbeat_interval_ms: int,
        session_timeout_ms: int,
        registration_timeout_ms: int,
    ) -> None:
        """`registered_again(broker_epoch)` is called for incarnations after the first."""
        self._identity = identity
        self._controller = controller
        self._publisher = publisher
        self._new_incarnation_id = new_incarnation_id
        self._registered_again = registered_again
        self._clock = clock
        self._scheduler = scheduler
        self._interval_s = heartbeat_interval_ms / 1000
        self._session_timeout_s = session_timeout_ms / 1000
        self._registration_timeout_s = registration_timeout_ms / 1000
        self._stage = _Stage.REGISTERING
        self._done: Done | None = None
        self._busy = False
        self._is_heartbeat_due = False
        self._stopping_others = False
        self._timer: TimerHandle | None = None
        self._shutdown: ControlledShutdown | None = None
        self._deadline_s = 0.0
        self._serving_since_s = 0.0
        self._retry_s = RETRY_S
        self._renew_s = 0.0
        self._refusal: ErrorCode | None = None
        self.broker_epoch = -1
        self.fenced = True
        self.given_up: Callable[[OperatorError], None] = lambda _error: None
        """Called with the reason if the broker can't register because its migration from ZooKeeper is final."""

    # -- stages ------------------------------------------------------------------------------------------------------

    def start(self, caught_up: Done) -> None:
        """Register, and call `caught_up(None)` once the metadata of the registration is published here.

        `caught_up(OperatorError)` if the cluster refuses this broker, `caught_up(NotJoinedInTimeError)` if no
        controller admits it in time.
        """
        self._done = caught_up
        self._deadline_s = self._clock.monotonic() + self._registration_timeout_s
        self._publisher.register(self._published)
        self._act()

    def serve(self, unfenced: Done) -> None:
        """All partitions are open: request to be unfenced, and call `unfenced` afterwards."""
        self._stage = _Stage.UNFENCING
        self._done = unfenced
        self._act()

    def shut_down(self, done: Done) -> None:
        """Request a controlled shutdown; call `done` once leaderships have moved, or no controller can move them."""
        if self._stage not in (_Stage.UNFENCING, _Stage.RUNNING):
            self.end()
            done(None)
            return
        self._stage = _Stage.SHUTTING_DOWN
        self._done = done
        self._shutdown = ControlledShutdown(self._clock)
        self._act()

    def directory_failed(self, directory_id: Uuid) -> None:
        """Report a lost data directory to the controller with each heartbeat, the first one now."""
        self._identity.log_dirs.remove(directory_id)
        self._identity.offline_log_dirs.append(directory_id)
        if self._stage is not _Stage.REGISTERING:
            self._act()

    def end(self) -> None:
        """Stop sending requests."""
        self._stage = _Stage.ENDED
        self._done = None
        self._cancel_timer()

    def _finish(self, error: BaseException | None) -> None:
        done, self._done = self._done, None
        if done is not None:
            done(error)

    def _published(self, image: MetadataImage, changes: MetadataChanges) -> None:
        self._image_published()
        if changes.brokers_changed:
            self._stopping_others = any(
                broker.in_controlled_shutdown and not broker.fenced and broker.broker_id != self._identity.node_id
                for broker in image.brokers.values()
            )
        if self._stopping_others and self._stage is _Stage.RUNNING:
            # The controller waits for heartbeats of this broker before and after it moves leaderships.
            self._is_heartbeat_due = self._busy
            self._act()

    def _image_published(self) -> None:
        image = self._publisher.image
        if self._stage is _Stage.CATCHING_UP and image.offset >= self.broker_epoch:
            self._stage = _Stage.RECOVERING
            # Not within the publication: the callback registers listeners of its own.
            self._scheduler.call_soon(self._finish, None)
        elif self._stage is _Stage.RUNNING and self._directories_unknown(image):
            logger.info("registering data directories, since metadata.version now supports them")
            self._stage = _Stage.REGISTERING
            self._act()

    def _directories_unknown(self, image: MetadataImage) -> bool:
        """Whether this incarnation registered at a level without data directories, and the current level has them."""
        known = image.brokers.get(self._identity.node_id)
        if known is None or known.broker_epoch != self.broker_epoch or known.log_dirs:
            return False
        return bool(self._identity.log_dirs) and metadata_level(image) >= DIRECTORY_ASSIGNMENT

    # -- requests ----------------------------------------------------------------------------------------------------

    def _act(self, delay_s: float = 0.0) -> None:
        """Send a due request, at once or after a delay; a request in flight is awaited first."""
        if self._stage is _Stage.ENDED:
            return
        self._cancel_timer()
        if delay_s:
            self._timer = self._scheduler.call_later(delay_s, self._act)
        elif not self._busy:
            self._busy = True
            timeout_s = min(MAX_REQUEST_TIMEOUT_S, self._session_timeout_s)
            if self._stage is _Stage.REGISTERING:
                self._controller.send(self._identity.registration(), self._registered, timeout_s)
            else:
                self._is_heartbeat_due = False
                self._controller.send(self._heartbeat(), self._heard, timeout_s)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _heartbeat(self) -> BrokerHeartbeatRequest:
        serving = self._stage in (_Stage.UNFENCING, _Stage.RUNNING, _Stage.SHUTTING_DOWN)
        return BrokerHeartbeatRequest(
            broker_id=self._identity.node_id,
            broker_epoch=self.broker_epoch,
            current_metadata_offset=self._publisher.image.offset,
            want_fence=not serving,
            want_shut_down=self._stage is _Stage.SHUTTING_DOWN,
            offline_log_dirs=list(self._identity.offline_log_dirs),
            cordoned_log_dirs=list(self._identity.cordoned())
            if serving
            else None,  # the cluster's configs are known by then
        )

    def _registered(self, response: BrokerRegistrationResponse | None, error: BaseException | None) -> None:
        self._busy = False
        if self._stage is not _Stage.REGISTERING:
            self._act()
            return
        if response is None:
            self._registration_failed(error)
            return
        again = self.broker_epoch >= 0
        self.broker_epoch = response.broker_epoch
        self._retry_s, self._refusal = RETRY_S, None
        logger.info("registered as broker %d with epoch %d", self._identity.node_id, self.broker_epoch)
        if again:
            self._stage = _Stage.UNFENCING
            self._registered_again(self.broker_epoch)
        else:
            self._stage = _Stage.CATCHING_UP
            self._image_published()
        self._act()

    def _registration_failed(self, error: BaseException | None) -> None:
        refusal = error if isinstance(error, KafkaError) else None
        node_id = self._identity.node_id
        if refusal is not None and refusal.code in _FINAL and self.broker_epoch < 0:
            self._stage = _Stage.ENDED
            self._finish(OperatorError(f"the cluster refused broker {node_id}: {refusal.message or refusal.code.name}"))
            return
        if refusal is not None and refusal.code is ErrorCode.BROKER_ID_NOT_REGISTERED and self._migrates_too_late():
            self._stage = _Stage.ENDED
            self.given_up(migration_is_final())
            return
        if self.broker_epoch < 0 and self._clock.monotonic() >= self._deadline_s:
            self._stage = _Stage.ENDED
            self._finish(self._not_joined(refusal))
            return
        if refusal is None or refusal.code is ErrorCode.NOT_CONTROLLER:
            self._act(RETRY_S)  # cheap, and many clients wait for the next controller
            return
        if refusal.code is not self._refusal:
            self._refusal = refusal.code
            reason = refusal.message or refusal.code.name
            if refusal.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION:
                reason = f"a session of node.id {node_id}, of another broker or of this one's last run, is still active"
            logger.warning("registration of this broker was refused, retrying: %s", reason)
        self._act(self._retry_s)
        self._retry_s = min(2 * self._retry_s, MAX_RETRY_S)

    def _not_joined(self, refusal: KafkaError | None) -> NotJoinedInTimeError:
        """The error of a registration that did not succeed in time; `refusal` is the last answer, if there was one."""
        node_id = self._identity.node_id
        if refusal is not None and refusal.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION:
            reason = f"another broker with node.id {node_id} is alive; give each broker a unique node.id"
        elif refusal is not None and refusal.code is ErrorCode.BROKER_ID_NOT_REGISTERED:
            reason = (
                "ZooKeeper stores the cluster until the quorum has taken over; start it with zookeeper.connect and "
                "zookeeper.metadata.migration.enable until then"
            )
        else:
            reason = (
                "no controller answers, or all reject it (see earlier warnings); start the other controllers, and "
                "check controller.quorum.bootstrap.servers"
            )
        is_final = refusal is not None and refusal.code not in RETRIABLE_ERRORS
        kind = RegistrationRefusedError if is_final else NotJoinedInTimeError
        return kind(f"broker {node_id} could not join the cluster: {reason}")

    def _migrates_too_late(self) -> bool:
        return self._identity.migrating and self._publisher.image.zk_migration_state is ZkMigrationState.POST_MIGRATION

    def _heard(self, response: BrokerHeartbeatResponse | None, error: BaseException | None) -> None:
        self._busy = False
        if self._stage is _Stage.ENDED:
            return
        if self._stage is _Stage.REGISTERING:
            self._act()
            return
        if response is not None:
            self.fenced = response.is_fenced
        if self._shutdown is not None:
            if self._shutdown.is_over(response, error):
                self._end_shutdown()
            else:
                self._act(RETRY_S)
            return
        if response is None:
            self._heartbeat_failed(error)
            return
        if self._stage is _Stage.UNFENCING:
            if response.should_shut_down:
                self._register_again(_UNREQUESTED_SHUTDOWN)
            elif response.is_fenced:
                self._act(RETRY_S)
            else:
                self._stage = _Stage.RUNNING
                self._serving_since_s = self._clock.monotonic()
                self._act(self._interval_s)
                self._finish(None)
        elif self._stage is _Stage.RUNNING and response.should_shut_down:
            self._register_again(_UNREQUESTED_SHUTDOWN)
        elif self._stage is _Stage.RUNNING and response.is_fenced:
            logger.warning("this broker was fenced; requesting to be unfenced")
            self._stage = _Stage.UNFENCING
            self._act(RETRY_S)
        else:
            self._act(0.0 if self._is_heartbeat_due else self._interval_s)

    def _register_again(self, reason: str) -> None:
        """Register as a new incarnation: at once after long service, otherwise after a growing delay."""
        served_s = self._clock.monotonic() - self._serving_since_s
        if self._stage is _Stage.RUNNING and served_s >= STEADY_S:
            self._renew_s = 0.0
        if self._renew_s == 0.0:
            logger.warning("registering this broker again: %s", reason)
        self._stage = _Stage.REGISTERING
        self._identity.renew(self._new_incarnation_id(), self.broker_epoch)
        self._act(self._renew_s)
        self._renew_s = min(max(2 * self._renew_s, RETRY_S), MAX_RETRY_S)

    def _heartbeat_failed(self, error: BaseException | None) -> None:
        is_unknown = isinstance(error, KafkaError) and error.code is ErrorCode.STALE_BROKER_EPOCH
        if is_unknown and self._stage in (_Stage.UNFENCING, _Stage.RUNNING):
            self._register_again("the controller no longer knows this incarnation of the broker")
        else:
            self._act(RETRY_S)

    def _end_shutdown(self) -> None:
        self._stage = _Stage.ENDED
        self._cancel_timer()
        self._finish(None)
