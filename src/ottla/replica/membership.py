"""A broker's membership in its cluster: who it is there, and its ways to the others."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from ottla.common.errors import InvariantError
from ottla.common.platform.endpoint import format_address
from ottla.common.platform.peer import ControllerDone, ControllerRequests, PeerConnection, PeerNetwork


class Membership(NamedTuple):
    """What a broker's replicas need to know and reach of the cluster."""

    node_id: int
    peers: PeerNetwork
    controller: ControllerRequests
    broker_epoch: Callable[[], int]
    """Of the registration that holds; -1 before."""
    names_directories: Callable[[], bool] = lambda: True
    """Whether the metadata can say where a replica lies: a quorum's can, ZooKeeper's tree can't."""


class _NoPeers:
    """The other nodes of a cluster that has none."""

    def connect(self, host: str, port: int) -> PeerConnection:
        raise InvariantError(f"a broker without peers was to connect to {format_address(host, port)}")

    def send(self, message: object, done: ControllerDone, timeout_s: float) -> None:
        raise InvariantError(f"a broker without a controller was to send it {type(message).__name__}")


def alone(node_id: int, broker_epoch: Callable[[], int]) -> Membership:
    """Of a broker that is the cluster."""
    nobody = _NoPeers()
    return Membership(node_id, nobody, nobody, broker_epoch)
