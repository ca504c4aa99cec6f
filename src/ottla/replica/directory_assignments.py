"""AssignReplicasToDirs: where this broker's replicas are, on its way to the controller (KIP-858).

Told is only what the metadata has otherwise: a broker with one directory has nothing to tell. One request is under way
at a time, with `MOST_REPLICAS` of what came meanwhile; what fails is told again, until the metadata says the same.
"""

from __future__ import annotations

import logging

from ottla.common.errors import ErrorCode
from ottla.common.kafka.ids import Uuid
from ottla.common.logs import RATE_LIMITED
from ottla.common.platform.clock import Scheduler
from ottla.common.platform.peer import ControllerRequests
from ottla.protocol.messages.assign_replicas_to_dirs import (
    AssignedDirectory,
    AssignedPartition,
    AssignedTopic,
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
)
from ottla.replica.membership import Membership

logger = logging.getLogger(__name__)

MOST_REPLICAS = 2_000
RETRY_S = 0.5
TIMEOUT_S = 30.0

Assignments = dict[tuple[Uuid, int], Uuid]
"""The directory of each replica, by topic id and partition."""


class DirectoryAssignments:
    """What one broker has to tell."""

    __slots__ = ("_controller", "_in_flight", "_membership", "_scheduled", "_scheduler", "_stopped", "_untold")

    def __init__(self, membership: Membership, controller: ControllerRequests, scheduler: Scheduler) -> None:
        """`controller` is the way to the active one, which may be in this process."""
        self._membership = membership
        self._controller = controller
        self._scheduler = scheduler
        self._untold: Assignments = {}
        self._in_flight = False
        self._scheduled = False
        self._stopped = False

    def tell(self, topic_id: Uuid, index: int, directory_id: Uuid) -> None:
        """The replica is in that directory, and the metadata has another one."""
        self._untold[topic_id, index] = directory_id
        self._schedule(0.0)

    def forget(self) -> None:
        """Somebody else keeps the metadata now, who gets to hear of all replicas, under other names."""
        self._untold.clear()

    def stop(self) -> None:
        """Tell nothing any more: the next start does."""
        self._stopped = True
        self._untold.clear()

    def _schedule(self, delay_s: float) -> None:
        if self._scheduled or self._in_flight or self._stopped:
            return
        self._scheduled = True
        self._scheduler.call_later(delay_s, self._send)

    def _send(self) -> None:
        self._scheduled = False
        broker_epoch = self._membership.broker_epoch()
        if self._stopped or not self._untold:
            return
        if broker_epoch < 0:  # not registered yet
            self._schedule(RETRY_S)
            return
        told = dict(list(self._untold.items())[:MOST_REPLICAS])
        topics: dict[tuple[Uuid, Uuid], AssignedTopic] = {}
        directories: dict[Uuid, AssignedDirectory] = {}
        for (topic_id, index), directory_id in told.items():
            topic = topics.get((directory_id, topic_id))
            if topic is None:
                topic = topics[directory_id, topic_id] = AssignedTopic(topic_id=topic_id)
                directories.setdefault(directory_id, AssignedDirectory(id=directory_id)).topics.append(topic)
            topic.partitions.append(AssignedPartition(partition_index=index))
        self._in_flight = True
        request = AssignReplicasToDirsRequest(
            broker_id=self._membership.node_id, broker_epoch=broker_epoch, directories=list(directories.values())
        )
        self._controller.send(request, lambda response, error: self._answered(told, response, error), TIMEOUT_S)

    def _answered(
        self, told: Assignments, response: AssignReplicasToDirsResponse | None, error: BaseException | None
    ) -> None:
        self._in_flight = False
        if response is None or response.error_code != ErrorCode.NONE:
            reason = error if response is None else ErrorCode.for_code(response.error_code).name
            logger.info("the directories of replicas are told again: %s", reason, extra=RATE_LIMITED)
            self._schedule(RETRY_S)
            return
        # What was refused is of a replica that is not here any more.
        for key, directory_id in told.items():
            if self._untold.get(key) == directory_id:
                del self._untold[key]
        if self._untold:
            self._schedule(0.0)
