"""ShareFetch (78): versions 1 and 2. Acknowledges records and acquires further ones in one request (KIP-932).

A request passes these steps: its session, its acknowledgements until they are stored, then records. It parks while no
record is available, up to its maximum wait. Refused partitions are held for that time too, since clients repeat such a
fetch at once (KAFKA-21517); errors that name another leader are not. Records are acquired for the response only, so a
connection that closes before has acquired none.

A client above its quota gets no records (KIP-219). The quota is checked before records are acquired, and their bytes
are counted after that. Apache Kafka acquires first, so records that it does not send stay locked.

Reading is in `share_reading`.
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.common.errors import ErrorCode, InvariantError, KafkaError
from ottla.common.kafka.acl import AclOperation, ResourceType
from ottla.common.platform.channel import Part
from ottla.protocol.messages.share_fetch import ShareFetchRequest, ShareFetchResponse
from ottla.protocol.primitives import NodeEndpoint
from ottla.protocol.registry import ApiKey
from ottla.protocol.share_fetch import NO_LEADER, SharePartitionResult, encode_share_fetch_response
from ottla.replica.purgatory import DelayedOperation
from ottla.server.coordination.share_settings import max_share_sessions
from ottla.server.handlers.share.member_requests import (
    LEADER_ERRORS,
    AcknowledgementRound,
    count_requests,
    end_session,
    member_of,
    settings_of,
)
from ottla.server.handlers.share.partition_context import SharePartitionContext
from ottla.server.handlers.share.share_reading import ShareReader, ShareReadRound
from ottla.server.requests.api import SchemaApi, error_with_message
from ottla.server.requests.authorization import RequiredPermission
from ottla.server.requests.request import Request
from ottla.server.requests.throttling import ThrottledChannel, head_bytes
from ottla.share.sessions import FINAL_EPOCH, INITIAL_EPOCH, PartitionId, SessionKey, ShareSession
from ottla.storage.files.off_loop import run_off_loop

BATCH_OPTIMIZED, RECORD_LIMIT = 0, 1
_HELD_REFUSALS = (ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.SHARE_SESSION_LIMIT_REACHED)


def handle(context: SharePartitionContext, request: Request, message: ShareFetchRequest) -> None:
    """Answer a fetch, or park it. The response has file regions, so that it is sent from here."""
    try:
        fetch = _begin(context, request, message)
    except KafkaError as error:
        if error.code not in _HELD_REFUSALS or message.max_wait_ms <= 0:
            raise
        refusal = HeldRefusal(request, error)
        context.purgatory.park(refusal, (), message.max_wait_ms / 1000)
        request.dispatcher.parked(request, refusal)
        return
    parts = fetch.begin()
    if parts is not None:
        request.respond_parts(parts)


def refused(request: Request, error: KafkaError) -> list[Part]:
    """The response of a refused request that was held."""
    request.count_error(error.code)
    return encode_share_fetch_response(request.correlation_id, error.code, error.message or None, 0, [])


def _begin(context: SharePartitionContext, request: Request, message: ShareFetchRequest) -> ShareFetch:
    key = member_of(context, request, message)
    topics, forgotten = message.topics, message.forgotten_topics_data
    context.limits.check_partition_count(
        max(len(topics), *(sum(len(each.partitions) for each in named) for named in (topics, forgotten)))
    )
    if message.is_renew_ack and any((message.max_wait_ms, message.min_bytes, message.max_bytes, message.max_records)):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "A request that renews locks fetches nothing: its limits are 0.")
    if message.share_acquire_mode not in (BATCH_OPTIMIZED, RECORD_LIMIT):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Share acquire mode {message.share_acquire_mode} is unknown.")
    sessions = context.partitions.sessions
    named = [(topic.topic_id, partition.partition_index) for topic in topics for partition in topic.partitions]
    epoch = message.share_session_epoch
    if epoch == INITIAL_EPOCH:
        if any(partition.acknowledgement_batches for topic in topics for partition in topic.partitions):
            raise KafkaError(ErrorCode.INVALID_REQUEST, "The first request of a share session acknowledges nothing.")
        limit = max_share_sessions(context.config)
        session = sessions.open(key, request.channel.id, named, max_sessions=limit)
    elif epoch == FINAL_EPOCH:
        session = sessions.find(key)
    else:
        left_out = [(topic.topic_id, index) for topic in forgotten for index in topic.partitions]
        session = sessions.resume(key, epoch, named, left_out, max_partitions=context.limits.partition_limit())
    return ShareFetch(context, request, message, key, session)


class ShareFetch:
    """One request, from its acknowledgements to its response."""

    __slots__ = (
        "_acknowledgements",
        "_context",
        "_held",
        "_key",
        "_loop_s",
        "_message",
        "_reader",
        "_reading",
        "_request",
        "_session",
    )

    def __init__(
        self,
        context: SharePartitionContext,
        request: Request,
        message: ShareFetchRequest,
        key: SessionKey,
        session: ShareSession,
    ) -> None:
        self._context = context
        self._request = request
        self._message = message
        self._key = key
        self._session = session
        self._held = request.channel if isinstance(request.channel, ThrottledChannel) else None
        self._loop_s = 0.0
        """Time of reads that are not counted for a quota yet."""
        largest = None if self._held is None else self._held.largest_fetch
        if largest is not None:
            message.max_bytes = min(message.max_bytes, int(largest))
            message.min_bytes = min(message.min_bytes, message.max_bytes)
        self._acknowledgements = AcknowledgementRound(context, request, key, renews=message.is_renew_ack)
        fetches = message.share_session_epoch != FINAL_EPOCH and not message.is_renew_ack
        partitions = session.rotated() if fetches else []
        count_requests(context, "fetches", [topic_id for topic_id, _ in partitions])
        self._reader = ShareReader(context, request, message, key, partitions)
        self._reading = False

    def begin(self) -> list[Part] | None:
        """Apply the acknowledgements, then fetch."""
        if self._acknowledgements.begin(self._message.topics):
            return self._acknowledged()
        self._acknowledgements.then = self._resume
        return None

    def _resume(self) -> None:
        """Continue after something that was awaited, unless the connection closed."""
        if self._request.channel.closed:
            return
        try:
            parts = self._acknowledged()
        except InvariantError:
            raise
        except Exception as error:
            self._context.services.failures("ShareFetch", error)
            self._request.channel.close("ShareFetch failed: internal error")
            return
        if parts is not None:
            self._request.respond_parts(parts)

    def _acknowledged(self) -> list[Part] | None:
        if self._message.share_session_epoch == FINAL_EPOCH:
            if self._context.partitions.sessions.is_current(self._session):
                end_session(self._context, self._key)
            return self.encode(self._acquire(ShareReadRound()))
        done = self._read()
        if done.needed:
            done.release()
            self._read_ahead(done, self._resume)
            return None
        waits = self._message.max_wait_ms > 0
        if not waits or self._reader.is_finished(done):
            done = self._acquire(done)
            if not waits or self._reader.answers(done):
                return self.encode(done)
        done.release()
        operation = DelayedShareFetch(self)
        self._context.purgatory.park(operation, self._reader.watches(), self._message.max_wait_ms / 1000)
        self._request.dispatcher.parked(self._request, operation)
        if done.progressed:
            self._wake()
        return None

    def _read(self) -> ShareReadRound:
        if self._held is None:
            return self._reader.read()
        monotonic = self._context.services.node_runtime.clock.monotonic
        started_s = monotonic()
        done = self._reader.read()
        self._loop_s += monotonic() - started_s
        return done

    def _acquire(self, done: ShareReadRound) -> ShareReadRound:
        """Acquire the records of a pass, unless the client is above a quota."""
        held = self._held
        if held is None:
            return self._reader.acquire(done)
        monotonic = self._context.services.node_runtime.clock.monotonic
        wait_ms = held.fetched(head_bytes(len(done.rows) + len(done.candidates)), self._loop_s, monotonic())
        self._loop_s = 0.0
        if wait_ms:
            done.release()
            done = ShareReadRound(done.rows)
        else:
            done = self._reader.acquire(done)
            wait_ms = held.sent(done.byte_count, monotonic())
        done.throttle_ms = wait_ms
        return done

    def _read_ahead(self, done: ShareReadRound, then: Callable[[], None]) -> None:
        """Read uncached pages in the pool, then continue."""
        services = self._context.services
        services.in_flight.begin()

        def ended() -> None:
            try:
                then()
            finally:
                services.in_flight.end()

        run_off_loop(done.needed, self._reader.known, services.node_runtime.pool, ended)

    def retry(self, *, force: bool) -> list[Part] | None:
        """Try again to acquire records for a parked request; `force` answers in any case."""
        done = self._read()
        if done.needed:
            done.release()
            if force:
                return self.encode(ShareReadRound(done.rows))
            if not self._reading:
                self._reading = True
                self._read_ahead(done, self._wake)
            return None
        if not force and not self._reader.is_finished(done):
            done.release()
            return None
        acquired = self._acquire(done)
        if force or self._reader.answers(acquired):
            return self.encode(acquired)
        if acquired.progressed:
            self._wake()
        return None

    def _wake(self) -> None:
        """Try the parked request again: pages are cached, or another turn continues behind offsets without records."""
        self._reading = False
        for watch in self._reader.watches():
            self._context.purgatory.touch(watch)

    def respond(self, parts: list[Part]) -> None:
        """Answer the parked request."""
        self._request.respond_parts(parts)

    def fail(self) -> None:
        """A defect: close the connection, which releases the records of its sessions."""
        self._request.channel.close("ShareFetch failed: internal error")

    # --- response --------------------------------------------------------------------------------------------------

    def encode(self, done: ShareReadRound) -> list[Part]:
        """The response: fetched, refused and acknowledged partitions; all of them on the first epoch."""
        context, request = self._context, self._request
        rows: dict[PartitionId, SharePartitionResult] = dict(done.rows)
        count_requests(context, "failed_fetches", [key[0] for key, row in rows.items() if row.error_code])
        if self._message.share_session_epoch == INITIAL_EPOCH:
            for key in self._session.partitions:
                rows.setdefault(key, SharePartitionResult(key[1]))
        for key, error in self._acknowledgements.results.items():
            row = rows.get(key, SharePartitionResult(key[1]))
            if error is not None:
                row = row._replace(acknowledge_error_code=error.code, acknowledge_error_message=error.message or None)
            rows[key] = row
        leaders: dict[int, None] = {}
        topics: dict[bytes, list[SharePartitionResult]] = {}
        for (topic_id, index), row in rows.items():
            for code in (row.error_code, row.acknowledge_error_code):
                if not code:
                    continue
                request.count_error(code)
                if code in LEADER_ERRORS:
                    leader = context.metadata.current_leader(topic_id, index) or NO_LEADER
                    row = row._replace(current_leader=leader)
                    leaders[leader[0]] = None
            topics.setdefault(topic_id, []).append(row)
        endpoints: list[NodeEndpoint] = context.metadata.node_endpoints(request.listener_name, leaders)
        lock_ms = settings_of(context, self._key[0]).lock_duration_ms
        return encode_share_fetch_response(
            request.correlation_id,
            0,
            None,
            lock_ms,
            list(topics.items()),
            endpoints,
            throttle_ms=done.throttle_ms,
        )


class DelayedShareFetch(DelayedOperation):
    """A fetch that waits for available records."""

    __slots__ = ("_fetch",)

    def __init__(self, fetch: ShareFetch) -> None:
        super().__init__()
        self._fetch = fetch

    def try_complete(self, force: bool) -> bool:
        """See `DelayedOperation`."""
        parts = self._fetch.retry(force=force)
        if parts is None:
            return False
        self._fetch.respond(parts)
        return True

    def expire(self) -> None:
        """The maximum wait is over: answer with the available records and the refused partitions."""
        parts = self._fetch.retry(force=True)
        if parts is not None:
            self._fetch.respond(parts)

    def fail(self, error: Exception) -> None:
        """See `DelayedOperation`."""
        self._fetch.fail()


class HeldRefusal(DelayedOperation):
    """A refused request that is answered at the end of its maximum wait."""

    __slots__ = ("_error", "_request")

    def __init__(self, request: Request, error: KafkaError) -> None:
        super().__init__()
        self._request = request
        self._error = error

    def try_complete(self, force: bool) -> bool:
        """It has no watch."""
        return False

    def expire(self) -> None:
        """See `DelayedOperation`."""
        self._request.respond_parts(refused(self._request, self._error))

    def fail(self, error: Exception) -> None:
        """See `DelayedOperation`."""
        self._request.channel.close("ShareFetch failed: internal error")


SHARE_FETCH = SchemaApi(
    ApiKey.SHARE_FETCH,
    handle,
    error_with_message(ShareFetchResponse),
    item_needs=(
        RequiredPermission(AclOperation.READ, ResourceType.GROUP),
        RequiredPermission(AclOperation.READ, ResourceType.TOPIC),
    ),
)
