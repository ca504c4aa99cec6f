"""CreateAcls, DescribeAcls and DeleteAcls: access control lists in the metadata log (KIP-140, KIP-290, KIP-801).

Checks, codes and messages are those of Apache Kafka 4.4. Each ACL and each filter has its own result, and all valid
ones take effect together. `security.acl_index` evaluates ACLs.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from enum import IntEnum
from typing import Any

from ottla.common.config.config_keys_bounds import MAX_ACLS
from ottla.common.config.feature_levels import CIDR_ACLS, METADATA_LEVELS
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.kafka.acl import CLUSTER_NAME, WILDCARD, Acl, AclOperation, PatternType, Permission, ResourceType
from ottla.controller.result import ControllerContext, ControllerResult, check_record_count
from ottla.metadata.bounds import MAX_HOST_BYTES, check_count, check_name, is_too_long
from ottla.metadata.image import MetadataImage, metadata_level
from ottla.metadata.records import ApiMessageAndVersion, versioned
from ottla.metadata.snapshot import acl_record
from ottla.protocol.messages.create_acls import (
    AclCreation,
    AclCreationResult,
    CreateAclsRequest,
    CreateAclsResponse,
)
from ottla.protocol.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)
from ottla.protocol.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from ottla.protocol.messages.metadata_records import RemoveAccessControlEntryRecord

# -- creating ----------------------------------------------------------------------------------------------------------


def handle_create_acls(
    image: MetadataImage, request: CreateAclsRequest, context: ControllerContext
) -> ControllerResult[CreateAclsResponse]:
    """Add ACLs; existing ones are ignored. Raises KafkaError POLICY_VIOLATION for too many at once."""
    response = CreateAclsResponse()
    existing, limit = set(image.acls.values()), context.config.get_int(MAX_ACLS)
    records: list[ApiMessageAndVersion] = []
    for creation in request.creations:
        result = AclCreationResult(error_message=None)
        response.results.append(result)
        try:
            acl = _checked(creation, cidr=metadata_level(image) >= CIDR_ACLS)
            if acl in existing:
                continue
            check_count(len(existing), limit, "ACLs", MAX_ACLS)
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message
            continue
        existing.add(acl)
        records.append(versioned(acl_record(context.new_uuid(), acl)))
        check_record_count(len(records))
    return ControllerResult(records, response)


def _checked(creation: AclCreation, *, cidr: bool) -> Acl:
    """Return the ACL to add. Raises KafkaError INVALID_REQUEST, UNSUPPORTED_VERSION."""
    name, principal = creation.resource_name, creation.principal
    problem = None
    if creation.resource_type == ResourceType.CLUSTER and name != CLUSTER_NAME:
        problem = f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
    elif not name:
        problem = "Invalid empty resource name"
    elif not _is_one_of(ResourceType, creation.resource_type, ResourceType.TOPIC):
        problem = f"Invalid resourceType {_shown(ResourceType, creation.resource_type)}"
    elif creation.resource_pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        problem = f"Invalid patternType {_shown(PatternType, creation.resource_pattern_type)}"
    elif not _is_one_of(AclOperation, creation.operation, AclOperation.ALL):
        problem = f"Invalid operation {_shown(AclOperation, creation.operation)}"
    elif creation.permission_type not in (Permission.ALLOW, Permission.DENY):
        problem = f"Invalid permissionType {_shown(Permission, creation.permission_type)}"
    elif ":" not in principal:
        problem = (
            f"Could not parse principal from `{principal}` (no colon is present separating the principal type from the "
            "principal name)"
        )
    elif not creation.host:
        problem = "Host should not be empty"
    if problem is not None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, problem)
    check_name(name, "resource name")
    check_name(principal, "principal")
    _check_host(creation.host, cidr=cidr)
    return Acl(
        creation.resource_type,
        name,
        creation.resource_pattern_type,
        principal,
        creation.host,
        creation.operation,
        creation.permission_type,
    )


def _check_host(host: str, *, cidr: bool) -> None:
    """Validate a host or CIDR range; anything without a slash counts as a host."""
    if is_too_long(host, MAX_HOST_BYTES):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"The host is longer than {MAX_HOST_BYTES} bytes.")
    if "/" not in host:
        return
    if not cidr:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"CIDR-based ACL host patterns require metadata version {METADATA_LEVELS[CIDR_ACLS].name} or higher.",
        )
    from ipaddress import ip_network  # here, since a start does without it

    try:
        ip_network(host, strict=False)
    except ValueError as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Invalid CIDR notation '{host}': {error}") from error


def _is_one_of(kind: type[IntEnum], number: int, first: IntEnum) -> bool:
    """Return whether a number is defined and not reserved for filters, which come before `first`."""
    return first <= number <= max(kind)


def _shown(kind: type[IntEnum], number: int) -> str:
    return kind(number).name if number in tuple(kind) else "UNKNOWN"


# -- deleting and describing -------------------------------------------------------------------------------------------


def handle_delete_acls(image: MetadataImage, request: DeleteAclsRequest) -> ControllerResult[DeleteAclsResponse]:
    """Remove all ACLs that match any of the filters; each filter's result lists its own matches.

    Raises KafkaError POLICY_VIOLATION for too many at once.
    """
    response = DeleteAclsResponse()
    removed: dict[bytes, None] = {}
    for asked in request.filters:
        result = DeleteAclsFilterResult(error_message=None)
        response.filter_results.append(result)
        try:
            matches = acl_filter(asked)
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message
            continue
        found = {acl_id: acl for acl_id, acl in image.acls.items() if matches(acl)}
        removed.update(dict.fromkeys(found))
        check_record_count(len(removed))
        result.matching_acls = [
            DeleteAclsMatchingAcl(
                error_message=None,
                resource_type=acl.resource_type,
                resource_name=acl.resource_name,
                pattern_type=acl.pattern_type,
                principal=acl.principal,
                host=acl.host,
                operation=acl.operation,
                permission_type=acl.permission,
            )
            for acl in found.values()
        ]
        check_record_count(sum(len(each.matching_acls) for each in response.filter_results))
    return ControllerResult([versioned(RemoveAccessControlEntryRecord(id=acl_id)) for acl_id in removed], response)


ACLS_PER_STEP = 256
"""ACLs that one step compares with a filter."""


def matching_acls(image: MetadataImage, request: DescribeAclsRequest) -> Generator[None, None, DescribeAclsResponse]:
    """Return the matching ACLs by resource, in short steps. Raises KafkaError INVALID_REQUEST."""
    matches = acl_filter(request)
    resources: dict[tuple[int, str, int], DescribeAclsResource] = {}
    for count, acl in enumerate(image.acls.values()):
        if count % ACLS_PER_STEP == 0:
            yield
        if matches(acl):
            key = acl.resource_type, acl.resource_name, acl.pattern_type
            resource = resources.get(key)
            if resource is None:
                resource = resources[key] = DescribeAclsResource(
                    resource_type=acl.resource_type, resource_name=acl.resource_name, pattern_type=acl.pattern_type
                )
            resource.acls.append(
                AclDescription(
                    principal=acl.principal, host=acl.host, operation=acl.operation, permission_type=acl.permission
                )
            )
    return DescribeAclsResponse(error_message=None, resources=list(resources.values()))


def acl_filter(asked: Any) -> Callable[[Acl], bool]:
    """Return the predicate of a filter of DescribeAcls or DeleteAcls. Raises KafkaError INVALID_REQUEST."""
    resource_type, pattern_type = asked.resource_type_filter, asked.pattern_type_filter
    operation, permission = asked.operation, asked.permission_type
    if not _is_one_of(ResourceType, resource_type, ResourceType.ANY) or not _is_one_of(
        PatternType, pattern_type, PatternType.ANY
    ):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Unknown patternFilter.")
    if not _is_one_of(AclOperation, operation, AclOperation.ANY) or not _is_one_of(
        Permission, permission, Permission.ANY
    ):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "Unknown entryFilter.")

    def matches(acl: Acl) -> bool:
        return (
            resource_type in (ResourceType.ANY, acl.resource_type)
            and pattern_type in (PatternType.ANY, PatternType.MATCH, acl.pattern_type)
            and _names(acl, asked.resource_name_filter, pattern_type)
            and asked.principal_filter in (None, acl.principal)
            and asked.host_filter in (None, acl.host)
            and operation in (AclOperation.ANY, acl.operation)
            and permission in (Permission.ANY, acl.permission)
        )

    return matches


def _names(acl: Acl, name: str | None, pattern_type: int) -> bool:
    if name is None:
        return True
    if pattern_type != PatternType.MATCH:
        return acl.resource_name == name
    if acl.pattern_type == PatternType.PREFIXED:
        return name.startswith(acl.resource_name)
    return acl.resource_name in (name, WILDCARD)
