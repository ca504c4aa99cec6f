"""Peers of a single replica: all operations are empty. A replica with others uses `peers`."""

from __future__ import annotations

from ottla.common.errors import InvariantError
from ottla.net.peer_messages import MessageDone
from ottla.quorum.raft_types import SendBegin, SendEnd, SendVote, Voter


class NoPeers:
    """The empty set of other replicas, used instead of `QuorumPeers`."""

    __slots__ = ()

    idle = True

    def send(self, effect: SendVote | SendBegin | SendEnd) -> None:
        """The rules of a single voter send nothing."""
        raise InvariantError(f"a single replica can't send {effect}")

    def poll(self) -> None:
        """Does nothing: a single replica has no leader to fetch from."""

    def introduce_leader(self, voter: Voter, done: MessageDone) -> None:
        """Raises: a single replica has no others."""
        done(None, ConnectionError("this node has no connections to others"))

    def stop(self) -> None:
        """Nothing is being fetched."""

    def close(self) -> None:
        """Does nothing: no connection is open."""
