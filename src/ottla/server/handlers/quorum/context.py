"""What handlers of this room may touch: KRaft's replica in this node, and who decides where it leads."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from ottla.protocol.messages.fetch import FetchRequest, FetchResponse
from ottla.protocol.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse
from ottla.quorum.service import QuorumService
from ottla.server.requests.controller_requests import ControllerQueue


class ServedMetadata(Protocol):
    """The metadata log, for those who follow: of a quorum, or of one controller's reign."""

    def fetch(self, request: FetchRequest, respond: Callable[[FetchResponse], None]) -> None:
        """Records from the asked offset on; `respond` is called once, perhaps later. Raises KafkaError."""
        ...

    def fetch_snapshot(self, request: FetchSnapshotRequest, respond: Callable[[FetchSnapshotResponse], None]) -> None:
        """A piece of a snapshot, likewise."""
        ...


class ServingContext(Protocol):
    """The context of who serves it."""

    @property
    def service(self) -> ServedMetadata: ...


class QuorumContext(NamedTuple):
    """What replicas of the metadata log say to one another, brokers to the controller, and administrators of both."""

    service: QuorumService
    decisions: ControllerQueue


class ZooKeeperContext(NamedTuple):
    """The same where there is no quorum: what brokers say to the one of them that is the controller."""

    listener_name: str
    """Where brokers reach one another."""
    service: ServedMetadata
    decisions: ControllerQueue
