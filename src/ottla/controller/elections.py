"""Elections on request (ElectLeaders, KIP-183 and KIP-460) and the automatic balance of leaders.

The choice of the leader is in `partition_change`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.runbooks import LEADERLESS_PARTITION, with_runbook
from ottla.controller.partition_change import Acceptable, Election
from ottla.controller.replication import Slice, active, change_of
from ottla.controller.result import ControllerContext, ControllerResult, check_record_count
from ottla.metadata.image import NO_LEADER, MetadataImage, PartitionImage
from ottla.metadata.records import ApiMessageAndVersion, versioned
from ottla.protocol.messages.elect_leaders import (
    ElectLeadersPartitionResult,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ReplicaElectionResult,
)

PREFERRED, UNCLEAN = 0, 1
"""Election types on the wire."""

_KINDS = {PREFERRED: Election.PREFERRED, UNCLEAN: Election.UNCLEAN}


def handle_elect_leaders(
    image: MetadataImage, request: ElectLeadersRequest, context: ControllerContext
) -> ControllerResult[ElectLeadersResponse]:
    """Elect leaders for the named partitions. Without names: for all that need it, and only those are in the
    response."""
    kind = _KINDS.get(request.election_type)
    if kind is None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown election type {request.election_type}")
    records: list[ApiMessageAndVersion] = []
    response = ElectLeadersResponse()
    everything = request.topic_partitions is None
    for topic, indexes in _requested(image, request):
        result = ReplicaElectionResult(topic=topic)
        for index in indexes:
            outcome = ElectLeadersPartitionResult(partition_id=index, error_message=None)
            try:
                records.append(_elect(image, topic, index, kind, context))
                check_record_count(len(records))
            except KafkaError as error:
                if everything and error.code is ErrorCode.ELECTION_NOT_NEEDED:
                    continue
                outcome.error_code, outcome.error_message = error.code, error.message or None
            result.partition_result.append(outcome)
        if result.partition_result:
            response.replica_election_results.append(result)
    return ControllerResult(records, response)


def _requested(image: MetadataImage, request: ElectLeadersRequest) -> Iterator[tuple[str, list[int]]]:
    if request.topic_partitions is None:
        for name, topic in image.topics.items():
            yield name, list(topic.partitions)
        return
    for asked in request.topic_partitions:
        yield asked.topic, list(dict.fromkeys(asked.partitions))


def _elect(
    image: MetadataImage, name: str, index: int, kind: Election, context: ControllerContext
) -> ApiMessageAndVersion:
    topic = image.topic(name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {name}")
    partition = topic.partitions.get(index)
    if partition is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {name}-{index}")
    preferred = kind is Election.PREFERRED
    if (partition.leader == partition.replicas[0]) if preferred else (partition.leader != NO_LEADER):
        raise KafkaError(ErrorCode.ELECTION_NOT_NEEDED)
    change = change_of(image, topic, index, active(image), context)
    change.election = kind
    record = change.record()
    if record is None or (preferred and record.leader != partition.replicas[0]):
        if preferred and partition.leader != NO_LEADER:
            raise KafkaError(ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE)
        code = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE if preferred else ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
        raise KafkaError(code, cause_without_leader(name, index, partition, active(image)))
    return versioned(record)


def cause_without_leader(name: str, index: int, partition: PartitionImage, is_live: Acceptable) -> str:
    """Return the reason why the partition has no leader, the operator's options and the runbook."""
    complete = partition.isr or partition.eligible_leader_replicas or partition.last_known_elr
    waits_for = [broker_id for broker_id in complete if not is_live(broker_id)]
    if waits_for:
        cause = f"broker {_ids(waits_for)} may be the only one with every committed record and does not serve: start it"
    elif complete:
        cause = f"broker {_ids(complete)} had every committed record and serves without the data directory it was in"
    else:
        cause = "no replica is known to have every committed record"
    if not any(is_live(broker_id) for broker_id in partition.replicas):
        options = f"no replica is live (brokers {_ids(partition.replicas)})"
    else:
        options = f"or run 'ottla cluster elect {name}:{index} --unclean', which loses the records that the "
        options += "elected replica lacks"
    return with_runbook(f"No leader: {cause}; {options}", LEADERLESS_PARTITION)


def _ids(broker_ids: Sequence[int]) -> str:
    return ", ".join(map(str, broker_ids))


# -- balance -----------------------------------------------------------------------------------------------------------


def balance_leaders(image: MetadataImage, context: ControllerContext, limit: int) -> Slice:
    """Return leaderships to the preferred replicas of brokers that lack more than the allowed share of theirs."""
    percentage = context.config.get_int("leader.imbalance.per.broker.percentage")
    preferred: Counter[int] = Counter()
    missing: Counter[int] = Counter()
    for topic in image.topics.values():
        for partition in topic.partitions.values():
            broker_id = partition.replicas[0]
            preferred[broker_id] += 1
            missing[broker_id] += partition.leader != broker_id
    unbalanced = {broker_id for broker_id, count in preferred.items() if missing[broker_id] * 100 > percentage * count}
    may_lead = active(image)
    records: list[ApiMessageAndVersion] = []
    for topic in image.topics.values():
        for index, partition in topic.partitions.items():
            if not _can_give_back(partition, unbalanced) or not may_lead(partition.replicas[0]):
                continue
            change = change_of(image, topic, index, may_lead, context)
            change.election = Election.PREFERRED
            record = change.record()
            if record is None:
                continue
            if len(records) == limit:
                return Slice(records, complete=False)
            records.append(versioned(record))
    return Slice(records, complete=True)


def _can_give_back(partition: PartitionImage, unbalanced: set[int]) -> bool:
    preferred = partition.replicas[0]
    return preferred in unbalanced and partition.leader not in (preferred, NO_LEADER) and preferred in partition.isr
