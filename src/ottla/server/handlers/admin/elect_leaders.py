"""ElectLeaders (43): versions 0 to 2. Version 0 elects only preferred replicas (KIP-460)."""

from __future__ import annotations

from ottla.common.errors import ErrorCode
from ottla.common.kafka.acl import AclOperation, ResourceType
from ottla.controller.elections import handle_elect_leaders
from ottla.protocol.messages.elect_leaders import (
    ElectLeadersPartitionResult,
    ElectLeadersRequest,
    ElectLeadersResponse,
    ReplicaElectionResult,
)
from ottla.protocol.registry import ApiKey
from ottla.server.requests.authorization import RequiredPermission
from ottla.server.requests.controller_requests import controller_api
from ottla.server.requests.stepped import Division


def error_response(message: ElectLeadersRequest, code: ErrorCode, text: str) -> ElectLeadersResponse:
    """The error for the whole request, and for every named partition: version 0 has only those."""
    return ElectLeadersResponse(
        error_code=code,
        replica_election_results=[
            ReplicaElectionResult(
                topic=topic.topic,
                partition_result=[
                    ElectLeadersPartitionResult(partition_id=index, error_code=code, error_message=text)
                    for index in topic.partitions
                ],
            )
            for topic in message.topic_partitions or []
        ],
    )


ELECT_LEADERS = controller_api(
    ApiKey.ELECT_LEADERS,
    handle_elect_leaders,
    error_response,
    needs=RequiredPermission(AclOperation.ALTER, ResourceType.CLUSTER),
    forwarded=True,
    divisions=(Division(("topic_partitions",), "replica_election_results", lambda topic: topic.topic),),
)
