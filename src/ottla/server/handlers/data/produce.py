"""Produce (0): versions 0 to 13; requests below 3 are converted first (`old_produce`).

The path of a produce (docs/internals/replication.md): this handler iterates over the partitions of the request,
`replica.partition` appends the batch in place in the receive buffer, and the response is packed by hand. No object
exists per record.
acks=0 has no response, so an error closes the connection, which makes the client refresh its metadata.

A request parks only
- while acks=all waits for replicas,
- while an append that reached `flush.messages` waits for its fsync,
- while batches are decompressed in the pool: those for a topic that is compacted, recompresses or bounds the size of a
  record, and those without a largest timestamp,
- while the first batch of a transaction in a partition is verified with the transaction's coordinator, before all that
  (`produce_transactions`).
"""

from __future__ import annotations

from collections.abc import Callable

from ottla.common.errors import ErrorCode, InvariantError, KafkaError, ProtocolError, without_frames
from ottla.common.kafka.acl import AclOperation, ResourceType
from ottla.common.platform.channel import Part
from ottla.protocol.hot import OneProduced, pack_one_produced, parse_one_produce
from ottla.protocol.primitives import NodeEndpoint, Topic
from ottla.protocol.produce import (
    BATCHES_FROM,
    FLEXIBLE_FROM,
    ParsedProduceRequest,
    ProducePartitionResult,
    RecordError,
    encode_produce_response,
    encode_single_produce_response,
    parse_produce,
    request_of_one,
)
from ottla.protocol.registry import ApiKey
from ottla.record.batch import ATTRIBUTES_POSITION, COMPRESSION_MASK, HEADER_SIZE, TRANSACTIONAL_MASK
from ottla.record.compression import DEFAULT_MAX_BYTES, ZSTD
from ottla.record.errors import RecordsRefused
from ottla.replica.partition import Partition
from ottla.replica.purgatory import DelayedOperation
from ottla.server.handlers.data.context import DataContext
from ottla.server.handlers.data.old_produce import UpConversion
from ottla.server.handlers.data.produce_transactions import (
    Findings,
    NotInTransaction,
    TransactionalBatch,
    TransactionCheck,
    of_one_producer,
    transactional_batches,
)
from ottla.server.requests.api import RawApi
from ottla.server.requests.authorization import RequiredPermission, split_allowed
from ottla.server.requests.guards import topic_name
from ottla.server.requests.request import Request
from ottla.storage.files.log_config import LogConfig
from ottla.storage.files.off_loop import BYTES_PER_TURN, DecompressionSliceExceeded
from ottla.storage.log.append_rules import (
    MAX_NAMED_RECORDS,
    DecompressionBudget,
    has_doubtful_timestamps,
    needs_decompression,
    prepare_batch,
)
from ottla.storage.segment.results import AppendResult

ACKS_ALL = -1
VALID_ACKS = (ACKS_ALL, 0, 1)

ADMIN_CLIENT_ID = "__admin_client"
"""The client id that may write to internal topics, as in Apache Kafka: for tools that restore them."""

FIRST_VERSION_WITH_ZSTD = 7
FIRST_VERSION_WITH_CURRENT_LEADER = 10

_ATTRIBUTES_LOW_BYTE = ATTRIBUTES_POSITION + 1
_TRANSACTIONAL_OR_COMPRESSED = TRANSACTIONAL_MASK | COMPRESSION_MASK

BYTES_PER_JOB = 1024 * 1024
"""Decompressed bytes, approximately, after which a request yields its pool thread."""

MAX_NAMED_RECORDS_PER_REQUEST = 10 * MAX_NAMED_RECORDS
"""Maximum of invalid records named in one response; further batches are refused as a whole."""

_TELL_LOG_START = frozenset(
    {
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.NOT_ENOUGH_REPLICAS,
    }
)
"""Errors that only a partition's leader detects: the result has the log start offset, as in Apache Kafka."""

Results = list[tuple[Topic, list[ProducePartitionResult]]]


class _Append:
    """An appended partition of a request whose acknowledgement may still have to wait."""

    __slots__ = ("leader_epoch", "partition", "position", "result", "row")

    def __init__(self, partition: Partition, result: AppendResult, row: int, position: int) -> None:
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self.result = result
        self.row = row
        self.position = position


def serve(context: DataContext, request: Request, buffer: bytearray, body_start: int, end: int) -> list[Part] | None:
    """Append all partitions of a request in order; see the module."""
    version = request.api_version
    one = parse_one_produce(version, buffer, body_start, end) if version >= FLEXIBLE_FROM else None
    if one is not None:
        if not request.is_guarded and _is_usual(context, one, buffer):
            return _append_one(context, request, one, buffer)
        produce = request_of_one(one)
    else:
        limit = context.element_limit(end - body_start)
        produce = parse_produce(version, buffer, body_start, end, limit)
    context.check_partition_count(produce.partition_count)
    if request.is_guarded:
        refused = _guard(context, request, produce, buffer)
        if refused is not None:
            return refused
    if version < BATCHES_FROM:
        _convert(context, request, produce, buffer)
        return None
    inspected = context.replicas.inspected_topics
    if (inspected and any(topic in inspected for topic, _ in produce.topics)) or _is_doubtful(context, buffer, produce):
        return _look_first(context, request, produce, buffer)
    return append_all(context, request, produce, buffer, None)


def _is_usual(context: DataContext, one: OneProduced, buffer: bytearray) -> bool:
    """Whether the batch of a request with one partition can be appended at once, without a check outside of its log."""
    acks, _, topic, _, start, stop = one
    if acks not in VALID_ACKS or topic in context.replicas.inspected_topics or stop - start < HEADER_SIZE:
        return False
    attributes = buffer[start + _ATTRIBUTES_LOW_BYTE] & _TRANSACTIONAL_OR_COMPRESSED
    return not attributes or not (
        attributes & TRANSACTIONAL_MASK or has_doubtful_timestamps(buffer, start, context.clock)
    )


def _append_one(context: DataContext, request: Request, one: OneProduced, buffer: bytearray) -> list[Part] | None:
    """`append_all` for a request that is usual: most of the time of a small request is spent in its loops and lists."""
    acks, timeout_ms, topic, index, start, stop = one
    acks_all = acks == ACKS_ALL
    try:
        partition = context.replicas.find(topic, index)
        if partition.is_internal:
            _check_internal(request, partition)
        result = partition.append_records(buffer, start, stop, acks_all)
    except Exception as error:
        answer = _failed(context, request, topic, index, stop - start, error, MAX_NAMED_RECORDS_PER_REQUEST)
        if not acks:
            raise _unanswerable(answer.error_code) from None
        return [_encode(context, request, [(topic, [answer])])]
    _count(context, partition.topic, result, stop - start)
    if not acks:
        return []
    if (acks_all or result.needs_flush) and not partition.acknowledged(result, acks_all):
        waiting = [_Append(partition, result, 0, 0)]
        _park(context, request, [(topic, [_succeeded(index, result)])], waiting, timeout_ms, acks_all=acks_all)
        return None
    return [
        pack_one_produced(
            request.correlation_id,
            topic,
            index,
            result.base_offset,
            result.log_append_time_ms,
            result.log_start_offset,
        )
    ]


def _guard(
    context: DataContext, request: Request, produce: ParsedProduceRequest, buffer: bytearray
) -> list[Part] | None:
    """Remove topics without WRITE permission; returns the response if none remains."""
    image = context.metadata.image

    def may_write(row: tuple[Topic, list[tuple[int, int, int]]]) -> bool:
        name = topic_name(image, row[0])
        return name is None or request.allowed(AclOperation.WRITE, ResourceType.TOPIC, name)

    kept, refused = split_allowed(produce.topics, may_write)
    if not refused:
        return None
    if transactional_batches(buffer, produce) and not _may_be_transactional(request, produce):
        return _refuse(context, request, produce, KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
    produce.topics, produce.refused = kept, refused
    return None if kept else append_all(context, request, produce, buffer, None)


def _may_be_transactional(request: Request, produce: ParsedProduceRequest) -> bool:
    transactional_id = produce.transactional_id
    return transactional_id is not None and request.allowed(
        AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id
    )


def _convert(context: DataContext, request: Request, produce: ParsedProduceRequest, buffer: bytearray) -> None:
    """Park until the message sets of the request are converted, then append the batches."""

    def then(converted: ParsedProduceRequest, batches: bytearray, findings: Findings) -> None:
        _answer_late(request, lambda: _prepare(context, request, converted, batches, findings, lent=False))

    if produce.partition_count:
        buffer = _lasting(buffer, produce)
    UpConversion(context, request, produce, buffer, then).begin()


def _is_doubtful(context: DataContext, buffer: bytearray, produce: ParsedProduceRequest) -> bool:
    """Whether any batch is transactional, or may have to be decompressed because of its header."""
    for _, partitions in produce.topics:
        for _, start, stop in partitions:
            if stop - start >= HEADER_SIZE:
                attributes = buffer[start + _ATTRIBUTES_LOW_BYTE] & _TRANSACTIONAL_OR_COMPRESSED
                if attributes and (
                    attributes & TRANSACTIONAL_MASK or has_doubtful_timestamps(buffer, start, context.clock)
                ):
                    return True
    return False


def _look_first(
    context: DataContext, request: Request, produce: ParsedProduceRequest, buffer: bytearray
) -> list[Part] | None:
    """Append batches that need checks first: by transaction coordinators, then in the pool."""
    batches = transactional_batches(buffer, produce)
    if not batches:
        return _prepare(context, request, produce, buffer, Findings(), lent=True)
    transactional_id = produce.transactional_id
    if transactional_id is None or not _may_be_transactional(request, produce):
        return _refuse(context, request, produce, KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
    try:
        batches = of_one_producer(batches)
    except KafkaError as error:
        return _refuse(context, request, produce, error)
    if not batches or not context.transactions.asks(transactional_id, request.api_version):
        return _prepare(context, request, produce, buffer, Findings(), lent=True)
    return Verification(context, request, produce, buffer).begin(transactional_id, batches)


def _prepare(
    context: DataContext,
    request: Request,
    produce: ParsedProduceRequest,
    buffer: bytearray,
    findings: Findings,
    *,
    lent: bool,
) -> list[Part] | None:
    """Append, through the pool if needed; `lent` is the receive buffer, which is valid during this call only."""
    if _is_plain(context, buffer, produce):
        return append_all(context, request, produce, buffer, findings)
    preparation = Preparation(context, request, produce, buffer, findings, lent=lent)
    if preparation.jobs:
        preparation.begin()
        return None
    return append_all(context, request, produce, buffer, findings)


def _is_plain(context: DataContext, buffer: bytearray, produce: ParsedProduceRequest) -> bool:
    """Whether no batch can need decompression or compression."""
    inspected = context.replicas.inspected_topics
    for topic, partitions in produce.topics:
        if topic in inspected:
            return False
        for _, start, stop in partitions:
            if stop - start >= HEADER_SIZE and buffer[start + _ATTRIBUTES_LOW_BYTE] & COMPRESSION_MASK:
                return False
    return True


def _lasting(buffer: bytearray, produce: ParsedProduceRequest) -> bytearray:
    """A copy of the receive buffer up to the end, with the same positions: the buffer is lent for the call only."""
    return buffer[: max(stop for _, partitions in produce.topics for _, _, stop in partitions)]


def _refuse(context: DataContext, request: Request, produce: ParsedProduceRequest, error: KafkaError) -> list[Part]:
    """The response to a request that is refused as a whole."""
    if produce.acks == 0:
        raise _unanswerable(error.code)
    for _ in range(produce.partition_count):
        request.count_error(error.code)
    results: Results = [
        (
            topic,
            [
                ProducePartitionResult(index, error.code, error_message=error.message or None)
                for index, _, _ in partitions
            ],
        )
        for topic, partitions in (*produce.topics, *produce.refused)
    ]
    return [_encode(context, request, results)]


def append_all(
    context: DataContext,
    request: Request,
    produce: ParsedProduceRequest,
    buffer: bytearray,
    findings: Findings | None,
) -> list[Part] | None:
    """Append the batches of the request, with the findings of earlier checks."""
    acks_all = produce.acks == ACKS_ALL
    waiting: list[_Append] = []
    results: Results = []
    failure = ErrorCode.NONE
    nameable = MAX_NAMED_RECORDS_PER_REQUEST
    for row, (topic, partitions) in enumerate(produce.topics):
        answers: list[ProducePartitionResult] = []
        results.append((topic, answers))
        for position, (index, start, stop) in enumerate(partitions):
            try:
                partition = context.replicas.find(topic, index)
                _check_allowed(request, produce, partition, buffer, start, stop)
                if findings is None:
                    result = partition.append_records(buffer, start, stop, acks_all)
                else:
                    result = findings.append(partition, (row, position), buffer, start, stop, acks_all=acks_all)
            except Exception as error:
                answer = _failed(context, request, topic, index, stop - start, error, nameable)
                nameable -= len(answer.record_errors)
                failure = ErrorCode(answer.error_code)
                answers.append(answer)
                continue
            _count(context, partition.topic, result, stop - start)
            if (acks_all or result.needs_flush) and not partition.acknowledged(result, acks_all):
                waiting.append(_Append(partition, result, row, position))
            elif produce.partition_count == 1 and produce.acks != 0:
                return [
                    encode_single_produce_response(
                        request.api_version,
                        request.correlation_id,
                        topic,
                        index,
                        result.base_offset,
                        result.log_append_time_ms,
                        result.log_start_offset,
                    )
                ]
            answers.append(_succeeded(index, result))
    if produce.refused:
        failure = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        results += _refused(context, request, produce)
    if produce.acks == 0:
        if failure != ErrorCode.NONE:
            raise _unanswerable(failure)
        return []
    if waiting:
        _park(context, request, results, waiting, produce.timeout_ms, acks_all=acks_all)
        return None
    return [_encode(context, request, results)]


def _check_allowed(
    request: Request, produce: ParsedProduceRequest, partition: Partition, buffer: bytearray, start: int, stop: int
) -> None:
    """Check the request around a batch; storage checks the batch itself."""
    if produce.acks not in VALID_ACKS:
        raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS)
    if partition.is_internal:
        _check_internal(request, partition)
    if stop - start < HEADER_SIZE:
        raise KafkaError(ErrorCode.INVALID_RECORD, "a produce request needs one record batch for each partition")
    attributes = buffer[start + _ATTRIBUTES_LOW_BYTE]
    if attributes & COMPRESSION_MASK == ZSTD and request.api_version < FIRST_VERSION_WITH_ZSTD:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"Produce version {request.api_version} does not know zstd (KIP-110)",
        )


def _check_internal(request: Request, partition: Partition) -> None:
    if request.client_id != ADMIN_CLIENT_ID:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Cannot append to internal topic {partition.topic}")


def _refused(context: DataContext, request: Request, produce: ParsedProduceRequest) -> Results:
    """The results of topics without WRITE permission."""
    error = KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    return [
        (topic, [_failed(context, request, topic, index, stop - start, error, 0) for index, start, stop in partitions])
        for topic, partitions in produce.refused
    ]


def _succeeded(index: int, result: AppendResult) -> ProducePartitionResult:
    return ProducePartitionResult(index, 0, result.base_offset, result.log_append_time_ms, result.log_start_offset)


def _unanswerable(code: int) -> ProtocolError:
    """The failure of a request with acks=0, which closes the connection."""
    return ProtocolError(f"a produce with acks=0 failed with {ErrorCode(code).name}")


def _count(context: DataContext, topic: str, result: AppendResult, size: int) -> None:
    statistics, total = context.statistics.topic(topic), context.statistics.all_topics
    statistics.produces.value += 1
    total.produces.value += 1
    if not result.duplicate:
        records = result.last_offset - result.base_offset + 1
        statistics.bytes_in.value += size
        total.bytes_in.value += size
        statistics.messages_in.value += records
        total.messages_in.value += records


def _failed(
    context: DataContext, request: Request, topic: Topic, index: int, size: int, error: Exception, nameable: int
) -> ProducePartitionResult:
    """The result of a partition whose append failed, with at most `nameable` of its records; a defect is
    reported and answered, never raised."""
    message: str | None = None
    record_errors: tuple[RecordError, ...] = ()
    if isinstance(error, KafkaError):
        code = error.code
        message = error.message or None
        if isinstance(error, RecordsRefused) and len(error.records) <= nameable:
            record_errors = tuple(RecordError(*record) for record in error.records)
    elif isinstance(error, InvariantError):
        raise error
    elif isinstance(error, OSError):
        code = ErrorCode.KAFKA_STORAGE_ERROR
        context.failures.warn(f"append to {_name(context, topic)}-{index}", str(error))
    else:
        code = ErrorCode.UNKNOWN_SERVER_ERROR
        context.failures("Produce", error)
    request.count_error(code)
    name = _name(context, topic)
    totals = [context.statistics.all_topics]
    if context.metadata.image.topic(name) is not None:
        totals.append(context.statistics.topic(name))
    for statistics in totals:
        statistics.produces.value += 1
        statistics.failed_produces.value += 1
        if code in (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE):
            statistics.bytes_rejected.value += size
    leader = context.metadata.current_leader(topic, index) if code == ErrorCode.NOT_LEADER_OR_FOLLOWER else None
    log_start_offset = -1
    if code in _TELL_LOG_START and size >= HEADER_SIZE and not isinstance(error, NotInTransaction):
        log_start_offset = context.replicas.find(topic, index).log.log_start_offset
    return ProducePartitionResult(
        index,
        code,
        log_start_offset=log_start_offset,
        record_errors=record_errors,
        error_message=message,
        current_leader=leader,
    )


def _name(context: DataContext, topic: Topic) -> str:
    if isinstance(topic, str):
        return topic
    known = context.metadata.image.find(topic)
    return "" if known is None else known.name


def _encode(context: DataContext, request: Request, results: Results) -> bytes:
    if len(results) == 1 and len(results[0][1]) == 1:
        topic, (result,) = results[0]
        if result.error_code == 0:
            return encode_single_produce_response(
                request.api_version,
                request.correlation_id,
                topic,
                result[0],
                result.base_offset,
                result.log_append_time_ms,
                result.log_start_offset,
            )
    endpoints: list[NodeEndpoint] = []
    if request.api_version >= FIRST_VERSION_WITH_CURRENT_LEADER:
        leaders = {
            answer.current_leader[0]: None for _, answers in results for answer in answers if answer.current_leader
        }
        endpoints = context.metadata.node_endpoints(request.listener_name, leaders)
    return encode_produce_response(request.api_version, request.correlation_id, results, node_endpoints=endpoints)


def _park(
    context: DataContext,
    request: Request,
    results: Results,
    waiting: list[_Append],
    timeout_ms: int,
    *,
    acks_all: bool,
) -> None:
    operation = DelayedProduce(context, request, results, waiting, acks_all)
    watches = {append.partition.produce_watch: None for append in waiting}
    context.purgatory.park(operation, watches, max(0, timeout_ms) / 1000)
    request.dispatcher.parked(request, operation)


class Preparation:
    """Decompression and compression of a request in the pool; the rest follows on the loop.

    The request stays parked meanwhile, which preserves the order of its connection. It uses the settings at its
    arrival. Bounded: one piece of work at a time in the computing share of the pool, one budget of decompressed bytes
    for all batches, and only the error is kept of a refused batch. A large batch is detected by a short slice, and
    waits for a long one.
    """

    __slots__ = (
        "_budget",
        "_buffer",
        "_context",
        "_findings",
        "_nameable",
        "_next",
        "_now_ms",
        "_produce",
        "_request",
        "jobs",
    )

    def __init__(
        self,
        context: DataContext,
        request: Request,
        produce: ParsedProduceRequest,
        buffer: bytearray,
        findings: Findings,
        *,
        lent: bool,
    ) -> None:
        self._context = context
        self._request = request
        self._produce = produce
        self._buffer = buffer
        self._findings = findings
        self._budget = DecompressionBudget()
        self._budget.turn_bytes = BYTES_PER_TURN
        self._nameable = MAX_NAMED_RECORDS_PER_REQUEST
        self._next = 0
        self._now_ms = context.clock.time_ms()
        self.jobs: list[tuple[tuple[int, int], int, int, LogConfig, str]] = []
        for row, (topic, partitions) in enumerate(produce.topics):
            for position, (index, start, stop) in enumerate(partitions):
                config = context.replicas.log_config(topic, index)
                if config is None or stop - start < HEADER_SIZE or (row, position) in findings.refusals:
                    continue
                if needs_decompression(buffer, start, self._now_ms, config):
                    name = f"{_name(context, topic)}-{index}"
                    self.jobs.append(((row, position), start, stop, config, name))
        if self.jobs and lent:
            self._buffer = _lasting(buffer, produce)

    def begin(self) -> None:
        """Runs on the loop: start; `append_all` follows once all batches are prepared."""
        self._context.in_flight.begin()
        self._submit()

    def _submit(self) -> None:
        pool = self._context.compute_pool
        (pool.long if self._budget.turn_bytes > BYTES_PER_TURN else pool).submit(self._run, self._ran)

    def _run(self) -> None:
        """Runs in the pool: prepare batches until the slice is used up; an error is kept for the response.

        The slice ends after the one batch of a long slice, and before a batch that needs a long one.
        """
        floor = self._budget.left - BYTES_PER_JOB
        while self._next < len(self.jobs) and self._budget.left > floor:
            key, start, stop, config, name = self.jobs[self._next]
            try:
                self._findings.batches[key] = prepare_batch(
                    self._buffer, start, stop, self._now_ms, config, name, self._budget
                )
            except KafkaError as error:
                if isinstance(error, RecordsRefused):
                    if len(error.records) > self._nameable:
                        error.records = ()
                    self._nameable -= len(error.records)
                self._findings.refusals[key] = without_frames(error)
            except DecompressionSliceExceeded:
                self._budget.turn_bytes = DEFAULT_MAX_BYTES
                return
            self._next += 1
            if self._budget.turn_bytes > BYTES_PER_TURN:
                self._budget.turn_bytes = BYTES_PER_TURN
                return

    def _ran(self, _: None, error: BaseException | None) -> None:
        """Runs on the loop: continue preparing, or append and answer, unless that has to wait for more."""
        if error is None and self._next < len(self.jobs):
            self._submit()
            return
        try:
            self._append(error)
        finally:
            self._context.in_flight.end()

    def _append(self, error: BaseException | None) -> None:
        channel = self._request.channel
        if error is not None:
            self._context.failures("Produce", error)
            channel.close("Produce failed: internal error")
            return
        _answer_late(
            self._request,
            lambda: append_all(self._context, self._request, self._produce, self._buffer, self._findings),
        )


def _answer_late(request: Request, answer: Callable[[], list[Part] | None]) -> None:
    """Continue a parked request; None if it stays parked."""
    try:
        parts = answer()
    except ProtocolError as failure:
        request.channel.close(str(failure))
        return
    if parts is not None:
        request.respond_parts(parts)


class Verification:
    """Verification of a request with the coordinator of its transaction.

    The request stays parked meanwhile, which preserves the order of its connection. A stop waits for it: requests in
    flight to coordinators fail then (`TransactionPartitions.close`).
    """

    __slots__ = ("_buffer", "_context", "_findings", "_parked", "_produce", "_request")

    def __init__(
        self, context: DataContext, request: Request, produce: ParsedProduceRequest, buffer: bytearray
    ) -> None:
        self._context = context
        self._request = request
        self._produce = produce
        self._buffer = buffer
        self._findings: Findings | None = None
        self._parked = False

    def begin(self, transactional_id: str, batches: list[TransactionalBatch]) -> list[Part] | None:
        """Request the verification, and append at once if no response is needed; None if the request parked."""
        context, request = self._context, self._request
        TransactionCheck(
            context.transactions, transactional_id, batches, api_version=request.api_version, then=self._answered
        ).begin()
        if self._findings is not None:
            return _prepare(context, request, self._produce, self._buffer, self._findings, lent=True)
        self._buffer = _lasting(self._buffer, self._produce)
        self._parked = True
        context.in_flight.begin()
        return None

    def _answered(self, findings: Findings) -> None:
        self._findings = findings
        if not self._parked:
            return
        try:
            _answer_late(
                self._request,
                lambda: _prepare(self._context, self._request, self._produce, self._buffer, findings, lent=False),
            )
        finally:
            self._context.in_flight.end()


class DelayedProduce(DelayedOperation):
    """An appended request that waits for its acknowledgement."""

    __slots__ = ("_acks_all", "_context", "_request", "_results", "_waiting")

    def __init__(
        self, context: DataContext, request: Request, results: Results, waiting: list[_Append], acks_all: bool
    ) -> None:
        super().__init__()
        self._context = context
        self._request = request
        self._results = results
        self._waiting = waiting
        self._acks_all = acks_all

    def try_complete(self, force: bool) -> bool:
        """Answer once every partition is acknowledged or can't be any more."""
        still: list[_Append] = []
        for append in self._waiting:
            partition = append.partition
            if not partition.is_leader or append.leader_epoch < partition.leader_since:
                # The leader changed meanwhile: the records below the high watermark may be others now.
                self._fail_one(append, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            elif partition.acknowledged(append.result, self._acks_all):
                if self._acks_all and not partition.enough_after_append:
                    self._fail_one(append, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)
            elif partition.offline:
                self._fail_one(append, ErrorCode.KAFKA_STORAGE_ERROR)
            else:
                still.append(append)
        self._waiting = still
        if still:
            return False
        self._answer()
        return True

    def expire(self) -> None:
        """The producer's timeout is over; the appended records stay."""
        if not self.try_complete(False):
            for append in self._waiting:
                self._fail_one(append, ErrorCode.REQUEST_TIMED_OUT)
            self._answer()

    def fail(self, error: Exception) -> None:
        """A defect: close the connection, since no response is possible."""
        self._request.channel.close("Produce failed: internal error")

    def _fail_one(self, append: _Append, code: ErrorCode) -> None:
        self._request.count_error(code)
        answers = self._results[append.row][1]
        answers[append.position] = ProducePartitionResult(answers[append.position][0], code)

    def _answer(self) -> None:
        self._request.respond_parts([_encode(self._context, self._request, self._results)])


PRODUCE = RawApi(
    ApiKey.PRODUCE,
    serve,
    item_needs=(
        RequiredPermission(AclOperation.WRITE, ResourceType.TOPIC),
        RequiredPermission(AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID),
    ),
)
