"""Three nodes, brokers and controllers, that only use TLS and authenticate each other by certificates."""

from __future__ import annotations

import datetime

from ottla.client.admin.cluster import Cluster
from ottla.client.librdkafka.producer import RecordProducer
from ottla.client.wire.security import read_security
from ottla.common.config.properties import format_properties
from ottla.security.authority import Authority


def test_node_loss_loses_no_records(make_nodes, tmp_path):
    authority, now = (
        Authority.make("authority", datetime.datetime.now(datetime.UTC)),
        datetime.datetime.now(datetime.UTC),
    )
    stores = {"ssl.keystore.location": str(tmp_path / "node.pem"), "ssl.truststore.location": str(tmp_path / "ca.pem")}
    (tmp_path / "ca.pem").write_bytes(authority.pem)
    (tmp_path / "node.pem").write_bytes(authority.issue("node", ["127.0.0.1"], now))
    client = tmp_path / "client.properties"
    client.write_text(format_properties({"security.protocol": "SSL", **stores}))
    security = read_security(str(client))
    protocols = {"listener.security.protocol.map": "PLAINTEXT:SSL,CONTROLLER:SSL", "ssl.client.auth": "required"}
    nodes = make_nodes(3, **protocols, **stores)
    nodes.start()
    with Cluster(nodes.bootstrap_servers, security=security) as cluster:
        cluster.topics.create("t", partitions=3, replication_factor=3)
        producer = RecordProducer(nodes.bootstrap_servers, properties=security.library)
        for number in range(100):
            producer.send("t", str(number).encode())
            if number == 50:
                nodes[1].kill()
        assert producer.flush() == 0
        assert producer.failed_count == 0
        ends = cluster.records.list_offsets({("t", partition): -1 for partition in range(3)})
        assert sum(end.offset for end in ends.values()) >= 100
