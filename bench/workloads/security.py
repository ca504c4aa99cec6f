"""What security costs: `produce` and `consume` of 1 KiB by TLS, and with ACLs and quotas that nobody reaches.

`tls` has a second listener with a certificate of an authority made for the run, and clients that check it; the load and
the figures are those of `throughput`. To `guarded` the same cell without it compares (`produce/1024/none/acks=1`,
`consume/1024/none`): ACLs allow whoever comes, among others for other topics, and quotas of all kinds are far away.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from functools import partial

from harness.cells import Cell, Figure, Profile
from harness.peers import Server, free_port

from ottla.client.cluster import Cluster
from ottla.common.acl import WILDCARD, Acl, AclOperation, PatternType, Permission, ResourceType
from ottla.security.authority import Authority
from workloads.throughput import TOPIC, consume, produce

CODECS = ("none", "lz4")
SIZE = 1024
ACKS = "1"
PROTOCOLS = "PLAINTEXT:PLAINTEXT,SSL:SSL,CONTROLLER:PLAINTEXT"
"""Apache Kafka knows that of the controllers by itself only where no listener is encrypted."""
AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}
ANYBODY = "User:ANONYMOUS"
OTHER_TOPICS = 100
FAR_AWAY = {"producer_byte_rate": 1e12, "consumer_byte_rate": 1e12, "request_percentage": 1e6}

Measure = Callable[..., Sequence[Figure]]


def by_tls(measure: Measure, server: Server, profile: Profile) -> Sequence[Figure]:
    """`measure` with clients of a listener of TLS, on a server that does not run yet."""
    authority, now = Authority.make("bench", datetime.now(UTC)), datetime.now(UTC)
    trusted, key = server.home / "ca.pem", server.home / "server.pem"
    trusted.write_bytes(authority.pem)
    key.write_bytes(authority.issue("server", ["127.0.0.1"], now))
    server.tls_port = free_port()
    server.settings |= {
        "listener.security.protocol.map": PROTOCOLS,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": key,
    }
    server.prepare()
    server.start()
    client = {"brokers": f"127.0.0.1:{server.tls_port}", "security.protocol": "ssl", "ssl.ca.location": trusted}
    return measure(server, profile, **client)


def guarded(measure: Measure, server: Server, profile: Profile) -> Sequence[Figure]:
    """`measure` with ACLs and quotas, on a server with an authorizer."""
    with Cluster(server.bootstrap_servers, client_id="bench", timeout_s=30.0) as cluster:
        names = [TOPIC, *(f"other-{number}" for number in range(OTHER_TOPICS))]
        cluster.create_acls([_allowed(name) for name in names])
        cluster.alter_client_quotas([("user", None), ("client-id", None)], FAR_AWAY)
    return measure(server, profile)


def _allowed(topic: str) -> Acl:
    return Acl(ResourceType.TOPIC, topic, PatternType.LITERAL, ANYBODY, WILDCARD, AclOperation.ALL, Permission.ALLOW)


def cells() -> list[Cell]:
    found = []
    for codec in CODECS:
        found.append(
            Cell(
                f"tls/produce/{SIZE}/{codec}/acks={ACKS}",
                partial(by_tls, partial(produce, SIZE, codec, ACKS)),
                started=False,
            )
        )
        found.append(Cell(f"tls/consume/{SIZE}/{codec}", partial(by_tls, partial(consume, SIZE, codec)), started=False))
    found += [
        Cell(f"guarded/{name}", partial(guarded, measure), peers=("ottla",), settings=AUTHORIZER)
        for name, measure in (
            (f"produce/{SIZE}/none/acks={ACKS}", partial(produce, SIZE, "none", ACKS)),
            (f"consume/{SIZE}/none", partial(consume, SIZE, "none")),
        )
    ]
    return found
