"""Appends of dead letters with acks=all, by the leader of the dead-letter partition: this broker or another one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.platform.peer import Address, PeerNetwork
from ottla.metadata.image import NO_LEADER, TopicImage
from ottla.net.peer_link import PeerLink
from ottla.net.peer_messages import send_message
from ottla.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from ottla.replica.partition import Partition
from ottla.replica.purgatory import DelayedOperation, Purgatory
from ottla.server.coordination.coordinator_host import BrokerServices
from ottla.storage.segment.results import AppendResult

TIMEOUT_S = 30.0
"""Maximum wait for the in-sync replicas."""
ACKS_ALL = -1

Outcomes = list[KafkaError | None]
OutcomesDone = Callable[[Outcomes], None]
"""Gets the error of each batch, None for one that all in-sync replicas have."""


class DeadLetterProducer:
    """Sender of one broker. Retries are the caller's."""

    __slots__ = ("_address_of", "_links", "_network", "_purgatory", "_services")

    def __init__(
        self,
        services: BrokerServices,
        purgatory: Purgatory,
        network: PeerNetwork,
        address_of: Callable[[int], Address | None],
    ) -> None:
        self._services = services
        self._purgatory = purgatory
        self._network = network
        self._address_of = address_of
        self._links: dict[int, PeerLink] = {}

    def send(self, topic: TopicImage, index: int, batches: Sequence[bytearray], done: OutcomesDone) -> None:
        """Append `batches` to a partition in this order; calls `done` once, possibly before this returns."""
        leader = topic.partitions[index].leader
        if leader == self._services.node_id:
            self._append(topic, index, batches, done)
            return
        address = None if leader == NO_LEADER else self._address_of(leader)
        if address is None:
            text = f"{topic.name}-{index} has no leader that this broker can reach"
            done([KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, text)] * len(batches))
            return
        self._send_to(leader, address, topic, index, batches, done)

    def close(self) -> None:
        """Close the connections: their requests fail."""
        for link in self._links.values():
            link.close()

    # --- this broker -----------------------------------------------------------------------------------------------

    def _append(self, topic: TopicImage, index: int, batches: Sequence[bytearray], done: OutcomesDone) -> None:
        outcomes: Outcomes = [None] * len(batches)
        appended: dict[int, AppendResult] = {}
        try:
            partition = self._services.replicas.find(topic.topic_id, index)
        except KafkaError as error:
            done([error] * len(batches))
            return
        for number, batch in enumerate(batches):
            try:
                appended[number] = partition.append_records(batch, 0, len(batch), True)
            except KafkaError as error:
                outcomes[number] = error
            except OSError as error:
                outcomes[number] = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
        if not appended:
            done(outcomes)
            return
        operation = DelayedDeadLetters(partition, appended, outcomes, done)
        if not operation.try_complete(False):
            self._purgatory.park(operation, [partition.produce_watch], TIMEOUT_S)

    # --- other brokers ---------------------------------------------------------------------------------------------

    def _send_to(
        self,
        leader: int,
        address: Address,
        topic: TopicImage,
        index: int,
        batches: Sequence[bytearray],
        done: OutcomesDone,
    ) -> None:
        link = self._links.get(leader)
        if link is None:
            link = self._links[leader] = PeerLink(self._network)
        connection = link.to(address)
        outcomes: Outcomes = [None] * len(batches)
        left = len(batches)

        def answered(number: int, response: ProduceResponse | None, error: BaseException | None) -> None:
            nonlocal left
            outcomes[number] = _outcome(response, error)
            left -= 1
            if not left:
                done(outcomes)

        for number, batch in enumerate(batches):
            # One batch for each partition of a request.
            data = PartitionProduceData(index=index, records=batch)
            request = ProduceRequest(
                acks=ACKS_ALL,
                timeout_ms=int(TIMEOUT_S * 1000),
                topic_data=[TopicProduceData(name=topic.name, topic_id=topic.topic_id, partition_data=[data])],
            )
            send_message(connection, request, partial(answered, number), 2 * TIMEOUT_S)


def _outcome(response: ProduceResponse | None, error: BaseException | None) -> KafkaError | None:
    if response is None:
        code = ErrorCode.REQUEST_TIMED_OUT if isinstance(error, TimeoutError) else ErrorCode.NETWORK_EXCEPTION
        return KafkaError(code, f"the leader did not answer: {error}")
    for topic in response.responses:
        for partition in topic.partition_responses:
            code = ErrorCode.for_code(partition.error_code)
            return None if code is ErrorCode.NONE else KafkaError(code, partition.error_message or "")
    return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "the leader did not name the partition")


class DelayedDeadLetters(DelayedOperation):
    """Appended dead letters that are not acknowledged yet."""

    __slots__ = ("_appended", "_done", "_leader_epoch", "_outcomes", "_partition")

    def __init__(
        self, partition: Partition, appended: dict[int, AppendResult], outcomes: Outcomes, done: OutcomesDone
    ) -> None:
        """`appended` by their place in `outcomes`, which has the others already."""
        super().__init__()
        self._partition = partition
        self._leader_epoch = partition.leader_epoch
        self._appended = appended
        self._outcomes = outcomes
        self._done = done

    def try_complete(self, force: bool) -> bool:
        """Call back once the in-sync replicas have them, or this broker can no longer know."""
        partition = self._partition
        if not partition.is_leader or self._leader_epoch < partition.leader_since:
            self._finish(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        elif all(partition.acknowledged(each, True) for each in self._appended.values()):
            enough = partition.enough_after_append
            self._finish(None if enough else KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND))
        elif partition.offline:
            self._finish(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR))
        else:
            return False
        return True

    def expire(self) -> None:
        """They stay, and are written again as duplicates."""
        if not self.try_complete(False):
            self._finish(KafkaError(ErrorCode.REQUEST_TIMED_OUT, "the in-sync replicas did not confirm in time"))

    def fail(self, error: Exception) -> None:
        """A defect: the writer tries again."""
        self._finish(KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)))

    def _finish(self, error: KafkaError | None) -> None:
        for number in self._appended:
            self._outcomes[number] = error
        self._done(self._outcomes)
