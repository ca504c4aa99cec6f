"""Access of this broker to the share coordinators: implements `SharePersister` (KIP-932).

The newest image names the coordinator of a share partition. One in this process is called directly. Others get requests
over a few connections for each broker; calls of one API and one group that wait for the same broker are combined. A
missing `__share_group_state` is created first.

Retriable errors are retried with growing delays, at the current coordinator, until TIME_LIMIT_S is over. A call may
take effect although it fails, and may be repeated. The operations allow that: a repeated one changes nothing.

Invariants: `done` is called once for each call; calls for one share partition are sent in order, one at a time, unless
one is retried. Callers wait for their calls, which bounds their number; MAX_CALLS is a further limit.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.kafka.share_keys import coordinator_key
from ottla.common.kafka.share_state import SharePartitionKey, ShareState, ShareStateSummary, StateBatch
from ottla.common.platform.clock import Clock
from ottla.common.platform.end_of_tick import EndOfTickScheduler
from ottla.common.platform.peer import Address, PeerNetwork
from ottla.metadata.image import MetadataImage
from ottla.net.peer_link import PeerLink
from ottla.net.peer_messages import send_message
from ottla.protocol.messages import (
    delete_share_group_state,
    initialize_share_group_state,
    read_share_group_state,
    read_share_group_state_summary,
    write_share_group_state,
)
from ottla.server.coordination.share_state import ShareStateCoordination

TIME_LIMIT_S = 15.0
"""Time for a call and its retries: clients that wait for it give up after 30 s."""
REQUEST_TIMEOUT_S = 10.0
"""Timeout of one request: longer than the coordinator waits for its replicas (`share.coordinator.write.timeout.ms`)."""
RETRY_S = 0.05
"""Delay before the first retry; each further one is twice as long."""
MAX_RETRY_S = 1.0
CONNECTIONS_PER_BROKER = 4
"""A broker serves one request of a connection at a time, and each waits for its replicas."""
KEYS_PER_REQUEST = 500
BATCHES_PER_REQUEST = 5_000
"""Share partitions and state batches after which a request is full; the last share partition may exceed the latter."""
MAX_CALLS = 100_000
"""Calls of this broker without result; further ones fail with COORDINATOR_NOT_AVAILABLE."""

CallDone = Callable[[Any, KafkaError | None], None]
"""Gets the `PartitionResult` of the response, or the error."""

_RETRIABLE = frozenset(
    {
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NETWORK_EXCEPTION,
    }
)


class ShareStateApi(NamedTuple):
    """One of the five APIs, with the parts of its request."""

    request: Callable[..., Any]
    topic: Callable[..., Any]


INITIALIZE = ShareStateApi(
    initialize_share_group_state.InitializeShareGroupStateRequest, initialize_share_group_state.InitializeStateData
)
READ = ShareStateApi(read_share_group_state.ReadShareGroupStateRequest, read_share_group_state.ReadStateData)
WRITE = ShareStateApi(write_share_group_state.WriteShareGroupStateRequest, write_share_group_state.WriteStateData)
DELETE = ShareStateApi(delete_share_group_state.DeleteShareGroupStateRequest, delete_share_group_state.DeleteStateData)
SUMMARIZE = ShareStateApi(
    read_share_group_state_summary.ReadShareGroupStateSummaryRequest,
    read_share_group_state_summary.ReadStateSummaryData,
)


class _Call:
    """One operation on one share partition."""

    __slots__ = ("api", "data", "deadline_s", "done", "key", "tries")

    def __init__(
        self, api: ShareStateApi, key: SharePartitionKey, data: Any, deadline_s: float, done: CallDone
    ) -> None:
        self.api = api
        self.key = key
        self.data = data
        self.deadline_s = deadline_s
        self.done = done
        self.tries = 0


class _Destination:
    """Another broker: its waiting calls, and its connections."""

    __slots__ = ("broker_id", "idle", "queued", "scheduled", "under_way")

    def __init__(self, broker_id: int, network: PeerNetwork) -> None:
        self.broker_id = broker_id
        self.idle = [PeerLink(network) for _ in range(CONNECTIONS_PER_BROKER)]
        self.queued: deque[_Call] = deque()
        self.under_way: dict[PeerLink, list[_Call]] = {}
        self.scheduled = False

    def take(self) -> list[_Call]:
        """Take the calls of one request: those of the first call's API and group, each share partition once.

        A share partition with a call in flight waits, and so do later calls for one that waits.
        """
        skipped = {call.key for calls in self.under_way.values() for call in calls}
        taken: list[_Call] = []
        later: list[_Call] = []
        batches = 0
        while self.queued and len(taken) < KEYS_PER_REQUEST and batches < BATCHES_PER_REQUEST:
            call = self.queued.popleft()
            fits = not taken or (call.api is taken[0].api and call.key.group_id == taken[0].key.group_id)
            if fits and call.key not in skipped:
                taken.append(call)
                batches += len(getattr(call.data, "state_batches", ()))
            else:
                later.append(call)
            skipped.add(call.key)
        self.queued.extendleft(reversed(later))
        return taken


class CoordinatorSharePersister:
    """Implements `SharePersister` for one broker."""

    __slots__ = (
        "_address_of",
        "_calls",
        "_clock",
        "_closed",
        "_coordination",
        "_create_topic",
        "_creating",
        "_destinations",
        "_image",
        "_network",
        "_node_id",
        "_scheduler",
    )

    def __init__(
        self,
        node_id: int,
        coordination: ShareStateCoordination,
        network: PeerNetwork,
        *,
        image: Callable[[], MetadataImage],
        address_of: Callable[[int], Address | None],
        create_topic: Callable[[Callable[[KafkaError | None], None]], None],
        clock: Clock,
        scheduler: EndOfTickScheduler,
    ) -> None:
        """`image` returns the newest metadata; `address_of` returns a broker's inter-broker endpoint in it.

        `create_topic(done)` creates `__share_group_state`, and calls `done` when this broker knows it.
        """
        self._node_id = node_id
        self._coordination = coordination
        self._network = network
        self._image = image
        self._address_of = address_of
        self._create_topic = create_topic
        self._clock = clock
        self._scheduler = scheduler
        self._destinations: dict[int, _Destination] = {}
        self._creating: list[_Call] = []
        """Calls that wait for the creation of the topic."""
        self._calls: dict[_Call, None] = {}
        """All calls without result."""
        self._closed = False

    # --- SharePersister --------------------------------------------------------------------------------------------

    async def initialize(self, key: SharePartitionKey, state_epoch: int, start_offset: int) -> None:
        """See `SharePersister`."""
        data = initialize_share_group_state.PartitionData(
            partition=key.partition, state_epoch=state_epoch, start_offset=start_offset
        )
        await self._result(INITIALIZE, key, data)

    async def read(self, key: SharePartitionKey, leader_epoch: int) -> ShareState:
        """See `SharePersister`."""
        data = read_share_group_state.PartitionData(partition=key.partition, leader_epoch=leader_epoch)
        found = await self._result(READ, key, data)
        batches = tuple(
            StateBatch(each.first_offset, each.last_offset, each.delivery_state, each.delivery_count)
            for each in found.state_batches
        )
        return ShareState(found.state_epoch, found.start_offset, batches)

    async def write(
        self,
        key: SharePartitionKey,
        *,
        state_epoch: int,
        leader_epoch: int,
        start_offset: int,
        delivery_complete_count: int,
        batches: Sequence[StateBatch],
    ) -> None:
        """See `SharePersister`."""
        data = write_share_group_state.PartitionData(
            partition=key.partition,
            state_epoch=state_epoch,
            leader_epoch=leader_epoch,
            start_offset=start_offset,
            delivery_complete_count=delivery_complete_count,
            state_batches=[
                write_share_group_state.StateBatch(
                    first_offset=batch.first_offset,
                    last_offset=batch.last_offset,
                    delivery_state=batch.state,
                    delivery_count=batch.delivery_count,
                )
                for batch in batches
            ],
        )
        await self._result(WRITE, key, data)

    async def delete(self, key: SharePartitionKey) -> None:
        """See `SharePersister`. The coordinator has no state either if the topic does not exist there."""
        try:
            await self._result(DELETE, key, delete_share_group_state.PartitionData(partition=key.partition))
        except KafkaError as error:
            if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise

    async def summarize(self, key: SharePartitionKey, leader_epoch: int = -1) -> ShareStateSummary:
        """See `SharePersister`."""
        data = read_share_group_state_summary.PartitionData(partition=key.partition, leader_epoch=leader_epoch)
        found = await self._result(SUMMARIZE, key, data)
        return ShareStateSummary(
            found.state_epoch, found.leader_epoch, found.start_offset, found.delivery_complete_count
        )

    async def _result(self, api: ShareStateApi, key: SharePartitionKey, data: Any) -> Any:
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def done(result: Any, error: KafkaError | None) -> None:
            if future.done():
                return  # the caller was cancelled
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(result)

        self.submit(api, key, data, done)
        return await future

    # --- calls -----------------------------------------------------------------------------------------------------

    def submit(self, api: ShareStateApi, key: SharePartitionKey, data: Any, done: CallDone) -> None:
        """Run one operation; `data` is its `PartitionData`. Calls `done` once, possibly before this returns."""
        if self._closed or len(self._calls) >= MAX_CALLS:
            done(None, KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE))
            return
        call = _Call(api, key, data, self._clock.monotonic() + TIME_LIMIT_S, done)
        self._calls[call] = None
        self._route(call)

    def close(self) -> None:
        """Fail all calls with COORDINATOR_NOT_AVAILABLE."""
        self._closed = True
        for destination in self._destinations.values():
            for link in (*destination.idle, *destination.under_way):
                link.close()
        self._destinations.clear()
        self._creating = []
        for call in list(self._calls):
            self._end(call, None, KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE))

    def _route(self, call: _Call) -> None:
        """Pass a call to the coordinator of its share partition."""
        if call not in self._calls:
            return  # closed
        image = self._image()
        coordination = self._coordination
        if image.topic(coordination.topic.name) is None:
            self._create_first(call)
            return
        leader = coordination.leader(coordinator_key(call.key), image)
        if leader is None:
            self._retry(call, KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        elif leader == self._node_id:
            coordination.coordinator.answer(_request([call]), lambda response: self._answered([call], response))
        else:
            destination = self._destinations.get(leader)
            if destination is None:
                destination = self._destinations[leader] = _Destination(leader, self._network)
            destination.queued.append(call)
            if not destination.scheduled:
                destination.scheduled = True
                self._scheduler.at_end_of_turn(self._send, destination)

    def _create_first(self, call: _Call) -> None:
        self._creating.append(call)
        if len(self._creating) > 1:
            return

        def created(error: KafkaError | None) -> None:
            waiting, self._creating = self._creating, []
            for each in waiting:
                if error is None and each.tries == 0:
                    each.tries = 1  # not again at once: the image may lag behind
                    self._route(each)
                else:
                    self._retry(each, KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE))

        self._coordination.load(lambda: self._create_topic(created))

    # --- other brokers ---------------------------------------------------------------------------------------------

    def _send(self, destination: _Destination) -> None:
        """Send requests with queued calls while connections are idle."""
        destination.scheduled = False
        while destination.idle and destination.queued and not self._closed:
            calls = destination.take()
            if not calls:
                return  # all of them wait for calls in flight
            address = self._address_of(destination.broker_id)
            if address is None:
                self._retry_all(calls, ErrorCode.COORDINATOR_NOT_AVAILABLE)
                continue
            self._send_to(destination, address, calls)

    def _send_to(self, destination: _Destination, address: Address, calls: list[_Call]) -> None:
        link = destination.idle.pop()
        destination.under_way[link] = calls

        def answered(response: Any, error: BaseException | None) -> None:
            if self._closed:
                return
            del destination.under_way[link]
            destination.idle.append(link)
            if error is not None:
                self._retry_all(calls, ErrorCode.NETWORK_EXCEPTION)
            else:
                self._answered(calls, response)
            self._send(destination)

        send_message(link.to(address), _request(calls), answered, REQUEST_TIMEOUT_S)

    # --- outcomes --------------------------------------------------------------------------------------------------

    def _answered(self, calls: Iterable[_Call], response: Any) -> None:
        results = _results(response)
        for call in calls:
            result = results.get((call.key.topic_id, call.key.partition))
            if result is None:
                # The coordinator returns an empty response to a request that it does not accept.
                self._end(call, None, KafkaError(ErrorCode.INVALID_REQUEST))
                continue
            code = ErrorCode.for_code(result.error_code)
            error = KafkaError(code, result.error_message or "")
            if code is ErrorCode.NONE:
                self._end(call, result, None)
            elif code in _RETRIABLE or (code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and self._is_ahead(call)):
                self._retry(call, error)
            else:
                self._end(call, None, error)

    def _is_ahead(self, call: _Call) -> bool:
        """Whether this broker knows the partition, and the coordinator's image lags."""
        topic = self._image().topic_by_id(call.key.topic_id)
        return topic is not None and call.key.partition in topic.partitions

    def _retry_all(self, calls: Iterable[_Call], code: ErrorCode) -> None:
        for call in calls:
            self._retry(call, KafkaError(code))

    def _retry(self, call: _Call, error: KafkaError) -> None:
        delay_s = min(RETRY_S * 2 ** min(call.tries, 10), MAX_RETRY_S)
        call.tries += 1
        if self._clock.monotonic() + delay_s > call.deadline_s:
            self._end(call, None, error)
        else:
            self._scheduler.call_later(delay_s, self._route, call)

    def _end(self, call: _Call, result: Any, error: KafkaError | None) -> None:
        if call in self._calls:
            del self._calls[call]
            call.done(result, error)


def _request(calls: Sequence[_Call]) -> Any:
    """The request of calls of one API and group."""
    api = calls[0].api
    topics: dict[bytes, Any] = {}
    for call in calls:
        topic = topics.get(call.key.topic_id)
        if topic is None:
            topic = topics[call.key.topic_id] = api.topic(topic_id=call.key.topic_id)
        topic.partitions.append(call.data)
    return api.request(group_id=calls[0].key.group_id, topics=list(topics.values()))


def _results(response: Any) -> Mapping[tuple[bytes, int], Any]:
    return {
        (topic.topic_id, partition.partition): partition for topic in response.results for partition in topic.partitions
    }
