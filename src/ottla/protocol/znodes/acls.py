"""ACL znodes: one for each resource, with all of its ACLs, and change notifications."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ottla.common.kafka.acl import Acl, AclOperation, PatternType, Permission, ResourceType
from ottla.protocol.znodes.fields import Fields, encode
from ottla.protocol.znodes.paths import ACL_CHANGE, ACL_CHANGES, PREFIXED_ACL_CHANGES

RESOURCE_TYPES = {kind.shown: kind for kind in ResourceType if kind is not ResourceType.ANY}
"""Resource types by their names in paths."""
_OPERATIONS: Mapping[str, AclOperation] = {
    each.name.title().replace("_", ""): each for each in AclOperation if each is not AclOperation.ANY
}
_OPERATION_NAMES: Mapping[AclOperation, str] = {each: name for name, each in _OPERATIONS.items()}
_PERMISSIONS = {"Allow": Permission.ALLOW, "Deny": Permission.DENY}
_PERMISSION_NAMES = {each: name for name, each in _PERMISSIONS.items()}


def encode_acls(acls: Iterable[Acl]) -> bytes:
    """Encode all ACLs of one resource."""
    rows = [
        {
            "principal": acl.principal,
            "permissionType": _PERMISSION_NAMES[Permission(acl.permission)],
            "operation": _OPERATION_NAMES[AclOperation(acl.operation)],
            "host": acl.host,
        }
        for acl in acls
    ]
    return encode({"version": 1, "acls": rows})


def decode_acls(path: str, data: bytes, resource_type: int, pattern_type: int, resource_name: str) -> list[Acl]:
    """Decode the ACLs of the resource at `path`, without duplicates; raises ProtocolError."""
    if not data:
        return []
    acls = []
    for row in Fields.parsed(path, data, range(1, 2)).inners("acls"):
        principal = row.text("principal")
        operation = _OPERATIONS.get(row.text("operation"))
        permission = _PERMISSIONS.get(row.text("permissionType"))
        if ":" not in principal or operation is None or permission is None:
            raise row.wrong("principal, operation or permissionType")
        acls.append(Acl(resource_type, resource_name, pattern_type, principal, row.text("host"), operation, permission))
    return list(dict.fromkeys(acls))


def change_path(pattern_type: int) -> str:
    """Return the path prefix of notifications for this pattern type; prefixes exist since Apache Kafka 2.0
    (KIP-290)."""
    folder = ACL_CHANGES if pattern_type == PatternType.LITERAL else PREFIXED_ACL_CHANGES
    return f"{folder}/{ACL_CHANGE}"


def encode_acl_change(resource_type: int, pattern_type: int, resource_name: str) -> bytes:
    """Encode a change notification: plain text for a literal name, JSON for a prefix."""
    kind = ResourceType(resource_type).name
    if pattern_type == PatternType.LITERAL:
        return f"{kind}:{resource_name}".encode()
    return encode({"version": 1, "resourceType": kind, "name": resource_name, "patternType": "PREFIXED"})
