"""AlterPartition: sends ISR proposals of this broker's leaders to the controller, several in one request (KIP-497).

One request is in flight at a time; later proposals wait for the next one. A proposal is dropped when its partition has
a newer state. The error of a proposal has one of three outcomes:

- `FINAL_ERRORS`: the proposal is kept, but not sent again. The partition waits for the newer metadata.
- `WITHDRAWN_ERRORS`: the proposal is withdrawn, and the partition may propose another on the committed ISR.
- all others, errors of the whole request and a lost response: it is sent again. The controller rejects a proposal with
  an old partition epoch, so no change applies twice.

The contents of proposals and the effect of responses are in `replica.leadership` and `replica.partition`.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple

from ottla.common.errors import ErrorCode
from ottla.common.logs import RATE_LIMITED
from ottla.common.platform.clock import Scheduler
from ottla.replica.leadership import IsrChange
from ottla.replica.membership import Membership
from ottla.replica.partition import Partition
from ottla.replica.statistics import ReplicationStatistics

if TYPE_CHECKING:
    from ottla.protocol.messages.alter_partition import (
        AlterPartitionPartitionResult,
        AlterPartitionResponse,
        AlterPartitionTopic,
    )

logger = logging.getLogger(__name__)

RETRY_S = 0.05
TIMEOUT_S = 30.0

FINAL_ERRORS = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.NEW_LEADER_ELECTED,
        ErrorCode.INVALID_UPDATE_VERSION,
    }
)
"""Errors that mean: the controller has a newer state of the partition, which this broker gets with the metadata."""

WITHDRAWN_ERRORS = frozenset(
    {ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA, ErrorCode.INVALID_REQUEST}
)
"""Errors after which the proposal is withdrawn: the controller certainly did not apply it, and the ISR is unchanged."""

Key = tuple[bytes, int]


class Proposal(NamedTuple):
    """A proposed change in flight; `grows`: it adds a replica."""

    partition: Partition
    change: IsrChange
    grows: bool


Proposals = dict[Key, Proposal]


class IsrChanges:
    """ISR proposals of one broker."""

    __slots__ = (
        "_in_flight",
        "_membership",
        "_scheduled",
        "_scheduler",
        "_statistics",
        "_stopped",
        "_unsent",
    )

    def __init__(
        self,
        membership: Membership,
        scheduler: Scheduler,
        statistics: ReplicationStatistics,
    ) -> None:
        self._membership = membership
        self._scheduler = scheduler
        self._statistics = statistics
        self._unsent: Proposals = {}
        self._in_flight = False
        self._scheduled = False
        self._stopped = False

    def propose(self, partition: Partition, change: IsrChange) -> None:
        """Send `change` with all others of this tick of the loop."""
        grows = len(change.isr) > len(partition.state.isr)
        self._unsent[partition.topic_id, partition.index] = Proposal(partition, change, grows)
        self._schedule(0.0)

    def stop(self) -> None:
        """Send no more proposals."""
        self._stopped = True
        self._unsent.clear()

    def _schedule(self, delay_s: float) -> None:
        if self._scheduled or self._in_flight or self._stopped:
            return
        self._scheduled = True
        if delay_s > 0:
            self._scheduler.call_later(delay_s, self._send)
        else:
            self._scheduler.call_soon(self._send)

    def _send(self) -> None:
        from ottla.protocol.messages.alter_partition import (  # imported here: for replicas only
            AlterPartitionPartition,
            AlterPartitionRequest,
            AlterPartitionTopic,
            BrokerState,
        )

        self._scheduled = False
        sent = {key: item for key, item in self._unsent.items() if item.partition.proposal_stands(item.change)}
        self._unsent = {}
        if not sent or self._stopped:
            return
        node_id, broker_epoch = self._membership.node_id, self._membership.broker_epoch()
        topics: dict[bytes, AlterPartitionTopic] = {}
        for (topic_id, index), (_, change, _) in sent.items():
            topic = topics.setdefault(topic_id, AlterPartitionTopic(topic_id=topic_id))
            topic.partitions.append(
                AlterPartitionPartition(
                    partition_index=index,
                    leader_epoch=change.leader_epoch,
                    new_isr_with_epochs=[
                        BrokerState(broker_id=member, broker_epoch=broker_epoch if member == node_id else member_epoch)
                        for member, member_epoch in change.isr
                    ],
                    partition_epoch=change.partition_epoch,
                )
            )
        self._in_flight = True
        request = AlterPartitionRequest(broker_id=node_id, broker_epoch=broker_epoch, topics=list(topics.values()))
        self._membership.controller.send(
            request, lambda response, error: self._answered(sent, response, error), TIMEOUT_S
        )

    def _answered(self, sent: Proposals, response: AlterPartitionResponse | None, error: BaseException | None) -> None:
        self._in_flight = False
        if self._stopped:
            return
        if response is None or response.error_code != ErrorCode.NONE:
            reason = error if response is None else ErrorCode.for_code(response.error_code).name
            logger.info("AlterPartition failed, retrying: %s", reason, extra=RATE_LIMITED)
            self._again(sent)
            return
        again: Proposals = {}
        for topic in response.topics:
            for result in topic.partitions:
                item = sent.pop((topic.topic_id, result.partition_index), None)
                if item is not None and not self._settle(item, result):
                    again[topic.topic_id, result.partition_index] = item
        # Partitions missing in the response are treated like those without a response.
        self._again({**sent, **again})
        if self._unsent:
            self._schedule(0.0)

    def _again(self, proposals: Proposals) -> None:
        if proposals:
            self._unsent = {**proposals, **self._unsent}
            self._schedule(RETRY_S)

    def _settle(self, proposal: Proposal, result: AlterPartitionPartitionResult) -> bool:
        """Pass the outcome to the partition; returns False if the proposal must be sent again."""
        partition, change, grows = proposal
        code = ErrorCode.for_code(result.error_code)
        statistics = self._statistics
        if code == ErrorCode.NONE:
            (statistics.isr_expands if grows else statistics.isr_shrinks).value += 1
            partition.isr_committed(change, result.leader_epoch, result.partition_epoch, tuple(result.isr))
            return True
        statistics.failed_isr_updates.value += 1
        logger.info("%r: the controller rejected the ISR %s: %s", partition, change.isr, code.name, extra=RATE_LIMITED)
        if code in WITHDRAWN_ERRORS:
            partition.isr_not_attempted(change)
            return True
        return code in FINAL_ERRORS
