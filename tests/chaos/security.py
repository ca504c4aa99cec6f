"""Access to the nodes: open to all, or by SASL over TLS for nodes and clients, with certificates for controllers.

Sessions expire during the faults, so that clients have to reauthenticate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from ottla.client.wire.security import PLAINTEXT, ClientSecurity, read_security
from ottla.common.config.config_keys_authorizer import STANDARD_AUTHORIZER
from ottla.common.config.properties import format_properties
from ottla.security.authority import Authority
from ottla.security.sasl.jaas import SCRAM_MODULE

KINDS = ("plaintext", "sasl_ssl")
PASSWORD = "of-nodes-and-clients-20c8"
MECHANISM = "SCRAM-SHA-512"
SESSION_MS = 10_000


@dataclass(frozen=True)
class Security:
    """The security settings of both sides of all connections."""

    node_settings: Mapping[str, str] = field(default_factory=dict)
    format_options: Sequence[str] = ()
    client: ClientSecurity = PLAINTEXT


def make_security(kind: str, folder: Path, addresses: Sequence[str]) -> Security:
    """One of KINDS, with an authority of its own in `folder`, for nodes at `addresses`."""
    if kind == "plaintext":
        return Security()
    folder.mkdir(mode=0o700)
    now = datetime.now(UTC)
    authority = Authority.make("authority of a run", now)
    (folder / "ca.pem").write_bytes(authority.pem)
    (folder / "node.pem").write_bytes(authority.issue("node", addresses, now))
    trusted = {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(folder / "ca.pem")}
    client = {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": MECHANISM,
        "sasl.jaas.config": _login("client"),
        **trusted,
    }
    (folder / "client.properties").write_text(format_properties(client))
    nodes = {
        "listener.security.protocol.map": "PLAINTEXT:SASL_SSL,CONTROLLER:SSL",
        "inter.broker.listener.name": "PLAINTEXT",
        "listener.name.controller.ssl.client.auth": "required",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(folder / "node.pem"),
        "ssl.principal.mapping.rules": "RULE:^CN=([^,]+).*$/$1/,DEFAULT",
        "sasl.enabled.mechanisms": MECHANISM,
        "sasl.mechanism.inter.broker.protocol": MECHANISM,
        f"listener.name.plaintext.{MECHANISM.lower()}.sasl.jaas.config": _login("node"),
        "connections.max.reauth.ms": str(SESSION_MS),
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "super.users": "User:node;User:client",
        **trusted,
    }
    users = [f"{MECHANISM}=[name={name},password={PASSWORD}]" for name in ("node", "client")]
    options = [part for user in users for part in ("--add-scram", user)]
    return Security(nodes, options, read_security(str(folder / "client.properties")))


def _login(name: str) -> str:
    return f'{SCRAM_MODULE} required username="{name}" password="{PASSWORD}";'
