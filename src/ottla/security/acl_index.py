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

from ottla.common.kafka.acl import (
    EVERYBODY,
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
    """What was decided, and by what."""

    allowed: bool
    acl: Acl | None
    """None: no ACL decided, but the default, or that no ACL allows it."""


class _Rule(NamedTuple):
    acl: Acl
    allows: bool
    principal: str
    matches_host: MatchesHost | None
    """None: every host of its key."""
    operations: frozenset[int] | None
    """What it is about; None: everything."""

    def speaks_of(self, principal: str, host: str, operation: int) -> bool:
        return (
            self.principal in (principal, EVERYBODY)
            and (self.operations is None or operation in self.operations)
            and (self.matches_host is None or self.matches_host(host))
        )


class _Rules:
    """The rules of one pattern, by whom they speak of: a question looks at those of one principal and of everybody."""

    __slots__ = ("by_client",)

    def __init__(self) -> None:
        self.by_client: dict[tuple[str, str], list[_Rule]] = {}
        """By principal and host; all that are not one address are under `WILDCARD`."""

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

    def that_speak_of(self, principal: str, host: str) -> Iterator[_Rule]:
        """Rules that may speak of a principal on a host."""
        find = self.by_client.get
        yield from find((principal, WILDCARD), ())
        yield from find((principal, host), ())
        if principal != EVERYBODY:
            yield from find((EVERYBODY, WILDCARD), ())
            yield from find((EVERYBODY, host), ())


def _host_key(host: str) -> str:
    return WILDCARD if host == WILDCARD or "/" in host else canonical_host(host)


class AclIndex:
    """The ACLs of one image, found without looking at all of them. Changes with them, one by one."""

    __slots__ = ("_lengths", "_literal", "_of_type", "_prefix_lengths", "_prefixed")

    def __init__(self, acls: Iterable[Acl]) -> None:
        self._literal: dict[tuple[int, str], _Rules] = {}
        self._prefixed: dict[tuple[int, str], _Rules] = {}
        self._prefix_lengths: dict[int, list[int]] = {}
        """By type of resource: how long prefixes are, each length once."""
        self._lengths: dict[int, dict[int, int]] = {}
        """By type of resource and length: how many patterns have that."""
        self._of_type: dict[int, _Rules] = {}
        for acl in acls:
            self._add(acl)
        for resource_type in self._lengths:
            self._sort_lengths(resource_type)

    def add(self, acl: Acl) -> None:
        """One more ACL."""
        self._add(acl)
        if acl.pattern_type == PatternType.PREFIXED:
            self._sort_lengths(acl.resource_type)

    def remove(self, acl: Acl) -> None:
        """One that was added is no more."""
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
        """The rules of all patterns that a resource matches."""
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
        """Whether `principal` may do this; `default` where no ACL speaks of the resource."""
        found = False
        allowing: Acl | None = None
        for rules in self._matching(resource_type, name):
            found = True
            for rule in rules.that_speak_of(principal, host):
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
        of_type = self._of_type.get(resource_type)
        rules = [
            rule
            for rule in (() if of_type is None else of_type.that_speak_of(principal, host))
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
    """Who compares a host that `canonical_host` gave, for a network; one address is found by its key."""
    if "/" not in host:
        return None
    from ipaddress import ip_address, ip_network  # here, since a start without ACLs does without it

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
