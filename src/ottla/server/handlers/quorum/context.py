"""What handlers of this room may touch: KRaft's replica in this node, and who decides where it leads."""

from __future__ import annotations

from typing import NamedTuple

from ottla.quorum.service import QuorumService
from ottla.server.decisions import Decisions


class QuorumContext(NamedTuple):
    """What replicas of the metadata log say to one another, brokers to the controller, and administrators of both."""

    service: QuorumService
    decisions: Decisions


class ZooKeeperContext(NamedTuple):
    """The same where there is no quorum: what brokers say to the one of them that is the controller."""

    listener_name: str
    """Where brokers reach one another."""
    decisions: Decisions
