"""`ottla acl`: access control lists (KIP-140).

The options are those of `kafka-acls`. `--producer` and `--consumer` are shorthands for the operations of such a client.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import IntEnum
from typing import Any, TypeVar

import click

from ottla.cli.command import (
    Group,
    complete_group,
    complete_topic,
    connection_options,
    counted,
    json_option,
    open_cluster,
    print_json,
    print_table,
)
from ottla.common.kafka.acl import CLUSTER_NAME, WILDCARD, Acl, AclOperation, PatternType, Permission, ResourceType

F = TypeVar("F", bound=Callable[..., Any])
Resource = tuple[ResourceType, str]

OPERATIONS = [
    operation.name.title().replace("_", "") for operation in AclOperation if operation is not AclOperation.ANY
]
_OPERATION = {name.lower(): AclOperation(number) for number, name in enumerate(OPERATIONS, AclOperation.ALL)}
_PATTERNS = {pattern.name.lower(): pattern for pattern in PatternType}

PRODUCER: Mapping[ResourceType, Sequence[AclOperation]] = {
    ResourceType.TOPIC: (AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.CREATE),
    ResourceType.TRANSACTIONAL_ID: (AclOperation.WRITE, AclOperation.DESCRIBE),
}
CONSUMER: Mapping[ResourceType, Sequence[AclOperation]] = {
    ResourceType.TOPIC: (AclOperation.READ, AclOperation.DESCRIBE),
    ResourceType.GROUP: (AclOperation.READ,),
}


@click.group(cls=Group)
def acl() -> None:
    """Manage access control lists (ACLs).

    ACLs take effect on brokers that set authorizer.class.name.
    """


def _resource_options(patterns: Iterable[str], default: str) -> Callable[[F], F]:
    """Options that select resources by type, name and pattern type."""
    options = (
        click.option(
            "--topic",
            "topics",
            multiple=True,
            metavar="NAME",
            shell_complete=complete_topic,
            help="Topic name; * for all topics.",
        ),
        click.option(
            "--group",
            "groups",
            multiple=True,
            metavar="NAME",
            shell_complete=complete_group,
            help="Group id; * for all groups.",
        ),
        click.option("--transactional-id", "transactional_ids", multiple=True, metavar="NAME", help="Id; * for all."),
        click.option("--cluster", is_flag=True, help="The cluster resource."),
        click.option(
            "--resource-pattern-type",
            "pattern",
            type=click.Choice(list(patterns), case_sensitive=False),
            default=default,
            show_default=True,
            help="Pattern type of the resource names.",
        ),
    )
    return _all_of(options)


def _entry_options(function: F) -> F:
    """Options for the principals, hosts and operations of ACLs."""
    return _all_of(
        (
            click.option(
                "--allow-principal", multiple=True, metavar="User:NAME", help="Principal to allow; User:* for all."
            ),
            click.option("--deny-principal", multiple=True, metavar="User:NAME", help="Principal to deny."),
            click.option(
                "--allow-host", multiple=True, metavar="ADDRESS", help="Client address to allow  [default: all]"
            ),
            click.option(
                "--deny-host", multiple=True, metavar="ADDRESS", help="Client address to deny  [default: all]"
            ),
            click.option(
                "--operation",
                "operations",
                multiple=True,
                type=click.Choice(OPERATIONS, case_sensitive=False),
                help="Operation; may be repeated  [default: All]",
            ),
            click.option(
                "--producer",
                is_flag=True,
                help="Write, Describe and Create on --topic; Write and Describe on --transactional-id.",
            ),
            click.option("--consumer", is_flag=True, help="Operations of a consumer on --topic and --group."),
        )
    )(function)


def _all_of(options: Sequence[Callable[[F], F]]) -> Callable[[F], F]:
    def decorate(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


@acl.command(
    "add",
    examples=(
        "ottla acl add --allow-principal User:alice --operation Read --operation Write --topic clicks",
        "ottla acl add --allow-principal User:app --producer --topic clicks --transactional-id app-1",
        "ottla acl add --allow-principal User:app --consumer --topic a. --group a. --resource-pattern-type prefixed",
        "ottla acl add --deny-principal 'User:*' --deny-host 10.0.0.0/8 --topic '*'",
    ),
)
@_entry_options
@_resource_options(("literal", "prefixed"), "literal")
@json_option
@connection_options
def add(as_json: bool, bootstrap_server: str, **options: Any) -> None:
    """Add ACLs.

    ACLs that already exist are left unchanged.
    """
    acls = list(_acls(**options))
    with open_cluster(bootstrap_server) as cluster:
        cluster.acls.create(acls)
    if as_json:
        _print(acls, as_json=True)
    else:
        click.echo(f"Added {counted(len(acls), 'ACL')}.")


@acl.command(
    "list",
    examples=(
        "ottla acl list",
        "ottla acl list --topic clicks --resource-pattern-type match",
        "ottla acl list --principal User:alice --json",
    ),
)
@click.option("--principal", "principals", multiple=True, metavar="User:NAME", help="Only ACLs of this principal.")
@_resource_options(_PATTERNS, "any")
@json_option
@connection_options
def list_(principals: tuple[str, ...], pattern: str, as_json: bool, bootstrap_server: str, **resources: Any) -> None:
    """List ACLs.

    Optionally filtered by resource and principal. With --resource-pattern-type match: every ACL that applies to the
    resource name.
    """
    from ottla.client.admin.acls import AclFilter

    named: Sequence[tuple[int, str | None]] = _resources(**resources) or [(ResourceType.ANY, None)]
    found: set[Acl] = set()
    with open_cluster(bootstrap_server) as cluster:
        for (kind, name), principal in itertools.product(named, principals or (None,)):
            found.update(cluster.acls.find(AclFilter(kind, name, _PATTERNS[pattern.lower()], principal)))
    _print(sorted(found), as_json=as_json)


@acl.command(
    "remove",
    examples=(
        "ottla acl remove --allow-principal User:alice --operation Write --topic clicks",
        "ottla acl remove --allow-principal User:app --producer --topic clicks --yes",
        "ottla acl remove --topic clicks --resource-pattern-type any --yes",
    ),
)
@_entry_options
@_resource_options(_PATTERNS, "literal")
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@json_option
@connection_options
def remove(yes: bool, as_json: bool, bootstrap_server: str, **options: Any) -> None:
    """Remove ACLs.

    With --allow-principal or --deny-principal, select ACLs as for add; without them, remove all ACLs of the resources.
    """
    from ottla.client.admin.acls import AclFilter

    if options["allow_principal"] or options["deny_principal"]:
        filters = [AclFilter(*each) for each in _acls(**options)]
    else:
        _refuse_without_principal(**options)
        pattern = _PATTERNS[options["pattern"].lower()]
        resources = _resources(**{name: options[name] for name in ("topics", "groups", "transactional_ids", "cluster")})
        filters = [AclFilter(kind, name, pattern) for kind, name in resources]
    if not filters:
        raise click.UsageError("no resource: give --topic, --group, --transactional-id or --cluster")
    with open_cluster(bootstrap_server) as cluster:
        if not yes and sys.stdin.isatty():
            meant = {each for wanted in filters for each in cluster.acls.find(wanted)}
            click.confirm(f"Remove {counted(len(meant), 'ACL')}?", abort=True)
        removed = cluster.acls.delete(filters)
    if as_json:
        _print(removed, as_json=True)
    else:
        click.echo(f"Removed {counted(len(removed), 'ACL')}.")


def _refuse_without_principal(**options: Any) -> None:
    """Raises UsageError for entry options without a principal, where all entries of the resources are selected."""
    given = [name for name in ("allow_host", "deny_host", "operations", "producer", "consumer") if options[name]]
    if given:
        raise click.UsageError("no principal: give --allow-principal or --deny-principal, or only resources")


def _resources(
    topics: Sequence[str], groups: Sequence[str], transactional_ids: Sequence[str], cluster: bool
) -> list[Resource]:
    named: list[Resource] = [(ResourceType.TOPIC, name) for name in topics]
    named += [(ResourceType.GROUP, name) for name in groups]
    named += [(ResourceType.TRANSACTIONAL_ID, name) for name in transactional_ids]
    return named + ([(ResourceType.CLUSTER, CLUSTER_NAME)] if cluster else [])


def _acls(
    *,
    allow_principal: Sequence[str],
    deny_principal: Sequence[str],
    allow_host: Sequence[str],
    deny_host: Sequence[str],
    operations: Sequence[str],
    producer: bool,
    consumer: bool,
    pattern: str,
    **resources: Any,
) -> Iterable[Acl]:
    """The ACLs that the options of add select: every combination of principal, host, operation and resource."""
    if not allow_principal and not deny_principal:
        raise click.UsageError("no principal: give --allow-principal or --deny-principal")
    for hosts, principals, side in ((allow_host, allow_principal, "allow"), (deny_host, deny_principal, "deny")):
        if hosts and not principals:
            raise click.UsageError(f"--{side}-host needs --{side}-principal")
    if (producer or consumer) and (operations or deny_principal):
        raise click.UsageError(
            "--producer and --consumer imply the operations and allow them: omit --operation and --deny-principal"
        )
    rights = _rights(_resources(**resources), operations, producer=producer, consumer=consumer)
    entries = [
        (principal, host, Permission.ALLOW) for principal in allow_principal for host in allow_host or (WILDCARD,)
    ]
    entries += [(principal, host, Permission.DENY) for principal in deny_principal for host in deny_host or (WILDCARD,)]
    acls = []
    for (kind, name), operation in rights:
        # The cluster resource has a fixed name.
        meant = PatternType.LITERAL if kind is ResourceType.CLUSTER else _PATTERNS[pattern.lower()]
        acls += [Acl(kind, name, meant, principal, host, operation, side) for principal, host, side in entries]
    return acls


def _rights(
    resources: Sequence[Resource], operations: Sequence[str], *, producer: bool, consumer: bool
) -> list[tuple[Resource, AclOperation]]:
    """The distinct pairs of resource and operation."""
    if not resources:
        raise click.UsageError("no resource: give --topic, --group, --transactional-id or --cluster")
    if not producer and not consumer:
        wanted = [_OPERATION[name.lower()] for name in operations] or [AclOperation.ALL]
        return list(dict.fromkeys(itertools.product(resources, wanted)))
    kinds = {kind for kind, _ in resources}
    if ResourceType.TOPIC not in kinds:
        raise click.UsageError("--producer and --consumer need --topic")
    if consumer and ResourceType.GROUP not in kinds:
        raise click.UsageError("--consumer needs --group")
    rights: dict[tuple[Resource, AclOperation], None] = {}
    for role in [PRODUCER] * producer + [CONSUMER] * consumer:
        for resource in resources:
            rights.update(dict.fromkeys((resource, operation) for operation in role.get(resource[0], ())))
    unused = [name for kind, name in resources if not any(kind is each[0] for each, _ in rights)]
    if unused:
        raise click.UsageError(f"{unused[0]!r} is not used by --producer or --consumer")
    return list(rights)


def _print(acls: Sequence[Acl], *, as_json: bool) -> None:
    rows = [
        (
            _name(ResourceType, each.resource_type),
            each.resource_name,
            _name(PatternType, each.pattern_type),
            each.principal,
            each.host,
            _name(AclOperation, each.operation),
            _name(Permission, each.permission),
        )
        for each in acls
    ]
    columns = ("resource", "name", "pattern", "principal", "host", "operation", "permission")
    if as_json:
        print_json([dict(zip(columns, row, strict=True)) for row in rows])
    else:
        print_table(columns, rows)


def _name(kind: type[IntEnum], number: int) -> str:
    return kind(number).name.lower() if number in tuple(kind) else str(number)
