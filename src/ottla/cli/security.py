"""`ottla security`: TLS keys, certificates and settings of a cluster with mutual authentication."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ottla.cli.command import Group, program
from ottla.common.errors import OperatorError
from ottla.security.authority import AUTHORITY_DAYS, ISSUED_DAYS

if TYPE_CHECKING:
    from cryptography.x509 import Certificate

MAX_DAYS = 36_500
MAX_PEM_BYTES = 1 << 20
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
@click.option(
    "--days",
    type=click.IntRange(1, MAX_DAYS),
    default=ISSUED_DAYS,
    show_default=True,
    help="Validity of the certificates in days; the authority is valid for ten years or as long.",
)
def init(directory: str, hosts: tuple[str, ...], port: int, clients: tuple[str, ...], days: int) -> None:
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
    now = datetime.now(UTC)
    authority = Authority.make(AUTHORITY_NAME, now, max(AUTHORITY_DAYS, days))
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
        "server.pem": authority.issue("server", hosts, now, days),
        "server.properties": format_properties(server).encode(),
        "cluster.properties": format_properties(cluster).encode(),
    }
    for name in (ADMIN, *clients):
        files[f"{name}.pem"] = authority.issue(name, (), now, days)
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


@security.command(
    examples=(
        "ottla security renew ./keys",
        "ottla security renew ./keys --within 30 --days 365",
    )
)
@click.argument("directory", type=click.Path())
@click.option(
    "--days",
    type=click.IntRange(1, MAX_DAYS),
    default=ISSUED_DAYS,
    show_default=True,
    help="Validity of the new certificates in days.",
)
@click.option(
    "--within",
    "within_days",
    type=click.IntRange(0, MAX_DAYS),
    metavar="DAYS",
    help="Renew only certificates that expire within these days; by default, all.",
)
def renew(directory: str, days: int, within_days: int | None) -> None:
    """Renew certificates of an authority.

    Replaces the keys and certificates that `ottla security init` created. Subjects and host names stay the same. The
    authority stays trusted.
    """
    from ottla.common.certificate_expiry import WARNING_DAYS, date_text, days_left
    from ottla.common.platform.files import read_file
    from ottla.security.authority import Authority
    from ottla.security.stores import read_identity

    folder, now = Path(directory).resolve(), datetime.now(UTC)
    try:
        authority = Authority.load(
            read_file(str(folder / "ca.pem"), MAX_PEM_BYTES), read_file(str(folder / "ca-key.pem"), MAX_PEM_BYTES)
        )
        stores = {path: read_file(str(path), MAX_PEM_BYTES) for path in sorted(folder.glob("*.pem"))}
    except OSError as error:
        raise OperatorError(f"{error.filename} can't be read: {error.strerror}: name a directory of init") from error
    except (ValueError, TypeError) as error:
        raise OperatorError(f"{folder} has no authority of `ottla security init` ({error})") from error
    renewed = 0
    for path, data in stores.items():
        if path.stem in ("ca", "ca-key"):
            continue
        identity = read_identity(data, str(path), None, None)
        own = load_own(identity.pem)
        if not authority.issued(own) or (
            within_days is not None and days_left(identity.expiry_s, now.timestamp()) > within_days
        ):
            continue
        replace_file(path, authority.issue(common_name(own), sorted(identity.hosts), now, days))
        after = read_identity(path.read_bytes(), str(path), None, None).expiry_s
        click.echo(f"{path.name}: valid until {date_text(after)}, before until {date_text(identity.expiry_s)}")
        renewed += 1
    if not renewed:
        click.echo("No certificate to renew.")
        return
    end_s = authority.certificate.not_valid_after_utc.timestamp()
    if days_left(end_s, now.timestamp()) <= max(WARNING_DAYS, days):
        click.echo(f"The authority is valid until {date_text(end_s)} only: create a new one before.", err=True)
    click.echo(
        "Restart the brokers, or let them read the files again: docs/operations/security.md, "
        '"Replace a certificate without a restart".'
    )


def load_own(pem: bytes) -> Certificate:
    """The first certificate of a key with its chain."""
    from cryptography.x509 import load_pem_x509_certificates

    return load_pem_x509_certificates(pem)[0]


def common_name(certificate: Certificate) -> str:
    """The common name of the subject. Raises OperatorError without one."""
    from cryptography.x509.oid import NameOID

    names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    if not names:
        raise OperatorError("a certificate has no common name: it is not one of `ottla security init`")
    return str(names[0].value)


def replace_file(path: Path, content: bytes) -> None:
    """Replace a file atomically; owner and mode stay. Raises OperatorError."""
    new = path.with_name(f"{path.name}.new")
    try:
        before = path.stat()
        new.unlink(missing_ok=True)
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            if os.geteuid() == 0:
                os.fchown(descriptor, before.st_uid, before.st_gid)
            os.fchmod(descriptor, before.st_mode & 0o777)
            file.write(content)
            file.flush()
            os.fsync(descriptor)
        os.replace(new, path)
    except OSError as error:
        raise OperatorError(f"{path} can't be replaced: {error.strerror}: renew as its owner") from error


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
