"""Transaction coordinator API for request handlers: one method for each Kafka API, each calls `done` exactly once.

A method runs the checks that need no shard, then submits an operation to the runtime (`operations`). Client errors are
returned in responses, never raised, and `done` may be called before the method returns. Partitions are looked up in the
image at the time of the request. Authorization is done by the request handlers.

The number of waiting requests is bounded by connections, with one request each. Work on many ids (a listing, a request
with thousands of transactions) runs in slices on the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any, TypeVar

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.kafka.internal_topics import GROUP_METADATA_TOPIC
from ottla.common.kafka.topic_partition import TopicPartition
from ottla.common.platform.clock import Scheduler
from ottla.coordinator.runtime import CoordinatorOperation, CoordinatorRuntime, CoordinatorState
from ottla.coordinator.runtime.slices import SlicedWork
from ottla.coordinator.transaction import operations, responses
from ottla.coordinator.transaction.completion import TransactionCompletions
from ottla.coordinator.transaction.context import ShardContext
from ottla.coordinator.transaction.listing import TransactionFilter, steps
from ottla.coordinator.transaction.metadata import TRANSACTION_VERSION_2
from ottla.coordinator.transaction.operations import PartitionCodes, PartitionsOf, ProducerIdRequest
from ottla.coordinator.transaction.outcome import NEEDS_PRODUCER_ID
from ottla.coordinator.transaction.shard import ProducerIdResult, TransactionShard
from ottla.metadata.image import MetadataImage
from ottla.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from ottla.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTransaction,
)
from ottla.protocol.messages.describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from ottla.protocol.messages.describe_transactions import TransactionState as DescribedTransaction
from ottla.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.protocol.messages.list_transactions import (
    ListedTransaction,
    ListTransactionsRequest,
    ListTransactionsResponse,
)
from ottla.record.batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

Q = TypeVar("Q")
R = TypeVar("R")

FIRST_BATCHED_ADD_PARTITIONS = 4
"""First version in which brokers send AddPartitionsToTxn, for several transactions, all of transactions v2."""

BEGUN_AT_ONCE = 64
"""Number of transactions of one request that are processed in the tick of its arrival."""


class TransactionCoordinator:
    """Coordinates the transactional ids of all `__transaction_state` partitions that this broker leads."""

    __slots__ = ("_context", "_group_partition", "_image", "_runtime", "_sliced")

    def __init__(
        self,
        runtime: CoordinatorRuntime[TransactionShard],
        context: ShardContext,
        *,
        image: Callable[[], MetadataImage],
        group_partition: Callable[[str], int],
        scheduler: Scheduler,
    ) -> None:
        """`group_partition(group id)` returns the group's partition of `__consumer_offsets`."""
        self._runtime = runtime
        self._context = context
        self._image = image
        self._group_partition = group_partition
        self._sliced = SlicedWork(context.clock, scheduler)

    # --- producers ----------------------------------------------------------------------------------------------------

    def init_producer_id(
        self, api_version: int, request: InitProducerIdRequest, done: Callable[[InitProducerIdResponse], None]
    ) -> None:
        """Initialize the producer of a transactional id; other producers do not need the coordinator.

        Errors: INVALID_REQUEST, INVALID_TRANSACTION_TIMEOUT, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS while a
        transaction ends or is aborted for this producer, those of `schedule_write` and of a producer id.
        """
        code = self._check_init(request)
        if code is ErrorCode.NONE:
            self._submit(operations.INIT_PRODUCER_ID, api_version, request, done)
        else:
            done(responses.initialized(api_version, ProducerIdResult(code)))

    def _check_init(self, request: InitProducerIdRequest) -> ErrorCode:
        if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH):
            return ErrorCode.INVALID_REQUEST
        if not request.transactional_id:
            return ErrorCode.INVALID_REQUEST
        if not 0 < request.transaction_timeout_ms <= self._context.config().transaction_max_timeout_ms:
            return ErrorCode.INVALID_TRANSACTION_TIMEOUT
        return ErrorCode.NONE

    def end_txn(self, api_version: int, request: EndTxnRequest, done: Callable[[EndTxnResponse], None]) -> None:
        """Responds when the decision is committed, not when the markers are written.

        Errors: INVALID_REQUEST, INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, INVALID_TXN_STATE,
        CONCURRENT_TRANSACTIONS while a transaction ends, those of `schedule_write`.
        """
        self._submit(operations.END_TXN, api_version, request, done)

    def _submit(
        self,
        operation: CoordinatorOperation[int, ProducerIdRequest[Q], R],
        api_version: int,
        request: Q,
        done: Callable[[R], None],
        spare_producer_id: int | None = None,
    ) -> None:
        """Run an operation that may need a producer id; it runs again once one is allocated."""
        asked = ProducerIdRequest(request, spare_producer_id)

        def finished(answer: Any, error: KafkaError | None) -> None:
            if error is not None:
                done(operation.refused(api_version, asked, error))
            elif answer is NEEDS_PRODUCER_ID:
                self._context.producer_ids.next_id(received)
            elif operation.answered is not None:
                done(operation.answered(api_version, asked, answer))

        def received(producer_id: int | None, error: BaseException | None) -> None:
            if producer_id is not None:
                self._submit(operation, api_version, request, done, producer_id)
                return
            known = error if isinstance(error, KafkaError) else KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
            done(operation.refused(api_version, asked, known))

        self._runtime.submit(operation, api_version, asked, finished)

    # --- partitions ---------------------------------------------------------------------------------------------------

    def add_partitions_to_txn(
        self,
        api_version: int,
        request: AddPartitionsToTxnRequest,
        done: Callable[[AddPartitionsToTxnResponse], None],
    ) -> None:
        """Add partitions to one transaction of a client, or several of a broker; each succeeds or fails as a whole."""
        if api_version < FIRST_BATCHED_ADD_PARTITIONS:
            transaction = AddPartitionsToTxnTransaction(
                transactional_id=request.v3_and_below_transactional_id,
                producer_id=request.v3_and_below_producer_id,
                producer_epoch=request.v3_and_below_producer_epoch,
                topics=request.v3_and_below_topics,
            )

            def one_done(codes: PartitionCodes) -> None:
                results = responses.partition_results(api_version, codes)
                done(AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results))

            self._add_to(transaction, api_version, one_done)
            return
        self._add_to_all(request.transactions, api_version, done)

    def _add_to_all(
        self,
        transactions: Sequence[AddPartitionsToTxnTransaction],
        api_version: int,
        done: Callable[[AddPartitionsToTxnResponse], None],
    ) -> None:
        """Process the first transactions at once, the rest in slices; respond when the last one is done."""
        results: dict[int, AddPartitionsToTxnResult] = {}

        def one_done(index: int, transactional_id: str, codes: PartitionCodes) -> None:
            results[index] = AddPartitionsToTxnResult(
                transactional_id=transactional_id, topic_results=responses.partition_results(api_version, codes)
            )
            if len(results) == len(transactions):
                done(AddPartitionsToTxnResponse(results_by_transaction=[results[each] for each in sorted(results)]))

        def work() -> Iterator[None]:
            for index, transaction in enumerate(transactions):
                self._add_to(transaction, api_version, partial(one_done, index, transaction.transactional_id))
                yield

        if not transactions:
            done(AddPartitionsToTxnResponse())
            return
        rest = work()
        for _ in islice(rest, BEGUN_AT_ONCE):
            pass
        if len(transactions) > BEGUN_AT_ONCE:
            self._sliced.add(rest)

    def _add_to(
        self,
        transaction: AddPartitionsToTxnTransaction,
        api_version: int,
        done: Callable[[PartitionCodes], None],
    ) -> None:
        self.add_or_verify(
            transaction.transactional_id,
            transaction.producer_id,
            transaction.producer_epoch,
            [(topic.name, index) for topic in transaction.topics for index in topic.partitions],
            verify_only=transaction.verify_only,
            api_version=api_version,
            done=done,
        )

    def add_or_verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
        *,
        verify_only: bool,
        api_version: int,
        done: Callable[[PartitionCodes], None],
    ) -> None:
        """Add partitions to one transaction, or verify that they belong to it.

        A missing partition is UNKNOWN_TOPIC_OR_PARTITION; then the others are OPERATION_NOT_ATTEMPTED. Errors for all
        of them: INVALID_REQUEST, INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, CONCURRENT_TRANSACTIONS while the last
        transaction ends, those of `schedule_write`. With `verify_only`, partitions that don't belong to the transaction
        are TRANSACTION_ABORTABLE.
        """
        known, unknown = self._known(partitions)
        if unknown:
            codes = dict.fromkeys(unknown, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            done({**codes, **dict.fromkeys(known, ErrorCode.OPERATION_NOT_ATTEMPTED)})
            return
        client_version = TRANSACTION_VERSION_2 if api_version >= FIRST_BATCHED_ADD_PARTITIONS else 0
        asked = PartitionsOf(transactional_id, producer_id, producer_epoch, frozenset(known), client_version)
        operation = operations.VERIFY_PARTITIONS if verify_only else operations.ADD_PARTITIONS
        self._runtime.answer(operation, api_version, asked, done)

    def after_ending(self, transactional_id: str, then: Callable[[], None]) -> bool:
        """Call `then()` once that transaction is complete (its last record is committed), possibly at once, or when the
        id is no longer coordinated here. For clients that got CONCURRENT_TRANSACTIONS.

        Returns False, and does not call `then`, if the id is not coordinated here.
        """
        endings = self._endings_of(transactional_id)
        if endings is None:
            return False
        endings.after_ending(transactional_id, then)
        return True

    def stop_waiting(self, transactional_id: str, then: Callable[[], None]) -> None:
        """Cancel a callback that was passed to `after_ending`."""
        endings = self._endings_of(transactional_id)
        if endings is not None:
            endings.stop_waiting(transactional_id, then)

    def _endings_of(self, transactional_id: str) -> TransactionCompletions | None:
        try:
            shard = self._runtime.active_shard(self._runtime.partition_for(transactional_id))
        except KafkaError:
            return None
        return None if shard is None else shard.endings

    def _known(self, partitions: Iterable[TopicPartition]) -> tuple[list[TopicPartition], list[TopicPartition]]:
        """Split into existing partitions, with the image's string for each topic name, and the rest."""
        image = self._image()
        known, unknown = [], []
        for name, index in partitions:
            topic = image.topic(name)
            if topic is not None and index in topic.partitions:
                known.append((topic.name, index))
            else:
                unknown.append((name, index))
        return known, unknown

    def add_offsets_to_txn(
        self,
        api_version: int,
        request: AddOffsetsToTxnRequest,
        done: Callable[[AddOffsetsToTxnResponse], None],
    ) -> None:
        """Add the group's partition of `__consumer_offsets`. Errors as for partitions."""
        partition = (GROUP_METADATA_TOPIC, self._group_partition(request.group_id))
        asked = PartitionsOf(
            request.transactional_id, request.producer_id, request.producer_epoch, frozenset((partition,)), 0
        )
        self._runtime.answer(operations.ADD_OFFSETS, api_version, asked, done)

    # --- describe and list --------------------------------------------------------------------------------------------

    def describe_transactions(
        self,
        api_version: int,
        request: DescribeTransactionsRequest,
        done: Callable[[DescribeTransactionsResponse], None],
    ) -> None:
        """Describe the committed state; results are per id."""
        described: list[DescribedTransaction] = []

        def work() -> Iterator[None]:
            for transactional_id in request.transactional_ids:
                self._runtime.answer(operations.DESCRIBE, api_version, transactional_id, described.append)
                yield
            done(DescribeTransactionsResponse(transaction_states=described))

        self._sliced.add(work())

    def list_transactions(
        self, api_version: int, request: ListTransactionsRequest, done: Callable[[ListTransactionsResponse], None]
    ) -> None:
        """List the committed ids of this coordinator.

        Errors, so that a partial result is never mistaken for all: COORDINATOR_LOAD_IN_PROGRESS while some partitions
        are loading, COORDINATOR_NOT_AVAILABLE if a load failed; INVALID_REGULAR_EXPRESSION.
        """
        runtime = self._runtime
        counts = runtime.state_counts()
        if counts[CoordinatorState.LOADING] or counts[CoordinatorState.FAILED]:
            loading = counts[CoordinatorState.LOADING]
            code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if loading else ErrorCode.COORDINATOR_NOT_AVAILABLE
            done(ListTransactionsResponse(error_code=code))
            return
        try:
            wanted = TransactionFilter(request, self._context.clock.time_ms())
        except KafkaError as error:
            done(ListTransactionsResponse(error_code=error.code))
            return
        listed: list[ListedTransaction] = []

        def work() -> Iterator[None]:
            for partition, shard in runtime.active_shards():
                for ids in steps(list(shard.transactions)):
                    runtime.schedule_read(operations.LIST, partition, partial(_select, wanted, ids, listed), _ignore)
                    yield
            done(ListTransactionsResponse(unknown_state_filters=wanted.unknown_states, transaction_states=listed))

        self._sliced.add(work())


def _select(
    wanted: TransactionFilter, ids: Sequence[str], listed: list[ListedTransaction], shard: TransactionShard, offset: int
) -> None:
    transactions = shard.transactions
    listed += wanted.select((each, transactions.get_at(each, offset)) for each in ids)


def _ignore(_response: object, _error: KafkaError | None) -> None:
    """A partition that moves during a listing is listed by its new coordinator."""
