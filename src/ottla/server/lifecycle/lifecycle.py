"""The life of this broker in the cluster: registered, caught up, unfenced, shutting down (KIP-631).

The broker registers as a new incarnation, which the controller fences; once the metadata of that registration is here,
the broker may open what belongs to it; once it wants to serve, it asks to be unfenced; from then on heartbeats keep its
session. At the end it asks to be let go, and the controller moves its leaderships first.

Everything is asked again until it is answered: a controller that is not there for a while costs nothing but time. A
broker that runs and finds the level raised to one that names data directories registers with them, as the same
incarnation. One that finds its incarnation gone, since somebody unregistered it or asked in its name that it be let go,
registers as a new one by itself, which has lost nothing; where the cluster came from ZooKeeper, the migration is final,
and this broker still takes part in it, there is no place for such a one any more.

Invariant: one request is under way at a time, so answers come in the order of what they answer.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from enum import Enum

from ottla.common.config.feature_levels import DIRECTORY_ASSIGNMENT
from ottla.common.errors import ErrorCode, KafkaError, OperatorError
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
"""After a request that failed, and between heartbeats that wait for another state."""
LAST_RETRY_S = 1.0
"""Tries to register that are refused begin with RETRY_S and rest twice as long each time, up to this."""
STEADY_S = 60.0
"""A broker that served for so long and has to register again does so at once, and says why."""
MAX_REQUEST_TIMEOUT_S = 4.5

_FINAL = (ErrorCode.INCONSISTENT_CLUSTER_ID, ErrorCode.UNSUPPORTED_VERSION, ErrorCode.INVALID_REGISTRATION)
"""Refusals of a registration that no wait will change."""

_LET_GO = "somebody asked the controller, in the name of this broker, to let it go"

Done = Callable[[BaseException | None], None]


class NotJoinedInTimeError(OperatorError):
    """No controller took the broker within `initial.broker.registration.timeout.ms`; another start may be luckier."""


class BrokerIdentity:
    """Who registers, with which data directories."""

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
        """`cordoned` are the directories that take no new replicas by now (KIP-1066). One that is `migrating` is on
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
        """From now on register as another incarnation, which has everything that the one of `broker_epoch` had."""
        self.incarnation_id = incarnation_id
        self.previous_broker_epoch = broker_epoch

    def registration(self) -> BrokerRegistrationRequest:
        """The request that makes this incarnation known."""
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
    """How far the broker is."""

    REGISTERING = "asks to be registered"
    CATCHING_UP = "waits for the metadata of its registration"
    RECOVERING = "opens what belongs to it, fenced"
    UNFENCING = "asks to be unfenced"
    RUNNING = "serves"
    SHUTTING_DOWN = "asks to be let go"
    ENDED = "asks for nothing any more"


class BrokerLifecycle:
    """Owner of registration and heartbeats; all methods belong to the loop."""

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
        """`registered_again(broker_epoch)` hears of the incarnations after the first."""
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
        """Told why the cluster will not take this broker in again, whatever it did there before."""

    # -- stages ------------------------------------------------------------------------------------------------------

    def start(self, caught_up: Done) -> None:
        """Register, and call `caught_up(None)` once the metadata of the registration is published here.

        `caught_up(OperatorError)` when the cluster does not take this broker, or no controller answers in time.
        """
        self._done = caught_up
        self._deadline_s = self._clock.monotonic() + self._registration_timeout_s
        self._publisher.register(self._published)
        self._act()

    def serve(self, unfenced: Done) -> None:
        """Everything is open: ask to be unfenced, and call `unfenced` once that is so."""
        self._stage = _Stage.UNFENCING
        self._done = unfenced
        self._act()

    def shut_down(self, done: Done) -> None:
        """Ask to be let go, and call `done` once leaderships have moved, or nobody is there to move them."""
        if self._stage not in (_Stage.UNFENCING, _Stage.RUNNING):
            self.end()
            done(None)
            return
        self._stage = _Stage.SHUTTING_DOWN
        self._done = done
        self._shutdown = ControlledShutdown(self._clock)
        self._act()

    def directory_failed(self, directory_id: Uuid) -> None:
        """Tell the controller with each heartbeat, the first of them now, that a data directory is lost."""
        self._identity.log_dirs.remove(directory_id)
        self._identity.offline_log_dirs.append(directory_id)
        if self._stage is not _Stage.REGISTERING:
            self._act()

    def end(self) -> None:
        """Ask for nothing any more."""
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
            # Not within the publication: whoever waits registers listeners of its own.
            self._scheduler.call_soon(self._finish, None)
        elif self._stage is _Stage.RUNNING and self._directories_unknown(image):
            logger.info("the level of metadata.version names data directories now: this broker registers with them")
            self._stage = _Stage.REGISTERING
            self._act()

    def _directories_unknown(self, image: MetadataImage) -> bool:
        """Whether this incarnation registered at a level that names no directories, and the level does by now."""
        known = image.brokers.get(self._identity.node_id)
        if known is None or known.broker_epoch != self.broker_epoch or known.log_dirs:
            return False
        return bool(self._identity.log_dirs) and metadata_level(image) >= DIRECTORY_ASSIGNMENT

    # -- requests ----------------------------------------------------------------------------------------------------

    def _act(self, delay_s: float = 0.0) -> None:
        """Send what is due, at once or after a pause; what is under way is waited for first."""
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
            else None,  # the cluster's settings are known by then
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
            self._finish(OperatorError(f"the cluster refuses broker {node_id}: {refusal.message or refusal.code.name}"))
            return
        if refusal is not None and refusal.code is ErrorCode.BROKER_ID_NOT_REGISTERED and self._migrates_too_late():
            self._stage = _Stage.ENDED
            self.given_up(migration_is_final())
            return
        if self.broker_epoch < 0 and self._clock.monotonic() >= self._deadline_s:
            self._stage = _Stage.ENDED
            if refusal is not None and refusal.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION:
                reason = f"another broker with node.id {node_id} is alive; give each broker an id of its own"
            elif refusal is not None and refusal.code is ErrorCode.BROKER_ID_NOT_REGISTERED:
                reason = (
                    "ZooKeeper keeps the cluster until the quorum has taken over; start it with zookeeper.connect and "
                    "zookeeper.metadata.migration.enable till then"
                )
            else:
                reason = (
                    "no controller answers; start the other controllers, and check controller.quorum.bootstrap.servers"
                )
            self._finish(NotJoinedInTimeError(f"broker {node_id} could not join the cluster: {reason}"))
            return
        if refusal is None or refusal.code is ErrorCode.NOT_CONTROLLER:
            self._act(RETRY_S)  # which costs little, and the next controller is awaited by many
            return
        if refusal.code is not self._refusal:
            self._refusal = refusal.code
            reason = refusal.message or refusal.code.name
            if refusal.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION:
                reason = f"the session of another broker with node.id {node_id}, or of this one before, is not over"
            logger.warning("this broker is not registered yet, and tries until it is: %s", reason)
        self._act(self._retry_s)
        self._retry_s = min(2 * self._retry_s, LAST_RETRY_S)

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
                self._let_go()
            else:
                self._act(RETRY_S)
            return
        if response is None:
            self._heartbeat_failed(error)
            return
        if self._stage is _Stage.UNFENCING:
            if response.should_shut_down:
                self._register_again(_LET_GO)
            elif response.is_fenced:
                self._act(RETRY_S)
            else:
                self._stage = _Stage.RUNNING
                self._serving_since_s = self._clock.monotonic()
                self._act(self._interval_s)
                self._finish(None)
        elif self._stage is _Stage.RUNNING and response.should_shut_down:
            self._register_again(_LET_GO)
        elif self._stage is _Stage.RUNNING and response.is_fenced:
            logger.warning("this broker was fenced, and asks to be unfenced")
            self._stage = _Stage.UNFENCING
            self._act(RETRY_S)
        else:
            self._act(0.0 if self._is_heartbeat_due else self._interval_s)

    def _register_again(self, reason: str) -> None:
        """As a new incarnation: at once after long service, after a growing pause where that goes on and on."""
        served_s = self._clock.monotonic() - self._serving_since_s
        if self._stage is _Stage.RUNNING and served_s >= STEADY_S:
            self._renew_s = 0.0
        if self._renew_s == 0.0:
            logger.warning("%s: it registers again", reason)
        self._stage = _Stage.REGISTERING
        self._identity.renew(self._new_incarnation_id(), self.broker_epoch)
        self._act(self._renew_s)
        self._renew_s = min(max(2 * self._renew_s, RETRY_S), LAST_RETRY_S)

    def _heartbeat_failed(self, error: BaseException | None) -> None:
        is_unknown = isinstance(error, KafkaError) and error.code is ErrorCode.STALE_BROKER_EPOCH
        if is_unknown and self._stage in (_Stage.UNFENCING, _Stage.RUNNING):
            self._register_again("the controller does not know this incarnation of the broker any more")
        else:
            self._act(RETRY_S)

    def _let_go(self) -> None:
        self._stage = _Stage.ENDED
        self._cancel_timer()
        self._finish(None)
