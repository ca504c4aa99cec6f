"""A broker with every authentication method and ACLs, and the clients' ways to log in.

Each user may do everything with topics and groups that have its name as a prefix. `CLOSED` is a topic, and the
name of a group, that only the administrator may use.
"""

from __future__ import annotations

import os
import time
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa
from jwt.algorithms import RSAAlgorithm

from ottla.app.main import cli
from ottla.client.admin.cluster import Cluster
from ottla.client.wire.security import read_security
from ottla.common.kafka.acl import WILDCARD, Acl, AclOperation, PatternType, Permission, ResourceType
from ottla.security.sasl.credentials import BY_NAME
from ottla.security.sasl.scram import ScramClient
from ottla.testing import Broker

PASSWORD = "of-a-user-4d07"
METRICS_TOKEN = "0123456789abcdef0123456789abcdef"
CLOSED = "closed"
REAUTH_MS = 2_000
"""The maximum session lifetime; franz-go reauthenticates one second before the end."""
PLAIN, SCRAM_256, SCRAM_512, OAUTHBEARER = "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"
TLS, MUTUAL_TLS, TOKEN = "TLS", "mutual TLS", "delegation token"
USERS = {
    TLS: "ANONYMOUS",
    MUTUAL_TLS: "client",
    PLAIN: "ann",
    SCRAM_256: "bob",
    SCRAM_512: "cat",
    OAUTHBEARER: "dan",
    TOKEN: "cat",
}
"""Users by their authentication method. A token's user is its owner."""
PROTOCOLS = {"PLAINTEXT": "PLAINTEXT", "ENCRYPTED": "SSL", "CERTIFIED": "SSL", "ASKING": "SASL_SSL"}
"""Protocols of the listeners; the first listener is for the broker itself."""


@dataclass(frozen=True)
class Login:
    """The credentials of a client; an empty field is not presented. The secret of OAUTHBEARER is its token."""

    authority: str
    certificate: str = ""
    mechanism: str = ""
    name: str = ""
    secret: str = ""
    by_token: bool = False


class SecuredBroker:
    """A context manager for the broker; `directory` contains its keys and files."""

    def __init__(self, directory: Path) -> None:
        self._keys = directory / "keys"
        cli.main(["security", "init", str(self._keys)], standalone_mode=False)
        cli.main(["security", "init", str(directory / "strange")], standalone_mode=False)
        self._strange = directory / "strange"
        self._signer = rsa.generate_private_key(65537, 2048)
        (directory / "keys.json").write_text('{"keys":[' + RSAAlgorithm.to_jwk(self._signer.public_key()) + "]}")
        (directory / "metrics.token").write_text(METRICS_TOKEN)
        self._broker = Broker(
            configs=self._settings(directory / "keys.json"),
            arguments=("--metrics-port", "0", "--metrics-token-file", str(directory / "metrics.token")),
        )

    def _settings(self, keys_of_tokens: Path) -> dict[str, object]:
        module = "org.apache.kafka.common.security.plain.PlainLoginModule"
        return {
            "listeners": ",".join(f"{name}://localhost:0" for name in PROTOCOLS),
            "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in PROTOCOLS.items()),
            "inter.broker.listener.name": "PLAINTEXT",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": self._keys / "server.pem",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self._keys / "ca.pem",
            "listener.name.certified.ssl.client.auth": "required",
            "ssl.principal.mapping.rules": "RULE:^CN=([^,]+).*$/$1/,DEFAULT",
            "sasl.enabled.mechanisms": ",".join((PLAIN, SCRAM_256, SCRAM_512, OAUTHBEARER)),
            "listener.name.asking.plain.sasl.jaas.config": f'{module} required user_{USERS[PLAIN]}="{PASSWORD}";',
            "connections.max.reauth.ms": REAUTH_MS,
            "sasl.oauthbearer.jwks.endpoint.url": keys_of_tokens.as_uri(),
            "sasl.oauthbearer.expected.issuer": "issuer",
            "sasl.oauthbearer.expected.audience": "ottla",
            "delegation.token.secret.key": "of-all-nodes-71e2",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:admin;User:metrics",
        }

    def __enter__(self) -> SecuredBroker:
        self._broker.start()
        try:
            self._fill()
        except BaseException:
            self._broker.close(check=False)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._broker.close(check=kind is None)

    def _fill(self) -> None:
        security = read_security(str(self._keys / "admin.properties"))
        with self._admin() as admin:
            for mechanism in (SCRAM_256, SCRAM_512):
                admin.users.put(USERS[mechanism], mechanism, PASSWORD)
            admin.topics.create(CLOSED, partitions=1, replication_factor=1)
            admin.acls.create(
                [
                    Acl(
                        resource_type,
                        f"{user}-",
                        PatternType.PREFIXED,
                        f"User:{user}",
                        WILDCARD,
                        AclOperation.ALL,
                        Permission.ALLOW,
                    )
                    for user in sorted(set(USERS.values()))
                    for resource_type in (ResourceType.TOPIC, ResourceType.GROUP)
                ]
            )

        def as_owner(_host: str) -> ScramClient:
            return ScramClient(BY_NAME[SCRAM_512], USERS[TOKEN], PASSWORD, os.urandom)

        with Cluster(self._listener("ASKING"), security=security._replace(login=as_owner)) as owner:
            self._token = owner.tokens.create(None, ())

    def _admin(self) -> Cluster:
        return Cluster(self._listener("CERTIFIED"), security=read_security(str(self._keys / "admin.properties")))

    def topics(self, names: Sequence[str]) -> None:
        """Create the topics as the administrator."""
        with self._admin() as admin:
            for name in names:
                admin.topics.create(name, partitions=1, replication_factor=1)

    def _listener(self, name: str) -> str:
        return str(self._broker.ready["listeners"][name])

    def servers(self, way: str) -> str:
        """Returns the bootstrap address of a login method."""
        return self._listener({TLS: "ENCRYPTED", MUTUAL_TLS: "CERTIFIED"}.get(way, "ASKING"))

    def right(self, way: str) -> Login:
        """Returns valid credentials."""
        authority = str(self._keys / "ca.pem")
        if way == TLS:
            return Login(authority)
        if way == MUTUAL_TLS:
            return Login(authority, certificate=str(self._keys / "client.pem"))
        if way == OAUTHBEARER:
            return Login(authority, mechanism=way, secret=self._signed("ottla"))
        if way == TOKEN:
            token = self._token
            return Login(authority, mechanism=SCRAM_512, name=token.token_id, secret=token.hmac, by_token=True)
        return Login(authority, mechanism=way, name=USERS[way], secret=PASSWORD)

    def wrong(self, way: str) -> Login:
        """Returns invalid credentials: another CA, a certificate of that CA, or a wrong secret."""
        right = self.right(way)
        if way == TLS:
            return Login(str(self._strange / "ca.pem"))
        if way == MUTUAL_TLS:
            return Login(right.authority, certificate=str(self._strange / "client.pem"))
        secret = self._signed("others") if way == OAUTHBEARER else right.secret[::-1]
        return Login(right.authority, "", right.mechanism, right.name, secret, right.by_token)

    def _signed(self, audience: str) -> str:
        now = int(time.time())
        claims: Mapping[str, Any] = {"sub": USERS[OAUTHBEARER], "iss": "issuer", "aud": audience, "iat": now}
        return jwt.encode({**claims, "exp": now + 3_600}, self._signer, "RS256")

    def counter(self, name: str) -> float:
        """Returns the value of one of the broker's metrics."""
        asked = urllib.request.Request(
            f"http://{self._broker.ready['metrics']}/metrics", headers={"Authorization": f"Bearer {METRICS_TOKEN}"}
        )
        with urllib.request.urlopen(asked, timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        return next(float(line.split()[1]) for line in lines if line.startswith(f"{name} "))

    def secrets(self) -> list[str]:
        """Returns the secrets that must not appear in any output."""
        return [PASSWORD, self._token.hmac, "eyJ"]

    def logs(self) -> str:
        """Returns the broker's whole log."""
        return self._broker.logs()
