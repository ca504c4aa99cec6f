"""`ottla acl` against a broker with an authorizer."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ottla.cli.acl import acl
from ottla.common.kafka.acl import ANONYMOUS

CONFIGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": ANONYMOUS,
}


def listed(run: Any, *arguments: str) -> list[tuple[str, ...]]:
    rows = json.loads(run(acl, "list", *arguments, "--json").output)
    return [tuple(row.values()) for row in rows]


def test_acls_are_added_listed_and_removed(run: Any) -> None:
    run(acl, "add", "--allow-principal", "User:a", "--operation", "Read", "--operation", "write", "--topic", "one")
    of_all = ("--deny-principal", "User:*", "--deny-host", "10.0.0.1", "--resource-pattern-type", "prefixed")
    run(acl, "add", *of_all, "--topic", "o")
    read = ("topic", "one", "literal", "User:a", "*", "read", "allow")
    write = ("topic", "one", "literal", "User:a", "*", "write", "allow")
    deny = ("topic", "o", "prefixed", "User:*", "10.0.0.1", "all", "deny")
    assert listed(run, "--topic", "one", "--resource-pattern-type", "match") == [deny, read, write]
    assert listed(run, "--topic", "one") == [read, write]
    assert listed(run, "--principal", "User:*") == [deny]
    assert listed(run, "--topic", "another", "--group", "one") == []
    table = run(acl, "list", "--topic", "one").output.splitlines()
    assert table[0].split() == ["RESOURCE", "NAME", "PATTERN", "PRINCIPAL", "HOST", "OPERATION", "PERMISSION"]
    assert tuple(table[1].split()) == read
    removed = run(acl, "remove", "--allow-principal", "User:a", "--operation", "Write", "--topic", "one")
    assert removed.output == "Removed 1 ACL.\n"
    assert listed(run, "--topic", "one") == [read]
    rest = run(acl, "remove", "--topic", "one", "--topic", "o", "--resource-pattern-type", "any", "--yes", "--json")
    assert len(json.loads(rest.output)) == 2
    assert listed(run) == []


def test_producer_and_consumer_options_expand_to_operations(run: Any) -> None:
    producer = ("--allow-principal", "User:p", "--producer", "--topic", "t", "--transactional-id", "x")
    assert run(acl, "add", *producer).output == "Added 5 ACLs.\n"
    assert {(row[0], row[5]) for row in listed(run, "--principal", "User:p")} == {
        ("topic", "write"),
        ("topic", "describe"),
        ("topic", "create"),
        ("transactional_id", "write"),
        ("transactional_id", "describe"),
    }
    run(acl, "remove", *producer, "--yes")
    consumer = ("--allow-principal", "User:c", "--consumer", "--topic", "t", "--group", "g")
    run(acl, "add", *consumer)
    assert {(row[0], row[5]) for row in listed(run)} == {("topic", "read"), ("topic", "describe"), ("group", "read")}
    run(acl, "remove", *consumer, "--yes")
    run(acl, "add", "--allow-principal", "User:c", "--operation", "ClusterAction", "--cluster")
    assert listed(run) == [("cluster", "kafka-cluster", "literal", "User:c", "*", "cluster_action", "allow")]
    run(acl, "remove", "--cluster", "--yes")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("add", "--topic", "t"), "--allow-principal"),
        (("add", "--allow-principal", "User:a"), "--topic"),
        (("add", "--allow-principal", "User:a", "--deny-host", "h", "--topic", "t"), "--deny-principal"),
        (("add", "--allow-principal", "User:a", "--producer", "--topic", "t", "--operation", "Read"), "--operation"),
        (("add", "--allow-principal", "User:a", "--consumer", "--topic", "t"), "--group"),
        (("add", "--allow-principal", "User:a", "--producer", "--group", "g"), "--topic"),
        (("add", "--allow-principal", "User:a", "--producer", "--topic", "t", "--group", "g"), "'g'"),
        (("remove", "--topic", "t", "--operation", "Read"), "--allow-principal"),
        (("remove",), "--topic"),
    ],
)
def test_invalid_option_combinations_are_usage_errors(run: Any, arguments: tuple[str, ...], words: str) -> None:
    result = run(acl, *arguments, exit_code=2)
    assert words in result.output
    assert listed(run) == []


def test_broker_rejection_prints_one_line(run: Any) -> None:
    result = run(acl, "add", "--allow-principal", "alice", "--topic", "t", exit_code=1)
    assert result.stderr.startswith("ottla: ACL for alice on 't': Could not parse principal")
    assert listed(run) == []
