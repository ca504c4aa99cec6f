"""A fetch in progress: reads as often as needed, parks in between, then answers with the last read.

A request is answered at once when it finds `min_bytes` or an error, or may not wait. Otherwise it parks under the
watches of its partitions and reads again after changes. If locating an offset needs uncached pages, it parks until the
pool has read them, and starts again.

Subclasses define the readable records: `consumer_fetch` and `follower_fetch`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ottla.common.errors import ErrorCode, InvariantError, KafkaError
from ottla.common.kafka.acl import AclOperation, ResourceType
from ottla.common.platform.channel import Part
from ottla.metadata.topic_names import TopicKey
from ottla.protocol.fetch import FetchPartitionResult, ParsedFetchRequest, encode_fetch_response
from ottla.protocol.primitives import NodeEndpoint, Topic
from ottla.replica.fetch_session import FetchContext, SessionPartition
from ottla.replica.partition import Partition
from ottla.replica.purgatory import DelayedOperation, Watch
from ottla.server.handlers.data.context import DataContext
from ottla.server.requests.guards import topic_name
from ottla.server.requests.request import Request
from ottla.storage.files.off_loop import Known, WouldBlock, run_off_loop

FIRST_VERSION_WITH_ENDPOINTS = 16
MAX_READ_AHEAD = 64
"""Maximum of cold pages, one per partition, that one pool job reads for a fetch; each holds a file open."""
_LEADER_ERRORS = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)

Rows = list[tuple[SessionPartition, FetchPartitionResult]]


class ReadRound:
    """One pass over the partitions of a fetch: the records read, and whether it must be answered at once.

    `byte_count` is the amount within the limits, which decides about waiting for more; fewer bytes may be sent. The
    pass is discarded if something `needed` has to be done off the loop first.
    """

    __slots__ = ("byte_count", "needed", "rows", "urgent")

    def __init__(self) -> None:
        self.rows: Rows = []
        self.needed: list[WouldBlock] = []
        self.byte_count = 0
        self.urgent = False

    @property
    def full(self) -> bool:
        """Whether the limit of pages to read is reached."""
        return len(self.needed) >= MAX_READ_AHEAD

    def release(self) -> None:
        """Release the regions that will not be sent, and discard the rows."""
        self.release_regions()
        self.rows.clear()

    def release_regions(self) -> None:
        """Release the regions that will not be sent."""
        for _, result in self.rows:
            if result.records is not None and not isinstance(result.records, bytes):
                result.records.release()


class Fetch:
    """A fetch request with its session, readable repeatedly; subclasses know the kind of reader."""

    __slots__ = ("_context", "_known", "_message", "_request", "_session")

    def __init__(
        self, context: DataContext, request: Request, message: ParsedFetchRequest, session: FetchContext
    ) -> None:
        self._context = context
        self._request = request
        self._message = message
        self._session = session
        self._known: Known = {}

    # -- partitions ------------------------------------------------------------------------------------------------

    def finder(self) -> Callable[[TopicKey, int], Partition]:
        """A function that finds the partitions to read in one pass. It raises KafkaError.

        With an authorizer, every pass checks the permissions: a session, and a parked request, may outlive the ACL that
        allowed it.
        """
        find = self._context.replicas.find
        request = self._request
        if not request.is_guarded:
            return find
        image = self._context.metadata.image

        def find_allowed(topic: TopicKey, index: int) -> Partition:
            name = topic_name(image, topic)
            if name is not None and not request.allowed(AclOperation.READ, ResourceType.TOPIC, name):
                raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            return find(topic, index)

        return find_allowed

    # -- reading -----------------------------------------------------------------------------------------------------

    def read(self, known: Known | None = None) -> ReadRound:
        """Read all partitions in order, within the limits of request and partitions.

        Blocks on uncached pages if `known` is None. A parked request needs no such care: its pages were read on
        arrival, and the records that it waits for have just been written.
        """
        raise NotImplementedError

    def watch(self, partition: Partition) -> Watch:
        """The watch that signals new records to this reader."""
        raise NotImplementedError

    def diverged(self, asked: SessionPartition) -> None:
        """The response reports the offset where the reader's log diverges."""

    def count(self, rows: Rows) -> None:
        """Add the sent bytes to the statistics."""

    # -- answer or wait ----------------------------------------------------------------------------------------------

    def serve(self) -> list[Part] | None:
        """Answer, or park: for more records, or for uncached pages."""
        done = self.read(self._known)
        if done.needed:
            done.release()
            self._context.in_flight.begin()
            run_off_loop(done.needed, self._known, self._context.pool, self._resume)
            return None
        self._known.clear()
        if self._message.max_wait_ms <= 0 or self.finished(done):
            return self.encode(done)
        self.park(done)
        return None

    def _resume(self) -> None:
        """The pages are cached: start again, with the current logs."""
        try:
            if self._request.channel.closed:
                return
            parts = self.serve()
            if parts is not None:
                self._request.respond_parts(parts)
        except InvariantError:
            raise
        except Exception as error:
            self._context.failures("Fetch", error)
            self._request.channel.close("Fetch failed: internal error")
        finally:
            self._context.in_flight.end()

    def failed(self, asked: SessionPartition, error: Exception) -> FetchPartitionResult:
        """The result of a partition that could not be read; a defect is reported and answered, never raised."""
        if isinstance(error, KafkaError):
            code = error.code
        elif isinstance(error, InvariantError):
            raise error
        elif isinstance(error, OSError):
            code = ErrorCode.KAFKA_STORAGE_ERROR
            self._context.failures.warn("Fetch", f"reading partition {asked.index} failed: {error}")
        else:
            code = ErrorCode.UNKNOWN_SERVER_ERROR
            self._context.failures("Fetch", error)
        self._request.count_error(code)
        leader = self._context.metadata.current_leader(asked.topic, asked.index) if code in _LEADER_ERRORS else None
        return FetchPartitionResult(asked.index, code, current_leader=leader)

    def finished(self, done: ReadRound) -> bool:
        """Whether `done` must be answered, judged by bytes and errors."""
        return done.urgent or done.byte_count >= self._message.min_bytes or self._session.is_empty

    def encode(self, done: ReadRound) -> list[Part] | None:
        """The response, recorded in the session. None if a subclass answers later."""
        session = self._session
        remembered = session.session
        incremental = session.incremental
        topics: list[tuple[Topic, list[FetchPartitionResult]]] = []
        last_topic: Topic | None = None
        of_topic: list[FetchPartitionResult] = []
        served: list[SessionPartition] = []
        leaders: dict[int, None] = {}
        for asked, result in done.rows:
            if remembered is not None:
                has_records = result.records is not None
                news = asked.accept(result.error_code, result.high_watermark, result.log_start_offset, has_records)
                if result.diverging_epoch is not None:
                    self.diverged(asked)
                if has_records:
                    served.append(asked)
                elif incremental and not news and result.diverging_epoch is None and result.preferred_read_replica < 0:
                    continue
            if result.current_leader is not None:
                leaders[result.current_leader[0]] = None
            if asked.topic != last_topic:
                last_topic = asked.topic
                of_topic = []
                topics.append((last_topic, of_topic))
            of_topic.append(result)
        self.count(done.rows)
        if remembered is not None and served:
            remembered.move_to_end(served)
        endpoints: Sequence[NodeEndpoint] = ()
        if leaders and self._request.api_version >= FIRST_VERSION_WITH_ENDPOINTS:
            endpoints = self._context.metadata.node_endpoints(self._request.listener_name, leaders)
        return encode_fetch_response(
            self._request.api_version, self._request.correlation_id, 0, 0, session.session_id, topics, endpoints
        )

    def missing_bytes(self, done: ReadRound) -> int:
        """Bytes that `done` lacks for a response."""
        return self._message.min_bytes - done.byte_count

    def appended_bytes(self) -> int:
        """Bytes appended to the partitions since the last read."""
        find = self._context.replicas.find
        return sum(
            [find(asked.topic, asked.index).appended_bytes - asked.seen_bytes for asked in self._session.partitions]
        )

    def watches(self) -> list[Watch]:
        """Watches to park under: the session's, notified of its partitions, or those of all named partitions."""
        session = self._session.session
        if session is not None and self._session.incremental:
            self.listen()
            return [session.watch]
        find = self._context.replicas.find
        return [self.watch(find(asked.topic, asked.index)) for asked in self._session.partitions]

    def listen(self) -> None:
        """Notify the session of its active partitions too; it is always notified of the others."""
        if self._session.incremental:
            find = self._context.replicas.find
            for asked in self._session.partitions:
                asked.listen(self.watch(find(asked.topic, asked.index)))

    def park(self, done: ReadRound) -> None:
        """Wait for more, up to the request's maximum wait."""
        context = self._context
        watches = self.watches()
        operation = DelayedFetch(self, self._request, self.missing_bytes(done))
        done.release()
        context.purgatory.park(operation, watches, self._message.max_wait_ms / 1000)
        self._request.dispatcher.parked(self._request, operation)


class DelayedFetch(DelayedOperation):
    """A fetch that waits for records."""

    __slots__ = ("_fetch", "_missing_bytes", "_request")

    def __init__(self, fetch: Fetch, request: Request, missing_bytes: int) -> None:
        super().__init__()
        self._fetch = fetch
        self._request = request
        self._missing_bytes = missing_bytes

    def try_complete(self, force: bool) -> bool:
        """Read again and answer when there is enough.

        Not before about as many bytes were appended as were missing: an estimate, cheaper than a read, which alone is
        exact.
        """
        fetch = self._fetch
        if not force and self._missing_bytes > 1 and fetch.appended_bytes() < self._missing_bytes:
            fetch.listen()
            return False
        done = fetch.read()
        if not force and not fetch.finished(done):
            self._missing_bytes = fetch.missing_bytes(done)
            done.release()
            fetch.listen()
            return False
        self._respond(fetch.encode(done))
        return True

    def expire(self) -> None:
        """The maximum wait is over: answer with the available records."""
        self._respond(self._fetch.encode(self._fetch.read()))

    def _respond(self, parts: list[Part] | None) -> None:
        if parts is not None:
            self._request.respond_parts(parts)

    def fail(self, error: Exception) -> None:
        """A defect: close the connection, since the session can't continue either."""
        self._request.channel.close("Fetch failed: internal error")
