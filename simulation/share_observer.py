"""Events of the brokers of a share group for its history: acquisitions, loaded and stored states.

Members alone can't see them: a response may be lost, and its records stay acquired. While the observer is active, it
wraps methods of the product, and changes neither arguments nor results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.kafka.share_state import SharePartitionKey, ShareState
from ottla.coordinator.share.coordinator import ShareCoordinator
from ottla.protocol.messages.write_share_group_state import WriteShareGroupStateRequest
from ottla.server.coordination.share_partitions import LedSharePartition, SharePartitions
from ottla.server.coordination.share_persister import CoordinatorSharePersister
from ottla.share.acquisition import AcquiredRange
from ottla.share.share_partition import SharePartition
from simulation.checkers import Violation
from simulation.history.shares import ShareHistory, ShareTerm
from simulation.loop import SimLoop
from simulation.network import Network


class ShareObserver:
    """Passes the events of all brokers to the history of one group."""

    def __init__(self, history: ShareHistory, network: Network, loop: SimLoop) -> None:
        self._history = history
        self._loop = loop
        self._network = network
        self._terms: dict[SharePartition, ShareTerm] = {}
        self._acquired: list[tuple[SharePartition, str, list[AcquiredRange]]] = []
        """Acquisitions whose share partition is not known yet: it follows in the same step."""

    @contextmanager
    def active(self) -> Iterator[None]:
        """Observe within this context."""
        with ExitStack() as stack:
            for owner, name, wrapper in (
                (SharePartition, "acquire", self._acquire),
                (SharePartitions, "acquired", self._acquired_by),
                (CoordinatorSharePersister, "read", self._read),
                (CoordinatorSharePersister, "write", self._write),
                (ShareCoordinator, "answer", self._answer),
            ):
                stack.enter_context(mock.patch.object(owner, name, wrapper(getattr(owner, name))))
            yield

    @contextmanager
    def _findings(self) -> Iterator[None]:
        """Findings end the run; a broker would catch them."""
        try:
            yield
        except Violation as finding:
            self._loop.failures.append(finding)

    def _acquire(self, original: Callable[..., list[AcquiredRange]]) -> Callable[..., list[AcquiredRange]]:
        def acquire(machine: SharePartition, member_id: str, *arguments: Any) -> list[AcquiredRange]:
            ranges = original(machine, member_id, *arguments)
            if ranges:
                self._acquired.append((machine, member_id, ranges))
            return ranges

        return acquire

    def _acquired_by(self, original: Callable[..., None]) -> Callable[..., None]:
        def acquired(partitions: SharePartitions, led: LedSharePartition) -> None:
            waiting, self._acquired = self._acquired, []
            for machine, member_id, ranges in waiting:
                term = self._terms.get(machine)
                if term is None:
                    term = self._terms[machine] = self._history.begun(led.leader_epoch, machine.state_epoch)
                is_held = self._holder(partitions, led, member_id)
                with self._findings():
                    self._history.acquired((led.key.topic_id, led.key.partition), term, member_id, ranges, is_held)
            original(partitions, led)

        return acquired

    def _holder(self, partitions: SharePartitions, led: LedSharePartition, member_id: str) -> Callable[[], bool]:
        """Returns whether the session and connection of the member live, and the share partition is not dropped."""
        try:
            session = partitions.sessions.find((led.key.group_id, member_id))
        except KafkaError:
            return lambda: False
        links = [link for link in self._network.links() if link.number == session.connection_id]
        return lambda: (
            not led.dropped
            and partitions.sessions.is_current(session)
            and any(not link.channel.closed for link in links)
        )

    def _read(self, original: Callable[..., Any]) -> Callable[..., Any]:
        async def read(persister: CoordinatorSharePersister, key: SharePartitionKey, leader_epoch: int) -> ShareState:
            place = (key.topic_id, key.partition)
            before = self._history.known(place)
            state: ShareState = await original(persister, key, leader_epoch)
            with self._findings():
                self._history.loaded(place, leader_epoch, state.state_epoch, state.start_offset, before)
            return state

        return read

    def _write(self, original: Callable[..., Any]) -> Callable[..., Any]:
        async def write(persister: CoordinatorSharePersister, key: SharePartitionKey, **values: Any) -> None:
            place = (key.topic_id, key.partition)
            before = self._history.storing(place, values["leader_epoch"])
            await original(persister, key, **values)
            with self._findings():
                self._history.stored(
                    place,
                    values["leader_epoch"],
                    values["state_epoch"],
                    values["start_offset"],
                    values["batches"],
                    before,
                )

        return write

    def _answer(self, original: Callable[..., None]) -> Callable[..., None]:
        """Also observes requests that the network delivered late, after their senders gave up."""

        def answer(coordinator: ShareCoordinator, message: Any, done: Callable[[Any], None]) -> None:
            if not isinstance(message, WriteShareGroupStateRequest):
                original(coordinator, message, done)
                return
            changes = {
                (topic.topic_id, change.partition): (change, self._history.known((topic.topic_id, change.partition)))
                for topic in message.topics
                for change in topic.partitions
            }

            def answered(response: Any) -> None:
                for topic in response.results:
                    for result in topic.partitions:
                        change, before = changes[topic.topic_id, result.partition]
                        if result.error_code == ErrorCode.NONE:
                            with self._findings():
                                self._history.accepted(
                                    (topic.topic_id, result.partition), change.leader_epoch, change.state_epoch, before
                                )
                done(response)

            original(coordinator, message, answered)

        return answer
