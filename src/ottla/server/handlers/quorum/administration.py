"""API table of this package for administrators; apart from `apis`, which a single node need not load."""

from __future__ import annotations

from ottla.server.handlers.quorum.add_raft_voter import ADD_RAFT_VOTER
from ottla.server.handlers.quorum.context import QuorumContext
from ottla.server.handlers.quorum.describe_quorum import DESCRIBE_QUORUM
from ottla.server.handlers.quorum.remove_raft_voter import REMOVE_RAFT_VOTER
from ottla.server.requests.api import Api

QUORUM_ADMIN_APIS: tuple[Api[QuorumContext], ...] = (
    ADD_RAFT_VOTER,
    DESCRIBE_QUORUM,
    REMOVE_RAFT_VOTER,
)
