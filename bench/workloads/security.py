"""Cost of security: `produce` and `consume` of 1 KiB by TLS, silent connections, ACLs and unreached quotas.

`tls` has a second listener with a certificate of an authority created for the run, and clients that check it; load and
figures are those of `throughput`. `tls/held/1000` is the memory of a thousand connections that have sent ApiVersions
once, without and with TLS in one run. `guarded` is to be compared with the same cell without it
(`produce/1024/none/acks=1`, `consume/1024/none`): ACLs allow all clients, with more of them for other topics, and
quotas of all kinds are far away.
"""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import partial

from harness.cells import Cell, Figure, Profile, memory_figures
from harness.peers import API_VERSIONS, Server, free_port

from ottla.client.admin.cluster import Cluster
from ottla.common.kafka.acl import WILDCARD, Acl, AclOperation, PatternType, Permission, ResourceType
from ottla.security.authority import Authority
from workloads.throughput import TOPIC, consume, produce

CODECS = ("none", "lz4")
SIZE = 1024
ACKS = "1"
HELD = 1000
"""Connections of each kind."""
PROTOCOLS = "PLAINTEXT:PLAINTEXT,SSL:SSL,CONTROLLER:PLAINTEXT"
"""Apache Kafka finds the protocol of the controllers automatically only if no listener is encrypted."""
AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}
ANY_USER = "User:ANONYMOUS"
OTHER_TOPICS = 100
FAR_AWAY = {"producer_byte_rate": 1e12, "consumer_byte_rate": 1e12, "request_percentage": 1e6}

Measure = Callable[..., Sequence[Figure]]


def by_tls(measure: Measure, server: Server, profile: Profile) -> Sequence[Figure]:
    """Run `measure` with clients of a TLS listener, on a server that is not running yet."""
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


def held(connections: int, server: Server, profile: Profile, **client: object) -> Sequence[Figure]:
    """Measure resident memory before and with silent connections: first plain ones, then also TLS ones."""
    context = ssl.create_default_context(cafile=str(client["ssl.ca.location"]))
    with ExitStack() as stack:
        steps_mb = [server.memory_mb()]
        for port, wrap in ((server.port, False), (server.tls_port, True)):
            for _ in range(connections):
                connection = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=30))
                if wrap:
                    connection = stack.enter_context(context.wrap_socket(connection, server_hostname="127.0.0.1"))
                connection.sendall(API_VERSIONS)
                receive(connection, int.from_bytes(receive(connection, 4), "big"))
            time.sleep(profile.warm_up_s)
            steps_mb.append(server.memory_mb())
    before_mb, plain_mb, all_mb = steps_mb
    return [
        Figure("memory of plain connections", plain_mb - before_mb, "MiB", yardstick=True),
        Figure("memory of TLS connections", all_mb - plain_mb, "MiB", yardstick=True),
        *memory_figures(server),
    ]


def receive(connection: socket.socket, count: int) -> bytes:
    """Returns `count` bytes; TLS returns one record at a time."""
    data = b""
    while len(data) < count:
        data += connection.recv(count - len(data))
    return data


def guarded(measure: Measure, server: Server, profile: Profile) -> Sequence[Figure]:
    """Run `measure` with ACLs and quotas, on a server with an authorizer."""
    with Cluster(server.bootstrap_servers, client_id="bench", timeout_s=30.0) as cluster:
        names = [TOPIC, *(f"other-{number}" for number in range(OTHER_TOPICS))]
        cluster.acls.create([_allowed(name) for name in names])
        cluster.quotas.alter([("user", None), ("client-id", None)], FAR_AWAY)
    return measure(server, profile)


def _allowed(topic: str) -> Acl:
    return Acl(ResourceType.TOPIC, topic, PatternType.LITERAL, ANY_USER, WILDCARD, AclOperation.ALL, Permission.ALLOW)


def cells() -> list[Cell]:
    found = [Cell(f"tls/held/{HELD}", partial(by_tls, partial(held, HELD)), started=False)]
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
