"""`ottla quota`: limits of users, client ids and addresses (KIP-546)."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import click

from ottla.cli.command import Group, connection_options, json_option, open_cluster, print_json, print_table
from ottla.client.wire.model import ClientQuota

KINDS = ("user", "client-id", "ip")
LIMITS = {
    "producer-byte-rate": "Bytes a second that it may produce, to each broker.",
    "consumer-byte-rate": "Bytes a second that it may fetch, from each broker.",
    "request-percentage": "Percent of the time of each broker that its requests may take.",
    "controller-mutation-rate": "Partitions a second that it may make and delete.",
    "connection-creation-rate": "Connections a second from an address, to each broker.",
}
DEFAULT_WORD = "(default)"


@click.group(cls=Group)
def quota() -> None:
    """Set, describe and remove limits of users, client ids and addresses."""


def _entity_options(function: Callable[..., None]) -> Callable[..., None]:
    """Who is meant. The function gets `entity`: kinds and names, None for a default."""

    @functools.wraps(function)
    def told(
        *, user: str | None, client_id: str | None, ip: str | None, defaults: tuple[str, ...], **others: Any
    ) -> None:
        function(entity=_entity(user, client_id, ip, defaults), **others)

    for option in (
        click.option(
            "--default",
            "defaults",
            type=click.Choice(KINDS),
            multiple=True,
            help="All of this kind that have no limit of their own; may be repeated.",
        ),
        click.option("--ip", metavar="ADDRESS", help="Who connects from this address."),
        click.option("--client-id", metavar="NAME", help="Clients that call themselves so."),
        click.option("--user", metavar="NAME", help="Who is authenticated so; ANONYMOUS is everybody else."),
    ):
        option(told)
    return told


def _entity(
    user: str | None, client_id: str | None, ip: str | None, defaults: tuple[str, ...]
) -> dict[str, str | None]:
    entity: dict[str, str | None] = {
        kind: name for kind, name in zip(KINDS, (user, client_id, ip), strict=True) if name is not None
    }
    for kind in defaults:
        if kind in entity:
            raise click.UsageError(f"--{kind} and --default {kind} name two limits: give one of them")
        entity[kind] = None
    return entity


def _check_named(entity: dict[str, str | None]) -> None:
    if not entity:
        raise click.UsageError("nobody is named: give --user, --client-id, --ip or --default")


@quota.command(
    examples=(
        "ottla quota set --user alice --producer-byte-rate 10000000 --consumer-byte-rate 20000000",
        "ottla quota set --default user --request-percentage 50",
        "ottla quota set --default user --client-id reports --consumer-byte-rate 1000000",
        "ottla quota set --default ip --connection-creation-rate 20",
    )
)
@_entity_options
@click.option("--producer-byte-rate", type=float, metavar="NUMBER", help=LIMITS["producer-byte-rate"])
@click.option("--consumer-byte-rate", type=float, metavar="NUMBER", help=LIMITS["consumer-byte-rate"])
@click.option("--request-percentage", type=float, metavar="NUMBER", help=LIMITS["request-percentage"])
@click.option("--controller-mutation-rate", type=float, metavar="NUMBER", help=LIMITS["controller-mutation-rate"])
@click.option("--connection-creation-rate", type=float, metavar="NUMBER", help=LIMITS["connection-creation-rate"])
@json_option
@connection_options
def set(
    entity: dict[str, str | None],
    as_json: bool,
    bootstrap_server: str,
    **limits: float | None,
) -> None:
    """Set limits; those that aren't named stay. The most specific one holds, and a client is held to it at once."""
    _check_named(entity)
    changes: dict[str, float | None] = {key: value for key, value in limits.items() if value is not None}
    if not changes:
        raise click.UsageError("nothing to set: give a limit, such as --producer-byte-rate")
    with open_cluster(bootstrap_server) as cluster:
        cluster.alter_client_quotas(list(entity.items()), changes)
    if as_json:
        print_json({"entity": entity, "set": changes})
    else:
        click.echo(f"Set quotas of {_shown(entity)}.")


@quota.command(examples=("ottla quota describe", "ottla quota describe --user alice --json"))
@_entity_options
@json_option
@connection_options
def describe(
    entity: dict[str, str | None],
    as_json: bool,
    bootstrap_server: str,
) -> None:
    """Show the limits that are set, all or those that name what is given."""
    with open_cluster(bootstrap_server) as cluster:
        found = [each for each in cluster.client_quotas() if entity.items() <= each.entity.items()]
    if as_json:
        print_json([{"entity": each.entity, "limits": each.limits} for each in found])
        return
    print_table((*KINDS, "limit", "value"), [row for each in found for row in _rows(each)], right=("value",))


@quota.command(
    examples=(
        "ottla quota remove --user alice --producer-byte-rate",
        "ottla quota remove --default ip",
    )
)
@_entity_options
@click.option("--producer-byte-rate", is_flag=True, help="Only this limit; so the others.")
@click.option("--consumer-byte-rate", is_flag=True)
@click.option("--request-percentage", is_flag=True)
@click.option("--controller-mutation-rate", is_flag=True)
@click.option("--connection-creation-rate", is_flag=True)
@json_option
@connection_options
def remove(
    entity: dict[str, str | None],
    as_json: bool,
    bootstrap_server: str,
    **limits: bool,
) -> None:
    """Remove limits, all of them or those that are named."""
    _check_named(entity)
    with open_cluster(bootstrap_server) as cluster:
        set_now = next((each.limits for each in cluster.client_quotas() if each.entity == entity), {})
        named = [key for key, given in limits.items() if given]
        removed = [key for key in named or set_now if key in set_now]
        if removed:
            cluster.alter_client_quotas(list(entity.items()), dict.fromkeys(removed))
    if as_json:
        print_json({"entity": entity, "removed": removed})
    elif removed:
        click.echo(f"Removed {', '.join(removed)} of {_shown(entity)}.")
    else:
        click.echo(f"Nothing to remove: {_shown(entity)} has no such limit.")


def _shown(entity: dict[str, str | None]) -> str:
    return ", ".join(f"default {kind}" if name is None else f"{kind} {name}" for kind, name in entity.items())


def _rows(found: ClientQuota) -> list[tuple[object, ...]]:
    names = [DEFAULT_WORD if found.entity.get(kind, "") is None else found.entity.get(kind) for kind in KINDS]
    return [(*names, key, f"{value:g}" if value % 1 else f"{value:.0f}") for key, value in sorted(found.limits.items())]
