"""Modules of this directory by the metadata log that they run on: a quorum, or also ZooKeeper.

`compat/java/test_zookeeper_suite.py` runs the latter on ZooKeeper servers.
"""

from __future__ import annotations

ON_ZOOKEEPER = ("test_three_nodes", "test_replicas", "test_transactions")
"""Simulations lack real sessions, with kill -9, SIGSTOP and rolling restarts of the processes that keep them,
librdkafka's groups and transactions on leaders that ZooKeeper's controllers elect.
"""
MORE_ON_ZOOKEEPER = (
    "test_transaction_partitions",
    "test_sessions",
    "test_failed_directory",
    "test_damage",
    "test_sasl",
    "test_tls",
    "test_kerberos",
    "test_three_hosts",
    "test_leader_epochs",
)
"""With `OTTLA_TESTS=all`: subjects that do not depend on the metadata log, or whose part in it the contract covers."""
QUORUM_ONLY = {
    "test_quorum_processes": "voters, their elections and their directories",
    "test_epoch_repair": "the epoch of voters, and their log",
    "test_operation_pages": "procedures of clusters with a quorum, as printed",
    "test_top": "the screen of `ottla top`, which asks the same requests of both",
    "test_feature_levels": "raises metadata.version on nodes that were formatted with older ones",
    "test_roles": "process.roles, and the voters of the configuration",
    "test_supervisor": "`ottla start --brokers` makes a quorum",
    "test_share_dead_letters": "share groups need a quorum",
}
"""Subjects of the other modules; single tests have the mark `of_the_quorum`."""
