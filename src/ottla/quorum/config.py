"""What a replica of the metadata log is told by its node: who it is, the cluster, and the settings of the quorum."""

from __future__ import annotations

from typing import NamedTuple

from ottla.common.kafka.ids import Uuid
from ottla.common.platform.peer import Address
from ottla.quorum.metadata_log import MetadataLogConfig
from ottla.quorum.raft_types import ReplicaKey, Timeouts, Voter


class LocalReplica(NamedTuple):
    """This replica: which node it belongs to, and its files."""

    node_id: int
    directory_id: Uuid
    data_dir: str
    log_config: MetadataLogConfig
    enforces_acls: bool = False
    """Whether somebody holds clients to the ACLs of the log."""

    @property
    def key(self) -> ReplicaKey:
        return ReplicaKey(self.node_id, self.directory_id)


class QuorumTimes(NamedTuple):
    """How long requests may take and how long to wait after one that failed, in seconds."""

    request_s: float = 2.0
    retry_backoff_s: float = 0.02
    retry_backoff_max_s: float = 0.5


class QuorumConfig(NamedTuple):
    """Which cluster this is, and the settings `controller.quorum.*`."""

    cluster_id: str = ""
    bootstrap: tuple[Address, ...] = ()
    """Where somebody may know the leader."""
    voters: tuple[Voter, ...] = ()
    """`controller.quorum.voters`: who votes where the log does not say it (kraft.version 0), without directory ids."""
    auto_join: bool = False
    """Whether this node asks for a vote by itself."""
    listener_name: str = "CONTROLLER"
    security_protocol: str = "PLAINTEXT"
    timeouts: Timeouts = Timeouts()
    times: QuorumTimes = QuorumTimes()
