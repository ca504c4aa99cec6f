"""AlterPartition (56): versions 2 to 3, on the controller's listener (KIP-497, KIP-903)."""

from __future__ import annotations

from ottla.common.kafka.acl import AclOperation, ResourceType
from ottla.controller.replication import handle_alter_partition
from ottla.protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse
from ottla.protocol.registry import ApiKey
from ottla.server.requests.api import SchemaApi, bare_error
from ottla.server.requests.authorization import RequiredPermission
from ottla.server.requests.controller_requests import DecidingContext
from ottla.server.requests.request import Request


def handle(context: DecidingContext, request: Request, message: AlterPartitionRequest) -> None:
    """Pass the request to the controller; the channel parks until its decision is committed."""
    context.decisions.submit(
        request,
        lambda image, controller: handle_alter_partition(image, message, request.api_version, controller),
    )


ALTER_PARTITION = SchemaApi(
    ApiKey.ALTER_PARTITION,
    handle,
    bare_error(AlterPartitionResponse),
    needs=RequiredPermission(AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER),
)
