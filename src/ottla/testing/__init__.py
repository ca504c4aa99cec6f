"""A real broker as a subprocess, for tests of applications.

    from ottla.testing import Broker

    with Broker() as broker:
        producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers})

With pytest installed, the fixtures `ottla_broker` and `ottla_broker_factory` are available without an import
(`ottla.testing.plugin`).
"""

from ottla.testing.broker import Broker, BrokerFailure

__all__ = ["Broker", "BrokerFailure"]
