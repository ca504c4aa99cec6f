"""Sends the markers of decided transactions to the leaders of their partitions (KIP-98).

Partitions are grouped by leader, according to the newest image. Markers for this broker are written at the end of the
turn, so that the turn's transactions have ended before their producers' next requests; one with many partitions is
sliced over turns. Other brokers get WriteTxnMarkers, one request in flight to each; later markers go into the next one.

Failures are retried indefinitely, with growing delays, at the current leader. Only a partition that knows a newer
coordinator or a newer producer ends the retries, since another coordinator then owns the transaction. A partition of a
deleted topic needs no marker.

Invariants: `done` is called once for each sent marker, never within `send`, unless `cancel` or `close` comes
first; a request names a producer id once, so that results match markers. Pending markers belong to transactions in the
coordinator's memory, so they need no bound of their own. Not here: the effect of a marker on a partition.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.common.errors import ErrorCode
from ottla.common.kafka.topic_partition import TopicPartition, by_topic
from ottla.common.platform.end_of_tick import EndOfTickScheduler
from ottla.common.platform.peer import Address, PeerNetwork
from ottla.metadata.image import NO_LEADER, MetadataImage
from ottla.net.peer_link import PeerLink
from ottla.net.peer_messages import send_message
from ottla.record.control import EndMarker
from ottla.server.requests.failures import Failures
from ottla.server.transactions.marker_writer import ACKNOWLEDGEMENT_TIMEOUT_S, MarkerDone, MarkerWriter

if TYPE_CHECKING:
    from ottla.coordinator.transaction.markers import TxnMarker
    from ottla.protocol.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse

REQUEST_TIMEOUT_S = ACKNOWLEDGEMENT_TIMEOUT_S + 10.0
"""Timeout of one request: longer than the peer waits for its replicas."""
PARTITIONS_PER_REQUEST = 1000
"""Partitions after which a request is full; the last marker may exceed it. A peer accepts that many in any cluster."""
PARTITIONS_PER_TURN = 64
"""Local partitions of all transactions of a turn that get their marker before the loop continues; each takes some ten
microseconds. With a smaller share than clients produce in a turn, ever more transactions would be pending."""
MARKERS_PER_WRITE = 64
"""Maximum markers in one write to a partition: five kilobytes, which fit any segment."""
RETRY_S = 0.05
"""The delay before the first retry; each further one is twice as long."""
MAX_RETRY_FACTOR = 16
"""Maximum delay, in multiples of RETRY_S."""

_FINAL = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED})
_EXPECTED = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
"""Transient errors of moving leaders and replicas, as in Apache Kafka's coordinator."""


class _Ending:
    """A marker with the partitions that still lack it."""

    __slots__ = ("coordinator_partition", "done", "left", "marker", "over")

    def __init__(self, coordinator_partition: int, marker: TxnMarker, done: Callable[[ErrorCode], None]) -> None:
        self.coordinator_partition = coordinator_partition
        self.marker = marker
        self.done = done
        self.left = set(marker.partitions)
        self.over = False
        """Completed or cancelled: its remaining shares are ignored."""


class _Share(NamedTuple):
    """Partitions of one marker with the same destination."""

    ending: _Ending
    partitions: list[TopicPartition]
    tries: int
    leaderless: bool = False


class _Destination:
    """Another broker."""

    __slots__ = ("broker_id", "failures", "link", "paused", "queued", "under_way")

    def __init__(self, broker_id: int, link: PeerLink) -> None:
        self.broker_id = broker_id
        self.link = link
        self.failures = 0
        """Failed requests since the last successful one."""
        self.paused = False
        self.queued: deque[_Share] = deque()
        self.under_way: list[_Share] | None = None


class TransactionMarkers:
    """Implements `MarkerChannel` for one broker. Corresponds to Apache Kafka's TransactionMarkerChannelManager."""

    __slots__ = (
        "_address_of",
        "_closed",
        "_destinations",
        "_endings",
        "_failures",
        "_gone",
        "_here",
        "_image",
        "_local",
        "_network",
        "_node_id",
        "_retries",
        "_round",
        "_scheduled",
        "_scheduler",
    )

    def __init__(
        self,
        node_id: int,
        local: MarkerWriter,
        network: PeerNetwork,
        *,
        image: Callable[[], MetadataImage],
        address_of: Callable[[int], Address | None],
        scheduler: EndOfTickScheduler,
        failures: Failures,
    ) -> None:
        """`image` returns the newest metadata; `address_of` returns a broker's inter-broker endpoint in it."""
        self._node_id = node_id
        self._local = local
        self._network = network
        self._image = image
        self._address_of = address_of
        self._scheduler = scheduler
        self._failures = failures
        self._endings: dict[int, dict[_Ending, None]] = {}
        """By partition of the coordinator."""
        self._gone: list[_Ending] = []
        """Endings whose last partitions were deleted."""
        self._here: deque[_Share] = deque()
        self._destinations: dict[int, _Destination] = {}
        self._retries: dict[int, list[_Share]] = {}
        """Pending retries by the round in which they are due."""
        self._round = 0
        self._scheduled = False
        self._closed = False

    # --- called by the coordinator ---------------------------------------------------------------------------------

    def send(self, coordinator_partition: int, marker: TxnMarker, done: Callable[[ErrorCode], None]) -> None:
        """See `MarkerChannel`."""
        if self._closed:
            return
        ending = _Ending(coordinator_partition, marker, done)
        self._endings.setdefault(coordinator_partition, {})[ending] = None
        self._route(_Share(ending, sorted(marker.partitions), 0))

    def cancel(self, coordinator_partition: int) -> None:
        """See `MarkerChannel`."""
        for ending in self._endings.pop(coordinator_partition, ()):
            ending.over = True

    def close(self) -> None:
        """Drop all markers; no `done` is called any more."""
        self._closed = True
        for partition in list(self._endings):
            self.cancel(partition)
        self._gone.clear()
        self._here.clear()
        self._retries.clear()
        for destination in self._destinations.values():
            destination.queued.clear()
            destination.link.close()

    @property
    def leaderless_count(self) -> int:
        """Markers that wait for a partition's leader election."""
        return sum(
            1 for shares in self._retries.values() for share in shares if share.leaderless and not share.ending.over
        )

    @property
    def pending_count(self) -> int:
        """Markers that a partition still lacks."""
        return sum(map(len, self._endings.values()))

    # --- leaders of partitions --------------------------------------------------------------------------------------

    def _route(self, share: _Share) -> None:
        """Queue partitions at their leaders."""
        ending, partitions, tries, _ = share
        image = self._image()
        by_leader: dict[int, list[TopicPartition]] = {}
        for place in partitions:
            partition = image.partition(*place)
            if partition is None:
                ending.left.discard(place)
            else:
                by_leader.setdefault(partition.leader, []).append(place)
        for leader, places in by_leader.items():
            if leader == NO_LEADER:
                self._retry(_Share(ending, places, tries, leaderless=True))
            elif leader == self._node_id:
                self._here.append(_Share(ending, places, tries))
            else:
                destination = self._destinations.get(leader)
                if destination is None:
                    destination = self._destinations[leader] = _Destination(leader, PeerLink(self._network))
                destination.queued.append(_Share(ending, places, tries))
        if not ending.left:
            self._gone.append(ending)
        self._schedule()

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._scheduler.at_end_of_turn(self._flush)

    def _flush(self) -> None:
        """At the end of a turn: write local markers, send the others."""
        self._scheduled = False
        if self._closed:
            return
        gone, self._gone = self._gone, []
        for ending in gone:
            if not ending.over:
                self._end(ending, ErrorCode.NONE)
        self._write_here()
        for destination in self._destinations.values():
            self._send(destination)

    # --- this broker -----------------------------------------------------------------------------------------------

    def _write_here(self) -> None:
        """Write all markers of a turn for one partition in one append."""
        ends: dict[TopicPartition, list[tuple[EndMarker, MarkerDone]]] = {}
        for _ in range(len(self._here)):
            share = self._here.popleft()
            if share.ending.over:
                continue
            partitions = share.partitions
            if len(partitions) > PARTITIONS_PER_TURN:
                self._here.append(share._replace(partitions=partitions[PARTITIONS_PER_TURN:]))
                partitions = partitions[:PARTITIONS_PER_TURN]
            marker = _end_marker(share.ending.marker)
            for place in partitions:
                here = ends.get(place)
                if here is None:
                    here = ends[place] = []
                here.append((marker, partial(self._written, share, place)))
        for (topic, index), here in ends.items():
            for first in range(0, len(here), MARKERS_PER_WRITE):
                self._local.write(topic, index, here[first : first + MARKERS_PER_WRITE])
        if self._here and not self._scheduled:
            self._scheduled = True
            self._scheduler.call_soon(self._flush)

    def _written(self, share: _Share, place: TopicPartition, code: ErrorCode) -> None:
        ending = share.ending
        if code is not ErrorCode.NONE or ending.over:
            self._record_results(share, [(place, code)])
            return
        ending.left.discard(place)
        if not ending.left:
            self._end(ending, ErrorCode.NONE)

    # --- other brokers ---------------------------------------------------------------------------------------------

    def _send(self, destination: _Destination) -> None:
        """Send the queued markers, unless a request is in flight or the destination is paused."""
        if self._closed or destination.paused or destination.under_way is not None:
            return
        shares = _batch(destination.queued)
        if not shares:
            return
        address = self._address_of(destination.broker_id)
        if address is None:
            self._pause(destination, shares)
            return
        connection = destination.link.to(address)
        destination.under_way = shares

        def answered(response: WriteTxnMarkersResponse | None, error: BaseException | None) -> None:
            destination.under_way = None
            if self._closed:
                return
            if response is None:
                self._pause(destination, shares)
                return
            destination.failures = 0
            results = _results(response)
            for share in shares:
                codes = results.get(share.ending.marker.producer_id, {})
                unsaid = ErrorCode.UNKNOWN_SERVER_ERROR
                self._record_results(share, [(place, codes.get(place, unsaid)) for place in share.partitions])
            self._send(destination)

        send_message(connection, _request(shares), answered, REQUEST_TIMEOUT_S)

    def _pause(self, destination: _Destination, shares: list[_Share]) -> None:
        """Pause the destination and retry `shares`; another broker may lead their partitions by then."""
        destination.queued.extendleft(reversed(shares))
        destination.paused = True
        self._scheduler.call_later(RETRY_S * min(2**destination.failures, MAX_RETRY_FACTOR), self._resume, destination)
        destination.failures = min(destination.failures + 1, MAX_RETRY_FACTOR)

    def _resume(self, destination: _Destination) -> None:
        destination.paused = False
        queued, destination.queued = destination.queued, deque()
        for share in queued:
            if not share.ending.over:
                self._route(share)

    # --- outcomes --------------------------------------------------------------------------------------------------

    def _record_results(self, share: _Share, codes: Iterable[tuple[TopicPartition, ErrorCode]]) -> None:
        ending = share.ending
        failed = []
        for place, code in codes:
            if ending.over:
                return
            if code is ErrorCode.NONE:
                ending.left.discard(place)
            elif code in _FINAL:
                self._end(ending, code)
            else:
                if code not in _EXPECTED:
                    topic, index = place
                    self._failures.warn(
                        "transaction markers", f"{topic}-{index} answered {code.name}; the marker is retried"
                    )
                failed.append(place)
        if failed:
            self._retry(share._replace(partitions=failed, leaderless=False))
        elif not ending.left:
            self._end(ending, ErrorCode.NONE)

    def _end(self, ending: _Ending, code: ErrorCode) -> None:
        endings = self._endings[ending.coordinator_partition]
        del endings[ending]
        if not endings:
            del self._endings[ending.coordinator_partition]
        ending.over = True
        ending.done(code)

    def _retry(self, share: _Share) -> None:
        """Retry after a delay, at the current leader."""
        if share.ending.over:
            return
        if not self._retries:
            self._scheduler.call_later(RETRY_S, self._next_round)
        pause = min(2**share.tries, MAX_RETRY_FACTOR)
        tries = min(share.tries + 1, MAX_RETRY_FACTOR)
        self._retries.setdefault(self._round + pause, []).append(share._replace(tries=tries))

    def _next_round(self) -> None:
        self._round += 1
        due = self._retries.pop(self._round, ())
        if self._retries:
            self._scheduler.call_later(RETRY_S, self._next_round)
        for share in due:
            if not share.ending.over:
                self._route(share)


def _end_marker(marker: TxnMarker) -> EndMarker:
    return EndMarker(
        marker.producer_id,
        marker.producer_epoch,
        marker.coordinator_epoch,
        marker.committed,
        marker.transaction_version,
    )


def _batch(queued: deque[_Share]) -> list[_Share]:
    """Take the shares of one request; of two markers of a producer, the second stays queued."""
    shares: list[_Share] = []
    producers: set[int] = set()
    size = 0
    later = []
    while queued and size < PARTITIONS_PER_REQUEST:
        share = queued.popleft()
        if share.ending.over:
            continue
        if share.ending.marker.producer_id in producers:
            later.append(share)
            continue
        producers.add(share.ending.marker.producer_id)
        shares.append(share)
        size += len(share.partitions)
    queued.extendleft(reversed(later))
    return shares


def _request(shares: Iterable[_Share]) -> WriteTxnMarkersRequest:
    from ottla.protocol.messages.write_txn_markers import (  # imported here: many brokers have no transactions
        WritableTxnMarker,
        WritableTxnMarkerTopic,
        WriteTxnMarkersRequest,
    )

    markers = []
    for share in shares:
        marker = share.ending.marker
        topics = [
            WritableTxnMarkerTopic(name=name, partition_indexes=indexes)
            for name, indexes in by_topic(share.partitions).items()
        ]
        markers.append(
            WritableTxnMarker(
                producer_id=marker.producer_id,
                producer_epoch=marker.producer_epoch,
                transaction_result=marker.committed,
                topics=topics,
                coordinator_epoch=marker.coordinator_epoch,
                transaction_version=marker.transaction_version,
            )
        )
    return WriteTxnMarkersRequest(markers=markers)


def _results(response: WriteTxnMarkersResponse) -> dict[int, dict[TopicPartition, ErrorCode]]:
    """Codes by producer id and partition."""
    results: dict[int, dict[TopicPartition, Any]] = {}
    for marker in response.markers:
        codes = results.setdefault(marker.producer_id, {})
        for topic in marker.topics:
            for partition in topic.partitions:
                codes[topic.name, partition.partition_index] = ErrorCode.for_code(partition.error_code)
    return results
