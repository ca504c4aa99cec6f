"""Raft's rules as pure state (KIP-595, 853, 996): leader election, votes, and the high watermark.

Purpose: events in (requests, responses, time), responses and effects out. The driver owns the files, timers and
connections. It carries out `state.effects` in their order, before it sends the response of the call that caused them,
and then logs `state.transitions`.

A replica is unattached (knows no leader), follower, prospective (sends pre-votes, which change nothing), candidate,
leader, or resigned. A replica that is not a voter is an observer: it follows, and is never a candidate. But it votes
when requested, since its own set of voters may be outdated.

Requests are untrusted, responses of voters are trusted: a request raises the epoch by at most `MAX_EPOCH_STEP`, a
response without limit. A replica that is further behind learns the epoch from the next voter that it sends a request
to, so a rejected request delays no election.

Invariants:
- A leader epoch has one leader. An epoch never decreases. A vote is durable before it is given, is given once in an
  epoch, and only to a log that is not behind. A directory other than the requested one gives none.
- A replica that was leader or candidate in an epoch never becomes either in that epoch again after a restart.
- A pre-vote changes nothing, and no Vote changes anything while a leader is heard. The sender may be unknown as a
  voter, because the own set is outdated or because the sender lies. Its request is processed only by a replica that it
  names by directory, and raises the epoch only if it gets the vote.
- A voter whose log was truncated at damage neither votes nor becomes a candidate until it has all records on disk that
  a leader reports as committed. The same applies to a voter that lost epoch and vote, in an epoch above any in which it
  may have voted.
- The high watermark is the leader's (`raft_leader`), bounded by this replica's log end.

Configured voters (kraft.version 0) have no directory ids. Every key of a request goes through `RaftState.key`, so that
only node ids are compared, and a voter with a new directory votes as the old one did. But sent requests contain the own
directory at every level, and a request that names another directory is rejected: its sender may know voters of the log
that this replica has not received yet. The first record that names voters (`voter_changes`) has the same nodes, so
majorities of both sets overlap while only some replicas have the record.
"""

from __future__ import annotations

from ottla.common.platform.clock import Rng
from ottla.quorum.raft_elections import Elections
from ottla.quorum.raft_replication import LogReplication
from ottla.quorum.raft_requests import ElectionRequests
from ottla.quorum.raft_state import RaftState
from ottla.quorum.raft_types import RaftLog, ReplicaKey, Timeouts
from ottla.quorum.raft_voters import VoterSets


class Raft:
    """The rules for one replica of the metadata log, and its state."""

    __slots__ = ("elections", "replication", "requests", "state")

    def __init__(
        self, local: ReplicaKey, log: RaftLog, rng: Rng, timeouts: Timeouts, voter_sets: VoterSets, high_watermark: int
    ) -> None:
        """`high_watermark` is the offset known to be committed: the end of the newest snapshot."""
        self.state = RaftState(local, log, rng, timeouts, voter_sets, high_watermark)
        self.elections = Elections(self.state)
        self.requests = ElectionRequests(self.state, self.elections)
        self.replication = LogReplication(self.state, self.elections)
