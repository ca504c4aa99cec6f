"""Three nodes that say to each other who they are, by PLAIN to controllers and by SCRAM to brokers."""

from __future__ import annotations

import time
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from .nodes import Nodes, eventually

PASSWORD = "secret-of-nodes-51c"
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
REAUTH_MS = 2_000
SETTINGS = {
    "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "listener.name.plaintext.sasl.enabled.mechanisms": "SCRAM-SHA-512",
    "listener.name.controller.sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
    "sasl.mechanism.controller.protocol": "PLAIN",
    "listener.name.plaintext.scram-sha-512.sasl.jaas.config": f'{SCRAM_MODULE} required username="node" '
    f'password="{PASSWORD}";',
    "listener.name.controller.plain.sasl.jaas.config": f'{PLAIN_MODULE} required username="node" password="{PASSWORD}" '
    f'user_node="{PASSWORD}";',
    "connections.max.reauth.ms": str(REAUTH_MS),
}


def test_nodes_say_to_each_other_who_they_are(tmp_path: Path) -> None:
    user = f"SCRAM-SHA-512=[name=node,password={PASSWORD}]"
    nodes = Nodes(tmp_path, settings=SETTINGS, first=("--add-scram", user))
    try:
        nodes.start()
        client = {
            "bootstrap.servers": nodes.bootstrap_servers,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": "node",
            "sasl.password": PASSWORD,
        }
        admin = AdminClient(client)
        topic = NewTopic("t", 3, 3, config={"min.insync.replicas": "3"})
        eventually(lambda: len(admin.list_topics(timeout=10).brokers) == 3, "three brokers")
        admin.create_topics([topic])["t"].result(30)
        producer = Producer({**client, "acks": "all"})
        errors: list[object] = []

        def produce() -> bool:
            """All of three replicas have it."""
            for partition in range(3):
                producer.produce("t", b"v", partition=partition, on_delivery=lambda error, _: errors.append(error))
            return producer.flush(60) == 0

        # Over the end of several sessions, also of the nodes among each other.
        until = time.monotonic() + 2 * REAUTH_MS / 1000
        while time.monotonic() < until:
            assert produce()
        nodes[2].kill()
        nodes[2].start()
        assert produce()
        assert set(errors) == {None}
        for node in nodes.nodes:
            assert PASSWORD not in node.log_text()
            assert "does not let this node in" not in node.log_text()
            files = [path for path in node.data_dir.rglob("*") if path.is_file()]
            assert not any(PASSWORD.encode() in path.read_bytes() for path in files)
    finally:
        nodes.close()
