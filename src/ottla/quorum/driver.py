"""One replica of the metadata log in this process: files, timers and requests around the rules of Raft.

Purpose: carry out what `raft` decides, take records from the active controller, publish images on every node. A quorum
of one voter is the single node: the same code, whose election ends within `start`.

Invariants:
- What the rules want to be durable is durable before anything that follows from it leaves this process: `quorum-state`
  before an answer or a request, the leader's own log before it counts itself, a follower's before its next Fetch.
- Nothing is appended in an epoch before `quorum-state` names it durably.
- A failed sync ends the driver: what is on disk is unknown, so every later submission fails, `on_failure` is told, and
  this replica neither leads nor votes any more. So does a listener that raises, since then the broker's parts disagree
  about the cluster.
- Batches are synced together while one sync runs (`storage.flush`): the queue of waiting submissions is as long as the
  requests that wait for them, each of which holds back its connection.

`quorum-state` is written on the loop: elections are rare, and until it is written there is no state to go on from.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ottla.common.clock import TimerHandle
from ottla.common.disk_refusal import disk_refusal
from ottla.common.endpoint import Endpoint
from ottla.common.errors import ErrorCode, InvariantError, KafkaError, OperatorError, ProtocolError
from ottla.common.machine import Machine
from ottla.common.peer import PeerNetwork
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import MetadataImage
from ottla.metadata.log import NO_NODE, LeaderAndEpoch, LeadershipListener, SubmitDone
from ottla.metadata.publisher import MetadataPublisher
from ottla.metadata.records import ApiMessageAndVersion, encode_record
from ottla.net.peer_messages import MessageDone
from ottla.quorum.config import LocalReplica, QuorumConfig
from ottla.quorum.control import leader_change, voter_records
from ottla.quorum.fetcher import Fetcher
from ottla.quorum.follower_log import FollowerLog
from ottla.quorum.joining import VoterJoiner
from ottla.quorum.metadata_log import MetadataLog, open_metadata_log
from ottla.quorum.network import QuorumNetwork
from ottla.quorum.opening import bootstrap_voter, read_log
from ottla.quorum.raft import Raft
from ottla.quorum.raft_leader import LeaderState
from ottla.quorum.raft_types import (
    MAX_LEADER_EPOCH,
    Address,
    ElectionState,
    OffsetAndEpoch,
    Persist,
    Voter,
)
from ottla.quorum.raft_voters import BOOTSTRAP_OFFSET
from ottla.quorum.replay import Replay
from ottla.quorum.rpc import begin_request
from ottla.quorum.sender import EffectSender, address_of
from ottla.quorum.service import QuorumService
from ottla.quorum.snapshots import SnapshotTaker
from ottla.record.builder import RecordData

logger = logging.getLogger(__name__)

_SNAPSHOT_AT_START_BYTES = 1024 * 1024
"""Each start adds a record for each partition: with many of them, a few starts would make the next ones slow."""
_STOP_S = 1.0
"""How long a leader that stops waits for the others to hear of it."""
_SHORTEST_TIMER_S = 0.001


class _Parts(NamedTuple):
    """What there is from `start` on."""

    log: MetadataLog
    raft: Raft
    snapshots: SnapshotTaker
    sender: EffectSender | None
    fetcher: Fetcher | None
    joiner: VoterJoiner | None


class QuorumDriver:
    """The metadata quorum as this process sees it. Implements `MetadataLog`. All methods belong to the loop."""

    __slots__ = (
        "_acting",
        "_again",
        "_clock",
        "_endpoints",
        "_failure",
        "_known",
        "_led_epoch",
        "_listeners",
        "_local",
        "_machine",
        "_networks",
        "_on_failure",
        "_opened",
        "_parts",
        "_peers",
        "_pool",
        "_publisher",
        "_quorum",
        "_replay",
        "_scheduler",
        "_starting",
        "_stopping",
        "_timer",
        "_timer_at",
        "active",
        "service",
    )

    def __init__(
        self,
        *,
        machine: Machine,
        local: LocalReplica,
        publisher: MetadataPublisher,
        on_failure: Callable[[BaseException], None],
        peers: PeerNetwork | None = None,
        quorum: QuorumConfig | None = None,
    ) -> None:
        """Without `peers` this node is its own only voter, and the first image is published by `submit_start`."""
        self._machine = machine
        self._clock = machine.clock
        self._scheduler = machine.scheduler
        self._pool = machine.pool
        self._local = local
        self._publisher = publisher
        self._on_failure = on_failure
        self._quorum = quorum or QuorumConfig()
        # A Fetch may wait for half a second, and no vote may wait behind it.
        self._peers = peers
        self._networks = None if peers is None else (QuorumNetwork(peers), QuorumNetwork(peers))
        self._opened: MetadataLog | None = None
        self._parts: _Parts | None = None
        self._replay = Replay(publisher)
        self._endpoints: tuple[tuple[str, str, int], ...] = ()
        self._failure: KafkaError | None = None
        self._listeners: list[LeadershipListener] = []
        self._known = (LeaderAndEpoch(NO_NODE, 0), False)
        self._led_epoch = -1
        self._acting = False
        self._again = False
        self._starting = False
        self._stopping = False
        self._timer: TimerHandle | None = None
        self._timer_at = 0.0
        self.active = False
        self.service = QuorumService(self, machine, self._quorum.cluster_id)

    # -- facts -----------------------------------------------------------------------------------------------------

    @property
    def log(self) -> MetadataLog:
        """The open log; raises InvariantError before `start`."""
        if self._opened is None:
            raise InvariantError("the metadata log is not open")
        return self._opened

    @property
    def raft(self) -> Raft:
        """The rules; raises InvariantError before `start`."""
        return self._started.raft

    @property
    def _started(self) -> _Parts:
        if self._parts is None:
            raise InvariantError("the quorum was not started")
        return self._parts

    @property
    def latest(self) -> MetadataImage:
        """The image with records that are not committed yet; means something only while this node is active."""
        return self._replay.latest

    @property
    def leader(self) -> LeaderAndEpoch:
        """Who leads the quorum, as far as this node knows."""
        return self.raft.leader

    @property
    def leader_epoch(self) -> int:
        """The newest epoch that this node knows of; its own while it leads."""
        return self.raft.epoch

    @property
    def high_watermark(self) -> int:
        """The end of what is known to be committed."""
        return self.raft.high_watermark

    @property
    def voters(self) -> tuple[Voter, ...]:
        return self.raft.voters

    @property
    def log_end(self) -> OffsetAndEpoch:
        """Where the log ends here, committed or not; also after `close`."""
        log = self._started.log
        return OffsetAndEpoch(log.end_offset, log.last_epoch)

    @property
    def next_offset(self) -> int:
        """The offset that the next submitted record gets."""
        return self.log.end_offset

    @property
    def failure(self) -> KafkaError | None:
        """Why this replica takes no more part; None while it does."""
        return self._failure

    def leader_endpoint(self) -> Endpoint | None:
        """Where the active controller listens; None when it is not known."""
        address = self.raft.leader_address
        if address is None:
            return None
        return Endpoint(self._quorum.listener_name, self._quorum.security_protocol, *address)

    # -- for the service ---------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Make durable what the rules decided, then go on. Raises KafkaError when this replica takes no more part."""
        try:
            self._carry_out()
        except OSError as error:
            self._fail(error)
        self.act()
        if self._failure is not None:
            raise self._failure

    def introduce_leader(self, voter: Voter, done: MessageDone) -> None:
        """Tell `voter` who leads, on a connection of its own: it may be nobody, and then nothing of it stays."""
        if self._peers is None:
            done(None, ConnectionError("this node has no connections to others"))
            return
        network = QuorumNetwork(self._peers)

        def answered(response: Any, error: BaseException | None) -> None:
            network.close()
            done(response, error)

        _, host, port = voter.endpoints[0]
        message = begin_request(self._quorum.cluster_id, self.raft.leader, voter, self._own_voter())
        network.send((host, port), message, answered, self._quorum.times.request_s)

    # -- start -----------------------------------------------------------------------------------------------------

    def start(self, endpoints: Sequence[Endpoint]) -> bool:
        """Open the log and replay it; blocks, before anything else runs. Then take part in the quorum.

        `endpoints` are where this voter can be reached by other controllers, the one that they use first. An only voter
        leads a new epoch when this returns. Whether the log was empty: then the controller submits the first records
        of a cluster. Raises OperatorError for damaged or foreign files, for finalized features that this version
        doesn't have (before anything is written), and for a disk that refuses.
        """
        self._endpoints = tuple((item.listener_name, item.host, item.port) for item in endpoints)
        self._starting = True
        try:
            log = self._opened = open_metadata_log(self._machine, self._local.data_dir, self._local.log_config)
            new = log.end_offset == 0
            raft = self._read(log)
            stored = log.read_election_state()
            if stored is not None and stored.leader_epoch >= MAX_LEADER_EPOCH:
                raise OperatorError(
                    f"there is no leader epoch left after {stored.leader_epoch}, which {log.directory}/quorum-state "
                    "names: stop all nodes, and run ottla cluster repair-epoch on the data directory of each"
                )
            raft.start(self._clock.monotonic(), stored)
            self.act()
        except OSError as error:
            raise disk_refusal(error, self._local.data_dir) from error
        except KafkaError as error:
            path = self._opened.directory if self._opened else self._local.data_dir
            raise OperatorError(f"the metadata log in {path} can't be used: {error}") from error
        except (ProtocolError, InvariantError) as error:
            raise OperatorError(
                f"the metadata log in {self.log.directory} holds what this version can't apply: {error}; "
                "start the version that wrote it, or restore the directory from a copy"
            ) from error
        self._starting = False
        self._started.snapshots.start()
        return new

    def _read(self, log: MetadataLog) -> Raft:
        """Replay what is there, and make the parts that work on it."""
        local = self._local.key
        alone = self._networks is None
        content = read_log(log, self._replay, local, () if alone else self._quorum.voters, alone=alone)
        if alone:
            bootstrap_voter(log, content.voters, self._own_voter(), self._clock.time_ms())
        snapshots = SnapshotTaker(
            log,
            self._local.log_config,
            self._snapshot_source,
            clock=self._clock,
            scheduler=self._scheduler,
            pool=self._pool,
        )
        snapshots.appended(content.tail_bytes, content.last_timestamp_ms)
        raft = Raft(local, log, self._machine.rng, self._quorum.timeouts, content.voters, content.committed_end)
        self._parts = self._make_parts(log, raft, snapshots)
        return raft

    def _make_parts(self, log: MetadataLog, raft: Raft, snapshots: SnapshotTaker) -> _Parts:
        if self._networks is None:
            return _Parts(log, raft, snapshots, None, None, None)
        for_votes, for_fetches = self._networks
        quorum = self._quorum
        sender = EffectSender(
            raft,
            log,
            for_votes,
            self.act,
            clock=self._clock,
            scheduler=self._scheduler,
            cluster_id=quorum.cluster_id,
            times=quorum.times,
            endpoints=self._endpoints,
        )
        followed = FollowerLog(log, raft, self._replay, snapshots, self._clock, act=self.act, failed=self._fail)
        fetcher = Fetcher(
            followed,
            raft,
            log,
            for_fetches,
            machine=self._machine,
            quorum=quorum,
            bootstrap=self._bootstrap_addresses,
        )
        joiner = VoterJoiner(
            raft,
            for_votes,
            self.act,
            scheduler=self._scheduler,
            cluster_id=quorum.cluster_id,
            request_s=quorum.times.request_s,
            endpoints=self._endpoints,
        )
        return _Parts(log, raft, snapshots, sender, fetcher, joiner if quorum.auto_join else None)

    def _bootstrap_addresses(self) -> list[Address]:
        """Other voters and the configured servers."""
        own = {(host, port) for _, host, port in self._endpoints}
        voters = [address_of(voter) for voter in self.raft.voters if voter.voter_id != self._local.node_id]
        known = [*(address for address in voters if address is not None), *self._quorum.bootstrap]
        return [address for address in dict.fromkeys(known) if address not in own]

    def _own_voter(self) -> Voter:
        return Voter(*self._local.key, self._endpoints)

    # -- after every event -----------------------------------------------------------------------------------------

    def act(self) -> None:
        """Carry out what the rules decided, publish what became committed, go on fetching; once for nested calls."""
        if self._acting:
            self._again = True
            return
        if self._parts is None or self._failure is not None:
            return
        self._acting = True
        try:
            self._again = True
            while self._again and self._failure is None:
                self._again = False
                self._step(self._parts)
        except (OSError, KafkaError) as error:
            if self._starting:
                raise
            self._fail(error)
        finally:
            self._acting = False

    def _step(self, parts: _Parts) -> None:
        self._carry_out()
        self._advance(parts.raft)
        self._follow_role(parts.raft)
        self._advance(parts.raft)
        self._notify(parts.raft)
        self.service.poll()
        if parts.fetcher is not None and not self._stopping:
            parts.fetcher.poll()
        if parts.sender is not None and not self._stopping:
            parts.sender.update_own_voter()
        if parts.joiner is not None and not self._stopping:
            parts.joiner.poll()
        if parts.raft.effects:
            self._again = True
        self._arm_timer(parts.raft)
        if not self._starting:
            parts.snapshots.take_if_large()

    def _carry_out(self) -> None:
        """Write and send what the rules ask for, in order. Raises OSError."""
        parts = self._started
        while parts.raft.effects:
            effects, parts.raft.effects = parts.raft.effects, []
            for index, effect in enumerate(effects):
                if isinstance(effect, Persist):
                    # The next state replaces this one, and nothing leaves in between.
                    if not isinstance(effects[index + 1] if index + 1 < len(effects) else None, Persist):
                        self._write_election_state(parts, effect.election)
                elif parts.sender is not None:
                    parts.sender.send(effect)

    @staticmethod
    def _write_election_state(parts: _Parts, election: ElectionState) -> None:
        sets = parts.raft.voter_sets
        parts.log.write_election_state(election, sets.latest if sets.are_configured else ())

    def _advance(self, raft: Raft) -> None:
        try:
            self._replay.advance(raft.high_watermark, leading=self._led_epoch >= 0)
        except (KafkaError, OSError):
            raise
        except Exception as error:
            # Some parts of the broker follow this image and some don't: no further change may build on it.
            self._fail(error)
            raise

    def _follow_role(self, raft: Raft) -> None:
        leading = raft.leading
        if self._led_epoch >= 0 and (leading is None or leading.epoch != self._led_epoch):
            self._led_epoch = -1
            self.active = False
            logger.info("node %d leads the metadata quorum no more", self._local.node_id)
            self._replay.follow(KafkaError(ErrorCode.NOT_CONTROLLER, "this node is not the active controller any more"))
        if leading is None:
            return
        if self._led_epoch != leading.epoch:
            self._begin_leading(leading, raft)
        elif leading.committed and not self.active:
            self.active = True
            if self._networks is not None:
                logger.info("node %d leads the metadata quorum in epoch %d", self._local.node_id, leading.epoch)
                self._replay.leader_heard()

    def _begin_leading(self, leading: LeaderState, raft: Raft) -> None:
        """Append the first batch of the epoch."""
        log = self.log
        self._led_epoch = leading.epoch
        self._again = True
        self._replay.lead(log.end_offset, leading.epoch)
        now = self._clock.time_ms()
        records = [leader_change(self._local.node_id, [voter.voter_id for voter in raft.voters], now)]
        sets = raft.voter_sets
        voters = tuple(self._own_voter() if voter.key == raft.local else voter for voter in sets.recorded)
        if voters and (sets.latest_offset == BOOTSTRAP_OFFSET or voters != sets.recorded):
            records += voter_records(voters, now)
        try:
            self._append(records, is_control=True)
        except KafkaError:
            if self._starting or log.failed:
                raise
            raft.resign(self._clock.monotonic())  # a full disk, mostly: another one shall lead
            return
        if len(records) > 1:
            raft.voters_appended(self._clock.monotonic(), log.end_offset - 1, voters)
        self._replay.begun(log.end_offset, leading.epoch)
        if self._starting:
            log.flush()
            raft.flushed(self._clock.monotonic(), log.flushed_offset)
        else:
            log.request_flush(self._pool, self._flushed)

    def _notify(self, raft: Raft) -> None:
        known = (raft.leader, self.active)
        if known != self._known:
            self._known = known
            for listener in list(self._listeners):
                listener.on_leader_change(*known)

    def _arm_timer(self, raft: Raft) -> None:
        deadline = raft.deadline
        if deadline is None or self._stopping:
            return
        if self._timer is not None:
            if self._timer_at <= deadline:
                return
            self._timer.cancel()
        self._timer_at = deadline
        delay = max(deadline - self._clock.monotonic(), _SHORTEST_TIMER_S)
        self._timer = self._scheduler.call_later(delay, self._tick)

    def _tick(self) -> None:
        self._timer = None
        if self._failure is None and not self._stopping:
            self.raft.tick(self._clock.monotonic())
            self.act()

    def _fail(self, error: BaseException) -> None:
        if self._failure is not None:
            return
        self._failure = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"the metadata log failed: {error}")
        logger.error("the metadata log in %s failed: %s", self.log.directory, error)
        self._withdraw()
        self._replay.fail(self._failure)
        self._on_failure(error)

    def _withdraw(self) -> None:
        """Take no more part: others shall lead, and nothing is asked, answered or snapshotted from now on."""
        parts = self._started
        self.active = False
        self._led_epoch = -1
        parts.snapshots.stop()
        if parts.fetcher is not None:
            parts.fetcher.stop()
        if self._timer is not None:
            self._timer.cancel()
        parts.raft.resign(self._clock.monotonic())
        for effect in parts.raft.effects:
            if parts.sender is not None and not isinstance(effect, Persist):
                parts.sender.send(effect)
        parts.raft.effects.clear()
        self.service.close()
        self._notify(parts.raft)

    # -- what others follow ----------------------------------------------------------------------------------------

    def listen(self, listener: LeadershipListener) -> None:
        """Tell `listener` of every change of leadership from now on, and at once of what is known now."""
        self._listeners.append(listener)
        if self._known[0].leader_id != NO_NODE:
            listener.on_leader_change(*self._known)

    # -- submitting ------------------------------------------------------------------------------------------------

    def submit(self, records: Sequence[ApiMessageAndVersion], done: SubmitDone) -> None:
        """Append the records as one batch and call `done(None)` once they are committed and published.

        Without records `done` is called once everything submitted before is committed. An error is a KafkaError for
        the client: NOT_CONTROLLER when this node is not active, and nothing was appended, or when it ceased to be
        before the commit, and nobody knows; or the disk's. Records must fit `latest`: InvariantError otherwise, with
        nothing changed. `done` may be called before this returns.
        """
        if self._failure is not None:
            done(self._failure)
            return
        if not self.active:
            error = KafkaError(ErrorCode.NOT_CONTROLLER, "this node is not the active controller")
            done(error if records else None)
            return
        if records:
            try:
                self._append_records(records)
            except KafkaError as error:
                done(error)
                return
        self._await_commit(done)

    def submit_start(self, batches: Sequence[Sequence[ApiMessageAndVersion]], done: SubmitDone) -> None:
        """Submit the records of a single node's start; the first image published is the one with all of them.

        Its changes name everything there is. Raises KafkaError when the disk refuses.
        """
        for records in batches:
            self._append_records(records)

        def started(error: BaseException | None) -> None:
            done(error)
            snapshots = self._started.snapshots
            if snapshots.bytes_since >= _SNAPSHOT_AT_START_BYTES:
                snapshots.take()

        self._replay.await_commit(self.log.end_offset, self.leader_epoch, started)
        self._replay.publish_at_once()
        self.log.request_flush(self._pool, self._flushed)
        self.act()

    def append_voters(self, voters: tuple[Voter, ...], done: SubmitDone) -> None:
        """Change the set of voters; `done` as in `submit`. The caller has checked that it may be changed now."""
        self._append(voter_records(voters, self._clock.time_ms())[1:], is_control=True)
        self.raft.voters_appended(self._clock.monotonic(), self.log.end_offset - 1, voters)
        self._await_commit(done)

    def _append_records(self, records: Sequence[ApiMessageAndVersion]) -> None:
        messages = [record.message for record in records]
        delta = MetadataDelta(self.latest)
        for message in messages:
            delta.replay(message)
        now = self._clock.time_ms()
        self._append([RecordData(now, None, encode_record(record)) for record in records], is_control=False)
        image, changes = delta.apply(self.log.end_offset - 1, self.leader_epoch)
        self._replay.submitted(self.log.end_offset, self.leader_epoch, messages, image, changes)

    def _await_commit(self, done: SubmitDone) -> None:
        log = self.log
        self._replay.await_commit(log.end_offset, self.leader_epoch, done)
        if log.flushed_offset < log.end_offset:
            log.request_flush(self._pool, self._flushed)
        self.act()

    def _append(self, data: Sequence[RecordData], *, is_control: bool) -> None:
        size = self.log.append(data, self._led_epoch, is_control=is_control)
        self._started.snapshots.appended(size, data[-1].timestamp_ms)

    def _flushed(self, error: BaseException | None) -> None:
        if error is not None:
            self._fail(error)
        elif self._opened is not None:
            self.raft.flushed(self._clock.monotonic(), self._opened.flushed_offset)
            self.act()

    # -- snapshots -------------------------------------------------------------------------------------------------

    def _snapshot_source(self) -> tuple[MetadataImage, tuple[Voter, ...]]:
        image = self._publisher.image
        sets = self.raft.voter_sets
        return image, sets.before(image.offset + 1) or sets.recorded

    # -- stop ------------------------------------------------------------------------------------------------------

    def _resign(self) -> None:
        """Lead no longer, if this node does and others vote; they are told who is best fit."""
        if len(self.raft.voters) > 1:
            self.raft.resign(self._clock.monotonic())
            self.act()

    def stop(self, done: SubmitDone) -> None:
        """Take no more part, and let the others know; `done` when they had their time and nothing is being written.

        Then `close` may be called. A leader resigns, so that the others need not find out.
        """
        if self._parts is None or self._failure is not None:
            done(None)
            return
        self._stopping = True
        self._resign()
        parts = self._parts
        parts.snapshots.stop()
        if parts.fetcher is not None:
            parts.fetcher.stop()
        if self._timer is not None:
            self._timer.cancel()
        self._wait_for_others(done, self._clock.monotonic() + _STOP_S)

    def _wait_for_others(self, done: SubmitDone, deadline: float) -> None:
        if self._networks is not None and not self._networks[0].idle and self._clock.monotonic() < deadline:
            self._scheduler.call_later(0.01, self._wait_for_others, done, deadline)
        else:
            self.log.request_flush(self._pool, done)

    def close(self) -> None:
        """Flush and close; blocks. Not while a flush is under way: after `stop`, or when a submission was answered.

        Submissions that still wait get BROKER_NOT_AVAILABLE. Raises KafkaError when the disk refuses.
        """
        self._failure = self._failure or KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "the broker is stopping")
        if self._parts is not None and self._opened is not None:
            self._withdraw()
        log, self._opened = self._opened, None
        for network in self._networks or ():
            network.close()
        self._replay.fail(self._failure)
        if log is not None:
            log.close()
