"""`ottla token`: create, renew, expire and list delegation tokens, by which programs come in as a user for a while.

A token's HMAC is its password: it is shown once, where the token is made, and no command takes it as an argument, which
everybody on the machine can read.
"""

from __future__ import annotations

from datetime import UTC, datetime

import click

from ottla.cli.command import Group, connection_options, json_option, open_cluster, print_json, print_table
from ottla.cli.times import parse_duration
from ottla.client.admin.cluster import Cluster
from ottla.client.admin.delegation_tokens import (
    LEFT_TO_BROKER,
    NOW,
    Token,
    create_token,
    describe_tokens,
    expire_token,
    renew_token,
)
from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.kafka.acl import USER, principal_of


def _principal(text: str) -> str:
    return text if ":" in text else principal_of(USER, text)


def _principals(ctx: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> list[str]:
    return [_principal(value) for value in values]


def _moment(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="seconds")


def _find(cluster: Cluster, token_id: str) -> Token:
    found = next(
        (token for token in cluster.read(lambda each: describe_tokens(each, None)) if token.token_id == token_id), None
    )
    if found is None:
        raise KafkaError(ErrorCode.DELEGATION_TOKEN_NOT_FOUND, f"there is no token {token_id!r} that this user may see")
    return found


@click.group(cls=Group)
def token() -> None:
    """Create, renew, expire and list delegation tokens."""


@token.command(
    examples=(
        "ottla token create --command-config admin.properties",
        "ottla token create --owner ann --renewer scheduler --max-lifetime 7d",
    )
)
@click.option("--owner", metavar="USER", help="Whose token it is.  [default: who asks]")
@click.option(
    "--renewer", "renewers", metavar="USER", multiple=True, callback=_principals, help="Who else may renew it."
)
@click.option("--max-lifetime", metavar="TIME", help="How long it lasts at most, like 7d.  [default: the broker's]")
@json_option
@connection_options
def create(
    owner: str | None, renewers: list[str], max_lifetime: str | None, as_json: bool, bootstrap_server: str
) -> None:
    """Make a token, and show its HMAC, the password that goes with its id."""
    lifetime_ms = LEFT_TO_BROKER if max_lifetime is None else parse_duration(max_lifetime, "--max-lifetime")
    with open_cluster(bootstrap_server) as cluster:
        whose = None if owner is None else _principal(owner)
        made = cluster.change(lambda connection: create_token(connection, whose, renewers, lifetime_ms))
    if as_json:
        print_json(made._asdict())
        return
    click.echo(f"Token {made.token_id} of {made.owner} lasts till {_moment(made.expiry_ms)}. Its HMAC is shown once:")
    click.echo(made.hmac)


@token.command(examples=("ottla token renew TOKEN_ID", "ottla token renew TOKEN_ID --period 12h"))
@click.argument("token_id")
@click.option("--period", metavar="TIME", help="How long it lasts from now on, like 12h.  [default: the broker's]")
@json_option
@connection_options
def renew(token_id: str, period: str | None, as_json: bool, bootstrap_server: str) -> None:
    """Let a token end later, though never after its last time."""
    period_ms = LEFT_TO_BROKER if period is None else parse_duration(period, "--period")
    with open_cluster(bootstrap_server) as cluster:
        found = _find(cluster, token_id)
        expiry_ms = cluster.change(lambda connection: renew_token(connection, found, period_ms))
    _tell(token_id, expiry_ms, as_json=as_json)


@token.command(examples=("ottla token expire TOKEN_ID", "ottla token expire TOKEN_ID --after 1h"))
@click.argument("token_id")
@click.option("--after", metavar="TIME", help="End it so long from now, like 1h.  [default: at once]")
@json_option
@connection_options
def expire(token_id: str, after: str | None, as_json: bool, bootstrap_server: str) -> None:
    """End a token; connections that came in by it stay until they have to authenticate again."""
    period_ms = NOW if after is None else parse_duration(after, "--after")
    with open_cluster(bootstrap_server) as cluster:
        found = _find(cluster, token_id)
        expiry_ms = cluster.change(lambda connection: expire_token(connection, found, period_ms))
    _tell(token_id, expiry_ms, as_json=as_json)


def _tell(token_id: str, expiry_ms: int, *, as_json: bool) -> None:
    if as_json:
        print_json({"token_id": token_id, "expiry_ms": expiry_ms})
    else:
        click.echo(f"Token {token_id} lasts till {_moment(expiry_ms)}.")


@token.command("list", examples=("ottla token list", "ottla token list --owner ann --json"))
@click.option(
    "--owner",
    "owners",
    metavar="USER",
    multiple=True,
    callback=_principals,
    help="Only tokens that this user has, or may renew.  [default: all]",
)
@json_option
@connection_options
def list_(owners: list[str], as_json: bool, bootstrap_server: str) -> None:
    """Show tokens that this user has, or may see; not their HMACs."""
    with open_cluster(bootstrap_server) as cluster:
        found = cluster.read(lambda connection: describe_tokens(connection, owners or None))
    if as_json:
        print_json([{name: value for name, value in each._asdict().items() if name != "hmac"} for each in found])
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
