"""Reachability of the voters of a quorum without a leader, for administrators.

Each voter gets an ApiVersions request, which every controller answers without a leader and without a permission.
Nothing is sent before the first call, and concurrent calls share the answers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ottla.common.errors import ProtocolError
from ottla.common.platform.endpoint import format_address
from ottla.common.platform.peer import PeerNetwork
from ottla.net.peer_messages import send_message
from ottla.protocol.messages.api_versions import ApiVersionsRequest
from ottla.quorum.raft_types import ReplicaKey, Voter

PROBE_TIMEOUT_S = 2.0
"""Time for all voters to answer, which are asked at once."""

FoundMajority = Callable[[str | None], None]
"""Called with the description of a missing majority, or None if a majority answers."""


class VoterProbe:
    """Asks the voters whether they answer."""

    __slots__ = ("_network", "_waiting")

    def __init__(self, network: PeerNetwork) -> None:
        self._network = network
        self._waiting: list[FoundMajority] = []

    def describe(self, voters: Sequence[Voter], node_id: int, done: FoundMajority) -> None:
        """Call `done`, not before this returns unless this node is the only voter; `node_id` is this node's."""
        self._waiting.append(done)
        if len(self._waiting) > 1:
            return
        answers: dict[ReplicaKey, bool] = {}

        def answered(key: ReplicaKey, *, alive: bool) -> None:
            answers[key] = alive
            if len(answers) == len(voters):
                text = missing_majority(voters, answers, node_id)
                waiting, self._waiting = self._waiting, []
                for each in waiting:
                    each(text)

        for voter in voters:
            if voter.voter_id == node_id:
                answered(voter.key, alive=True)
            else:
                self._ask(voter, answered)

    def _ask(self, voter: Voter, answered: Callable[..., None]) -> None:
        _, host, port = voter.endpoints[0]
        connection = self._network.connect(host, port)

        def ended(_: Any, error: BaseException | None) -> None:
            connection.close()
            # A controller of another version may answer in a form that this node does not read: it is alive.
            answered(voter.key, alive=error is None or isinstance(error, ProtocolError))

        send_message(connection, ApiVersionsRequest(), ended, PROBE_TIMEOUT_S)


def missing_majority(voters: Sequence[Voter], answers: dict[ReplicaKey, bool], node_id: int) -> str | None:
    """Sentence with the voters that answer, those that do not, and the remedy; None if a majority answers."""
    silent = [voter for voter in voters if not answers[voter.key]]
    alive = [voter for voter in voters if answers[voter.key]]
    needed = len(voters) // 2 + 1
    if len(alive) >= needed:
        return None
    missing = needed - len(alive)
    return (
        f"the metadata quorum has no majority: {len(alive)} of {len(voters)} voters answer node {node_id} "
        f"({_names(alive) or 'none'}), {needed} are needed; no answer from {_names(silent)}: "
        f"start {missing} of them, or restore their network"
    )


def _names(voters: Sequence[Voter]) -> str:
    return ", ".join(f"{voter.voter_id} at {format_address(*voter.endpoints[0][1:])}" for voter in voters)
