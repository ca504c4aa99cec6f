"""`ottla quota`: client quotas of users, client ids and IP addresses (KIP-546)."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from ottla.cli.command import Group, connection_options, json_option, open_cluster, print_json, print_table

if TYPE_CHECKING:
    from ottla.client.wire.model import ClientQuota

KINDS = ("user", "client-id", "ip")
LIMITS = {
    "producer-byte-rate": "Produce rate limit in bytes/s per broker.",
    "consumer-byte-rate": "Fetch rate limit in bytes/s per broker.",
    "request-percentage": "Request time limit in percent of one broker.",
    "controller-mutation-rate": "Limit of created and deleted partitions per second.",
    "connection-creation-rate": "Limit of new connections per second, per IP address and broker.",
}
DEFAULT_WORD = "(default)"


@click.group(cls=Group, aliases={"list": "describe"})
def quota() -> None:
    """Manage client quotas."""


def _entity_options(function: Callable[..., None]) -> Callable[..., None]:
    """Options that select a quota entity. The function receives `entity`: names by kind, None for a default."""

    @functools.wraps(function)
    def with_entity(
        *, user: str | None, client_id: str | None, ip: str | None, defaults: tuple[str, ...], **others: Any
    ) -> None:
        function(entity=_entity(user, client_id, ip, defaults), **others)

    for option in (
        click.option(
            "--default",
            "defaults",
            type=click.Choice(KINDS),
            multiple=True,
            help="Default for all of this kind without a quota of their own; may be repeated.",
        ),
        click.option("--ip", metavar="ADDRESS", help="Client IP address."),
        click.option("--client-id", metavar="NAME", help="Client id."),
        click.option("--user", metavar="NAME", help="Authenticated user; ANONYMOUS for unauthenticated clients."),
    ):
        option(with_entity)
    return with_entity


def _entity(
    user: str | None, client_id: str | None, ip: str | None, defaults: tuple[str, ...]
) -> dict[str, str | None]:
    entity: dict[str, str | None] = {
        kind: name for kind, name in zip(KINDS, (user, client_id, ip), strict=True) if name is not None
    }
    for kind in defaults:
        if kind in entity:
            raise click.UsageError(f"--{kind} and --default {kind} exclude each other: give one of them")
        entity[kind] = None
    return entity


def _check_named(entity: dict[str, str | None]) -> None:
    if not entity:
        raise click.UsageError("no quota entity: give --user, --client-id, --ip or --default")


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
    """Set quotas.

    Other quotas are left unchanged. The most specific quota applies to a client, with immediate effect.
    """
    _check_named(entity)
    changes: dict[str, float | None] = {key: value for key, value in limits.items() if value is not None}
    if not changes:
        raise click.UsageError("nothing to set: give a limit, such as --producer-byte-rate")
    with open_cluster(bootstrap_server) as cluster:
        cluster.quotas.alter(list(entity.items()), changes)
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
    """Show quotas.

    Without an option, all of them; otherwise those of the given entity.
    """
    with open_cluster(bootstrap_server) as cluster:
        found = [each for each in cluster.quotas.all() if entity.items() <= each.entity.items()]
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
@click.option("--producer-byte-rate", is_flag=True, help="Remove the produce rate limit.")
@click.option("--consumer-byte-rate", is_flag=True, help="Remove the fetch rate limit.")
@click.option("--request-percentage", is_flag=True, help="Remove the request time limit.")
@click.option("--controller-mutation-rate", is_flag=True, help="Remove the partition mutation rate limit.")
@click.option("--connection-creation-rate", is_flag=True, help="Remove the connection rate limit.")
@json_option
@connection_options
def remove(
    entity: dict[str, str | None],
    as_json: bool,
    bootstrap_server: str,
    **limits: bool,
) -> None:
    """Remove quotas.

    Removes the given limits of an entity, or all of them if none is given.
    """
    _check_named(entity)
    with open_cluster(bootstrap_server) as cluster:
        set_now = next((each.limits for each in cluster.quotas.all() if each.entity == entity), {})
        named = [key for key, given in limits.items() if given]
        removed = [key for key in named or set_now if key in set_now]
        if removed:
            cluster.quotas.alter(list(entity.items()), dict.fromkeys(removed))
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
