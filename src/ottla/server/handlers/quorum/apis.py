"""API table of this package."""

from __future__ import annotations

from ottla.protocol.registry import ApiKey
from ottla.server.handlers.quorum.context import QuorumContext
from ottla.server.requests.api import ApiRow, Listeners

QUORUM_APIS: tuple[ApiRow[QuorumContext], ...] = (
    ApiRow(ApiKey.ALLOCATE_PRODUCER_IDS, "ottla.server.handlers.quorum.allocate_producer_ids", Listeners.CONTROLLER),
    ApiRow(
        ApiKey.ALTER_PARTITION, "ottla.server.handlers.quorum.alter_partition", Listeners.CONTROLLER, throttled=False
    ),
    ApiRow(
        ApiKey.ASSIGN_REPLICAS_TO_DIRS, "ottla.server.handlers.quorum.assign_replicas_to_dirs", Listeners.CONTROLLER
    ),
    ApiRow(
        ApiKey.BEGIN_QUORUM_EPOCH,
        "ottla.server.handlers.quorum.begin_quorum_epoch",
        Listeners.CONTROLLER,
        throttled=False,
    ),
    ApiRow(ApiKey.BROKER_HEARTBEAT, "ottla.server.handlers.quorum.broker_heartbeat", Listeners.CONTROLLER),
    ApiRow(ApiKey.BROKER_REGISTRATION, "ottla.server.handlers.quorum.broker_registration", Listeners.CONTROLLER),
    ApiRow(
        ApiKey.CONTROLLER_REGISTRATION, "ottla.server.handlers.quorum.controller_registration", Listeners.CONTROLLER
    ),
    ApiRow(
        ApiKey.END_QUORUM_EPOCH, "ottla.server.handlers.quorum.end_quorum_epoch", Listeners.CONTROLLER, throttled=False
    ),
    ApiRow(ApiKey.ENVELOPE, "ottla.server.handlers.quorum.envelope", Listeners.CONTROLLER, throttled=False),
    ApiRow(ApiKey.FETCH_SNAPSHOT, "ottla.server.handlers.quorum.fetch_snapshot", Listeners.CONTROLLER, throttled=False),
    ApiRow(ApiKey.FETCH, "ottla.server.handlers.quorum.metadata_fetch", Listeners.CONTROLLER, throttled=False),
    ApiRow(
        ApiKey.UPDATE_RAFT_VOTER,
        "ottla.server.handlers.quorum.update_raft_voter",
        Listeners.CONTROLLER,
        throttled=False,
    ),
    ApiRow(ApiKey.VOTE, "ottla.server.handlers.quorum.vote", Listeners.CONTROLLER, throttled=False),
)
