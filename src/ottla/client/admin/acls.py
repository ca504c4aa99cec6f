"""ACLs: requests, and the service `Cluster.acls`. See `client.admin.topics`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ottla.client.admin.router import ClusterService
from ottla.client.wire.connection import Connection
from ottla.client.wire.failure import raise_for
from ottla.common.kafka.acl import Acl, AclOperation, PatternType, Permission, ResourceType
from ottla.protocol.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from ottla.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest, DeleteAclsResponse
from ottla.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from ottla.protocol.registry import ApiKey


class AclFilter(NamedTuple):
    """A filter for ACLs; fields with their default match everything."""

    resource_type: int = ResourceType.ANY
    resource_name: str | None = None
    pattern_type: int = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: int = AclOperation.ANY
    permission: int = Permission.ANY

    def fields(self) -> dict[str, Any]:
        """The filter as fields of a request."""
        return {
            "resource_type_filter": self.resource_type,
            "resource_name_filter": self.resource_name,
            "pattern_type_filter": self.pattern_type,
            "principal_filter": self.principal,
            "host_filter": self.host,
            "operation": self.operation,
            "permission_type": self.permission,
        }


def describe_acls(connection: Connection, wanted: AclFilter) -> list[Acl]:
    """DescribeAcls: the ACLs that match the filter, sorted."""
    request = DescribeAclsRequest(**wanted.fields())
    response: DescribeAclsResponse = connection.request(ApiKey.DESCRIBE_ACLS, request)
    raise_for(response.error_code, "ACLs", response.error_message)
    return sorted(
        Acl(
            resource.resource_type,
            resource.resource_name,
            resource.pattern_type,
            acl.principal,
            acl.host,
            acl.operation,
            acl.permission_type,
        )
        for resource in response.resources
        for acl in resource.acls
    )


def create_acls(connection: Connection, acls: Sequence[Acl]) -> None:
    """CreateAcls: add ACLs; existing ones are left unchanged. Raises KafkaError for the first rejected one."""
    request = CreateAclsRequest(
        creations=[
            AclCreation(
                resource_type=acl.resource_type,
                resource_name=acl.resource_name,
                resource_pattern_type=acl.pattern_type,
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation,
                permission_type=acl.permission,
            )
            for acl in acls
        ]
    )
    response: CreateAclsResponse = connection.request(ApiKey.CREATE_ACLS, request)
    for acl, result in zip(acls, response.results, strict=True):
        raise_for(result.error_code, f"ACL for {acl.principal} on {acl.resource_name!r}", result.error_message)


def delete_acls(connection: Connection, filters: Sequence[AclFilter]) -> list[Acl]:
    """DeleteAcls: remove the ACLs that match any of the filters; returns the removed ones, unique and sorted."""
    request = DeleteAclsRequest(filters=[DeleteAclsFilter(**wanted.fields()) for wanted in filters])
    response: DeleteAclsResponse = connection.request(ApiKey.DELETE_ACLS, request)
    removed: set[Acl] = set()
    for result in response.filter_results:
        raise_for(result.error_code, "ACLs", result.error_message)
        for each in result.matching_acls:
            raise_for(each.error_code, f"ACL for {each.principal}", each.error_message)
            removed.add(
                Acl(
                    each.resource_type,
                    each.resource_name,
                    each.pattern_type,
                    each.principal,
                    each.host,
                    each.operation,
                    each.permission_type,
                )
            )
    return sorted(removed)


class AclService(ClusterService):
    """ACLs."""

    def find(self, wanted: AclFilter) -> list[Acl]:
        """The ACLs that match the filter. Raises KafkaError SECURITY_DISABLED if brokers have no authorizer."""
        return self._router.retry(lambda: describe_acls(self._router.any_connection(), wanted))

    def create(self, added: Sequence[Acl]) -> None:
        """Add ACLs; existing ones are left unchanged."""
        self._router.change(lambda connection: create_acls(connection, added))

    def delete(self, filters: Sequence[AclFilter]) -> list[Acl]:
        """Remove the ACLs that match any of the filters; returns the removed ones."""
        return self._router.change(lambda connection: delete_acls(connection, filters))
