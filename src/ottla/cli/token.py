"""`ottla token`: delegation tokens, with which programs authenticate as a user for a limited time.

The HMAC of a token is its password: only `create` prints it, and no command takes it as an argument, because every
user of the machine can read command lines.
"""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from ottla.cli.command import Group, connection_options, json_option, open_cluster, print_json, print_table
from ottla.cli.times import parse_duration
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.kafka.acl import USER, principal_of

if TYPE_CHECKING:
    from ottla.client.admin.cluster import Cluster
    from ottla.client.admin.delegation_tokens import Token


def _principal(text: str) -> str:
    return text if ":" in text else principal_of(USER, text)


def _principals(ctx: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> list[str]:
    return [_principal(value) for value in values]


def _moment(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="seconds")


def _find(cluster: Cluster, token_id: str) -> Token:
    found = next((token for token in cluster.tokens.find() if token.token_id == token_id), None)
    if found is None:
        raise KafkaError(
            ErrorCode.DELEGATION_TOKEN_NOT_FOUND, f"token {token_id!r} does not exist or is not visible to this user"
        )
    return found


@click.group(cls=Group)
def token() -> None:
    """Manage delegation tokens."""


@token.command(
    examples=(
        "ottla token create --command-config admin.properties",
        "ottla token create --owner ann --renewer scheduler --max-lifetime 7d",
    )
)
@click.option("--owner", metavar="USER", help="Owner of the token  [default: the authenticated user]")
@click.option(
    "--renewer",
    "renewers",
    metavar="USER",
    multiple=True,
    callback=_principals,
    help="Other user that may renew the token; may be repeated.",
)
@click.option("--max-lifetime", metavar="TIME", help="Maximum lifetime, such as 7d  [default: the broker's]")
@json_option
@connection_options
def create(
    owner: str | None, renewers: list[str], max_lifetime: str | None, as_json: bool, bootstrap_server: str
) -> None:
    """Create a delegation token.

    Prints the token id and its HMAC, which is the password for the id.
    """
    from ottla.client.admin.delegation_tokens import LEFT_TO_BROKER

    lifetime_ms = LEFT_TO_BROKER if max_lifetime is None else parse_duration(max_lifetime, "--max-lifetime")
    with open_cluster(bootstrap_server) as cluster:
        owner_principal = None if owner is None else _principal(owner)
        created = cluster.tokens.create(owner_principal, renewers, lifetime_ms)
    if as_json:
        print_json(asdict(created))
        return
    click.echo(
        f"Token {created.token_id} of {created.owner} expires at {_moment(created.expiry_ms)}. Its HMAC is shown only "
        "once:"
    )
    click.echo(created.hmac)


@token.command(examples=("ottla token renew TOKEN_ID", "ottla token renew TOKEN_ID --period 12h"))
@click.argument("token_id")
@click.option("--period", metavar="TIME", help="New lifetime from now, such as 12h  [default: the broker's]")
@json_option
@connection_options
def renew(token_id: str, period: str | None, as_json: bool, bootstrap_server: str) -> None:
    """Renew a delegation token.

    The new expiry time never exceeds the maximum lifetime.
    """
    from ottla.client.admin.delegation_tokens import LEFT_TO_BROKER

    period_ms = LEFT_TO_BROKER if period is None else parse_duration(period, "--period")
    with open_cluster(bootstrap_server) as cluster:
        found = _find(cluster, token_id)
        expiry_ms = cluster.tokens.renew(found, period_ms)
    _print_expiry(token_id, expiry_ms, as_json=as_json)


@token.command(examples=("ottla token expire TOKEN_ID", "ottla token expire TOKEN_ID --after 1h"))
@click.argument("token_id")
@click.option("--after", metavar="TIME", help="Time until expiry, such as 1h  [default: immediately]")
@json_option
@connection_options
def expire(token_id: str, after: str | None, as_json: bool, bootstrap_server: str) -> None:
    """Expire a delegation token.

    Open connections stay until their next re-authentication.
    """
    from ottla.client.admin.delegation_tokens import NOW

    period_ms = NOW if after is None else parse_duration(after, "--after")
    with open_cluster(bootstrap_server) as cluster:
        found = _find(cluster, token_id)
        expiry_ms = cluster.tokens.expire(found, period_ms)
    _print_expiry(token_id, expiry_ms, as_json=as_json)


def _print_expiry(token_id: str, expiry_ms: int, *, as_json: bool) -> None:
    if as_json:
        print_json({"token_id": token_id, "expiry_ms": expiry_ms})
    else:
        click.echo(f"Token {token_id} expires at {_moment(expiry_ms)}.")


@token.command("list", examples=("ottla token list", "ottla token list --owner ann --json"))
@click.option(
    "--owner",
    "owners",
    metavar="USER",
    multiple=True,
    callback=_principals,
    help="Owner or renewer of the tokens; may be repeated  [default: all]",
)
@json_option
@connection_options
def list_(owners: list[str], as_json: bool, bootstrap_server: str) -> None:
    """List delegation tokens.

    Shows the tokens that are visible to this user, without their HMACs.
    """
    with open_cluster(bootstrap_server) as cluster:
        found = cluster.tokens.find(owners or None)
    if as_json:
        print_json([{name: value for name, value in asdict(each).items() if name != "hmac"} for each in found])
        return
    print_table(
        ("token", "owner", "requester", "renewers", "expires", "last time"),
        [
            (
                each.token_id,
                each.owner,
                each.requester,
                ", ".join(each.renewers) or "-",
                _moment(each.expiry_ms),
                _moment(each.max_ms),
            )
            for each in found
        ],
    )
