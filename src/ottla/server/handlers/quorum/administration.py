"""API table of this package for administrators; apart from `apis`, which a single node need not load."""

from __future__ import annotations

from ottla.protocol.registry import ApiKey
from ottla.server.handlers.quorum.context import QuorumContext
from ottla.server.requests.api import ApiRow, Listeners

QUORUM_ADMIN_APIS: tuple[ApiRow[QuorumContext], ...] = (
    ApiRow(ApiKey.ADD_RAFT_VOTER, "ottla.server.handlers.quorum.add_raft_voter", Listeners.BOTH, throttled=False),
    ApiRow(ApiKey.DESCRIBE_QUORUM, "ottla.server.handlers.quorum.describe_quorum", Listeners.BOTH, throttled=False),
    ApiRow(ApiKey.REMOVE_RAFT_VOTER, "ottla.server.handlers.quorum.remove_raft_voter", Listeners.BOTH, throttled=False),
)
