"""Configuration of a metadata log replica: node, cluster and the quorum settings."""

from __future__ import annotations

from typing import NamedTuple

from ottla.common.kafka.ids import Uuid
from ottla.common.platform.peer import Address
from ottla.quorum.metadata_log import MetadataLogConfig
from ottla.quorum.raft_types import ReplicaKey, Timeouts, Voter


class LocalReplica(NamedTuple):
    """The node id and files of this replica."""

    node_id: int
    directory_id: Uuid
    data_dir: str
    log_config: MetadataLogConfig
    enforces_acls: bool = False
    """Whether an authorizer enforces the ACLs of the metadata log."""

    @property
    def key(self) -> ReplicaKey:
        return ReplicaKey(self.node_id, self.directory_id)


class QuorumTimes(NamedTuple):
    """Request timeouts and the backoff after a failed request, in seconds."""

    request_s: float = 2.0
    retry_backoff_s: float = 0.02
    retry_backoff_max_s: float = 0.5


class QuorumConfig(NamedTuple):
    """The cluster id and the settings `controller.quorum.*`."""

    cluster_id: str = ""
    bootstrap: tuple[Address, ...] = ()
    """Addresses that are asked for the leader (`controller.quorum.bootstrap.servers`)."""
    voters: tuple[Voter, ...] = ()
    """`controller.quorum.voters`: the voters if the log names none (kraft.version 0), without directory ids."""
    auto_join: bool = False
    """Whether this node adds itself to the voters (`controller.quorum.auto.join.enable`)."""
    listener_name: str = "CONTROLLER"
    security_protocol: str = "PLAINTEXT"
    timeouts: Timeouts = Timeouts()
    times: QuorumTimes = QuorumTimes()
