"""Requests of other replicas and administrators about the metadata log: elections, Fetch, snapshots, voters.

Requests and responses are Kafka's messages; the connection handler passes them in and sends the response given to
`respond`.

Invariants:
- State changes of a request are durable before its response is created.
- Other replicas name the cluster, so that no request for another or an unnamed cluster changes this quorum. Only
  administrators may omit it, as Apache Kafka's tools do.
- A voter is added, or its address changed, only after a node with its id and directory responds there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.kafka.ids import ZERO_UUID
from ottla.common.platform.clock import TimerHandle
from ottla.common.platform.endpoint import format_address
from ottla.common.platform.peer import PeerNetwork
from ottla.common.platform.runtime import NodeRuntime
from ottla.metadata.log import LeaderAndEpoch, SubmitDone
from ottla.net.peer_messages import MessageDone
from ottla.protocol.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse
from ottla.protocol.messages.begin_quorum_epoch import BeginQuorumEpochRequest, BeginQuorumEpochResponse
from ottla.protocol.messages.describe_quorum import (
    DescribeQuorumPartitionResponse,
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    DescribeQuorumTopicResponse,
    QuorumNode,
    QuorumReplica,
)
from ottla.protocol.messages.end_quorum_epoch import EndQuorumEpochRequest, EndQuorumEpochResponse
from ottla.protocol.messages.fetch import FetchRequest, FetchResponse
from ottla.protocol.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse
from ottla.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from ottla.protocol.messages.update_raft_voter import CurrentLeader, UpdateRaftVoterRequest, UpdateRaftVoterResponse
from ottla.protocol.messages.vote import VoteRequest, VoteResponse
from ottla.quorum.announcer import announce_vote
from ottla.quorum.control import KRAFT_VERSION
from ottla.quorum.metadata_log import ReplicaLog
from ottla.quorum.raft import Raft
from ottla.quorum.raft_leader import LeaderState, Progress
from ottla.quorum.raft_types import FetchVerdict, OffsetAndEpoch, ReplicaKey, Voter
from ottla.quorum.rpc import (
    begin_response,
    end_response,
    fetch_response,
    only_fetch_partition,
    only_partition,
    raft_endpoints,
    read_epoch_response,
    snapshot_response,
    vote_response,
)
from ottla.quorum.snapshot_file import SnapshotId
from ottla.quorum.voter_changes import voter_change_error
from ottla.storage.files.names import METADATA_TOPIC

if TYPE_CHECKING:
    from ottla.quorum.reachability import FoundMajority, VoterProbe

MAX_WAIT_MS = 30_000
MAX_ANSWER_BYTES = 8 * 1024 * 1024
"""Maximum bytes of log or snapshot in one response: the limit that Apache Kafka's followers request."""
MAX_ENDPOINTS = 16
MAX_HOST_LENGTH = 255
_CAUGHT_UP_MS = 3_600_000
"""An observer that fetched the newest record within this time may become a voter."""

FetchRespond = Callable[[FetchResponse], None]
Outcome = Callable[[ErrorCode, str], None]
"""Result of a voter change: the error, NONE for success, and its message."""


class ServedReplica(Protocol):
    """The operations of a replica that its service uses.

    Implementation: `quorum.driver`.
    """

    @property
    def raft(self) -> Raft:
        """The rules; raises InvariantError before the start."""
        ...

    @property
    def log(self) -> ReplicaLog:
        """The open log; raises InvariantError before the start."""
        ...

    @property
    def failure(self) -> KafkaError | None:
        """Why this replica has stopped working; None while it works."""
        ...

    def settle(self) -> None:
        """Make the decisions of the rules durable, then continue. Raises KafkaError if this replica has failed or was
        closed.
        """
        ...

    def append_voters(self, voters: tuple[Voter, ...], done: SubmitDone) -> None:
        """Change the set of voters, which must be allowed now; `done` once that is committed. Raises KafkaError."""
        ...

    def introduce_leader(self, voter: Voter, done: MessageDone) -> None:
        """Announce the leader to `voter`, which may not exist."""
        ...


class _ParkedFetch:
    """A Fetch that waits for more records."""

    __slots__ = ("epoch", "high_watermark", "max_bytes", "offset", "respond", "timer")

    def __init__(self, epoch: int, offset: int, high_watermark: int, max_bytes: int, respond: FetchRespond) -> None:
        self.epoch = epoch
        self.offset = offset
        self.high_watermark = high_watermark
        self.max_bytes = max_bytes
        self.respond = respond
        self.timer: TimerHandle | None = None


class QuorumService:
    """Serves the requests of other replicas and of administrators. All methods raise KafkaError after the replica has
    stopped.
    """

    __slots__ = (
        "_clock",
        "_cluster_id",
        "_network",
        "_pool",
        "_probe",
        "_probing",
        "_replica",
        "_scheduler",
        "_waiting",
    )

    def __init__(
        self, replica: ServedReplica, runtime: NodeRuntime, cluster_id: str, network: PeerNetwork | None = None
    ) -> None:
        """Without a `network` this node is the only voter."""
        self._replica = replica
        self._network = network
        self._probe: VoterProbe | None = None
        self._clock = runtime.clock
        self._scheduler = runtime.scheduler
        self._pool = runtime.pool
        self._cluster_id = cluster_id
        self._probing = False
        self._waiting: list[_ParkedFetch] = []

    def _open(self, cluster_id: str | None) -> Raft:
        """The rules, for a request that names this cluster or none."""
        failure = self._replica.failure
        if failure is not None:
            raise failure
        if cluster_id is not None and cluster_id != self._cluster_id:
            raise KafkaError(ErrorCode.INCONSISTENT_CLUSTER_ID, f"this cluster is {self._cluster_id}")
        return self._replica.raft

    def _open_to_replica(self, cluster_id: str | None) -> Raft:
        """The rules, for a request that only replicas send, which always name their cluster."""
        if cluster_id is None and self._cluster_id:
            raise KafkaError(
                ErrorCode.INCONSISTENT_CLUSTER_ID,
                f"the request names no cluster id; this cluster is {self._cluster_id}",
            )
        return self._open(cluster_id)

    # -- elections -------------------------------------------------------------------------------------------------

    def vote(self, request: VoteRequest) -> VoteResponse:
        """Respond whether this replica votes, or would vote, for the sender."""
        raft = self._open_to_replica(request.cluster_id)
        asked = only_partition(request.topics, "topic_name", "partition_index")
        candidate = raft.state.key(asked.replica_id, asked.replica_directory_id)
        error, granted = raft.requests.vote(
            self._clock.monotonic(),
            ReplicaKey(request.voter_id, asked.voter_directory_id),
            candidate,
            asked.replica_epoch,
            OffsetAndEpoch(asked.last_offset, asked.last_offset_epoch),
            pre_vote=asked.pre_vote,
        )
        self._replica.settle()
        announce_vote(candidate, asked.replica_epoch, error, pre_vote=asked.pre_vote, granted=granted)
        return vote_response(error, raft.state.leader, raft.state.leader_address, granted=granted)

    def begin_quorum_epoch(self, request: BeginQuorumEpochRequest) -> BeginQuorumEpochResponse:
        """A new leader announces itself."""
        raft = self._open_to_replica(request.cluster_id)
        named = only_partition(request.topics, "topic_name", "partition_index")
        endpoints = request.leader_endpoints
        error = raft.requests.begin_quorum_epoch(
            self._clock.monotonic(),
            ReplicaKey(request.voter_id, named.voter_directory_id),
            LeaderAndEpoch(named.leader_id, named.leader_epoch),
            (endpoints[0].host, endpoints[0].port) if endpoints else None,
        )
        self._replica.settle()
        return begin_response(error, raft.state.leader, raft.state.leader_address)

    def end_quorum_epoch(self, request: EndQuorumEpochRequest) -> EndQuorumEpochResponse:
        """The leader resigned."""
        raft = self._open_to_replica(request.cluster_id)
        named = only_partition(request.topics, "topic_name", "partition_index")
        error = raft.requests.end_quorum_epoch(
            self._clock.monotonic(),
            LeaderAndEpoch(named.leader_id, named.leader_epoch),
            tuple(
                raft.state.key(item.candidate_id, item.candidate_directory_id) for item in named.preferred_candidates
            ),
        )
        self._replica.settle()
        return end_response(error, raft.state.leader, raft.state.leader_address)

    # -- Fetch -----------------------------------------------------------------------------------------------------

    def fetch(self, request: FetchRequest, respond: FetchRespond) -> None:
        """Records from the requested offset on, or the point where the logs diverge; `respond` is called once, perhaps
        later.
        """
        raft = self._open_to_replica(request.cluster_id)
        asked = only_fetch_partition(request)
        replica_id = request.replica_state.replica_id if request.replica_id < 0 else request.replica_id
        verdict = raft.replication.fetch(
            self._clock.monotonic(),
            self._clock.time_ms(),
            raft.state.key(replica_id, asked.replica_directory_id),
            asked.current_leader_epoch,
            OffsetAndEpoch(asked.fetch_offset, asked.last_fetched_epoch),
        )
        self._replica.settle()
        if verdict != FetchVerdict():
            respond(self._fetch_response(raft, verdict))
            return
        waiting = _ParkedFetch(
            asked.current_leader_epoch,
            asked.fetch_offset,
            asked.high_watermark,
            min(request.max_bytes, asked.partition_max_bytes, MAX_ANSWER_BYTES),
            respond,
        )
        if self._is_due(raft, waiting) or request.max_wait_ms <= 0:
            self._answer(raft, waiting)
            return
        self._waiting.append(waiting)
        wait_s = min(request.max_wait_ms, MAX_WAIT_MS) / 1000
        waiting.timer = self._scheduler.call_later(wait_s, lambda: self._expired(waiting))

    def poll(self) -> None:
        """The log grew, more is committed, or the leader changed: answer the waiting Fetches."""
        if not self._waiting:
            return
        raft = self._replica.raft
        due = [waiting for waiting in self._waiting if self._is_due(raft, waiting)]
        if due:
            self._waiting = [waiting for waiting in self._waiting if waiting not in due]
            for waiting in due:
                self._answer(raft, waiting)

    def close(self) -> None:
        """Answer all waiting Fetches: this replica no longer leads."""
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            self._answer(self._replica.raft, each)

    def _expired(self, waiting: _ParkedFetch) -> None:
        waiting.timer = None
        if waiting in self._waiting:
            self._waiting.remove(waiting)
            self._answer(self._replica.raft, waiting)

    def _is_due(self, raft: Raft, waiting: _ParkedFetch) -> bool:
        leading = raft.state.leading
        if leading is None or leading.epoch != waiting.epoch or self._replica.log.end_offset > waiting.offset:
            return True
        return _announced_high_watermark(leading) > waiting.high_watermark

    def _answer(self, raft: Raft, waiting: _ParkedFetch) -> None:
        if waiting.timer is not None:
            waiting.timer.cancel()
        leading = raft.state.leading
        if leading is None or leading.epoch != waiting.epoch:
            error = raft.replication.check_fetch_epoch(waiting.epoch)
            if error is ErrorCode.NONE:
                error = ErrorCode.NOT_LEADER_OR_FOLLOWER
            waiting.respond(self._fetch_response(raft, FetchVerdict(error)))
            return
        log = self._replica.log
        records = b""
        if log.end_offset > waiting.offset:
            records = log.read(waiting.offset, waiting.max_bytes)
        response = fetch_response(
            FetchVerdict(),
            raft.state.leader,
            raft.state.leader_address,
            high_watermark=_announced_high_watermark(leading),
            log_start_offset=log.start_offset,
            records=records,
        )
        waiting.respond(response)

    def _fetch_response(self, raft: Raft, verdict: FetchVerdict) -> FetchResponse:
        leading = raft.state.leading
        return fetch_response(
            verdict,
            raft.state.leader,
            raft.state.leader_address,
            high_watermark=-1 if leading is None else _announced_high_watermark(leading),
            log_start_offset=self._replica.log.start_offset,
        )

    def fetch_snapshot(self, request: FetchSnapshotRequest, respond: Callable[[FetchSnapshotResponse], None]) -> None:
        """A chunk of a snapshot, read in the pool."""
        raft = self._open_to_replica(request.cluster_id)
        asked = only_partition(request.topics, "name", "partition")
        snapshot = SnapshotId(asked.snapshot_id.end_offset, asked.snapshot_id.epoch)
        snapshot_end = OffsetAndEpoch(*snapshot)
        leader, address = raft.state.leader, raft.state.leader_address
        error = raft.replication.check_fetch_epoch(asked.current_leader_epoch)
        log = self._replica.log
        if error is ErrorCode.NONE and not log.has_snapshot(snapshot):
            error = ErrorCode.SNAPSHOT_NOT_FOUND
        if error is not ErrorCode.NONE:
            respond(snapshot_response(error, leader, address, snapshot_end))
            return
        leading = raft.state.leading
        if leading is not None:
            leading.heard_of(raft.state.key(request.replica_id, asked.replica_directory_id), self._clock.monotonic())

        def read(result: tuple[int, bytes] | None, failure: BaseException | None) -> None:
            if isinstance(failure, FileNotFoundError):
                respond(snapshot_response(ErrorCode.SNAPSHOT_NOT_FOUND, leader, address, snapshot_end))
            elif failure is not None or result is None:
                respond(snapshot_response(ErrorCode.UNKNOWN_SERVER_ERROR, leader, address, snapshot_end))
            elif not 0 <= asked.position < result[0]:
                respond(snapshot_response(ErrorCode.POSITION_OUT_OF_RANGE, leader, address, snapshot_end))
            else:
                size, piece = result
                respond(
                    snapshot_response(
                        ErrorCode.NONE, leader, address, snapshot_end, size=size, position=asked.position, piece=piece
                    )
                )

        length = min(max(request.max_bytes, 1), MAX_ANSWER_BYTES)
        self._pool.submit(lambda: log.read_snapshot_piece(snapshot, asked.position, length), read)

    # -- requests of administrators ---------------------------------------------------------------------------------

    def describe(self, request: DescribeQuorumRequest) -> DescribeQuorumResponse:
        """Leader, voters and observers; NOT_LEADER_OR_FOLLOWER from any node but the leader."""
        raft = self._open(None)
        only_partition(request.topics, "topic_name", "partition_index")
        leading = raft.state.leading
        partition = DescribeQuorumPartitionResponse(
            leader_id=raft.state.leader.leader_id,
            leader_epoch=raft.state.epoch,
            high_watermark=raft.state.high_watermark,
        )
        nodes = []
        if leading is None:
            partition.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        else:
            now, now_ms = self._clock.monotonic(), self._clock.time_ms()
            end = self._replica.log.end_offset
            partition.current_voters = [
                _replica(key, progress, end if key == raft.state.local else None, now_ms)
                for key, progress in leading.voters()
            ]
            partition.observers = [_replica(key, item, None, now_ms) for key, item in leading.observers(now)]
            nodes = [QuorumNode(node_id=voter.voter_id, listeners=raft_endpoints(voter)) for voter in raft.state.voters]
        topic = DescribeQuorumTopicResponse(topic_name=METADATA_TOPIC, partitions=[partition])
        return DescribeQuorumResponse(topics=[topic], nodes=nodes)

    def describe_missing_majority(self, done: FoundMajority) -> None:
        """Ask all voters whether they answer; `done` gets a sentence for an operator, None if a majority does."""
        state = self._replica.raft.state
        if self._network is None or not state.voters:
            done(None)
            return
        if self._probe is None:
            from ottla.quorum.reachability import VoterProbe  # imported here: for quorums without a leader

            self._probe = VoterProbe(self._network)
        self._probe.describe(state.voters, state.replica.node_id, done)

    def add_voter(self, request: AddRaftVoterRequest, respond: Callable[[AddRaftVoterResponse], None]) -> None:
        """Make a caught-up observer a voter."""

        def ended(error: ErrorCode, text: str) -> None:
            respond(AddRaftVoterResponse(error_code=error, error_message=text or None))

        raft = self._open(request.cluster_id)
        endpoints = tuple((item.name, item.host, item.port) for item in request.listeners)
        voter = Voter(request.voter_id, request.voter_directory_id, endpoints)
        leading = self._changeable(raft, ended)
        if leading is None:
            return
        progress = leading.progress_of(voter.key)
        if voter.voter_id < 0 or voter.directory_id == ZERO_UUID:
            ended(ErrorCode.INVALID_REQUEST, "a voter requires a non-negative node id and a directory id")
        elif not _are_usable(endpoints):
            ended(ErrorCode.INVALID_REQUEST, f"node {voter.voter_id} has no usable endpoint")
        elif any(known.voter_id == voter.voter_id for known in raft.state.voters):
            ended(ErrorCode.DUPLICATE_VOTER, f"node {voter.voter_id} is a voter already")
        elif progress is None or progress.caught_up_ms < self._clock.time_ms() - _CAUGHT_UP_MS:
            ended(ErrorCode.REQUEST_TIMED_OUT, f"node {voter.voter_id} has not caught up with the metadata log")
        else:
            timeout_s = request.timeout_ms / 1000 if request.ack_when_committed else 0.0
            self._change_once_found(
                voter,
                ended,
                lambda: self._change((*raft.state.voters, voter), ended, timeout_s, wait=request.ack_when_committed),
            )

    def remove_voter(self, request: RemoveRaftVoterRequest, respond: Callable[[RemoveRaftVoterResponse], None]) -> None:
        """Remove a voter from the quorum. If it is this node, it resigns once that is committed."""

        def ended(error: ErrorCode, text: str) -> None:
            respond(RemoveRaftVoterResponse(error_code=error, error_message=text or None))

        raft = self._open(request.cluster_id)
        key = ReplicaKey(request.voter_id, request.voter_directory_id)
        if self._changeable(raft, ended) is None:
            return
        rest = tuple(voter for voter in raft.state.voters if voter.key != key)
        if len(rest) == len(raft.state.voters):
            ended(ErrorCode.VOTER_NOT_FOUND, f"node {key.node_id} with that directory is not a voter")
        elif not rest:
            ended(ErrorCode.INVALID_REQUEST, "the last voter can't be removed")
        else:
            self._change(rest, ended, 0.0, wait=True)

    def update_voter(self, request: UpdateRaftVoterRequest, respond: Callable[[UpdateRaftVoterResponse], None]) -> None:
        """Update a voter's endpoints, or the directory of a configured voter, which has no record."""
        raft = self._open_to_replica(request.cluster_id)

        def ended(error: ErrorCode, text: str) -> None:
            leader, address = raft.state.leader, raft.state.leader_address or ("", 0)
            current = CurrentLeader(
                leader_id=leader.leader_id, leader_epoch=leader.epoch, host=address[0], port=address[1]
            )
            respond(UpdateRaftVoterResponse(error_code=error, current_leader=current))

        error = raft.replication.check_fetch_epoch(request.current_leader_epoch)
        if error is not ErrorCode.NONE:
            ended(error, "")
            return
        key = ReplicaKey(request.voter_id, request.voter_directory_id)
        endpoints = tuple((item.name, item.host, item.port) for item in request.listeners)
        leading = raft.state.leading
        if leading is not None and raft.state.voter_sets.are_configured:
            supported = request.k_raft_version_feature
            named = supported.min_supported_version <= KRAFT_VERSION <= supported.max_supported_version
            self._note_directory(leading, Voter(*key, endpoints), ended, named=named)
            return
        known = next((voter for voter in raft.state.voters if voter.key == key), None)
        if known is None:
            ended(ErrorCode.VOTER_NOT_FOUND, "")
        elif known.endpoints == endpoints:
            ended(ErrorCode.NONE, "")
        elif key == raft.state.local or not _are_usable(endpoints):
            ended(ErrorCode.INVALID_REQUEST, "")  # the leader knows its own endpoints
        elif self._changeable(raft, ended) is not None:
            moved = known._replace(endpoints=endpoints)
            voters = tuple(moved if voter is known else voter for voter in raft.state.voters)
            self._change_once_found(moved, ended, lambda: self._change(voters, ended, 0.0, wait=True))

    def _note_directory(self, leading: LeaderState, voter: Voter, ended: Outcome, *, named: bool) -> None:
        """Store, for this epoch, the voter entry that a record would contain; `named`: whether the voter supports a
        record.
        """
        raft = self._replica.raft
        node_id = voter.voter_id
        if node_id == raft.state.replica.node_id or all(node_id != known.voter_id for known in raft.state.voters):
            ended(ErrorCode.VOTER_NOT_FOUND, "")
        elif voter.directory_id == ZERO_UUID or not _are_usable(voter.endpoints):
            ended(ErrorCode.INVALID_REQUEST, "")
        elif not named:
            leading.directories.pop(node_id, None)
            ended(ErrorCode.NONE, "")
        elif leading.directories.get(node_id) == voter:
            ended(ErrorCode.NONE, "")
        else:

            def found() -> None:
                leading.directories[node_id] = voter
                ended(ErrorCode.NONE, "")

            self._once_found(voter, ended, found)

    def _changeable(self, raft: Raft, ended: Outcome) -> LeaderState | None:
        """The leader's state if the voters may be changed now; otherwise `ended` is called."""
        error = voter_change_error(raft.state)
        if error is ErrorCode.NONE:
            return raft.state.leading
        if error is ErrorCode.NOT_LEADER_OR_FOLLOWER:
            ended(error, "this node does not lead the metadata quorum")
        elif error is ErrorCode.UNSUPPORTED_VERSION:
            ended(error, "voters of controller.quorum.voters can't be changed before kraft.version is 1")
        else:
            ended(error, "another voter change is in progress")
        return None

    def _change_once_found(self, voter: Voter, ended: Outcome, change: Callable[[], None]) -> None:
        """Call `change` when the voter responded and the voters may still be changed."""

        def found() -> None:
            if self._changeable(self._replica.raft, ended) is not None:
                try:
                    change()
                except KafkaError as refused:
                    ended(refused.code, refused.message)

        self._once_found(voter, ended, found)

    def _once_found(self, voter: Voter, ended: Outcome, then: Callable[[], None]) -> None:
        """Call `then` when the voter responds at its endpoint: an unreachable voter can't vote."""
        replica, raft = self._replica, self._replica.raft
        if self._probing:
            ended(ErrorCode.REQUEST_TIMED_OUT, "another voter change is in progress")
            return
        self._probing = True
        before, epoch = raft.state.voters, raft.state.epoch
        _, host, port = voter.endpoints[0]
        address = format_address(host, port)

        def answered(response: Any, error: BaseException | None) -> None:
            self._probing = False
            found = None if error is not None else read_epoch_response(response).error
            if found is None:
                ended(ErrorCode.REQUEST_TIMED_OUT, f"node {voter.voter_id} does not answer at {address}: {error}")
            elif found is not ErrorCode.NONE:
                ended(
                    ErrorCode.INVALID_REQUEST,
                    f"{address} is not voter {voter.voter_id} with that directory",
                )
            elif replica.failure is not None or raft.state.epoch != epoch or raft.state.voters != before:
                ended(ErrorCode.NOT_LEADER_OR_FOLLOWER, "leader or voters changed during the request")
            else:
                then()

        replica.introduce_leader(voter, answered)

    def _change(self, voters: tuple[Voter, ...], ended: Outcome, timeout_s: float, *, wait: bool) -> None:
        answered = False
        timer: TimerHandle | None = None

        def answer(error: ErrorCode, text: str) -> None:
            nonlocal answered
            if not answered:
                answered = True
                if timer is not None:
                    timer.cancel()
                ended(error, text)

        def committed(error: BaseException | None) -> None:
            if error is None:
                answer(ErrorCode.NONE, "")
            elif isinstance(error, KafkaError):
                answer(error.code, error.message)
            else:
                answer(ErrorCode.UNKNOWN_SERVER_ERROR, str(error))

        # Raises for a disk error: then no callback may remain that answers a second time.
        self._replica.append_voters(voters, committed)
        if not wait:
            answer(ErrorCode.NONE, "")
        elif timeout_s > 0 and not answered:
            timer = self._scheduler.call_later(
                timeout_s, lambda: answer(ErrorCode.REQUEST_TIMED_OUT, "the change is not committed yet")
            )


def _are_usable(endpoints: tuple[tuple[str, str, int], ...]) -> bool:
    """Whether a record may contain these endpoints: every replica stores them, and the first is used to reach the
    voter.
    """
    return 0 < len(endpoints) <= MAX_ENDPOINTS and all(
        0 < len(host) <= MAX_HOST_LENGTH and len(name) <= MAX_HOST_LENGTH and port > 0 for name, host, port in endpoints
    )


def _announced_high_watermark(leading: LeaderState) -> int:
    """The high watermark for followers: -1 before it is known in this epoch."""
    return leading.high_watermark if leading.committed else -1


def _replica(key: ReplicaKey, progress: Progress, end_offset: int | None, now_ms: int) -> QuorumReplica:
    """`end_offset` is given for the leader itself."""
    own = end_offset is not None
    return QuorumReplica(
        replica_id=key.node_id,
        replica_directory_id=key.directory_id,
        log_end_offset=progress.end_offset if end_offset is None else end_offset,
        last_fetch_timestamp=now_ms if own else progress.fetch_ms,
        last_caught_up_timestamp=now_ms if own else progress.caught_up_ms,
    )
