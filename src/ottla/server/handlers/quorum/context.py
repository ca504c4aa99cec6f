"""What handlers of this room may touch: KRaft's replica in this node, and who decides where it leads."""

from __future__ import annotations

from typing import NamedTuple

from ottla.quorum.service import QuorumService
from ottla.server.decisions import Decisions


class QuorumContext(NamedTuple):
    """What replicas of the metadata log say to one another, brokers to the controller, and administrators of both."""

    service: QuorumService
    decisions: Decisions
