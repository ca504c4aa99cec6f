"""`ottla user`: users with SCRAM credentials.

Passwords are read from a prompt or a file, never from the command line, which every user of the machine can read.
"""

from __future__ import annotations

import sys
from dataclasses import asdict, astuple

import click

from ottla.cli.command import Group, connection_options, counted, json_option, open_cluster, print_json, print_table
from ottla.common.errors import ErrorCode, KafkaError, OperatorError
from ottla.common.platform.files import read_start, within
from ottla.security.sasl.credentials import BY_NAME, MAX_ITERATIONS, MIN_ITERATIONS

MAX_PASSWORD_BYTES = 4096
MECHANISM = click.Choice(tuple(BY_NAME), case_sensitive=False)


@click.group(cls=Group)
def user() -> None:
    """Manage SCRAM users."""


@user.command(
    examples=(
        "ottla user add alice",
        "ottla user add alice --mechanism SCRAM-SHA-256 --mechanism SCRAM-SHA-512 --password-file alice.txt",
    )
)
@click.argument("name")
@click.option(
    "--mechanism",
    "mechanisms",
    type=MECHANISM,
    multiple=True,
    default=("SCRAM-SHA-512",),
    show_default=True,
    help="SCRAM mechanism of the password; may be repeated.",
)
@click.option("--password-file", metavar="FILE", help="File with the password in its first line; - is standard input.")
@click.option(
    "--iterations",
    type=click.IntRange(MIN_ITERATIONS, MAX_ITERATIONS),
    default=MIN_ITERATIONS,
    show_default=True,
    help="SCRAM iterations.",
)
@connection_options
def add(
    name: str, mechanisms: tuple[str, ...], password_file: str | None, iterations: int, bootstrap_server: str
) -> None:
    """Add a SCRAM user or change a password."""
    password = _password(name, password_file)
    with open_cluster(bootstrap_server) as cluster:
        for mechanism in dict.fromkeys(mechanisms):
            cluster.users.put(name, mechanism, password, iterations)
    click.echo(f"User {name} now has a password for {', '.join(dict.fromkeys(mechanisms))}.")


def _password(name: str, path: str | None) -> str:
    if path is None:
        prompted: str = click.prompt(f"Password of {name}", hide_input=True, confirmation_prompt=True, err=True)
        return prompted
    try:
        most = MAX_PASSWORD_BYTES + len("\r\n") + 1
        data = sys.stdin.buffer.readline(most) if path == "-" else read_start(path, most).partition(b"\n")[0]
        password = within(data.rstrip(b"\r\n"), MAX_PASSWORD_BYTES).decode()
    except OSError as error:
        raise OperatorError(f"--password-file {path} can't be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise OperatorError(f"--password-file {path} is not valid UTF-8") from error
    if not password:
        raise OperatorError(f"--password-file {path} has an empty first line: write the password there")
    return password


@user.command("list", examples=("ottla user list", "ottla user list --json"))
@json_option
@connection_options
def list_(as_json: bool, bootstrap_server: str) -> None:
    """List SCRAM users.

    Shows the mechanisms and iterations of each user; passwords cannot be shown.
    """
    with open_cluster(bootstrap_server) as cluster:
        found = cluster.users.all()
    if as_json:
        print_json([asdict(each) for each in found])
    else:
        print_table(("user", "mechanism", "iterations"), map(astuple, found), right=("iterations",))


@user.command(examples=("ottla user remove alice", "ottla user remove alice --mechanism SCRAM-SHA-256"))
@click.argument("name")
@click.option("--mechanism", type=MECHANISM, help="Mechanism of the password to remove  [default: all]")
@connection_options
def remove(name: str, mechanism: str | None, bootstrap_server: str) -> None:
    """Remove SCRAM credentials.

    Open connections stay until their next re-authentication.
    """
    with open_cluster(bootstrap_server) as cluster:
        had = [
            each.mechanism for each in cluster.users.all() if each.name == name and mechanism in (None, each.mechanism)
        ]
        if not had:
            suffix = "" if mechanism is None else f" for {mechanism}"
            raise KafkaError(ErrorCode.RESOURCE_NOT_FOUND, f"user {name!r} has no password{suffix}")
        for each in had:
            cluster.users.remove(name, each)
    click.echo(f"Removed {counted(len(had), 'password')} of user {name}.")
