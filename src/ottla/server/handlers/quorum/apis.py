"""API table of this package."""

from __future__ import annotations

from ottla.server.handlers.quorum.allocate_producer_ids import ALLOCATE_PRODUCER_IDS
from ottla.server.handlers.quorum.alter_partition import ALTER_PARTITION
from ottla.server.handlers.quorum.assign_replicas_to_dirs import ASSIGN_REPLICAS_TO_DIRS
from ottla.server.handlers.quorum.begin_quorum_epoch import BEGIN_QUORUM_EPOCH
from ottla.server.handlers.quorum.broker_heartbeat import BROKER_HEARTBEAT
from ottla.server.handlers.quorum.broker_registration import BROKER_REGISTRATION
from ottla.server.handlers.quorum.context import QuorumContext
from ottla.server.handlers.quorum.controller_registration import CONTROLLER_REGISTRATION
from ottla.server.handlers.quorum.end_quorum_epoch import END_QUORUM_EPOCH
from ottla.server.handlers.quorum.envelope import ENVELOPE
from ottla.server.handlers.quorum.fetch_snapshot import FETCH_SNAPSHOT
from ottla.server.handlers.quorum.metadata_fetch import METADATA_FETCH
from ottla.server.handlers.quorum.update_raft_voter import UPDATE_RAFT_VOTER
from ottla.server.handlers.quorum.vote import VOTE
from ottla.server.requests.api import Api

QUORUM_APIS: tuple[Api[QuorumContext], ...] = (
    ALLOCATE_PRODUCER_IDS,
    ALTER_PARTITION,
    ASSIGN_REPLICAS_TO_DIRS,
    BEGIN_QUORUM_EPOCH,
    BROKER_HEARTBEAT,
    BROKER_REGISTRATION,
    CONTROLLER_REGISTRATION,
    END_QUORUM_EPOCH,
    ENVELOPE,
    FETCH_SNAPSHOT,
    METADATA_FETCH,
    UPDATE_RAFT_VOTER,
    VOTE,
)
