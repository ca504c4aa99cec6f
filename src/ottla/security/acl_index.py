"""Which ACLs speak of a resource, a principal, a host and an operation: pure, made once from the ACLs of an image.

The rules are those of Apache Kafka's StandardAuthorizer (KIP-11, KIP-290, KIP-801, KIP-1276): an ACL that denies wins
over all that allow; to allow an operation may imply another, to deny implies nothing; where no ACL speaks of a resource
a default decides, and where one does, only what is allowed by one is. Unlike there, addresses are compared as what they
stand for, so that an ACL for ::1 is good for whichever way a connection writes that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple

from ottla.common.acl import (
    EVERYBODY,
    WILDCARD,
    Acl,
    AclOperation,
    PatternType,
    Permission,
    ResourceType,
)

_IMPLIES_DESCRIBE = frozenset(
    {AclOperation.DESCRIBE, AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER}
)
_IMPLIES_DESCRIBE_CONFIGS = frozenset({AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS})

MatchesHost = Callable[[str], bool]


class Decision(NamedTuple):
    """What was decided, and by what."""

    allowed: bool
    acl: Acl | None
    """None: no ACL decided, but the default, or that no ACL allows it."""


class _Rule(NamedTuple):
    acl: Acl
    allows: bool
    principal: str
    matches_host: MatchesHost | None
    """None: every host."""
    operations: frozenset[int] | None
    """What it is about; None: everything."""

    def speaks_of(self, principal: str, host: str, operation: int) -> bool:
        return (
            self.principal in (principal, EVERYBODY)
            and (self.operations is None or operation in self.operations)
            and (self.matches_host is None or self.matches_host(host))
        )


class AclIndex:
    """The ACLs of one image. Never changes."""

    __slots__ = ("_literal", "_of_type", "_prefix_lengths", "_prefixed")

    def __init__(self, acls: Iterable[Acl]) -> None:
        self._literal: dict[tuple[int, str], list[_Rule]] = {}
        self._prefixed: dict[tuple[int, str], list[_Rule]] = {}
        self._prefix_lengths: dict[int, list[int]] = {}
        """By type of resource: how long prefixes are, each length once."""
        self._of_type: dict[int, list[_Rule]] = {}
        lengths: dict[int, set[int]] = {}
        for acl in acls:
            rule = _rule(acl)
            key = acl.resource_type, acl.resource_name
            if acl.pattern_type == PatternType.LITERAL:
                self._literal.setdefault(key, []).append(rule)
            elif acl.pattern_type == PatternType.PREFIXED:
                self._prefixed.setdefault(key, []).append(rule)
                lengths.setdefault(acl.resource_type, set()).add(len(acl.resource_name))
            else:
                continue
            self._of_type.setdefault(acl.resource_type, []).append(rule)
        self._prefix_lengths = {kind: sorted(each) for kind, each in lengths.items()}

    def _rules(self, resource_type: int, name: str) -> Iterator[_Rule]:
        """All that speak of a resource."""
        for key in dict.fromkeys(((resource_type, name), (resource_type, WILDCARD))):
            yield from self._literal.get(key, ())
        for length in self._prefix_lengths.get(resource_type, ()):
            if length > len(name):
                break
            yield from self._prefixed.get((resource_type, name[:length]), ())

    def decide(
        self, principal: str, host: str, operation: int, resource_type: int, name: str, *, default: bool
    ) -> Decision:
        """Whether `principal` may do this; `default` where no ACL speaks of the resource."""
        found = False
        allowing: Acl | None = None
        for rule in self._rules(resource_type, name):
            found = True
            if rule.allows and allowing is not None:
                continue
            if rule.speaks_of(principal, host, operation):
                if not rule.allows:
                    return Decision(False, rule.acl)
                allowing = rule.acl
        if allowing is not None:
            return Decision(True, allowing)
        return Decision(default and not found, None)

    def allows_any(self, principal: str, host: str, operation: AclOperation, resource_type: ResourceType) -> bool:
        """Whether there is a resource of that type with which `principal` may do this, by an ACL that says so.

        As Apache Kafka has it what is implied does not count, and neither does what is denied altogether.
        """
        rules = [
            rule
            for rule in self._of_type.get(resource_type, ())
            if rule.acl.operation in (operation, AclOperation.ALL) and rule.speaks_of(principal, host, operation)
        ]
        patterns: dict[bool, set[tuple[int, str]]] = {True: set(), False: set()}
        for rule in rules:
            patterns[rule.allows].add((rule.acl.pattern_type, rule.acl.resource_name))
        everything = (PatternType.LITERAL, WILDCARD)
        allowed, denied = patterns[True], patterns[False]
        if everything in denied:
            return False
        return everything in allowed or any(not _is_dominated(*pattern, denied) for pattern in allowed)


def _is_dominated(pattern_type: int, name: str, denied: set[tuple[int, str]]) -> bool:
    """Whether all that a pattern names is denied."""
    if pattern_type == PatternType.LITERAL and (PatternType.LITERAL, name) in denied:
        return True
    return any((PatternType.PREFIXED, name[:length]) in denied for length in range(1, len(name) + 1))


def _rule(acl: Acl) -> _Rule:
    allows = acl.permission == Permission.ALLOW
    return _Rule(acl, allows, acl.principal, _host_matcher(acl.host), _operations(acl.operation, allows=allows))


def _operations(operation: int, *, allows: bool) -> frozenset[int] | None:
    if operation == AclOperation.ALL:
        return None
    operations = {operation}
    if allows and operation in _IMPLIES_DESCRIBE:
        operations.add(AclOperation.DESCRIBE)
    if allows and operation in _IMPLIES_DESCRIBE_CONFIGS:
        operations.add(AclOperation.DESCRIBE_CONFIGS)
    return frozenset(operations)


@lru_cache(maxsize=1024)  # asked for each request
def canonical_host(host: str) -> str:
    """One form for each address; what is no address stays as it is."""
    from ipaddress import IPv6Address, ip_address  # here and below, since a start without ACLs does without it

    try:
        address = ip_address(host)
    except ValueError:
        return host
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(address)


def _host_matcher(host: str) -> MatchesHost | None:
    """Who compares a host that `canonical_host` gave."""
    if host == WILDCARD:
        return None
    if "/" not in host:
        return canonical_host(host).__eq__
    from ipaddress import ip_address, ip_network

    try:
        network = ip_network(host, strict=False)
    except ValueError:
        return lambda _host: False

    def is_in_network(client_host: str) -> bool:
        try:
            return ip_address(client_host) in network
        except ValueError:
            return False

    return is_in_network
