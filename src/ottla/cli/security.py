"""`ottla security`: TLS keys, certificates and settings of a cluster with mutual authentication."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import click

from ottla.cli.command import Group, program
from ottla.common.errors import OperatorError

ADMIN = "admin"
"""The superuser."""
_TAKEN = frozenset({"server", "cluster", "ca", "ca-key", ADMIN})
AUTHORITY_NAME = "ottla authority"
MAPPING_RULES = "RULE:^CN=([^,]+).*$/$1/,DEFAULT"
"""The user name is the common name of the client certificate."""


@click.group("security", cls=Group)
def security() -> None:
    """Create TLS keys, certificates and settings."""


@security.command(
    examples=(
        "ottla security init ./keys",
        "ottla security init ./keys --host log1.example.com --port 9093 --client alice --client bob",
        "ottla start --config ./keys/server.properties",
        "ottla start --brokers 3 --port 9093 --config ./keys/cluster.properties",
        "ottla topic list --command-config ./keys/admin.properties",
        "install -D -m 600 ./keys/admin.properties ~/.config/ottla/default.properties && ottla topic list",
    )
)
@click.argument("directory", type=click.Path())
@click.option(
    "--host",
    "hosts",
    multiple=True,
    default=("localhost", "127.0.0.1"),
    show_default=True,
    help="Host name or address of the server; may be repeated, the first one is advertised.",
)
@click.option(
    "--port", type=click.IntRange(1, 65535), default=9093, show_default=True, help="Port of the TLS listener."
)
@click.option(
    "--client",
    "clients",
    multiple=True,
    default=("client",),
    show_default=True,
    help="User name of a client certificate; may be repeated.",
)
def init(directory: str, hosts: tuple[str, ...], port: int, clients: tuple[str, ...]) -> None:
    """Create a CA, certificates and settings.

    Creates a certificate authority, certificates of a server, an admin and clients, and the properties files that use
    them. The admin is a superuser; clients need ACLs.
    """
    import shlex

    from ottla.common.config.config_keys_authorizer import STANDARD_AUTHORIZER
    from ottla.common.config.properties import format_properties
    from ottla.common.platform.endpoint import format_address
    from ottla.security.authority import Authority, key_pem, pem_stores

    folder = Path(directory).resolve()
    for name in clients:
        if not name.replace("-", "").replace("_", "").replace(".", "").isalnum() or name.startswith("."):
            raise click.BadParameter(f"{name!r} may contain only letters, digits, - _ .", param_hint="--client")
    authority, now = Authority.make(AUTHORITY_NAME, datetime.now(UTC)), datetime.now(UTC)
    everywhere = not {"localhost", "127.0.0.1"}.intersection(hosts)
    cluster = {
        "security.inter.broker.protocol": "SSL",
        "ssl.client.auth": "required",
        "ssl.principal.mapping.rules": MAPPING_RULES,
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": f"User:server;User:{ADMIN}",
        **pem_stores(str(folder), "server"),
    }
    server = {
        "listeners": f"SSL://{format_address('' if everywhere else hosts[0], port)}",
        "advertised.listeners": f"SSL://{format_address(hosts[0], port)}",
        **cluster,
    }
    files = {
        "ca.pem": authority.pem,
        "ca-key.pem": key_pem(authority.key),
        "server.pem": authority.issue("server", hosts, now),
        "server.properties": format_properties(server).encode(),
        "cluster.properties": format_properties(cluster).encode(),
    }
    for name in (ADMIN, *clients):
        files[f"{name}.pem"] = authority.issue(name, (), now)
        properties = {
            "bootstrap.servers": format_address(hosts[0], port),
            "security.protocol": "SSL",
            **pem_stores(str(folder), name),
        }
        files[f"{name}.properties"] = format_properties(properties).encode()
    if _TAKEN.intersection(clients) or len(set(clients)) < len(clients):
        raise click.BadParameter(
            f"{', '.join(sorted(_TAKEN))} are reserved, and names must be unique", param_hint="--client"
        )
    _write(folder, files)
    click.echo(
        f"{folder} contains a certificate authority (ca.pem), server.properties (cluster.properties with --brokers), "
        "and "
        f"{', '.join(f'{name}.properties' for name in (ADMIN, *clients))}; start with:"
    )
    click.echo(f"{program()} start --config {shlex.quote(str(folder / 'server.properties'))}")
    admin = shlex.quote(str(folder / f"{ADMIN}.properties"))
    click.echo(f"{program()} topic list --command-config {admin}")


def _write(folder: Path, files: Mapping[str, bytes]) -> None:
    """Create files that only their owner can read, in a directory that contains none of them. Raises OperatorError."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        there = [name for name in files if (folder / name).exists()]
        if there:
            raise OperatorError(f"{folder} already contains {there[0]}: name another directory or remove the file")
        for name, content in files.items():
            descriptor = os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
    except OSError as error:
        raise OperatorError(f"{folder} can't be written: {error.strerror}: name another directory") from error
