"""Communication of a replica with the others: requests of the rules, fetching the leader's log, joining the voters.

A Fetch may wait for half a second, and no vote may wait behind it: each has its own connections. A single replica uses
`no_peers` instead, and starts without loading this module.
"""

from __future__ import annotations

from typing import Any

from ottla.common.platform.peer import Address, PeerNetwork
from ottla.common.platform.runtime import NodeRuntime
from ottla.net.peer_messages import MessageDone
from ottla.quorum.config import QuorumConfig
from ottla.quorum.fetcher import Fetcher
from ottla.quorum.follower_log import FollowerLog
from ottla.quorum.joining import VoterJoiner
from ottla.quorum.metadata_log import ReplicaLog
from ottla.quorum.network import QuorumNetwork
from ottla.quorum.raft import Raft
from ottla.quorum.raft_types import SendBegin, SendEnd, SendVote, Voter
from ottla.quorum.rpc import begin_request
from ottla.quorum.sender import EffectSender, address_of


class QuorumPeers:
    """The other replicas of the metadata log."""

    __slots__ = ("_fetcher", "_for_fetches", "_for_votes", "_joiner", "_own", "_peers", "_quorum", "_raft", "_sender")

    def __init__(
        self,
        peers: PeerNetwork,
        raft: Raft,
        log: ReplicaLog,
        followed: FollowerLog,
        *,
        runtime: NodeRuntime,
        quorum: QuorumConfig,
        own: Voter,
    ) -> None:
        """`own` is this replica as a voter, even if it does not vote."""
        self._peers = peers
        self._raft = raft
        self._quorum = quorum
        self._own = own
        for_votes = self._for_votes = QuorumNetwork(peers, raft.state.statistics)
        for_fetches = self._for_fetches = QuorumNetwork(peers, raft.state.statistics)
        self._sender = EffectSender(
            raft,
            log,
            for_votes,
            followed.act,
            clock=runtime.clock,
            scheduler=runtime.scheduler,
            cluster_id=quorum.cluster_id,
            times=quorum.times,
            endpoints=own.endpoints,
        )
        self._fetcher = Fetcher(
            followed,
            raft.state,
            log,
            for_fetches,
            runtime=runtime,
            quorum=quorum,
            bootstrap=self._bootstrap_addresses,
            fetch_answered=raft.replication.fetch_answered,
        )
        self._joiner: VoterJoiner | None = None
        if quorum.auto_join:
            self._joiner = VoterJoiner(
                raft,
                for_votes,
                followed.act,
                scheduler=runtime.scheduler,
                cluster_id=quorum.cluster_id,
                request_s=quorum.times.request_s,
                endpoints=own.endpoints,
            )

    def _bootstrap_addresses(self) -> list[Address]:
        """Other voters and the configured servers."""
        own = {(host, port) for _, host, port in self._own.endpoints}
        voters = [address_of(voter) for voter in self._raft.state.voters if voter.voter_id != self._own.voter_id]
        known = [*(address for address in voters if address is not None), *self._quorum.bootstrap]
        return [address for address in dict.fromkeys(known) if address not in own]

    @property
    def idle(self) -> bool:
        """Whether every request but Fetch was answered."""
        return self._for_votes.idle

    def send(self, effect: SendVote | SendBegin | SendEnd) -> None:
        """Send a request of the rules."""
        self._sender.send(effect)

    def poll(self) -> None:
        """Process an event: continue to fetch, and send pending requests to the leader."""
        self._fetcher.poll()
        self._sender.update_own_voter()
        if self._joiner is not None:
            self._joiner.poll()

    def introduce_leader(self, voter: Voter, done: MessageDone) -> None:
        """Announce the leader to `voter` on a temporary connection, since the voter may not exist."""
        network = QuorumNetwork(self._peers, self._raft.state.statistics)

        def answered(response: Any, error: BaseException | None) -> None:
            network.close()
            done(response, error)

        _, host, port = voter.endpoints[0]
        message = begin_request(self._quorum.cluster_id, self._raft.state.leader, voter, self._own)
        network.send((host, port), message, answered, self._quorum.times.request_s)

    def stop(self) -> None:
        """Stop fetching."""
        self._fetcher.stop()

    def close(self) -> None:
        """Close all connections; pending requests are never answered."""
        self._for_votes.close()
        self._for_fetches.close()
