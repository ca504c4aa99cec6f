"""A broker's identity in its cluster, and its connections to the other nodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ottla.common.errors import InvariantError
from ottla.common.platform.endpoint import format_address
from ottla.common.platform.peer import ControllerDone, ControllerRequests, PeerConnection, PeerNetwork


class Membership(NamedTuple):
    """Identity of a broker and access to the cluster, for its replicas."""

    node_id: int
    peers: PeerNetwork
    controller: ControllerRequests
    broker_epoch: Callable[[], int]
    """Current broker epoch; -1 before registration."""
    names_directories: Callable[[], bool] = lambda: True
    """Whether the metadata contains log directories of replicas: a quorum's does, ZooKeeper's does not."""


class _NoPeers:
    """Network to the other nodes of a single-node cluster, which has none."""

    def connect(self, host: str, port: int) -> PeerConnection:
        raise InvariantError(f"a broker without peers was to connect to {format_address(host, port)}")

    def send(self, message: object, done: ControllerDone, timeout_s: float) -> None:
        raise InvariantError(f"a broker without a controller was to send it {type(message).__name__}")


def alone(node_id: int, broker_epoch: Callable[[], int]) -> Membership:
    """Membership of a broker in a single-node cluster."""
    no_peers = _NoPeers()
    return Membership(node_id, no_peers, no_peers, broker_epoch)
