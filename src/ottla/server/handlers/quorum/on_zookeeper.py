"""The rows that a broker on ZooKeeper serves beside a broker's: what the others ask of the one that is the controller.

There is no listener of the controller, so the others reach it where brokers reach one another, and there alone, as in
Apache Kafka. All of it needs ClusterAction.
"""

from __future__ import annotations

from ottla.server.api import Served
from ottla.server.handlers.quorum.allocate_producer_ids import ALLOCATE_PRODUCER_IDS
from ottla.server.handlers.quorum.alter_partition import ALTER_PARTITION
from ottla.server.handlers.quorum.broker_heartbeat import BROKER_HEARTBEAT
from ottla.server.handlers.quorum.context import ZooKeeperContext
from ottla.server.handlers.quorum.envelope import ENVELOPE


def served_between_brokers(context: ZooKeeperContext) -> list[Served]:
    """The rows, for the listener where brokers reach one another."""
    return [
        Served(row.served_only_on(context.listener_name), context)
        for row in (ALLOCATE_PRODUCER_IDS, ALTER_PARTITION, BROKER_HEARTBEAT, ENVELOPE)
    ]
