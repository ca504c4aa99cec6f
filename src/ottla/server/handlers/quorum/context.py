"""Context of the quorum handlers: KRaft's replica in this node, and the controller."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, Protocol

from ottla.quorum.driver import QuorumDriver
from ottla.server.requests.controller_requests import ControllerQueue

if TYPE_CHECKING:
    from ottla.protocol.messages.fetch import FetchRequest, FetchResponse
    from ottla.protocol.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse
    from ottla.quorum.service import QuorumService


class ServedMetadata(Protocol):
    """The metadata log for its followers: of a quorum, or of one controller's term."""

    def fetch(self, request: FetchRequest, respond: Callable[[FetchResponse], None]) -> None:
        """Records from the fetch offset on; `respond` is called once, possibly later. Raises KafkaError."""
        ...

    def fetch_snapshot(self, request: FetchSnapshotRequest, respond: Callable[[FetchSnapshotResponse], None]) -> None:
        """A chunk of a snapshot, in the same way."""
        ...


class ServingContext(Protocol):
    """Context with a metadata log to serve."""

    @property
    def service(self) -> ServedMetadata: ...


class QuorumContext(NamedTuple):
    """Dependencies of requests between replicas of the metadata log, from brokers and from administrators."""

    quorum: QuorumDriver
    decisions: ControllerQueue

    @property
    def service(self) -> QuorumService:
        """See `QuorumDriver.service`."""
        return self.quorum.service


class ZooKeeperContext(NamedTuple):
    """Dependencies of requests to the controller in a cluster without a quorum."""

    listener_name: str
    """The inter-broker listener."""
    service: ServedMetadata
    decisions: ControllerQueue
