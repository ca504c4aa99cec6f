"""Authorizer of a node: super users, then the ACLs of the newest metadata; denials and changes are audited.

Configured as Apache Kafka's `org.apache.kafka.metadata.authorizer.StandardAuthorizer` (KIP-801), with its settings
and its logger name for the audit log. Decisions are cached as long as the ACLs stay the same.

Invariant: without metadata only super users are allowed anything. A cluster's controllers elect a leader, and
its brokers register, before they know the ACLs, so their principals have to be super users, as in Apache Kafka.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence

from ottla.common.kafka.acl import Acl, AclOperation, PatternType, Permission, ResourceType
from ottla.common.kafka.ids import Uuid
from ottla.common.logs import AUDIT_LOGGER, RATE_LIMITED
from ottla.common.platform.endpoint import canonical_host
from ottla.security.acl_index import AclIndex, Decision

MAX_REMEMBERED = 16_384
"""Maximum of cached decisions; above it the cache is cleared. One takes about 300 bytes."""
MAX_LOGGED_CHANGES = 20
"""Maximum of ACLs of one request in the audit log; the rest is counted."""
MAX_SHOWN_CHARACTERS = 256
"""Maximum length of a client-chosen name in the audit log."""
MAX_CHANGES = 1024
"""With more differences between two images the index is rebuilt."""

_CHANGES = frozenset(
    {
        AclOperation.CREATE,
        AclOperation.DELETE,
        AclOperation.ALTER,
        AclOperation.ALTER_CONFIGS,
        AclOperation.CREATE_TOKENS,
    }
)
"""Operations of administrators that change something: audited also when allowed."""

_SUPER_USER = "SuperUser"

Key = tuple[str, str, AclOperation, ResourceType, str]


class StandardAuthorizer:
    """Decides by the rules of the cluster."""

    __slots__ = ("_acls", "_audit", "_default", "_index", "_indexed", "_remembered", "_remembered_any", "_super_users")

    def __init__(
        self, acls: Callable[[], Mapping[Uuid, Acl] | None], super_users: Collection[str], *, allow_without_acls: bool
    ) -> None:
        """`acls` returns those of the newest metadata, the same object while unchanged; None without metadata.

        `allow_without_acls`: resources without ACLs are open to all principals.
        """
        self._acls = acls
        self._audit = logging.getLogger(AUDIT_LOGGER)
        self._super_users = frozenset(super_users)
        self._default = allow_without_acls
        self._indexed: Mapping[Uuid, Acl] | None = None
        self._index = AclIndex(())
        self._remembered: dict[Key, Decision] = {}
        self._remembered_any: dict[tuple[str, str, AclOperation, ResourceType], bool] = {}

    def allows(
        self,
        principal: str,
        client_host: str,
        operation: AclOperation,
        resource_type: ResourceType,
        name: str,
        *,
        request: str,
        audit: bool = True,
    ) -> bool:
        """Whether `principal` ("User:name") may do this from `client_host`, in a request of that name.

        `audit`: log a denial to the audit log. False for resources that the request does not name: in filters, and for
        the operations that responses describe.
        """
        if principal in self._super_users:
            if audit:
                self._audit_decision(
                    Decision(True, None), (principal, client_host, operation, resource_type, name), request
                )
            return True
        if not self._is_current():
            return False
        key = principal, client_host, operation, resource_type, name
        decision = self._remembered.get(key)
        if decision is None:
            if len(self._remembered) >= MAX_REMEMBERED:
                self._remembered.clear()
            decision = self._remembered[key] = self._index.decide(
                principal, canonical_host(client_host), operation, resource_type, name, default=self._default
            )
        if audit:
            self._audit_decision(decision, key, request)
        return decision.allowed

    def allows_any(
        self, principal: str, client_host: str, operation: AclOperation, resource_type: ResourceType, *, request: str
    ) -> bool:
        """Whether `principal` may do this with any resource of a type (KIP-679)."""
        # A name without ACLs: allowed to super users, by the default, or by an ACL for every resource.
        if self.allows(principal, client_host, operation, resource_type, "hardcode", request=request, audit=False):
            return True
        if not self._is_current():
            return False
        key = principal, client_host, operation, resource_type
        allowed = self._remembered_any.get(key)
        if allowed is None:
            if len(self._remembered_any) >= MAX_REMEMBERED:
                self._remembered_any.clear()
            allowed = self._remembered_any[key] = self._index.allows_any(
                principal, canonical_host(client_host), operation, resource_type
            )
        return allowed

    def _is_current(self) -> bool:
        """Update the index to the newest ACLs; False without metadata."""
        acls = self._acls()
        if acls is not self._indexed:
            self._follow({} if self._indexed is None else self._indexed, {} if acls is None else acls)
            self._indexed = acls
            self._remembered.clear()
            self._remembered_any.clear()
        return acls is not None

    def _follow(self, before: Mapping[Uuid, Acl], acls: Mapping[Uuid, Acl]) -> None:
        """Replace the index's ACLs; few differences are applied one by one."""
        removed = [acl_id for acl_id, acl in before.items() if acls.get(acl_id) is not acl]
        added = [acl_id for acl_id, acl in acls.items() if before.get(acl_id) is not acl]
        if len(removed) + len(added) > MAX_CHANGES:
            self._index = AclIndex(acls.values())
            return
        for acl_id in removed:
            self._index.remove(before[acl_id])
        for acl_id in added:
            self._index.add(acls[acl_id])

    def _audit_decision(self, decision: Decision, key: Key, request: str) -> None:
        principal, client_host, operation, resource_type, name = key
        level = logging.INFO if not decision.allowed or operation in _CHANGES else logging.DEBUG
        if self._audit.isEnabledFor(level):
            self._audit.log(
                level,
                "Principal = %s is %s operation = %s from host = %s on resource = %s:LITERAL:%s for request = %s "
                "based on rule %s",
                _quoted(principal),
                "Allowed" if decision.allowed else "Denied",
                operation.name,
                client_host,
                resource_type.shown,
                _quoted(name),
                request,
                self._rule(decision, principal),
                extra=RATE_LIMITED,
            )

    def _rule(self, decision: Decision, principal: str) -> str:
        if decision.acl is not None:
            return f"MatchingAcl(acl={shown_acl(decision.acl)})"
        if decision.allowed:
            return _SUPER_USER if principal in self._super_users else "DefaultAllow"
        return "DefaultDeny"


def log_changes(principal: str, client_host: str, verb: str, acls: Sequence[Acl]) -> None:
    """Log to the audit log that `principal` "adds" or "removes" ACLs: the first ones, and the number of the rest."""
    log = logging.getLogger(AUDIT_LOGGER)
    for acl in acls[:MAX_LOGGED_CHANGES]:
        log.info("Principal = %s from host = %s %s %s", _quoted(principal), client_host, verb, shown_acl(acl))
    more = len(acls) - MAX_LOGGED_CHANGES
    if more > 0:
        log.info("Principal = %s from host = %s %s %d more ACLs", _quoted(principal), client_host, verb, more)


def shown_acl(acl: Acl) -> str:
    """One ACL as the audit log shows it."""
    return (
        f"StandardAcl(resourceType={_name(ResourceType, acl.resource_type)}, "
        f"resourceName={_quoted(acl.resource_name)}, patternType={_name(PatternType, acl.pattern_type)}, "
        f"principal={_quoted(acl.principal)}, host={_quoted(acl.host)}, "
        f"operation={_name(AclOperation, acl.operation)}, permissionType={_name(Permission, acl.permission)})"
    )


def _name(kind: type[AclOperation | ResourceType | PatternType | Permission], number: int) -> str:
    try:
        return kind(number).name
    except ValueError:
        return str(number)


def _quoted(text: str) -> str:
    """A client-chosen text without line breaks, which could forge or hide audit log lines."""
    if len(text) > MAX_SHOWN_CHARACTERS:
        text = text[:MAX_SHOWN_CHARACTERS] + "..."
    return text if text.isprintable() else ascii(text)[1:-1]
