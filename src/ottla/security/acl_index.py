"""Index of ACLs by resource, principal, host and operation. No I/O; built from an image, then updated ACL by ACL.

The rules are those of Apache Kafka's StandardAuthorizer (KIP-11, KIP-290, KIP-801, KIP-1276):
- A denying ACL overrides all allowing ones.
- An allowed operation may imply another; a denied one implies nothing.
- A resource without matching ACLs gets the default decision; with one, only operations that an ACL allows or implies.

Unlike Kafka, addresses are compared in canonical form, so an ACL for ::1 matches every spelling of that address.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import NamedTuple

from ottla.common.kafka.acl import (
    ANY_USER,
    WILDCARD,
    Acl,
    AclOperation,
    PatternType,
    Permission,
    ResourceType,
)
from ottla.common.platform.endpoint import canonical_host

_IMPLIES_DESCRIBE = frozenset(
    {AclOperation.DESCRIBE, AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER}
)
_IMPLIES_DESCRIBE_CONFIGS = frozenset({AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS})

MatchesHost = Callable[[str], bool]


class Decision(NamedTuple):
    """A decision and the ACL that caused it."""

    allowed: bool
    acl: Acl | None
    """None: the default decided, or no ACL allows the operation."""


class _Rule(NamedTuple):
    acl: Acl
    allows: bool
    principal: str
    matches_host: MatchesHost | None
    """None: every host of its key."""
    operations: frozenset[int] | None
    """Operations that the rule covers; None: all."""

    def matches(self, principal: str, host: str, operation: int) -> bool:
        return (
            self.principal in (principal, ANY_USER)
            and (self.operations is None or operation in self.operations)
            and (self.matches_host is None or self.matches_host(host))
        )


class _Rules:
    """The rules of one pattern by principal: a lookup reads those of one principal and of the wildcard."""

    __slots__ = ("by_client",)

    def __init__(self) -> None:
        self.by_client: dict[tuple[str, str], list[_Rule]] = {}
        """By principal and host; rules for networks or all hosts are under `WILDCARD`."""

    def add(self, rule: _Rule) -> None:
        key = rule.principal, _host_key(rule.acl.host)
        rules = self.by_client.get(key)
        if rules is None:
            self.by_client[key] = [rule]
        else:
            rules.append(rule)

    def remove(self, acl: Acl) -> None:
        key = acl.principal, _host_key(acl.host)
        rules = self.by_client[key]
        rules.remove(next(rule for rule in rules if rule.acl == acl))
        if not rules:
            del self.by_client[key]

    def candidates(self, principal: str, host: str) -> Iterator[_Rule]:
        """Rules that may match a principal on a host."""
        find = self.by_client.get
        yield from find((principal, WILDCARD), ())
        yield from find((principal, host), ())
        if principal != ANY_USER:
            yield from find((ANY_USER, WILDCARD), ())
            yield from find((ANY_USER, host), ())


def _host_key(host: str) -> str:
    return WILDCARD if host == WILDCARD or "/" in host else canonical_host(host)


class AclIndex:
    """The ACLs of one image, indexed for lookup."""

    __slots__ = ("_lengths", "_literal", "_of_type", "_prefix_lengths", "_prefixed")

    def __init__(self, acls: Iterable[Acl]) -> None:
        self._literal: dict[tuple[int, str], _Rules] = {}
        self._prefixed: dict[tuple[int, str], _Rules] = {}
        self._prefix_lengths: dict[int, list[int]] = {}
        """Distinct prefix lengths by resource type."""
        self._lengths: dict[int, dict[int, int]] = {}
        """Number of patterns by resource type and length."""
        self._of_type: dict[int, _Rules] = {}
        for acl in acls:
            self._add(acl)
        for resource_type in self._lengths:
            self._sort_lengths(resource_type)

    def add(self, acl: Acl) -> None:
        """Add an ACL."""
        self._add(acl)
        if acl.pattern_type == PatternType.PREFIXED:
            self._sort_lengths(acl.resource_type)

    def remove(self, acl: Acl) -> None:
        """Remove an ACL that was added."""
        patterns = self._patterns(acl.pattern_type)
        if patterns is None:
            return
        key = acl.resource_type, acl.resource_name
        patterns[key].remove(acl)
        self._of_type[acl.resource_type].remove(acl)
        if patterns[key].by_client:
            return
        del patterns[key]
        if acl.pattern_type == PatternType.PREFIXED:
            lengths = self._lengths[acl.resource_type]
            lengths[len(acl.resource_name)] -= 1
            if not lengths[len(acl.resource_name)]:
                del lengths[len(acl.resource_name)]
                self._sort_lengths(acl.resource_type)

    def _patterns(self, pattern_type: int) -> dict[tuple[int, str], _Rules] | None:
        if pattern_type == PatternType.LITERAL:
            return self._literal
        return self._prefixed if pattern_type == PatternType.PREFIXED else None

    def _add(self, acl: Acl) -> None:
        patterns = self._patterns(acl.pattern_type)
        if patterns is None:
            return
        key = acl.resource_type, acl.resource_name
        rules = patterns.get(key)
        if rules is None:
            rules = patterns[key] = _Rules()
            if patterns is self._prefixed:
                lengths = self._lengths.setdefault(acl.resource_type, {})
                lengths[len(acl.resource_name)] = lengths.get(len(acl.resource_name), 0) + 1
        rule = _rule(acl)
        rules.add(rule)
        of_type = self._of_type.get(acl.resource_type)
        if of_type is None:
            of_type = self._of_type[acl.resource_type] = _Rules()
        of_type.add(rule)

    def _sort_lengths(self, resource_type: int) -> None:
        self._prefix_lengths[resource_type] = sorted(self._lengths[resource_type])

    def _matching(self, resource_type: int, name: str) -> Iterator[_Rules]:
        """The rules of all patterns that match a resource."""
        for key in dict.fromkeys(((resource_type, name), (resource_type, WILDCARD))):
            rules = self._literal.get(key)
            if rules is not None:
                yield rules
        for length in self._prefix_lengths.get(resource_type, ()):
            if length > len(name):
                break
            rules = self._prefixed.get((resource_type, name[:length]))
            if rules is not None:
                yield rules

    def decide(
        self, principal: str, host: str, operation: int, resource_type: int, name: str, *, default: bool
    ) -> Decision:
        """Whether `principal` may do this; `default` if no ACL matches the resource.

        `host` must be canonical (`canonical_host`).
        """
        found = False
        allowing: Acl | None = None
        for rules in self._matching(resource_type, name):
            found = True
            for rule in rules.candidates(principal, host):
                if rule.allows and allowing is not None:
                    continue
                if rule.matches(principal, host, operation):
                    if not rule.allows:
                        return Decision(False, rule.acl)
                    allowing = rule.acl
        if allowing is not None:
            return Decision(True, allowing)
        return Decision(default and not found, None)

    def allows_any(self, principal: str, host: str, operation: AclOperation, resource_type: ResourceType) -> bool:
        """Whether an ACL allows `principal` the operation on any resource of that type.

        `host` must be canonical. As in Apache Kafka, implied operations do not count, and neither do patterns that are
        denied entirely.
        """
        of_type = self._of_type.get(resource_type)
        rules = [
            rule
            for rule in (() if of_type is None else of_type.candidates(principal, host))
            if rule.acl.operation in (operation, AclOperation.ALL) and rule.matches(principal, host, operation)
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
    """Whether a denied pattern covers the whole pattern."""
    if pattern_type == PatternType.LITERAL and (PatternType.LITERAL, name) in denied:
        return True
    return any((PatternType.PREFIXED, name[:length]) in denied for length in range(1, len(name) + 1))


def _rule(acl: Acl) -> _Rule:
    allows = acl.permission == Permission.ALLOW
    return _Rule(acl, allows, acl.principal, _host_matcher(acl.host), _operations(acl.operation, allows=allows))


@lru_cache(maxsize=64)
def _operations(operation: int, *, allows: bool) -> frozenset[int] | None:
    if operation == AclOperation.ALL:
        return None
    operations = {operation}
    if allows and operation in _IMPLIES_DESCRIBE:
        operations.add(AclOperation.DESCRIBE)
    if allows and operation in _IMPLIES_DESCRIBE_CONFIGS:
        operations.add(AclOperation.DESCRIBE_CONFIGS)
    return frozenset(operations)


def _host_matcher(host: str) -> MatchesHost | None:
    """A matcher of `canonical_host` results, for a network; single addresses are found by their key."""
    if "/" not in host:
        return None
    from ipaddress import ip_address, ip_network  # imported here, since a start without ACLs does not need it

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
