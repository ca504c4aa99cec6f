"""Adds partitions to transactions, or verifies them, at the transactions' coordinators (KIP-890).

The leader of a partition verifies the first batch of a transaction, since a request delayed past the end of its
transaction would leave it open forever. A coordinator in this process is called directly. Others get batches: one
AddPartitionsToTxn in flight per broker, later checks go into the next request.

One check per transactional id is queued, as in Apache Kafka: a newer one replaces the previous one, which fails, and
one of an older producer epoch is fenced. The queue is therefore bounded by the parked requests.

Invariant: `done` is called exactly once for each check, possibly within the call. Not here: the errors that a client
version gets (`handlers.data.produce_transactions`), and retries, which the caller does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.common.errors import ErrorCode
from ottla.common.kafka.topic_partition import TopicPartition, by_topic
from ottla.common.platform.clock import Clock
from ottla.common.platform.peer import Address, PeerNetwork
from ottla.metrics.registry import MetricsRegistry
from ottla.net.peer_link import PeerLink
from ottla.net.peer_messages import send_message
from ottla.protocol.registry import VERSIONS, ApiKey

if TYPE_CHECKING:
    from ottla.coordinator.transaction.coordinator import TransactionCoordinator
    from ottla.protocol.messages.add_partitions_to_txn import (
        AddPartitionsToTxnResponse,
        AddPartitionsToTxnResult,
        AddPartitionsToTxnTransaction,
    )

REQUEST_TIMEOUT_S = 30.0
"""Timeout of one request to a coordinator, like `request.timeout.ms` of Apache Kafka's brokers."""

PARTITIONS_PER_REQUEST = 1000
"""Partitions after which a request is full; the last transaction may exceed it. Coordinators accept that many."""

PartitionErrors = Mapping[TopicPartition, ErrorCode]
"""The coordinator's result of each partition; successful ones may be omitted."""
PartitionsDone = Callable[[PartitionErrors], None]


class VerificationStatistics:
    """Kafka's metrics of AddPartitionsToTxnManager."""

    __slots__ = ("failures", "time_ms")

    def __init__(self, registry: MetricsRegistry) -> None:
        prefix = "kafka_server_addpartitionstotxnmanager_"
        self.failures = registry.counter(
            f"{prefix}verificationfailurerate_total", "Partitions that could not be added to a transaction or verified."
        )
        self.time_ms = registry.histogram(
            f"{prefix}verificationtimems", "Response time of coordinators to transaction verification, in ms."
        )


class _Question(NamedTuple):
    """One transaction's partitions, to be checked by a remote coordinator."""

    transaction: AddPartitionsToTxnTransaction
    partitions: Sequence[TopicPartition]
    done: PartitionsDone
    """The owner's callback, which counts and converts."""


class _Peer:
    """Queued and pending checks of one broker."""

    __slots__ = ("broker_id", "link", "queued", "under_way")

    def __init__(self, broker_id: int, link: PeerLink) -> None:
        self.broker_id = broker_id
        self.link = link
        self.queued: dict[str, _Question] = {}
        """By transactional id, in order of arrival."""
        self.under_way: dict[str, _Question] = {}


class TransactionPartitions:
    """Corresponds to Apache Kafka's AddPartitionsToTxnManager for one broker."""

    __slots__ = (
        "_address_of",
        "_clock",
        "_closed",
        "_coordinator_of",
        "_local",
        "_network",
        "_node_id",
        "_peers",
        "_statistics",
    )

    def __init__(
        self,
        node_id: int,
        local: Callable[[], TransactionCoordinator],
        network: PeerNetwork,
        *,
        coordinator_of: Callable[[str], int | None],
        address_of: Callable[[int], Address | None],
        clock: Clock,
        statistics: VerificationStatistics,
    ) -> None:
        """`local` returns the coordinator of this broker.

        `coordinator_of` returns the broker that coordinates a transactional id, `address_of` a broker's endpoint; both
        from the newest metadata image.
        """
        self._node_id = node_id
        self._local = local
        self._network = network
        self._coordinator_of = coordinator_of
        self._address_of = address_of
        self._clock = clock
        self._statistics = statistics
        self._peers: dict[int, _Peer] = {}
        self._closed = False

    def add_or_verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Sequence[TopicPartition],
        *,
        verify_only: bool,
        done: PartitionsDone,
    ) -> None:
        """Add partitions to the open transaction of a producer, or with `verify_only` check whether they are in it.

        `done` gets the coordinator's error of each partition; PRODUCER_FENCED becomes INVALID_PRODUCER_EPOCH.
        COORDINATOR_NOT_AVAILABLE if the id has no coordinator, NETWORK_EXCEPTION if the coordinator can't be reached.
        """
        coordinator_id = None if self._closed else self._coordinator_of(transactional_id)
        if coordinator_id is None:
            done(dict.fromkeys(partitions, ErrorCode.COORDINATOR_NOT_AVAILABLE))
            return
        started_s = self._clock.monotonic()

        def answered(errors: PartitionErrors) -> None:
            self._statistics.time_ms.observe((self._clock.monotonic() - started_s) * 1000)
            failed = {
                partition: _producer_error(error) for partition, error in errors.items() if error is not ErrorCode.NONE
            }
            self._statistics.failures.value += len(failed)
            done(failed)

        if coordinator_id == self._node_id:
            self._local().add_or_verify(
                transactional_id,
                producer_id,
                producer_epoch,
                partitions,
                verify_only=verify_only,
                api_version=VERSIONS[ApiKey.ADD_PARTITIONS_TO_TXN].high,
                done=answered,
            )
            return
        from ottla.protocol.messages.add_partitions_to_txn import (  # imported here: for another broker only
            AddPartitionsToTxnTopic,
            AddPartitionsToTxnTransaction,
        )

        transaction = AddPartitionsToTxnTransaction(
            transactional_id=transactional_id,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            verify_only=verify_only,
            topics=[
                AddPartitionsToTxnTopic(name=name, partitions=indexes) for name, indexes in by_topic(partitions).items()
            ],
        )
        peer = self._peers.get(coordinator_id)
        if peer is None:
            peer = self._peers[coordinator_id] = _Peer(coordinator_id, PeerLink(self._network))
        self._queue(peer, _Question(transaction, partitions, answered))
        self._send(peer)

    def after_ending(self, transactional_id: str, then: Callable[[], None]) -> bool:
        """After CONCURRENT_TRANSACTIONS: call `then()` once when that transaction has ended, possibly at once.

        Returns False if only another broker knows: then `then` is not called, and the caller retries after a delay.
        """
        if self._closed or self._coordinator_of(transactional_id) != self._node_id:
            return False
        return self._local().after_ending(transactional_id, then)

    def stop_waiting(self, transactional_id: str, then: Callable[[], None]) -> None:
        """Cancel the callback given to `after_ending`."""
        self._local().stop_waiting(transactional_id, then)

    def close(self) -> None:
        """Pending checks fail with NETWORK_EXCEPTION, later ones with COORDINATOR_NOT_AVAILABLE."""
        self._closed = True
        for peer in self._peers.values():
            waiting = [*peer.under_way.values(), *peer.queued.values()]
            peer.under_way = {}
            peer.queued = {}
            peer.link.close()
            for question in waiting:
                _fail(question, ErrorCode.NETWORK_EXCEPTION)

    # --- remote coordinators ---------------------------------------------------------------------------------------

    def _queue(self, peer: _Peer, question: _Question) -> None:
        transactional_id = question.transaction.transactional_id
        before = peer.queued.get(transactional_id)
        if before is not None:
            epoch, known_epoch = question.transaction.producer_epoch, before.transaction.producer_epoch
            if epoch < known_epoch:
                _fail(question, ErrorCode.INVALID_PRODUCER_EPOCH)
                return
            del peer.queued[transactional_id]
            # The client retried before the first check was sent: that check has no waiting request any more.
            _fail(
                before,
                ErrorCode.INVALID_PRODUCER_EPOCH if epoch > known_epoch else ErrorCode.NETWORK_EXCEPTION,
            )
        peer.queued[transactional_id] = question

    def _send(self, peer: _Peer) -> None:
        """Send the queued checks, unless a request is in flight."""
        if peer.under_way or not peer.queued:
            return
        address = self._address_of(peer.broker_id)
        if address is None:
            queued, peer.queued = peer.queued, {}
            for question in queued.values():
                _fail(question, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return
        from ottla.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest  # imported here, as above

        connection = peer.link.to(address)
        asked = peer.under_way = _take(peer.queued)
        request = AddPartitionsToTxnRequest(transactions=[question.transaction for question in asked.values()])

        def answered(response: Any, error: BaseException | None) -> None:
            if peer.under_way is not asked:
                return  # closed meanwhile
            peer.under_way = {}
            for question, errors in _answers(asked, response, error):
                question.done(errors)
            self._send(peer)

        send_message(connection, request, answered, REQUEST_TIMEOUT_S)


def _take(queued: dict[str, _Question]) -> dict[str, _Question]:
    """Take the oldest queued checks that fit into one request."""
    taken: dict[str, _Question] = {}
    partitions = 0
    while queued and partitions < PARTITIONS_PER_REQUEST:
        transactional_id = next(iter(queued))
        question = taken[transactional_id] = queued.pop(transactional_id)
        partitions += len(question.partitions)
    return taken


def _answers(
    asked: Mapping[str, _Question], response: AddPartitionsToTxnResponse | None, error: BaseException | None
) -> list[tuple[_Question, PartitionErrors]]:
    """The results of all checks; a missing partition counts as failed."""
    if error is not None or response is None:
        return _to_all(asked, ErrorCode.NETWORK_EXCEPTION)
    if response.error_code:
        code = ErrorCode.for_code(response.error_code)
        # A client can't act on a broker's missing permission.
        return _to_all(asked, ErrorCode.INVALID_TXN_STATE if code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED else code)
    results = {result.transactional_id: result for result in response.results_by_transaction}
    return [(question, _errors(question, results.get(key))) for key, question in asked.items()]


def _errors(question: _Question, result: AddPartitionsToTxnResult | None) -> PartitionErrors:
    errors = dict.fromkeys(question.partitions, ErrorCode.NETWORK_EXCEPTION)
    for topic in () if result is None else result.topic_results:
        for partition in topic.results_by_partition:
            if (topic.name, partition.partition_index) in errors:
                errors[topic.name, partition.partition_index] = ErrorCode.for_code(partition.partition_error_code)
    return errors


def _to_all(asked: Mapping[str, _Question], code: ErrorCode) -> list[tuple[_Question, PartitionErrors]]:
    return [(question, dict.fromkeys(question.partitions, code)) for question in asked.values()]


def _fail(question: _Question, code: ErrorCode) -> None:
    question.done(dict.fromkeys(question.partitions, code))


def _producer_error(error: ErrorCode) -> ErrorCode:
    """Convert PRODUCER_FENCED, a coordinator error that producers don't expect in a Produce response."""
    return ErrorCode.INVALID_PRODUCER_EPOCH if error is ErrorCode.PRODUCER_FENCED else error
