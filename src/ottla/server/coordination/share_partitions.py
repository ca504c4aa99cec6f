"""Share partitions of the partitions that this broker leads, and the share sessions of its connections (KIP-932).

A share partition exists from the first fetch of its group on. Its state is read from the share coordinator, which also
fences earlier leaders. It is dropped when its partition gets another leader epoch or is deleted, when the coordinator
fences this leader, and when the last session of its group on this broker has ended and its state is stored: start
offsets of a group without members can be changed. The next fetch reads the state again, and no record is locked then.

One write per share partition is in progress; acknowledgements that arrive meanwhile share the next one. One timer
ends the locks and waits of all share partitions. `dead_letter_writer` is loaded for the first record that needs a dead
letter.

Requests are in `server.handlers.share`, transitions in `share.share_partition`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from ottla.common.errors import ErrorCode, InvariantError, KafkaError
from ottla.common.kafka.ids import Uuid
from ottla.common.kafka.share_state import SharePartitionKey, SharePersister, ShareState
from ottla.common.platform.clock import TimerHandle
from ottla.metadata.delta import MetadataChanges
from ottla.metadata.image import MetadataImage
from ottla.metrics.registry import Histogram
from ottla.replica.offsets import find_offset
from ottla.replica.partition import Partition
from ottla.replica.purgatory import Purgatory, Watch
from ottla.server.coordination.coordinator_host import BrokerServices
from ottla.share.acknowledgements import RecordDecision
from ottla.share.sessions import PartitionId, ShareSessionCache
from ottla.share.settings import EARLIEST, ShareSettings, reset_duration_ms
from ottla.share.share_partition import NEVER_MS, SharePartition, StateWrite
from ottla.storage.files.off_loop import Known, WouldBlock, run_off_loop

if TYPE_CHECKING:
    from ottla.share.delivery_rate import DeliveryRate

T = TypeVar("T")
Acknowledged = Callable[[KafkaError | None], None]

WRITE_RETRY_S = 1.0
"""Delay of a repeated write that no acknowledgement waits for."""
TIMER_RESOLUTION_MS = 50
READ_UNCOMMITTED = 0

_COORDINATOR_ERRORS = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
)
_FENCED = (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.FENCED_STATE_EPOCH)
_KNOWN_ERRORS = (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
_LASTING = (*_FENCED, *_KNOWN_ERRORS, ErrorCode.INVALID_REQUEST)
"""Errors of a write that a retry does not end. INVALID_REQUEST: the state was deleted, with its group for example."""


class LedSharePartition:
    """A share partition of this broker. `machine` is None until its state is loaded."""

    __slots__ = (
        "dropped",
        "failure",
        "key",
        "leader_epoch",
        "loading_since_ms",
        "machine",
        "partition",
        "retrying",
        "waiting",
        "watch",
    )

    def __init__(self, key: SharePartitionKey, partition: Partition, now_ms: int) -> None:
        self.loading_since_ms = now_ms
        self.key = key
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self.machine: SharePartition | None = None
        self.watch = Watch()
        """Touched when records may have become available, and when the share partition was loaded or dropped."""
        self.failure: KafkaError | None = None
        """Why the state could not be loaded."""
        self.dropped = False
        self.retrying = False
        self.waiting: dict[int, list[Acknowledged]] = {}
        """Callbacks by the number of the write that stores their acknowledgements."""

    @property
    def id(self) -> PartitionId:
        return self.key.topic_id, self.key.partition


class DeadLetters(Protocol):
    """Writer of dead letters. Implementation: `server.coordination.dead_letter_writer.DeadLetterWriter`."""

    def wake(self, led: LedSharePartition) -> None:
        """Write the dead letters of a share partition."""

    def keeps(self, led: LedSharePartition) -> bool:
        """Whether a share partition without members must not be dropped yet."""
        ...

    def forget(self, led: LedSharePartition) -> None:
        """The share partition was dropped."""

    def follow(self, changes: MetadataChanges) -> None:
        """Try again what failed."""

    def close(self) -> None:
        """The broker stops."""


class ShareCounts(NamedTuple):
    """Numbers for metrics."""

    sessions: int
    session_partitions: int
    evictions: int


class SharePartitions:
    """Owner of the share partitions and share sessions of one broker."""

    __slots__ = (
        "_dead_letters",
        "_groups",
        "_image",
        "_load_times_ms",
        "_make_dead_letters",
        "_persister",
        "_purgatory",
        "_services",
        "_stopped",
        "_tasks",
        "_timer",
        "_timer_at_ms",
        "sessions",
    )

    def __init__(
        self,
        services: BrokerServices,
        purgatory: Purgatory,
        persister: SharePersister,
        dead_letters: Callable[[SharePartitions], DeadLetters],
        image: Callable[[], MetadataImage],
        load_times_ms: Histogram,
    ) -> None:
        """`dead_letters` creates the writer of dead letters, once; `image` returns the present metadata."""
        self._image = image
        self._load_times_ms = load_times_ms
        self._make_dead_letters = dead_letters
        self._dead_letters: DeadLetters | None = None
        self._services = services
        self._purgatory = purgatory
        self._persister = persister
        self._groups: dict[str, dict[PartitionId, LedSharePartition]] = {}
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self._timer: TimerHandle | None = None
        self._timer_at_ms = NEVER_MS
        self._stopped = False
        self.sessions = ShareSessionCache()

    def now_ms(self) -> int:
        """Time of locks: it never steps back."""
        return int(self._services.node_runtime.clock.monotonic() * 1000)

    # --- lookup ----------------------------------------------------------------------------------------------------

    def led_partition(self, topic_id: Uuid, index: int) -> Partition:
        """Return a partition that this broker leads. Raises KafkaError."""
        if self._stopped:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        partition = self._services.replicas.find(topic_id, index)
        partition.check_leader()
        return partition

    def find(self, group_id: str, topic_id: Uuid, index: int) -> LedSharePartition | None:
        """Return the share partition if it is loaded or loading. Raises KafkaError unless this broker leads."""
        partition = self.led_partition(topic_id, index)
        led = self._groups.get(group_id, {}).get((topic_id, index))
        if led is not None and (led.partition is not partition or led.leader_epoch != partition.leader_epoch):
            self._drop(led, KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
            return None
        return led

    def find_or_load(self, group_id: str, topic_id: Uuid, index: int, settings: ShareSettings) -> LedSharePartition:
        """Return the share partition; the first call begins to load it. Raises KafkaError unless this broker leads."""
        led = self.find(group_id, topic_id, index)
        if led is None:
            key = SharePartitionKey(group_id, topic_id, index)
            led = LedSharePartition(key, self.led_partition(topic_id, index), self.now_ms())
            self._groups.setdefault(group_id, {})[led.id] = led
            self._load(led, settings)
        return led

    def counts(self) -> ShareCounts:
        """Return the numbers of sessions."""
        return ShareCounts(len(self.sessions), self.sessions.partition_count(), self.sessions.evictions)

    def share_partitions(self) -> Iterator[LedSharePartition]:
        """Share partitions that are loaded or loading, the oldest groups first."""
        for group in list(self._groups.values()):
            yield from list(group.values())

    # --- loading ---------------------------------------------------------------------------------------------------

    def _load(self, led: LedSharePartition, settings: ShareSettings) -> None:
        def read(state: ShareState | None, error: KafkaError | None) -> None:
            if led.dropped:
                return
            if state is None:
                self._fail(led, loading_error(error))
            elif state.start_offset >= 0:
                self._begin(led, state, state.start_offset, settings)
            else:
                self._choose_start(led, state, settings, {})

        self._run(lambda: self._persister.read(led.key, led.leader_epoch), read)

    def _choose_start(self, led: LedSharePartition, state: ShareState, settings: ShareSettings, known: Known) -> None:
        """Begin at the offset of `share.auto.offset.reset`; a lookup by time may have to read in the pool."""
        partition = led.partition
        if led.dropped or not partition.is_leader:
            return
        latest = max(partition.high_watermark, partition.leader_epoch_start_offset)
        duration_ms = reset_duration_ms(settings.auto_offset_reset)
        start = latest
        if settings.auto_offset_reset == EARLIEST:
            start = partition.offsets.log_start_offset
        elif duration_ms is not None:
            time_ms = self._services.node_runtime.clock.time_ms() - duration_ms
            try:
                found = find_offset(partition, max(time_ms, 0), READ_UNCOMMITTED, from_replica=False, known=known)
            except WouldBlock as needed:
                in_flight = self._services.in_flight

                def resume() -> None:
                    try:
                        self._choose_start(led, state, settings, known)
                    finally:
                        in_flight.end()

                in_flight.begin()
                run_off_loop([needed], known, self._services.node_runtime.pool, resume)
                return
            except KafkaError as error:
                self._fail(led, error)
                return
            start = found.offset if found.offset >= 0 else latest
        self._begin(led, state, start, settings)

    def _begin(self, led: LedSharePartition, state: ShareState, start: int, settings: ShareSettings) -> None:
        now_ms = self.now_ms()
        led.machine = SharePartition(led.key, state, start, led.leader_epoch, settings, now_ms)
        self._load_times_ms.observe(now_ms - led.loading_since_ms)
        led.machine.move_log_start(led.partition.offsets.log_start_offset)
        self._purgatory.touch(led.watch)
        self._write(led)
        self._write_dead_letters(led)
        self.drop_unused(led)

    def _fail(self, led: LedSharePartition, error: KafkaError) -> None:
        led.failure = error
        self._drop(led, error)

    # --- transitions -----------------------------------------------------------------------------------------------

    def acknowledge(
        self, led: LedSharePartition, member_id: str, decisions: Sequence[RecordDecision], done: Acknowledged
    ) -> None:
        """Apply the decisions of a member, and call `done` once they are stored, or with the error."""
        machine = led.machine
        if machine is None:
            done(KafkaError(ErrorCode.INVALID_RECORD_STATE, "The records were not acquired from this leader."))
            return
        self.expire(led)
        try:
            number = machine.acknowledge(member_id, decisions, self.now_ms())
        except KafkaError as error:
            done(error)
            return
        self._arm(machine.next_expiry_ms)
        if not number:
            done(None)
            return
        led.waiting.setdefault(number, []).append(done)
        self._write(led)

    def acquired(self, led: LedSharePartition) -> None:
        """Records of a share partition were acquired, or archived on the way."""
        if led.machine is not None:
            self._write(led)

    def use(self, led: LedSharePartition, settings: ShareSettings) -> None:
        """Apply the present settings of the group to a share partition."""
        if led.machine is not None:
            led.machine.use(settings, self._rate(led, settings.max_records_per_second), self.now_ms())
            self._arm(led.machine.next_expiry_ms)

    def _rate(self, led: LedSharePartition, records_per_second: int | None) -> DeliveryRate | None:
        if records_per_second is None:
            return None
        from ottla.share.delivery_rate import DeliveryRate  # imported here: few groups have a rate

        topic = self._image().topic_by_id(led.key.topic_id)
        return DeliveryRate(records_per_second, 1 if topic is None else len(topic.partitions))

    def expire(self, led: LedSharePartition) -> None:
        """End the locks and waits of a share partition whose time is over."""
        if led.machine is not None and led.machine.expire(self.now_ms()):
            self._purgatory.touch(led.watch)
            self._write(led)

    def release_member(self, group_id: str, member_id: str) -> None:
        """Release all records of a member whose session ended."""
        for led in list(self._groups.get(group_id, {}).values()):
            if led.machine is not None and led.machine.release_member(member_id, self.now_ms()):
                self._purgatory.touch(led.watch)
                self._write(led)
            self.drop_unused(led)

    def drop_unused(self, led: LedSharePartition) -> None:
        """Drop a share partition whose group has no session, once its state is stored and dead letters were tried."""
        machine = led.machine
        if machine is None or machine.is_writing or led.retrying or self.sessions.has_group(led.key.group_id):
            return
        if self._dead_letters is not None and self._dead_letters.keeps(led):
            return
        self._drop(led, KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))

    def connection_closed(self, connection_id: int) -> None:
        """End the sessions of a connection, and release the records of their members."""
        for group_id, member_id in self.sessions.connection_closed(connection_id):
            self.release_member(group_id, member_id)

    # --- storing ---------------------------------------------------------------------------------------------------

    def _write(self, led: LedSharePartition) -> None:
        """After a transition: arm the timer, and store the changes unless a write is in progress."""
        machine = led.machine
        if machine is None or led.dropped:
            return
        self._arm(machine.next_expiry_ms)
        write = machine.begin_write()
        if write is None:
            return

        def stored(_: None, error: KafkaError | None) -> None:
            self._written(led, machine, write, error)

        self._run(
            lambda: self._persister.write(
                led.key,
                state_epoch=machine.state_epoch,
                leader_epoch=led.leader_epoch,
                start_offset=write.start_offset,
                delivery_complete_count=write.delivery_complete_count,
                batches=write.batches,
            ),
            stored,
        )

    def _written(
        self, led: LedSharePartition, machine: SharePartition, write: StateWrite, error: KafkaError | None
    ) -> None:
        if led.dropped:
            return
        machine.end_write(self.now_ms(), stored=error is None)
        if error is None:
            self._write_dead_letters(led)  # first: a callback may end the last session, and so drop the share partition
        answer = None if error is None else writing_error(error)
        for done in led.waiting.pop(write.number, ()):
            done(answer)
        if answer is not None and error is not None and error.code in _LASTING:
            self._drop(led, answer)
            return
        self._purgatory.touch(led.watch)
        self._arm(machine.next_expiry_ms)
        if error is None or led.waiting:
            self._write(led)
        elif not led.retrying:
            led.retrying = True
            self._services.node_runtime.scheduler.call_later(WRITE_RETRY_S, self._write_again, led)
        self.drop_unused(led)

    def _write_again(self, led: LedSharePartition) -> None:
        led.retrying = False
        self._write(led)
        self.drop_unused(led)

    # --- dead letters ----------------------------------------------------------------------------------------------

    def _write_dead_letters(self, led: LedSharePartition) -> None:
        if self._dead_letters is None:
            if led.dropped or led.machine is None or not led.machine.archiving_count:
                return
            self._dead_letters = self._make_dead_letters(self)
        self._dead_letters.wake(led)

    def archive(self, led: LedSharePartition, offsets: Sequence[int]) -> None:
        """Archive records whose dead letters are durable, or given up."""
        if led.machine is not None:
            led.machine.archive(offsets)
            self._write(led)

    def _run(
        self, begin: Callable[[], Coroutine[Any, Any, T]], done: Callable[[T | None, KafkaError | None], None]
    ) -> None:
        """Run a call of the persister from the next turn of the loop on, and call `done` with its result."""

        def ended(task: asyncio.Task[T]) -> None:
            self._tasks.pop(task, None)
            if task.cancelled():
                return
            error = task.exception()
            if error is None:
                done(task.result(), None)
                return
            if isinstance(error, InvariantError):
                raise error
            if not isinstance(error, KafkaError):
                self._services.failures("share state", error)
                error = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
            done(None, error)

        def start() -> None:
            if not self._stopped:
                task = asyncio.ensure_future(begin())
                self._tasks[task] = None
                task.add_done_callback(ended)

        self._services.node_runtime.scheduler.call_soon(start)

    # --- locks and waits -------------------------------------------------------------------------------------------

    def _arm(self, at_ms: int) -> None:
        if at_ms >= self._timer_at_ms or self._stopped:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at_ms = at_ms
        delay_ms = max(0, at_ms - self.now_ms()) + TIMER_RESOLUTION_MS
        self._timer = self._services.node_runtime.scheduler.call_later(delay_ms / 1000, self._expire_all)

    def _expire_all(self) -> None:
        self._timer, self._timer_at_ms = None, NEVER_MS
        next_ms = NEVER_MS
        for led in self.share_partitions():
            self.expire(led)
            if led.machine is not None:
                next_ms = min(next_ms, led.machine.next_expiry_ms)
        self._arm(next_ms)

    # --- life ------------------------------------------------------------------------------------------------------

    def follow(self, image: MetadataImage, changes: MetadataChanges) -> None:
        """Drop the share partitions of deleted topics, and of partitions with another leader or leader epoch."""
        if not self._groups:
            return
        if self._dead_letters is not None:
            self._dead_letters.follow(changes)
        for topic in changes.deleted_topics:
            for led in self.share_partitions():
                if led.key.topic_id == topic.topic_id:
                    self._drop(led, KafkaError(ErrorCode.UNKNOWN_TOPIC_ID))
        for topic, index in changes.changed_partitions:
            state = topic.partitions[index]
            for group in list(self._groups.values()):
                known = group.get((topic.topic_id, index))
                if known is not None and (state.leader, state.leader_epoch) != (
                    self._services.node_id,
                    known.leader_epoch,
                ):
                    self._drop(known, KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))

    def _drop(self, led: LedSharePartition, error: KafkaError) -> None:
        """Forget a share partition with its locks; waiting acknowledgements get the error."""
        if led.dropped:
            return
        led.dropped = True
        if self._dead_letters is not None:
            self._dead_letters.forget(led)
        group = self._groups.get(led.key.group_id, {})
        if group.get(led.id) is led:
            del group[led.id]
            if not group:
                del self._groups[led.key.group_id]
        waiting, led.waiting = led.waiting, {}
        for callbacks in waiting.values():
            for done in callbacks:
                done(error)
        self._purgatory.touch(led.watch, force=led.failure is None)

    def stop(self) -> None:
        """Drop everything: the broker stops, and other leaders read the stored state."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()
        for task in list(self._tasks):
            task.cancel()
        for led in self.share_partitions():
            self._drop(led, KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        if self._dead_letters is not None:
            self._dead_letters.close()


def loading_error(error: KafkaError | None) -> KafkaError:
    """The error for a client when the state can't be read."""
    return writing_error(error or KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR))


def writing_error(error: KafkaError) -> KafkaError:
    """The error for a client when the coordinator refuses or does not answer, as in Apache Kafka."""
    if error.code in _COORDINATOR_ERRORS:
        return KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, error.message)
    if error.code in _FENCED:
        return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, error.message)
    if error.code in _KNOWN_ERRORS:
        return error
    return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, error.message)
