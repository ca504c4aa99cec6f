"""Decisions by ACLs: those of Apache Kafka's StandardAuthorizer."""

from __future__ import annotations

import itertools
import random

import pytest

from ottla.common.kafka.acl import Acl, AclOperation, PatternType, Permission, ResourceType
from ottla.common.platform.endpoint import canonical_host
from ottla.security.acl_index import AclIndex

ALICE, BOB = "User:alice", "User:bob"
HOST = "10.1.2.3"
TOPIC = ResourceType.TOPIC


def acl(
    name: str = "t",
    operation: AclOperation = AclOperation.READ,
    principal: str = ALICE,
    *,
    pattern: PatternType = PatternType.LITERAL,
    host: str = "*",
    permission: Permission = Permission.ALLOW,
    kind: ResourceType = TOPIC,
) -> Acl:
    return Acl(kind, name, pattern, principal, host, operation, permission)


def allowed(
    *acls: Acl,
    operation: AclOperation = AclOperation.READ,
    name: str = "t",
    principal: str = ALICE,
    host: str = HOST,
    default: bool = False,
) -> bool:
    return AclIndex(acls).decide(principal, host, operation, TOPIC, name, default=default).allowed


@pytest.mark.parametrize(
    ("pattern", "name", "matches"),
    [
        (PatternType.LITERAL, "logs.a", True),
        (PatternType.LITERAL, "logs", False),
        (PatternType.LITERAL, "*", True),
        (PatternType.PREFIXED, "logs", True),
        (PatternType.PREFIXED, "logs.a", True),
        (PatternType.PREFIXED, "logs.ab", False),
        (PatternType.PREFIXED, "l", True),
        (PatternType.PREFIXED, "*", False),
        (PatternType.MATCH, "logs.a", False),
    ],
)
def test_patterns(pattern: PatternType, name: str, matches: bool) -> None:
    assert allowed(acl(name, pattern=pattern), name="logs.a") is matches


def test_acl_applies_to_its_resource_type_only() -> None:
    assert not allowed(acl(kind=ResourceType.GROUP))
    assert not allowed(acl("t", pattern=PatternType.PREFIXED, kind=ResourceType.GROUP))


def test_deny_overrides_allow_in_any_order() -> None:
    denying = [
        acl(permission=Permission.DENY),
        acl("*", permission=Permission.DENY),
        acl("t", pattern=PatternType.PREFIXED, permission=Permission.DENY),
        acl(operation=AclOperation.ALL, permission=Permission.DENY),
        acl(principal="User:*", permission=Permission.DENY),
        acl(host=HOST, permission=Permission.DENY),
    ]
    for one in denying:
        for order in itertools.permutations([one, acl(), acl("*")]):
            assert not allowed(*order)
    assert allowed(
        acl(), acl(permission=Permission.DENY, host="10.9.9.9"), acl(principal=BOB, permission=Permission.DENY)
    )


@pytest.mark.parametrize("held", AclOperation)
@pytest.mark.parametrize("asked", AclOperation)
def test_implied_operations(held: AclOperation, asked: AclOperation) -> None:
    describe = (AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER)
    implied = (
        held in (asked, AclOperation.ALL)
        or (asked is AclOperation.DESCRIBE and held in describe)
        or (asked is AclOperation.DESCRIBE_CONFIGS and held is AclOperation.ALTER_CONFIGS)
    )
    assert allowed(acl(operation=held), operation=asked) is implied
    # A denied operation implies nothing.
    denied = not allowed(
        acl(operation=AclOperation.ALL), acl(operation=held, permission=Permission.DENY), operation=asked
    )
    assert denied is (held in (asked, AclOperation.ALL))


def test_default_applies_to_resources_without_acls() -> None:
    assert allowed(default=True)
    assert allowed(acl("other"), default=True)
    for speaking in (
        acl(principal=BOB),
        acl("*", principal=BOB),
        acl("t", principal=BOB, pattern=PatternType.PREFIXED),
    ):
        assert not allowed(speaking, default=True)
    assert not allowed(acl(host="10.9.9.9"), default=True)
    assert not allowed(default=False)


@pytest.mark.parametrize(
    ("host", "client", "matches"),
    [
        ("*", HOST, True),
        (HOST, HOST, True),
        ("10.1.2.4", HOST, False),
        ("10.1.0.0/16", HOST, True),
        ("10.1.2.3/16", HOST, True),
        ("10.2.0.0/16", HOST, False),
        ("10.1.2.3/32", HOST, True),
        ("0.0.0.0/0", HOST, True),
        ("10.1.0.0/33", HOST, False),
        ("10.1.0.0/x", HOST, False),
        ("2001:db8::/32", "2001:db8:1::1", True),
        ("2001:db8::/32", "2001:db9::1", False),
        ("2001:db8::/32", HOST, False),
        ("::1", "0:0:0:0:0:0:0:1", True),
        (HOST, "::ffff:10.1.2.3", True),
        ("10.0.0.0/8", "::ffff:10.1.2.3", True),
        ("fe80::1%eth0", "fe80::1", True),
        ("example.com", HOST, False),
        ("10.0.0.0/8", "no-address", False),
    ],
)
def test_hosts(host: str, client: str, matches: bool) -> None:
    assert allowed(acl(host=host), host=canonical_host(client)) is matches


def test_wildcard_principal_is_a_separate_entry() -> None:
    assert allowed(acl(principal="User:*"))
    assert not allowed(acl(principal="User:*x"))
    assert not allowed(acl(principal="Group:alice"))


def brute(acls: list[Acl], name: str, operation: AclOperation, *, default: bool) -> bool:
    """The examples of KIP-290, one ACL after the other."""
    speaking = [
        each
        for each in acls
        if (each.pattern_type == PatternType.LITERAL and each.resource_name in (name, "*"))
        or (each.pattern_type == PatternType.PREFIXED and name.startswith(each.resource_name))
    ]
    mine = [
        each
        for each in speaking
        if each.principal in (ALICE, "User:*") and each.operation in (operation, AclOperation.ALL)
    ]
    if any(each.permission == Permission.DENY for each in mine):
        return False
    return bool(mine) or (default and not speaking)


def test_an_index_decides_as_a_walk_over_all_does() -> None:
    rng = random.Random(7)
    names = ["", "a", "ab", "abc", "abd", "b", "*", "bc"]
    for _ in range(300):
        acls = [
            acl(
                rng.choice(names[1:]),
                rng.choice([AclOperation.WRITE, AclOperation.CREATE, AclOperation.ALL]),
                rng.choice([ALICE, BOB, "User:*"]),
                pattern=rng.choice([PatternType.LITERAL, PatternType.PREFIXED]),
                permission=rng.choice([Permission.ALLOW, Permission.ALLOW, Permission.DENY]),
            )
            for _ in range(rng.randrange(6))
        ]
        index = AclIndex(acls)
        for name, default in itertools.product(names, (True, False)):
            found = index.decide(ALICE, HOST, AclOperation.WRITE, TOPIC, name, default=default)
            assert found.allowed is brute(acls, name, AclOperation.WRITE, default=default), (acls, name)


@pytest.mark.parametrize(
    ("acls", "any_topic"),
    [
        ((), False),
        ((acl(operation=AclOperation.WRITE),), True),
        ((acl(operation=AclOperation.ALL),), True),
        ((acl(operation=AclOperation.READ),), False),
        ((acl(operation=AclOperation.WRITE, principal=BOB),), False),
        ((acl(operation=AclOperation.WRITE, host="10.9.9.9"),), False),
        ((acl(operation=AclOperation.WRITE, kind=ResourceType.GROUP),), False),
        ((acl(operation=AclOperation.WRITE), acl(operation=AclOperation.WRITE, permission=Permission.DENY)), False),
        (
            (
                acl("team.a", AclOperation.WRITE),
                acl("team", AclOperation.WRITE, pattern=PatternType.PREFIXED, permission=Permission.DENY),
            ),
            False,
        ),
        (
            (
                acl("team", AclOperation.WRITE, pattern=PatternType.PREFIXED),
                acl("team.a", AclOperation.WRITE, pattern=PatternType.PREFIXED, permission=Permission.DENY),
            ),
            True,
        ),
        *(
            (
                (
                    acl("team", AclOperation.WRITE, pattern=allowed_by),
                    acl("team", AclOperation.WRITE, pattern=denied_by, permission=Permission.DENY),
                ),
                allowed_by == PatternType.PREFIXED and denied_by == PatternType.LITERAL,
            )
            for allowed_by in (PatternType.LITERAL, PatternType.PREFIXED)
            for denied_by in (PatternType.LITERAL, PatternType.PREFIXED)
        ),
        ((acl("*", AclOperation.WRITE), acl("t", AclOperation.WRITE, permission=Permission.DENY)), True),
        ((acl("t", AclOperation.WRITE), acl("*", AclOperation.WRITE, permission=Permission.DENY)), False),
    ],
)
def test_any_resource_of_a_type(acls: tuple[Acl, ...], any_topic: bool) -> None:
    assert AclIndex(acls).allows_any(ALICE, HOST, AclOperation.WRITE, TOPIC) is any_topic


@pytest.mark.parametrize("seed", range(8))
def test_an_index_that_is_changed_decides_as_a_new_one(seed: int) -> None:
    rng = random.Random(seed)
    every = [
        acl(name, operation, principal, pattern=pattern, host=host, permission=permission)
        for name in ("a", "b", "ab", "abc")
        for operation in (AclOperation.READ, AclOperation.WRITE)
        for principal in (ALICE, "User:*")
        for pattern in (PatternType.LITERAL, PatternType.PREFIXED)
        for host in (HOST, "*")
        for permission in (Permission.ALLOW, Permission.DENY)
    ]
    kept = set(rng.sample(every, 10))
    index = AclIndex(kept)
    for _ in range(40):
        changed = rng.choice(sorted(kept)) if kept and rng.random() < 0.6 else rng.choice(every)
        if changed in kept:
            kept.remove(changed)
            index.remove(changed)
        else:
            kept.add(changed)
            index.add(changed)
        fresh = AclIndex(kept)
        for name, operation, host in itertools.product(
            ("a", "b", "ab", "abcd", "x"), (AclOperation.READ, AclOperation.WRITE), (HOST, "10.0.0.9")
        ):
            asked = (ALICE, host, operation, TOPIC, name)
            assert index.decide(*asked, default=True).allowed == fresh.decide(*asked, default=True).allowed, (
                f"{asked} after {changed}, with {kept}"
            )


def test_any_resource_check_needs_exact_host_and_operation() -> None:
    def any_topic(*acls: Acl) -> bool:
        return AclIndex(acls).allows_any(ALICE, HOST, AclOperation.DESCRIBE, TOPIC)

    assert any_topic(acl(operation=AclOperation.DESCRIBE, host=HOST))
    assert not any_topic(acl(operation=AclOperation.DESCRIBE, host="10.0.0.9"))
    assert not any_topic(acl(operation=AclOperation.READ))  # which implies it
    for name in ("abc", "abcd"):
        denied = acl(name, AclOperation.DESCRIBE, pattern=PatternType.PREFIXED, permission=Permission.DENY)
        assert not any_topic(acl(name, AclOperation.DESCRIBE), denied)
        assert any_topic(acl("x", AclOperation.DESCRIBE), denied)
