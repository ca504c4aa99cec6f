"""Broker lifecycle: BrokerRegistration, BrokerHeartbeat, UnregisterBroker (KIP-631, KIP-966).

Controllers register too (KIP-919), so that they can be found. They are unregistered when they are removed permanently,
so that they do not block feature upgrades; voting and leadership belong to the quorum.

A broker registers as a new incarnation, fenced. It is unfenced once it has caught up with its own registration and
requests to serve. It is fenced again when it is silent for the session timeout, when it requests it, and at the end of
a controlled shutdown, which moves its leaderships first.

Fencing ends a session. A session that this controller only granted, since it was elected after the last heartbeat, also
ends when the next incarnation proves the clean shutdown of its predecessor. After a stop of the whole cluster no
controller could fence the brokers, so their restart does not wait for their own sessions.

Invariants: each broker id has one live incarnation; a fenced broker leads nothing and is in no ISR (unless eligible
leader replicas are off and it is the last member); an incarnation does not inherit the role of its predecessor.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from functools import partial

from ottla.common.config.feature_levels import (
    CONTROLLER_REGISTRATION,
    CONTROLLER_UNREGISTRATION,
)
from ottla.common.errors import ErrorCode, InvariantError, KafkaError
from ottla.common.kafka.ids import MIN_NODE_ID
from ottla.common.platform.endpoint import Endpoint
from ottla.controller.cluster import check_directories, cordoned_directories
from ottla.controller.directories import without_directories
from ottla.controller.replication import (
    Slice,
    check_broker_epoch,
    elections_after_unfencing,
    has_leaderships,
    isr_without,
    isr_without_stopping,
)
from ottla.controller.result import SLICE, ControllerContext, ControllerResult, elr_enabled
from ottla.metadata.delta import security_protocol_name
from ottla.metadata.image import (
    BrokerImage,
    ControllerImage,
    MetadataImage,
    VersionRange,
    ZkMigrationState,
    metadata_level,
)
from ottla.metadata.records import ApiMessageAndVersion, versioned
from ottla.metadata.snapshot import register_broker_record, register_controller_record
from ottla.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from ottla.protocol.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    RegistrationFeature,
    RegistrationListener,
)
from ottla.protocol.messages.controller_registration import (
    ControllerFeatureRange,
    ControllerListener,
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
)
from ottla.protocol.messages.metadata_records import (
    BrokerRegistrationChangeRecord,
    UnregisterBrokerRecord,
    UnregisterControllerRecord,
)
from ottla.protocol.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from ottla.protocol.messages.unregister_controller import UnregisterControllerRequest, UnregisterControllerResponse

FENCED, UNFENCED = 1, -1
"""Values of BrokerRegistrationChangeRecord; 0 means no change."""
IN_CONTROLLED_SHUTDOWN = 1


# -- BrokerRegistration ------------------------------------------------------------------------------------------------


def handle_broker_registration(
    image: MetadataImage, request: BrokerRegistrationRequest, context: ControllerContext
) -> ControllerResult[BrokerRegistrationResponse]:
    """Register a new incarnation, fenced, and take over from its predecessor, in slices if necessary.

    Raises KafkaError DUPLICATE_BROKER_REGISTRATION while another incarnation is alive, INCONSISTENT_CLUSTER_ID,
    INVALID_REGISTRATION, UNSUPPORTED_VERSION, BROKER_ID_NOT_REGISTERED.
    """
    check_directories(image, request.log_dirs)
    if request.cluster_id != context.cluster_id:
        raise KafkaError(
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f"Expected cluster ID {context.cluster_id}, but got cluster ID {request.cluster_id}",
        )
    _check_node_id(request.broker_id)
    _check_migration(image, migrating=request.is_migrating_zk_broker)
    existing = image.brokers.get(request.broker_id)
    same = existing is not None and existing.incarnation_id == bytes(request.incarnation_id)
    if existing is not None and not same and _is_alive(existing, request, context):
        raise KafkaError(
            ErrorCode.DUPLICATE_BROKER_REGISTRATION,
            f"Another broker is registered with broker id {request.broker_id}, and its session is valid.",
        )
    features = _features(image, "broker", request.features)
    retired: list[ApiMessageAndVersion] = []
    if existing is not None and not same:
        retired, complete = retire(image, existing, context, clean=clean_before(existing, request))
        if not complete:
            return ControllerResult(retired, BrokerRegistrationResponse(), again=True)
    broker_epoch = existing.broker_epoch if existing is not None and same else context.next_offset
    broker = BrokerImage(
        broker_id=request.broker_id,
        broker_epoch=broker_epoch,
        incarnation_id=bytes(request.incarnation_id),
        endpoints=_endpoints(request.listeners),
        features=features,
        rack=request.rack or None,
        fenced=existing.fenced if existing is not None and same else True,
        in_controlled_shutdown=existing.in_controlled_shutdown if existing is not None and same else False,
        log_dirs=tuple(bytes(item) for item in request.log_dirs),
        is_migrating_zk_broker=request.is_migrating_zk_broker,
    )
    if broker.fenced:
        context.heartbeats.forget(request.broker_id)
    # The registration comes first, since its offset is the epoch; all records take effect together.
    records = [versioned(register_broker_record(broker)), *retired]
    return ControllerResult(records, BrokerRegistrationResponse(broker_epoch=broker_epoch))


def _check_node_id(node_id: int) -> None:
    """Raises KafkaError INVALID_REGISTRATION for negative ids, which other requests use as "none"."""
    if node_id < MIN_NODE_ID:
        raise KafkaError(
            ErrorCode.INVALID_REGISTRATION, f"Node id {node_id} is out of range: the minimum is {MIN_NODE_ID}"
        )


def _check_migration(image: MetadataImage, *, migrating: bool) -> None:
    """Raises KafkaError BROKER_ID_NOT_REGISTERED for a broker type that the migration state does not permit."""
    state = image.zk_migration_state
    if migrating and state not in (ZkMigrationState.PRE_MIGRATION, ZkMigrationState.MIGRATION):
        raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, "Controller does not support registering ZK brokers.")
    if not migrating and state is ZkMigrationState.PRE_MIGRATION:
        raise KafkaError(
            ErrorCode.BROKER_ID_NOT_REGISTERED,
            "Controller is in pre-migration mode and cannot register KRaft brokers until the metadata migration is "
            "complete.",
        )


def _is_alive(existing: BrokerImage, request: BrokerRegistrationRequest, context: ControllerContext) -> bool:
    """Return whether the registered incarnation may still run beside the requesting one."""
    sessions = context.heartbeats
    if not sessions.has_session(existing.broker_id, existing.broker_epoch, context.now_ms):
        return False
    return sessions.was_heard(existing.broker_id) or not clean_before(existing, request)


def clean_before(existing: BrokerImage, request: BrokerRegistrationRequest) -> bool:
    """Return whether the new incarnation found the clean shutdown of the registered one on its disk."""
    return request.previous_broker_epoch == existing.broker_epoch


def retire(image: MetadataImage, broker: BrokerImage, context: ControllerContext, *, clean: bool) -> Slice:
    """Return the changes for the end of an incarnation; an unclean end may have lost unflushed records."""
    unclean = not clean and elr_enabled(image)
    return isr_without(image, broker.broker_id, context, SLICE, unclean=unclean)


def _features(
    image: MetadataImage, role: str, ranges: Sequence[RegistrationFeature | ControllerFeatureRange]
) -> dict[str, VersionRange]:
    """Return the supported features of the node. Raises KafkaError UNSUPPORTED_VERSION if a finalized level is
    missing."""
    supported = {item.name: VersionRange(item.min_supported_version, item.max_supported_version) for item in ranges}
    for name, level in image.features.items():
        levels = supported.get(name)
        if levels is None or not levels.low <= level <= levels.high:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"Unable to register because the {role} does not support finalized version {level} of {name}.",
            )
    return supported


def _endpoints(listeners: Sequence[RegistrationListener | ControllerListener]) -> tuple[Endpoint, ...]:
    """Return the endpoints of the node. Raises KafkaError INVALID_REGISTRATION."""
    found = []
    for item in listeners:
        try:
            protocol = security_protocol_name(item.security_protocol)
        except InvariantError as error:
            text = f"Unknown security protocol {item.security_protocol}"
            raise KafkaError(ErrorCode.INVALID_REGISTRATION, text) from error
        found.append(Endpoint(item.name, protocol, item.host, item.port))
    return tuple(found)


# -- ControllerRegistration --------------------------------------------------------------------------------------------


def handle_controller_registration(
    image: MetadataImage, request: ControllerRegistrationRequest
) -> ControllerResult[ControllerRegistrationResponse]:
    """Register a new incarnation of a controller. Raises KafkaError INVALID_REGISTRATION, UNSUPPORTED_VERSION."""
    if metadata_level(image) < CONTROLLER_REGISTRATION:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            "The current MetadataVersion is too old to support controller registrations.",
        )
    _check_node_id(request.controller_id)
    features = _features(image, "controller", request.features)
    controller = ControllerImage(
        controller_id=request.controller_id,
        incarnation_id=bytes(request.incarnation_id),
        endpoints=_endpoints(request.listeners),
        features=features,
        zk_migration_ready=request.zk_migration_ready,
    )
    if image.controllers.get(controller.controller_id) == controller:
        return ControllerResult([], ControllerRegistrationResponse())
    return ControllerResult([versioned(register_controller_record(controller))], ControllerRegistrationResponse())


def handle_unregister_controller(
    image: MetadataImage, request: UnregisterControllerRequest, context: ControllerContext
) -> ControllerResult[UnregisterControllerResponse]:
    """Unregister a controller that was removed permanently; a running one registers again.

    Raises KafkaError INVALID_REQUEST for the active one, CONTROLLER_ID_NOT_REGISTERED, UNSUPPORTED_VERSION.
    """
    if request.controller_id == context.config.node_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Controller cannot unregister itself while it is active.")
    if metadata_level(image) < CONTROLLER_UNREGISTRATION:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            "The current MetadataVersion is too old to support controller unregistration.",
        )
    if request.controller_id not in image.controllers:
        raise KafkaError(
            ErrorCode.CONTROLLER_ID_NOT_REGISTERED,
            f"Controller ID {request.controller_id} is not currently registered.",
        )
    record = UnregisterControllerRecord(controller_id=request.controller_id)
    return ControllerResult([versioned(record)], UnregisterControllerResponse())


# -- BrokerHeartbeat ---------------------------------------------------------------------------------------------------


class _State(Enum):
    """State of a registered broker."""

    FENCED = "fenced"
    UNFENCED = "unfenced"
    CONTROLLED_SHUTDOWN = "in controlled shutdown"
    SHUTDOWN_NOW = "fenced, and free to end"


def _current_state(broker: BrokerImage) -> _State:
    if broker.fenced:
        return _State.FENCED
    return _State.CONTROLLED_SHUTDOWN if broker.in_controlled_shutdown else _State.UNFENCED


def handle_broker_heartbeat(
    image: MetadataImage, request: BrokerHeartbeatRequest, context: ControllerContext
) -> ControllerResult[BrokerHeartbeatResponse]:
    """Extend the broker's session and move it towards its requested state. Raises KafkaError STALE_BROKER_EPOCH.

    Failed directories are removed first. If the leaderships exceed one batch, fencing and controlled shutdown take
    several heartbeats: the state changes with the last batch. `should_shut_down` in the response ends the broker's
    wait.
    """
    broker = check_broker_epoch(image, request.broker_id, request.broker_epoch)
    heartbeats = context.heartbeats
    caught_up = request.current_metadata_offset >= broker.broker_epoch
    current = _current_state(broker)
    granted = heartbeats.is_granted(broker.broker_id)
    touch = partial(
        heartbeats.touch, broker.broker_id, broker.broker_epoch, context.now_ms, request.current_metadata_offset
    )
    if current is not _State.FENCED:
        touch(heard=not granted)
    lost = [item for item in broker.log_dirs if item in request.offline_log_dirs]
    if lost and len(lost) < len(broker.log_dirs):
        moved = without_directories(image, broker, lost, context, SLICE)
        response = BrokerHeartbeatResponse(is_caught_up=caught_up, is_fenced=current is _State.FENCED)
        return ControllerResult(moved.records, response, again=not moved.complete)
    if current is _State.CONTROLLED_SHUTDOWN or (request.want_shut_down and current is _State.UNFENCED):
        heartbeats.request_shutdown(broker, context.now_ms)
    target = _next_state(image, broker, current, request, context)
    records, state = _transition(image, broker, current, target, context)
    records += cordoned_directories(image, broker, request.cordoned_log_dirs)
    if state in (_State.FENCED, _State.SHUTDOWN_NOW):
        heartbeats.forget(broker.broker_id)
    elif granted and current is state is _State.UNFENCED:
        led = elections_after_unfencing(image, broker.broker_id, context, SLICE)
        records += led.records
        touch(heard=led.complete)  # the next heartbeat elects the rest
    else:
        touch()
    response = BrokerHeartbeatResponse(
        is_caught_up=caught_up,
        is_fenced=state in (_State.FENCED, _State.SHUTDOWN_NOW),
        should_shut_down=state is _State.SHUTDOWN_NOW,
    )
    return ControllerResult(records, response)


def _next_state(
    image: MetadataImage,
    broker: BrokerImage,
    current: _State,
    request: BrokerHeartbeatRequest,
    context: ControllerContext,
) -> _State:
    if current is _State.FENCED:
        # A broker after controlled shutdown returns only as a new incarnation. It gets this response because the
        # shutdown request may come from another process.
        if request.want_shut_down or broker.in_controlled_shutdown:
            return _State.SHUTDOWN_NOW
        may_serve = request.current_metadata_offset >= broker.broker_epoch and not request.want_fence
        return _State.UNFENCED if may_serve else _State.FENCED
    if request.want_fence:
        return _State.SHUTDOWN_NOW if request.want_shut_down else _State.FENCED
    if current is _State.UNFENCED:
        return _State.CONTROLLED_SHUTDOWN if request.want_shut_down else _State.UNFENCED
    if has_leaderships(image, broker.broker_id) or not context.heartbeats.all_brokers_applied(broker, image):
        return _State.CONTROLLED_SHUTDOWN
    return _State.SHUTDOWN_NOW


def _transition(
    image: MetadataImage, broker: BrokerImage, current: _State, target: _State, context: ControllerContext
) -> tuple[list[ApiMessageAndVersion], _State]:
    """Return records towards `target`, and the state after them."""
    if target is _State.UNFENCED and current is _State.FENCED:
        return unfence(image, broker, context), target
    if target in (_State.FENCED, _State.SHUTDOWN_NOW) and current is not _State.FENCED:
        slice_ = fence(image, broker, context)
        return slice_.records, target if slice_.complete else current
    if target is _State.CONTROLLED_SHUTDOWN:
        records = isr_without_stopping(image, broker, context, SLICE).records
        if current is _State.UNFENCED:
            records = [_registration_change(broker, in_controlled_shutdown=IN_CONTROLLED_SHUTDOWN), *records]
        if records:
            context.heartbeats.move_leaderships(broker, context.next_offset + len(records))
        return records, target
    return [], target


def fence(image: MetadataImage, broker: BrokerImage, context: ControllerContext) -> Slice:
    """Return records that remove the broker's leaderships and ISR memberships; the last slice fences it."""
    slice_ = isr_without(image, broker.broker_id, context, SLICE)
    if slice_.complete:
        slice_.records.append(_registration_change(broker, fenced=FENCED))
    return slice_


def fence_silent(image: MetadataImage, broker_id: int, context: ControllerContext) -> ControllerResult[None]:
    """Fence the broker, in slices if it led many partitions, unless it sent a heartbeat meanwhile."""
    broker = image.brokers.get(broker_id)
    if broker is None or broker.fenced:
        return ControllerResult([], None)
    if context.heartbeats.has_session(broker_id, broker.broker_epoch, context.now_ms):
        return ControllerResult([], None)
    slice_ = fence(image, broker, context)
    return ControllerResult(slice_.records, None, again=not slice_.complete)


def unfence(image: MetadataImage, broker: BrokerImage, context: ControllerContext) -> list[ApiMessageAndVersion]:
    """Unfence the broker, and make it leader of leaderless partitions; those beyond a batch follow later."""
    led = elections_after_unfencing(image, broker.broker_id, context, SLICE)
    return [_registration_change(broker, fenced=UNFENCED), *led.records]


def _registration_change(
    broker: BrokerImage, *, fenced: int = 0, in_controlled_shutdown: int = 0
) -> ApiMessageAndVersion:
    return versioned(
        BrokerRegistrationChangeRecord(
            broker_id=broker.broker_id,
            broker_epoch=broker.broker_epoch,
            fenced=fenced,
            in_controlled_shutdown=in_controlled_shutdown,
        )
    )


# -- UnregisterBroker --------------------------------------------------------------------------------------------------


def handle_unregister_broker(
    image: MetadataImage, request: UnregisterBrokerRequest, context: ControllerContext
) -> ControllerResult[UnregisterBrokerResponse]:
    """Unregister a broker, in slices if it led many partitions.

    Its replicas stay in the assignments, as in Apache Kafka: reassign them before. Raises KafkaError
    BROKER_ID_NOT_REGISTERED, and INVALID_REQUEST for the last active broker.
    """
    broker = image.brokers.get(request.broker_id)
    if broker is None:
        raise KafkaError(
            ErrorCode.BROKER_ID_NOT_REGISTERED, f"Broker ID {request.broker_id} is not currently registered"
        )
    if image.active_brokers() == [broker]:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"Broker ID {broker.broker_id} is the only active broker and can't be unregistered",
        )
    moved = isr_without(image, broker.broker_id, context, SLICE)
    if not moved.complete:
        return ControllerResult(moved.records, UnregisterBrokerResponse(), again=True)
    record = UnregisterBrokerRecord(broker_id=broker.broker_id, broker_epoch=broker.broker_epoch)
    context.heartbeats.forget(broker.broker_id)
    return ControllerResult([*moved.records, versioned(record)], UnregisterBrokerResponse())
