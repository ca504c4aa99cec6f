"""One metadata log replica in this process: files, timers and requests around the Raft rules.

Purpose: carry out the decisions of `raft`, append records of the active controller, and publish images on every node. A
single node is a quorum of one voter: the same code, whose election ends within `start`. `phases` defines the allowed
state transitions, `leader_log` and `follower_log` append, and `peers` sends requests to other replicas.

Invariants:
- State that the rules require to be durable is durable before its consequences leave this process: `quorum-state`
  before a response or a request, the leader's own log before the leader counts itself, a follower's log before its next
  Fetch.
- Nothing is appended in an epoch before `quorum-state` durably contains that epoch.
- A failed sync ends the driver, since the content of the disk is unknown: later submissions fail, `on_failure` is
  called, and this replica neither leads nor votes. A listener that raises ends it too, since the components of the
  broker then disagree about the cluster.

`quorum-state` is written on the loop: elections are rare, and no event can be processed before it is written.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ottla.common.errors import DataDirectoryError, ErrorCode, InvariantError, KafkaError, ProtocolError
from ottla.common.platform.disk_refusal import disk_refusal
from ottla.common.platform.endpoint import Endpoint
from ottla.common.platform.peer import PeerNetwork
from ottla.common.platform.runtime import NodeRuntime
from ottla.metadata.image import MetadataImage
from ottla.metadata.log import NO_NODE, LeaderAndEpoch, LeadershipListener, Submission, SubmitDone
from ottla.metadata.publisher import MetadataPublisher
from ottla.metadata.records import ApiMessageAndVersion
from ottla.net.peer_messages import MessageDone
from ottla.quorum.announcer import Announcer
from ottla.quorum.config import LocalReplica, QuorumConfig
from ottla.quorum.control import KRAFT_VERSION
from ottla.quorum.follower_log import FollowerLog
from ottla.quorum.leader_log import LeaderLog
from ottla.quorum.metadata_log import (
    CATCHING_UP_FILE,
    ElectionStateDamage,
    ReplicaLog,
    drop_unknown_epochs,
    open_metadata_log,
)
from ottla.quorum.no_peers import NoPeers
from ottla.quorum.opening import bootstrap_voter, read_log
from ottla.quorum.phases import CLOSED, DRAINING, FOLLOWING, LEADING, OPENING, RUNNING, TAKING_OVER, ReplicaState
from ottla.quorum.raft import Raft
from ottla.quorum.raft_types import FORGOTTEN_EPOCHS, MAX_LEADER_EPOCH, ElectionState, OffsetAndEpoch, Persist, Voter
from ottla.quorum.replay import ALL_MESSAGES, MESSAGES_PER_TURN, Replay
from ottla.quorum.rounds import Rounds
from ottla.quorum.snapshots import SnapshotTaker
from ottla.quorum.timer import DeadlineTimer

if TYPE_CHECKING:
    from ottla.quorum.peers import QuorumPeers
    from ottla.quorum.service import QuorumService

logger = logging.getLogger(__name__)

_STOP_S = 1.0
"""Time for the followers to learn that the leader stops, in seconds."""


class _Parts(NamedTuple):
    """The components that exist once the log was read."""

    log: ReplicaLog
    raft: Raft
    snapshots: SnapshotTaker
    leader_log: LeaderLog
    peers: QuorumPeers | NoPeers
    announcer: Announcer
    bootstrap: Sequence[ApiMessageAndVersion]


class QuorumDriver:
    """The metadata quorum as seen by this process. All methods run on the loop.

    Implements `MetadataLog` for the node, and `ServedReplica` for its own `service`.
    """

    __slots__ = (
        "_clock",
        "_known",
        "_listeners",
        "_local",
        "_log",
        "_network",
        "_on_failure",
        "_parts",
        "_pool",
        "_publisher",
        "_quorum",
        "_replay",
        "_replays_later",
        "_rounds",
        "_runtime",
        "_scheduler",
        "_service",
        "_state",
        "_timer",
    )

    brokers_have_sessions = False
    """Heartbeats decide about the liveness of brokers."""

    def __init__(
        self,
        *,
        runtime: NodeRuntime,
        local: LocalReplica,
        publisher: MetadataPublisher,
        on_failure: Callable[[BaseException], None],
        peers: PeerNetwork | None = None,
        quorum: QuorumConfig | None = None,
    ) -> None:
        """Without `peers` this node is the only voter, and the first image is published by `submit_start`."""
        self._runtime = runtime
        self._clock = runtime.clock
        self._scheduler = runtime.scheduler
        self._pool = runtime.pool
        self._local = local
        self._publisher = publisher
        self._on_failure = on_failure
        self._network = peers
        self._quorum = quorum or QuorumConfig()
        self._state = ReplicaState()
        self._log: ReplicaLog | None = None
        self._parts: _Parts | None = None
        self._replay = Replay(publisher)
        self._replays_later = False
        """Whether a follower continues to replay committed records in a later turn of the loop."""
        self._rounds = Rounds(self._step)
        self._timer = DeadlineTimer(runtime.clock, runtime.scheduler, self._tick)
        self._listeners: list[LeadershipListener] = []
        self._known = (LeaderAndEpoch(NO_NODE, 0), False)
        self._service: QuorumService | None = None

    # -- facts -----------------------------------------------------------------------------------------------------

    @property
    def service(self) -> QuorumService:
        """Serves the requests of other replicas and of administrators; created for the first of them."""
        if self._service is None:
            from ottla.quorum.service import QuorumService

            self._service = QuorumService(self, self._runtime, self._quorum.cluster_id, self._network)
        return self._service

    @property
    def _started(self) -> _Parts:
        if self._parts is None:
            raise InvariantError("the quorum was not started")
        return self._parts

    @property
    def active(self) -> bool:
        """Whether this node leads and accepts records."""
        return self._state.tenure is LEADING

    @property
    def latest(self) -> MetadataImage:
        """The image including uncommitted records; valid only while this node is active."""
        return self._replay.latest

    @property
    def bootstrap(self) -> Sequence[ApiMessageAndVersion]:
        """Records that formatting left for the first active controller; empty if there are none or they were
        written."""
        return self._started.bootstrap

    @property
    def kraft_version(self) -> int:
        """1 if the log names the voters, 0 if the configuration of each node does (KIP-853)."""
        return 0 if self.raft.state.voter_sets.are_configured else KRAFT_VERSION

    @property
    def leader(self) -> LeaderAndEpoch:
        """The leader of the quorum, as known by this node."""
        return self.raft.state.leader

    @property
    def log_end(self) -> OffsetAndEpoch:
        """Log end offset, including uncommitted records; also valid after `close`."""
        log = self._started.log
        return OffsetAndEpoch(log.end_offset, log.last_epoch)

    @property
    def next_offset(self) -> int:
        """The offset that the next submitted record gets."""
        return self.log.end_offset

    def leader_endpoint(self) -> Endpoint | None:
        """Endpoint of the active controller; None if it is unknown."""
        address = self.raft.state.leader_address
        if address is None:
            return None
        return Endpoint(self._quorum.listener_name, self._quorum.security_protocol, *address)

    # -- start -----------------------------------------------------------------------------------------------------

    def start(self, endpoints: Sequence[Endpoint]) -> bool:
        """Open and replay the log, then join the quorum. Blocks, and runs before anything else.

        `endpoints` are the addresses of this voter for other controllers, the preferred one first. A single voter leads
        a new epoch when this returns. Returns true if the log is empty and not because of damage that other replicas
        repair: then the controller submits the first records of a cluster. Raises OperatorError for damaged or foreign
        files, for finalized features that this version does not have (before anything is written), and for disk errors.
        """
        own = Voter.at(self._local.key, endpoints)
        self._state.open()
        try:
            log = self._log = open_metadata_log(self._runtime, self._local.data_dir, self._local.log_config)
            if self._network is not None:
                drop_unknown_epochs(log, self._runtime.disk)
            was_empty = log.end_offset == 0
            parts = self._parts = self._read(log, own)
            self._take_up(parts)
            new = was_empty and not parts.raft.state.election.must_catch_up
            self._act()
        except OSError as error:
            raise disk_refusal(error, self._local.data_dir) from error
        except KafkaError as error:
            path = self._log.directory if self._log else self._local.data_dir
            raise DataDirectoryError(f"the metadata log in {path} can't be used: {error}") from error
        except (ProtocolError, InvariantError) as error:
            raise DataDirectoryError(
                f"the metadata log in {self.log.directory} can't be applied by this version: {error}; "
                "start the version that wrote it, or restore the directory from a backup; "
                "`ottla adopt` lists the content"
            ) from error
        self._state.opened()
        parts.snapshots.start()
        return new

    def _read(self, log: ReplicaLog, own: Voter) -> _Parts:
        """Replay the log, and create the components that use it."""
        local, clock = self._local, self._clock
        alone = self._network is None
        content = read_log(log, self._replay, local, () if alone else self._quorum.voters, alone=alone)
        if alone:
            bootstrap_voter(log, content.voters, own, content.bootstrap, clock.time_ms())
        snapshots = SnapshotTaker(
            log, local.log_config, self._snapshot_source, clock=clock, scheduler=self._scheduler, pool=self._pool
        )
        snapshots.appended(content.tail_bytes, content.last_timestamp_ms)
        raft = Raft(local.key, log, self._runtime.rng, self._quorum.timeouts, content.voters, content.high_watermark)
        leader_log = LeaderLog(
            log, raft, self._replay, snapshots, clock=clock, own=own, request_flush=self._request_flush
        )
        peers: QuorumPeers | NoPeers = NoPeers()
        if self._network is not None:
            from ottla.quorum.peers import QuorumPeers  # here, since a single node starts faster without it

            followed = FollowerLog(log, raft, self._replay, snapshots, clock, act=self._act, failed=self._fail)
            peers = QuorumPeers(self._network, raft, log, followed, runtime=self._runtime, quorum=self._quorum, own=own)
        announcer = Announcer(local.node_id, alone=alone)
        return _Parts(log, raft, snapshots, leader_log, peers, announcer, content.bootstrap)

    def _take_up(self, parts: _Parts) -> None:
        """Restore the state of the last run, or the initial state if there is none. Raises OSError, OperatorError."""
        log, raft = parts.log, parts.raft
        stored = None
        try:
            stored = log.read_election_state()
            forgot = stored is None and log.end_offset > 0  # nothing is appended before the file exists
        except ElectionStateDamage as error:
            logger.error("%s; a voter continues in an epoch above any in which it may have voted", error)
            forgot = True
        forgotten = max(log.read_noted_epoch(), log.last_epoch) if forgot else None
        epoch = stored.leader_epoch if stored is not None else (forgotten or 0) + FORGOTTEN_EPOCHS
        if epoch >= MAX_LEADER_EPOCH:
            raise DataDirectoryError(
                f"no leader epoch is left after {epoch} in {log.directory}/quorum-state: stop all nodes, and run "
                "ottla cluster repair-epoch once per node, on the directory with the metadata log"
            )
        raft.elections.start(self._clock.monotonic(), stored, forgotten=forgotten, must_catch_up=log.must_catch_up)
        if raft.state.election.must_catch_up:
            logger.error(
                "damage was found in %s: this node does not vote or lead until it has caught up with a leader; "
                "if no leader can be elected because most voters are damaged, stop this node and remove %s there",
                log.directory,
                CATCHING_UP_FILE,
            )

    def _snapshot_source(self) -> tuple[MetadataImage, tuple[Voter, ...]]:
        image = self._publisher.image
        return image, self.raft.state.voter_sets.before(image.offset + 1)

    # -- after every event -----------------------------------------------------------------------------------------

    def _act(self) -> None:
        """Carry out the decisions of the rules, publish committed records, continue to fetch. A nested call only sets a
        flag.
        """
        if self._parts is None:
            return
        try:
            self._rounds.run()
        except (OSError, KafkaError) as error:
            if self._state.phase is OPENING:
                raise
            self._fail(error)

    def _step(self) -> None:
        parts, state = self._started, self._state
        if not state.takes_part:
            return
        raft = parts.raft
        self._carry_out(parts)
        self._advance(raft)
        self._follow_role(parts)
        self._advance(raft)
        parts.leader_log.note_commits()
        self._notify(raft)
        if self._service is not None:
            self._service.poll()
        if state.failure is not None:
            return  # a callback closed the driver
        if state.phase is not DRAINING:
            parts.peers.poll()
            self._timer.arm(raft.elections.deadline)
        if raft.state.effects:
            self._rounds.ask()
        if state.phase is not OPENING:
            parts.snapshots.take_if_large()

    @staticmethod
    def _carry_out(parts: _Parts) -> None:
        """Write, send and log the effects of the rules, in order. Raises OSError."""
        raft = parts.raft
        while raft.state.effects:
            effects, raft.state.effects = raft.state.effects, []
            for index, effect in enumerate(effects):
                if not isinstance(effect, Persist):
                    parts.peers.send(effect)
                # The next state replaces this one, and nothing is sent in between.
                elif not isinstance(effects[index + 1] if index + 1 < len(effects) else None, Persist):
                    _write_election_state(parts, effect.election)
        parts.announcer.announce(raft)

    def _advance(self, raft: Raft) -> None:
        leading = self._state.tenure is not FOLLOWING
        if self._replays_later and not leading:
            return
        limit = ALL_MESSAGES if self._state.phase is OPENING else MESSAGES_PER_TURN
        try:
            self._replays_later = self._replay.advance(raft.state.high_watermark, leading=leading, limit=limit)
        except (KafkaError, OSError):
            raise
        except Exception as error:
            # Only some components of the broker have applied this image: no further change may build on it.
            self._fail(error)
            raise
        if self._replays_later:

            def replay_more() -> None:
                self._replays_later = False
                self._act()

            self._scheduler.call_soon(replay_more)

    def _follow_role(self, parts: _Parts) -> None:
        """Take over, become active, or step down, as decided by the rules."""
        state, leading = self._state, parts.raft.state.leading
        if state.tenure is not FOLLOWING and (leading is None or leading.epoch != state.led_epoch):
            state.unseated()
            logger.info("node %d no longer leads the metadata quorum", self._local.node_id)
            self._replay.follow(KafkaError(ErrorCode.NOT_CONTROLLER, "this node is no longer the active controller"))
        if leading is None:
            return
        if state.tenure is FOLLOWING:
            self._take_over(parts, leading.epoch)
        elif state.tenure is TAKING_OVER and leading.committed:
            state.committed()
            if self._network is not None:
                logger.info("node %d leads the metadata quorum in epoch %d", self._local.node_id, leading.epoch)
                self._replay.leader_heard()

    def _take_over(self, parts: _Parts, epoch: int) -> None:
        """Append the first batch of the epoch."""
        log, raft, state = parts.log, parts.raft, self._state
        state.elected(epoch)
        self._rounds.ask()
        try:
            parts.leader_log.begin(epoch)
        except KafkaError:
            if state.phase is OPENING or log.failed:
                raise
            raft.elections.resign(self._clock.monotonic())  # usually a full disk: another replica has to lead
            return
        if state.phase is OPENING:
            log.flush()
            raft.replication.flushed(self._clock.monotonic(), log.flushed_offset)
        else:
            self._request_flush()

    def _request_flush(self) -> None:
        self.log.request_flush(self._pool, self._flushed)

    def _flushed(self, error: BaseException | None) -> None:
        if error is not None:
            self._fail(error)
        elif self._state.takes_part:
            parts = self._started
            parts.raft.replication.flushed(self._clock.monotonic(), parts.log.flushed_offset)
            self._act()

    def _tick(self) -> None:
        if self._state.takes_part and self._state.phase is not DRAINING:
            self.raft.elections.tick(self._clock.monotonic())
            self._act()

    # -- leadership listeners ----------------------------------------------------------------------------------------

    def listen(self, listener: LeadershipListener) -> None:
        """Call `listener` with the current leadership, and on every change from now on."""
        self._listeners.append(listener)
        if self._known[0].leader_id != NO_NODE:
            listener.on_leader_change(*self._known)

    def _notify(self, raft: Raft) -> None:
        known = (raft.state.leader, self.active)
        if known != self._known:
            self._known = known
            for listener in list(self._listeners):
                listener.on_leader_change(*known)

    # -- submitting ------------------------------------------------------------------------------------------------

    def submit(self, records: Submission, done: SubmitDone) -> None:
        """Append the records as one batch and call `done(None)` once they are committed and published.

        Without records `done` is called once all earlier submissions are committed. An error is a KafkaError for the
        client: NOT_CONTROLLER if this node is not active (nothing was appended) or stopped being active before the
        commit (the outcome is unknown), or the error of the disk. Records must fit `latest`: otherwise InvariantError
        is raised and nothing changes. `done` may be called before this returns.
        """
        state = self._state
        if state.failure is not None:
            done(state.failure)
            return
        if state.tenure is not LEADING:
            done(KafkaError(ErrorCode.NOT_CONTROLLER, "this node is not the active controller"))
            return
        leader_log = self._started.leader_log
        if records:
            try:
                leader_log.append_records(records, state.led_epoch)
            except KafkaError as error:
                done(error)
                return
        leader_log.await_commit(done)
        self._act()

    def check_voters(self) -> None:
        """See `MetadataLog`."""
        self._started.leader_log.check_voters()

    def name_voters(self) -> None:
        """See `MetadataLog`."""
        if self._state.tenure is not LEADING:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "this node is not the active controller")
        if self.kraft_version < KRAFT_VERSION:
            self._started.leader_log.name_voters(self._state.led_epoch)
            self._act()

    def submit_start(self, batches: Sequence[Sequence[ApiMessageAndVersion]], done: SubmitDone) -> None:
        """Submit the records of a single node's start; the first published image contains all of them.

        Its changes name every object of the image. Raises KafkaError for a disk error.
        """
        leader_log = self._started.leader_log
        for records in batches:
            leader_log.append_split(records, self._state.led_epoch)
        leader_log.await_start(done)
        self._act()

    # -- for the service: `ServedReplica` ----------------------------------------------------------------------------

    @property
    def log(self) -> ReplicaLog:
        """The open log; raises InvariantError before `start` and after `close`."""
        if self._log is None:
            raise InvariantError("the metadata log is not open")
        return self._log

    @property
    def raft(self) -> Raft:
        """The rules; raises InvariantError before `start`."""
        return self._started.raft

    @property
    def failure(self) -> KafkaError | None:
        """Why this replica has stopped working; None while it works."""
        return self._state.failure

    def settle(self) -> None:
        """Make the decisions of the rules durable, then continue. Raises KafkaError if this replica has failed or was
        closed.
        """
        try:
            self._carry_out(self._started)
        except OSError as error:
            self._fail(error)
        self._act()
        if self._state.failure is not None:
            raise self._state.failure.with_traceback(None)  # the same error each time: its traceback would grow

    def append_voters(self, voters: tuple[Voter, ...], done: SubmitDone) -> None:
        """Change the set of voters; `done` as in `submit`. The caller has checked that the change is allowed."""
        leader_log = self._started.leader_log
        leader_log.append_voters(voters, self._state.led_epoch)
        leader_log.await_commit(done)
        self._act()

    def introduce_leader(self, voter: Voter, done: MessageDone) -> None:
        """Announce the leader to `voter`, which may not exist; `done` receives the response or an error."""
        self._started.peers.introduce_leader(voter, done)

    # -- the end ---------------------------------------------------------------------------------------------------

    def stop(self, done: SubmitDone) -> None:
        """Stop participating, and notify the other replicas; `done` once they had time to react and no write is
        pending.

        Then `close` may be called. A leader resigns, so that the others do not wait for their election timeout.
        """
        if self._state.phase is RUNNING:
            self._drain(self._started)
        elif self._state.phase is not DRAINING:
            done(None)
            return
        self._wait_for_others(done, self._clock.monotonic() + _STOP_S)

    def _drain(self, parts: _Parts) -> None:
        self._state.stop()
        if len(parts.raft.state.voters) > 1:
            parts.raft.elections.resign(self._clock.monotonic())
            self._act()
        parts.snapshots.stop()
        parts.peers.stop()
        self._timer.cancel()

    def _wait_for_others(self, done: SubmitDone, deadline: float) -> None:
        if not self._started.peers.idle and self._clock.monotonic() < deadline:
            self._scheduler.call_later(0.01, self._wait_for_others, done, deadline)
        else:
            self.log.request_flush(self._pool, done)

    def close(self) -> None:
        """Flush and close; blocks. Not during a flush: call it after `stop`, or from the callback of a submission.

        Pending submissions fail with BROKER_NOT_AVAILABLE. Raises KafkaError for a disk error.
        """
        if self._state.phase is CLOSED:
            return
        took_part = self._state.takes_part
        failure = KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "the broker is stopping")
        self._state.close(failure)
        if self._parts is not None:
            if took_part:
                self._withdraw(self._parts)
            self._parts.peers.close()
        self._replay.fail(failure)
        log, self._log = self._log, None
        if log is not None:
            log.close()

    def _fail(self, error: BaseException) -> None:
        if not self._state.takes_part:
            return
        failure = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"the metadata log failed: {error}")
        self._state.fail(failure)
        logger.error("the metadata log in %s failed: %s", self.log.directory, error)
        self._withdraw(self._started)
        self._replay.fail(failure)
        self._on_failure(error)

    def _withdraw(self, parts: _Parts) -> None:
        """Resign if leading, and stop all requests, responses and snapshots."""
        raft = parts.raft
        parts.snapshots.stop()
        parts.peers.stop()
        self._timer.cancel()
        raft.state.transitions.clear()  # a state that was not written has no effect
        raft.elections.resign(self._clock.monotonic())
        for effect in raft.state.effects:
            if not isinstance(effect, Persist):
                parts.peers.send(effect)
        raft.state.effects.clear()
        parts.announcer.announce(raft)
        if self._service is not None:
            self._service.close()
        self._notify(raft)


def _write_election_state(parts: _Parts, election: ElectionState) -> None:
    sets = parts.raft.state.voter_sets
    parts.log.write_election_state(election, sets.latest if sets.are_configured else ())
