"""The controller's responses to its followers: Fetch and FetchSnapshot of the metadata log of its term.

The same requests as to the leader of a quorum, from observers: no follower's progress is required. A request names the
cluster and the controller epoch, and the response contains the current ones if they differ.

Invariants: every request is answered once, a Fetch also when the term ends; no response contains data that is not in
the tree.
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.platform.clock import Scheduler, TimerHandle
from ottla.metadata.log import LeaderAndEpoch
from ottla.protocol.messages.fetch import FetchRequest, FetchResponse
from ottla.protocol.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse
from ottla.quorum.raft_types import FetchVerdict, OffsetAndEpoch
from ottla.quorum.rpc import fetch_response, only_fetch_partition, only_partition, snapshot_response
from ottla.quorum.service import MAX_ANSWER_BYTES, MAX_WAIT_MS
from ottla.zookeeper.term_log import ControllerTermLog

FetchRespond = Callable[[FetchResponse], None]


class _ParkedTermFetch:
    """A Fetch that waits for more records."""

    __slots__ = ("log", "max_bytes", "offset", "respond", "timer")

    def __init__(self, log: ControllerTermLog, offset: int, max_bytes: int, respond: FetchRespond) -> None:
        self.log = log
        self.offset = offset
        self.max_bytes = max_bytes
        self.respond = respond
        self.timer: TimerHandle | None = None


class TermLogServer:
    """Serves followers. Both kinds of request raise KafkaError if they are about another topic."""

    __slots__ = ("_cluster_id", "_leader", "_log", "_scheduler", "_waiting")

    def __init__(self, cluster_id: str, leader: Callable[[], LeaderAndEpoch], scheduler: Scheduler) -> None:
        """`leader` is the owner of the claim, as far as this node knows."""
        self._cluster_id = cluster_id
        self._leader = leader
        self._scheduler = scheduler
        self._log: ControllerTermLog | None = None
        self._waiting: dict[_ParkedTermFetch, None] = {}

    # -- the term --------------------------------------------------------------------------------------------------

    def begin(self, log: ControllerTermLog) -> None:
        """This node became the controller, and `log` contains its writes."""
        self._log = log

    def grown(self) -> None:
        """Batches were appended: answer the waiting Fetches."""
        for waiting in list(self._waiting):
            if waiting in self._waiting:
                self._answer(waiting)

    def end(self) -> None:
        """This node is no longer the controller: answer all waiting Fetches."""
        log, self._log = self._log, None
        if log is not None:
            log.close()
            self.grown()

    # -- requests --------------------------------------------------------------------------------------------------

    def fetch(self, request: FetchRequest, respond: FetchRespond) -> None:
        """Records from the requested offset on, or the snapshot before them; `respond` is called once, perhaps
        later."""
        self._check_cluster(request.cluster_id)
        asked = only_fetch_partition(request)
        log, error = self._led(asked.current_leader_epoch)
        if log is None:
            respond(self._fetch_response(FetchVerdict(error)))
            return
        verdict = log.check_log_end(OffsetAndEpoch(asked.fetch_offset, asked.last_fetched_epoch))
        if verdict != FetchVerdict():
            respond(self._fetch_response(verdict, log))
            return
        max_bytes = min(request.max_bytes, asked.partition_max_bytes, MAX_ANSWER_BYTES)
        waiting = _ParkedTermFetch(log, asked.fetch_offset, max_bytes, respond)
        self._waiting[waiting] = None
        if log.end_offset > waiting.offset or request.max_wait_ms <= 0:
            self._answer(waiting)
        else:
            wait_s = min(request.max_wait_ms, MAX_WAIT_MS) / 1000
            waiting.timer = self._scheduler.call_later(wait_s, self._answer, waiting)

    def fetch_snapshot(self, request: FetchSnapshotRequest, respond: Callable[[FetchSnapshotResponse], None]) -> None:
        """A chunk of a snapshot, once that is encoded."""
        self._check_cluster(request.cluster_id)
        asked = only_partition(request.topics, "name", "partition")
        place = OffsetAndEpoch(asked.snapshot_id.end_offset, asked.snapshot_id.epoch)
        log, error = self._led(asked.current_leader_epoch)
        if log is None:
            respond(snapshot_response(error, self._leader(), None, place))
            return
        length = min(max(request.max_bytes, 1), MAX_ANSWER_BYTES)

        def read(data: bytes | None) -> None:
            if data is None:
                respond(snapshot_response(ErrorCode.SNAPSHOT_NOT_FOUND, self._leader(), None, place))
            elif not 0 <= asked.position < len(data):
                respond(snapshot_response(ErrorCode.POSITION_OUT_OF_RANGE, self._leader(), None, place))
            else:
                piece = data[asked.position : asked.position + length]
                respond(
                    snapshot_response(
                        ErrorCode.NONE,
                        self._leader(),
                        None,
                        place,
                        size=len(data),
                        position=asked.position,
                        piece=piece,
                    )
                )

        log.read_snapshot(place, read)

    # -- helpers ---------------------------------------------------------------------------------------------------

    def _check_cluster(self, cluster_id: str | None) -> None:
        if cluster_id != self._cluster_id:
            raise KafkaError(ErrorCode.INCONSISTENT_CLUSTER_ID, f"this cluster is {self._cluster_id}")

    def _led(self, epoch: int) -> tuple[ControllerTermLog | None, ErrorCode]:
        """The log, for a follower of the current term; else the error."""
        log = self._log
        known = self._leader().epoch if log is None else log.epoch
        if epoch < known:
            return None, ErrorCode.FENCED_LEADER_EPOCH
        if epoch > known:
            return None, ErrorCode.UNKNOWN_LEADER_EPOCH
        return log, ErrorCode.NOT_LEADER_OR_FOLLOWER

    def _answer(self, waiting: _ParkedTermFetch) -> None:
        del self._waiting[waiting]
        if waiting.timer is not None:
            waiting.timer.cancel()
        log = waiting.log
        if log is not self._log:
            waiting.respond(self._fetch_response(FetchVerdict(ErrorCode.NOT_LEADER_OR_FOLLOWER)))
            return
        # It waited at the log end: no snapshot can have replaced that batch.
        records = log.read(waiting.offset, waiting.max_bytes) if log.end_offset > waiting.offset else b""
        waiting.respond(self._fetch_response(FetchVerdict(), log, records))

    def _fetch_response(
        self, verdict: FetchVerdict, log: ControllerTermLog | None = None, records: bytes = b""
    ) -> FetchResponse:
        return fetch_response(
            verdict,
            self._leader(),
            None,
            high_watermark=-1 if log is None else log.end_offset,
            log_start_offset=-1 if log is None else log.start_offset,
            records=records,
        )
