"""AssignReplicasToDirs: reports the log directories of this broker's replicas to the controller (KIP-858).

Only differences from the metadata are reported (`replica.directory_reports`). One request is in flight at a time, with
up to `MAX_REPLICAS_PER_REQUEST` of the pending assignments. A failed request is repeated. An assignment that the
controller rejects is dropped; repairs and moves report theirs again.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ottla.common.errors import ErrorCode
from ottla.common.kafka.ids import Uuid
from ottla.common.logs import RATE_LIMITED
from ottla.common.platform.clock import Scheduler
from ottla.common.platform.peer import ControllerRequests
from ottla.replica.membership import Membership

if TYPE_CHECKING:
    from ottla.protocol.messages.assign_replicas_to_dirs import (
        AssignedDirectory,
        AssignedTopic,
        AssignReplicasToDirsResponse,
    )

logger = logging.getLogger(__name__)

MAX_REPLICAS_PER_REQUEST = 2_000
RETRY_S = 0.5
TIMEOUT_S = 30.0

Assignments = dict[tuple[Uuid, int], Uuid]
"""The directory of each replica, by topic id and partition."""


class DirectoryAssignments:
    """Pending directory assignments of one broker."""

    __slots__ = ("_controller", "_in_flight", "_membership", "_pending", "_scheduled", "_scheduler", "_stopped")

    def __init__(self, membership: Membership, controller: ControllerRequests, scheduler: Scheduler) -> None:
        """`controller` sends to the active controller, which may be in this process."""
        self._membership = membership
        self._controller = controller
        self._scheduler = scheduler
        self._pending: Assignments = {}
        self._in_flight = False
        self._scheduled = False
        self._stopped = False

    def report(self, topic_id: Uuid, index: int, directory_id: Uuid) -> None:
        """Report the directory of a replica that differs from the metadata."""
        self._pending[topic_id, index] = directory_id
        self._schedule(0.0)

    def forget(self) -> None:
        """Drop pending assignments: another metadata store took over, and all replicas are reported again to it."""
        self._pending.clear()

    def stop(self) -> None:
        """Report nothing more: the next start does."""
        self._stopped = True
        self._pending.clear()

    def _schedule(self, delay_s: float) -> None:
        if self._scheduled or self._in_flight or self._stopped:
            return
        self._scheduled = True
        self._scheduler.call_later(delay_s, self._send)

    def _send(self) -> None:
        from ottla.protocol.messages.assign_replicas_to_dirs import (  # imported here: for a moved replica
            AssignedDirectory,
            AssignedPartition,
            AssignedTopic,
            AssignReplicasToDirsRequest,
        )

        self._scheduled = False
        broker_epoch = self._membership.broker_epoch()
        if self._stopped or not self._pending:
            return
        if broker_epoch < 0:  # not registered yet
            self._schedule(RETRY_S)
            return
        sent = dict(list(self._pending.items())[:MAX_REPLICAS_PER_REQUEST])
        topics: dict[tuple[Uuid, Uuid], AssignedTopic] = {}
        directories: dict[Uuid, AssignedDirectory] = {}
        for (topic_id, index), directory_id in sent.items():
            topic = topics.get((directory_id, topic_id))
            if topic is None:
                topic = topics[directory_id, topic_id] = AssignedTopic(topic_id=topic_id)
                directories.setdefault(directory_id, AssignedDirectory(id=directory_id)).topics.append(topic)
            topic.partitions.append(AssignedPartition(partition_index=index))
        self._in_flight = True
        request = AssignReplicasToDirsRequest(
            broker_id=self._membership.node_id, broker_epoch=broker_epoch, directories=list(directories.values())
        )
        self._controller.send(request, lambda response, error: self._answered(sent, response, error), TIMEOUT_S)

    def _answered(
        self, sent: Assignments, response: AssignReplicasToDirsResponse | None, error: BaseException | None
    ) -> None:
        self._in_flight = False
        if response is None or response.error_code != ErrorCode.NONE:
            reason = error if response is None else ErrorCode.for_code(response.error_code).name
            logger.info("AssignReplicasToDirs failed, retrying: %s", reason, extra=RATE_LIMITED)
            self._schedule(RETRY_S)
            return
        # A rejected assignment is of a replica that has left this broker, or of the last one in sync.
        for key, directory_id in sent.items():
            if self._pending.get(key) == directory_id:
                del self._pending[key]
        if self._pending:
            self._schedule(0.0)
