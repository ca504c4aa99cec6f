"""What a replica that is alone has to do with others: nothing, where one of several has `peers`."""

from __future__ import annotations

from ottla.common.errors import InvariantError
from ottla.net.peer_messages import MessageDone
from ottla.quorum.raft_types import SendBegin, SendEnd, SendVote, Voter


class NoPeers:
    """The other replicas of a log that has none, in place of `QuorumPeers`."""

    __slots__ = ()

    idle = True

    def send(self, effect: SendVote | SendBegin | SendEnd) -> None:
        """The rules of an only voter ask for nothing."""
        raise InvariantError(f"a replica without others was to send {effect}")

    def poll(self) -> None:
        """There is nobody to fetch from."""

    def introduce_leader(self, voter: Voter, done: MessageDone) -> None:
        """Nobody is reached from here."""
        done(None, ConnectionError("this node has no connections to others"))

    def stop(self) -> None:
        """Nothing is fetched."""

    def close(self) -> None:
        """There are no connections."""
