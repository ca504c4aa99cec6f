"""Incremental fetch sessions (KIP-227): the broker remembers the partitions of a fetch, requests carry only changes.

A session is found by its id on any connection and expects one epoch at a time. A request with another epoch is
rejected, so a lost response can never leave the two sides with different views of the session.

The cache is bounded by `max.incremental.fetch.session.cache.slots`. A session that was idle for two minutes is evicted
for a new one. A session older than two minutes is evicted for a larger one, and a consumer's session for a follower's.
A client without a slot is served without a session. Partitions that don't exist are remembered too, as the protocol
requires, so the number of partitions is bounded for each session (by the caller) and for all of them.

State is owned here. The response of a partition is reported back through `SessionPartition.accept`, which returns
whether it belongs into an incremental response. A partition without news becomes idle: it leaves `FetchSession.active`
and subscribes to the watch of its partition, and the next touch reactivates it. So an incremental request costs as much
as its active partitions, however many the session has. Each fetch of a follower confirms that the follower still has
all records of its idle partitions: the leader reads the time of that fetch from `SessionPartition.heard_s`.

While a fetch waits at its session, active partitions are subscribed too.

Invariants: a partition of a session is active or subscribed (to one watch at most), or both; a forgotten partition is
subscribed to none. Each change to the answer of an idle partition touches its watch. Partition reads and authorization
are elsewhere.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Sequence

from ottla.common.errors import ErrorCode, InvariantError, KafkaError
from ottla.common.platform.clock import Rng
from ottla.metadata.topic_names import TopicKey
from ottla.protocol.fetch import FetchPartition
from ottla.replica.purgatory import Purgatory, Watch

INVALID_SESSION_ID = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
NO_EPOCH = -1
MAX_EPOCH = 0x7FFFFFFF

SESSION_EVICTION_S = 120.0
"""Time that a session is safe from eviction by a larger one, and that an idle one stays in a full cache."""

MAX_CACHED_PARTITIONS = 500_000
"""Limit over all sessions; a partition costs about 500 bytes while it is idle."""

PartitionKey = tuple[TopicKey, int]


RequestedTopics = Sequence[tuple[TopicKey, Sequence[FetchPartition]]]
ForgottenTopics = Sequence[tuple[TopicKey, Sequence[int]]]


class SessionPartition:
    """A partition in a session: the last requested position and the last returned offsets.

    Implements `ottla.replica.purgatory.Subscriber` and `ottla.replica.leadership.IdleFollower`.
    """

    __slots__ = (
        "_rested_until_s",
        "_resting",
        "_session",
        "_watch",
        "current_leader_epoch",
        "fetch_offset",
        "index",
        "last_fetched_epoch",
        "log_start_offset",
        "max_bytes",
        "seen_bytes",
        "sent_high_watermark",
        "sent_log_start_offset",
        "topic",
    )

    def __init__(self, topic: TopicKey, requested: FetchPartition) -> None:
        self.topic = topic
        self.index = requested.partition
        self.sent_high_watermark = -1
        self.sent_log_start_offset = -1
        self.current_leader_epoch = NO_EPOCH
        self.seen_bytes = 0
        """`Partition.appended_bytes` at the last read, if all of it was visible."""
        self._session: FetchSession | None = None
        self._watch: Watch | None = None
        self._resting = False
        self._rested_until_s = 0.0
        self.update(requested)

    def join(self, session: FetchSession) -> None:
        """Join `session`, active at first."""
        self._session = session
        session.active[self] = None

    def leave(self) -> None:
        """Leave the session."""
        self._end_rest()
        if self._watch is not None:
            self._watch.unsubscribe(self)
            self._watch = None
        if self._session is not None:
            self._session.active.pop(self, None)
            self._session = None

    def listen(self, watch: Watch) -> None:
        """Subscribe the session to the partition's `watch`."""
        if self._session is not None and self._watch is None:
            self._watch = watch
            watch.subscribe(self)

    def rest(self, watch: Watch) -> None:
        """Mark the partition idle until `watch` is touched."""
        session = self._session
        if session is not None:
            self.listen(watch)
            self._resting = True
            session.active.pop(self, None)
            if not session.active:
                session.active.clear()  # iteration would still step over the slots of all former entries

    @property
    def heard_s(self) -> float:
        """Time of the session's last use while this was idle in it, in seconds of the session's clock."""
        return self._session.last_used_s if self._resting and self._session is not None else self._rested_until_s

    def _end_rest(self) -> None:
        self._rested_until_s = self.heard_s
        self._resting = False

    def wake(self) -> Watch:
        """Reactivate this partition: the watch was touched."""
        session = self._session
        if session is None:
            raise InvariantError("a partition that left its session was still subscribed")
        self._end_rest()
        self._watch = None
        session.active[self] = None
        return session.watch

    def ask_again(self) -> None:
        """Reactivate the partition: its answer may have changed without a change of the partition."""
        session = self._session
        if session is not None and self._resting:
            self._end_rest()
            session.active[self] = None

    def update(self, requested: FetchPartition) -> None:
        """Apply the fields of a request for this partition."""
        if self._resting:
            self._end_rest()
        self.fetch_offset = requested.fetch_offset
        # Kafka treats any negative epoch as none; other requests are stricter.
        epoch = requested.current_leader_epoch
        leader_epoch = epoch if epoch > NO_EPOCH else NO_EPOCH
        if leader_epoch != self.current_leader_epoch:
            # A follower ignores a response to a request of an earlier epoch.
            self.mark_changed()
            self.current_leader_epoch = leader_epoch
        self.last_fetched_epoch = requested.last_fetched_epoch
        self.log_start_offset = requested.log_start_offset
        self.max_bytes = requested.partition_max_bytes

    def moved(self, high_watermark: int, log_start_offset: int) -> bool:
        """Return whether one of the offsets differs from the last returned ones."""
        return high_watermark != self.sent_high_watermark or log_start_offset != self.sent_log_start_offset

    def mark_changed(self) -> None:
        """Forget the returned offsets: the client does not have them, so the next response includes the partition."""
        self.sent_high_watermark = -1

    def accept(self, error_code: int, high_watermark: int, log_start_offset: int, has_records: bool) -> bool:
        """Record a response; returns whether an incremental response must include it.

        After an error the next response includes the partition again, so that the client sees its recovery.
        """
        news = has_records or error_code != 0 or self.moved(high_watermark, log_start_offset)
        self.sent_high_watermark = high_watermark if error_code == 0 else -1
        self.sent_log_start_offset = log_start_offset
        return news


class FetchSession:
    """One consumer's or follower's set of partitions."""

    __slots__ = (
        "active",
        "created_s",
        "epoch",
        "id",
        "last_used_s",
        "partitions",
        "privileged",
        "uses_topic_ids",
        "watch",
    )

    def __init__(
        self,
        session_id: int,
        partitions: dict[PartitionKey, SessionPartition],
        privileged: bool,
        uses_topic_ids: bool,
        now_s: float,
    ) -> None:
        self.id = session_id
        self.privileged = privileged
        self.uses_topic_ids = uses_topic_ids
        self.epoch = 1
        self.created_s = now_s
        self.last_used_s = now_s
        self.partitions = partitions
        self.active: dict[SessionPartition, None] = {}
        """Partitions that may have news, in the order in which they are served."""
        self.watch = Watch()
        """Touched when a partition becomes active: a fetch of the whole session waits here."""
        for partition in partitions.values():
            partition.join(self)

    def apply(self, topics: RequestedTopics, forgotten: ForgottenTopics) -> None:
        """Apply the changes of an incremental request."""
        partitions = self.partitions
        for topic, requested_partitions in topics:
            for requested in requested_partitions:
                known = partitions.get((topic, requested.partition))
                if known is None:
                    known = partitions[(topic, requested.partition)] = SessionPartition(topic, requested)
                    known.join(self)
                else:
                    known.update(requested)
                    self.active.setdefault(known)
        for topic, indexes in forgotten:
            for index in indexes:
                gone = partitions.pop((topic, index), None)
                if gone is not None:
                    gone.leave()

    def move_to_end(self, served: Iterable[SessionPartition]) -> None:
        """Move partitions that just returned records behind the others, so that none starves under `max_bytes`."""
        active = self.active
        for partition in served:
            if partition in active:
                del active[partition]
                active[partition] = None

    def end(self) -> None:
        """Release all partitions; the session is not used any more."""
        for partition in self.partitions.values():
            partition.leave()


class FetchContext:
    """One fetch request: its own partitions, or those of its session, and the way to respond."""

    __slots__ = ("_named", "session", "session_id")

    def __init__(
        self, named: list[SessionPartition] | None, session: FetchSession | None = None, session_id: int = 0
    ) -> None:
        self._named = named
        self.session = session
        self.session_id = session_id

    @property
    def incremental(self) -> bool:
        """Whether the request contains only changes, and its response only news."""
        return self._named is None

    @property
    def partitions(self) -> list[SessionPartition]:
        """Partitions to read now; for an incremental request, those that may have news."""
        if self._named is not None:
            return self._named
        return [] if self.session is None else list(self.session.active)

    @property
    def is_empty(self) -> bool:
        """Whether no partition is fetched."""
        return not (self._named if self.session is None else self.session.partitions)


class FetchSessionCache:
    """Sessions of this broker, least recently used first."""

    __slots__ = ("_max_partitions", "_partition_count", "_purgatory", "_rng", "_sessions", "_slots", "evictions")

    def __init__(self, slots: int, rng: Rng, purgatory: Purgatory, max_partitions: int = MAX_CACHED_PARTITIONS) -> None:
        self._slots = slots
        self._purgatory = purgatory
        self._max_partitions = max_partitions
        self._partition_count = 0
        self._rng = rng
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()
        self.evictions = 0

    def __len__(self) -> int:
        return len(self._sessions)

    def partition_count(self) -> int:
        """Number of partitions over all sessions."""
        return self._partition_count

    def ask_again(self) -> None:
        """Reactivate partitions of consumers, idle or awaited: the permission to read them may have changed."""
        for session in self._sessions.values():
            if not session.privileged:
                for partition in session.partitions.values():
                    partition.ask_again()
                self._purgatory.touch(session.watch, force=True)

    def open(
        self,
        session_id: int,
        epoch: int,
        topics: RequestedTopics,
        forgotten: ForgottenTopics,
        *,
        uses_topic_ids: bool,
        privileged: bool,
        now_s: float,
        max_partitions: int = MAX_CACHED_PARTITIONS,
    ) -> FetchContext:
        """Match a request with its session. A session that would exceed `max_partitions` is removed.

        Raises KafkaError FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH or FETCH_SESSION_TOPIC_ID_ERROR.
        """
        if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            if session_id != INVALID_SESSION_ID:
                self.forget(session_id)
            named = named_partitions(topics)
            if epoch == FINAL_EPOCH:
                return FetchContext(named)
            session = None
            if len(named) <= max_partitions:
                partitions = {(partition.topic, partition.index): partition for partition in named}
                session = self._create(partitions, privileged, uses_topic_ids, now_s)
            return FetchContext(named) if session is None else FetchContext(named, session, session.id)
        return self._continue(session_id, epoch, topics, forgotten, uses_topic_ids, now_s, max_partitions)

    def _continue(
        self,
        session_id: int,
        epoch: int,
        topics: RequestedTopics,
        forgotten: ForgottenTopics,
        uses_topic_ids: bool,
        now_s: float,
        max_partitions: int,
    ) -> FetchContext:
        session = self._sessions.get(session_id)
        if session is None:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != epoch:
            raise KafkaError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_topic_ids != uses_topic_ids:
            raise KafkaError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        if topics or forgotten:
            before = len(session.partitions)
            session.apply(topics, forgotten)
            size = len(session.partitions)
            self._partition_count += size - before
            if size > before and (size > max_partitions or self._partition_count > self._max_partitions):
                # The client restarts with all partitions that it fetches, and at worst is served without a session.
                self.forget(session_id)
                raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        session.last_used_s = now_s
        if not session.partitions:
            self.forget(session_id)
            return FetchContext(None)
        session.epoch = 1 if epoch == MAX_EPOCH else epoch + 1
        self._sessions.move_to_end(session_id)
        return FetchContext(None, session, session_id)

    def _create(
        self, partitions: dict[PartitionKey, SessionPartition], privileged: bool, uses_topic_ids: bool, now_s: float
    ) -> FetchSession | None:
        if not self._make_room(privileged, len(partitions), now_s):
            return None
        session = FetchSession(self._new_id(), partitions, privileged, uses_topic_ids, now_s)
        self._sessions[session.id] = session
        self._partition_count += len(partitions)
        return session

    def forget(self, session_id: int) -> None:
        """End a session; an unknown one is ignored."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._partition_count -= len(session.partitions)
            session.end()
            self._purgatory.touch(session.watch, force=True)  # a fetch that waits there would never be woken

    def _make_room(self, privileged: bool, size: int, now_s: float) -> bool:
        sessions = self._sessions
        if self._partition_count + size > self._max_partitions:
            return False
        if len(sessions) < self._slots:
            return True
        if not sessions:
            return False
        victim = next(iter(sessions.values()))
        if now_s - victim.last_used_s <= SESSION_EVICTION_S:
            # The scan is bounded by the number of slots and only happens when a full cache needs a slot.
            candidates = [
                session
                for session in sessions.values()
                if now_s - session.created_s > SESSION_EVICTION_S or (privileged and not session.privileged)
            ]
            if not candidates:
                return False
            victim = min(candidates, key=lambda session: (session.privileged, len(session.partitions)))
            if (victim.privileged, len(victim.partitions)) >= (privileged, size):
                return False
        self.forget(victim.id)
        self.evictions += 1
        return True

    def _new_id(self) -> int:
        while True:
            candidate = self._rng.randrange(MAX_EPOCH - 1) + 1
            if candidate not in self._sessions:
                return candidate


def named_partitions(topics: RequestedTopics) -> list[SessionPartition]:
    """Return the partitions of a full request, topic by topic; the last mention of a partition counts."""
    by_topic: dict[TopicKey, dict[int, SessionPartition]] = {}
    for topic, requested_partitions in topics:
        by_index = {requested.partition: SessionPartition(topic, requested) for requested in requested_partitions}
        by_topic.setdefault(topic, {}).update(by_index)
    return [partition for by_index in by_topic.values() for partition in by_index.values()]
