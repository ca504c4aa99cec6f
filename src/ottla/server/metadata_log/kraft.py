"""KRaft: the metadata log of a quorum, whose voters are the controllers (KIP-500, KIP-595)."""

from __future__ import annotations

from collections.abc import Callable

from ottla.common.config.broker_configs import BrokerConfig
from ottla.common.kafka.ids import ZERO_UUID
from ottla.metrics.registry import MetricsRegistry
from ottla.quorum.config import LocalReplica, QuorumConfig, QuorumTimes
from ottla.quorum.driver import QuorumDriver
from ottla.quorum.metadata_log import MetadataLogConfig
from ottla.quorum.raft_types import Timeouts, Voter
from ottla.server.metadata_log.node import MetadataLogContext, NodeMetadataLog

_RAFT = "kafka_server_raft_metrics_"


def kraft(context: MetadataLogContext) -> NodeMetadataLog:
    """A replica of the quorum's log: a voter's on a controller, an observer's on a broker."""
    config = context.config
    controllers = None if context.peers is None else context.peers.controllers
    driver = QuorumDriver(
        runtime=context.runtime,
        local=LocalReplica(
            config.node_id,
            context.directory_id,
            config.metadata_log_dir,
            metadata_log_config(config),
            enforces_acls=bool(config.get_str("authorizer.class.name")),
        ),
        publisher=context.publisher,
        on_failure=context.on_failure,
        peers=controllers,
        quorum=quorum_config(config, context.cluster_id),
    )
    return NodeMetadataLog(driver, driver, lambda registry: _register_gauges(registry, driver), controllers)


def metadata_log_config(config: BrokerConfig) -> MetadataLogConfig:
    """The broker's `metadata.*` settings."""
    return MetadataLogConfig(
        segment_bytes=config.get_int("metadata.log.segment.bytes"),
        segment_ms=config.get_int("metadata.log.segment.ms"),
        snapshot_bytes=config.get_int("metadata.log.max.record.bytes.between.snapshots"),
        snapshot_interval_ms=config.get_int("metadata.log.max.snapshot.interval.ms"),
        retention_bytes=config.get_int("metadata.max.retention.bytes"),
        retention_ms=config.get_int("metadata.max.retention.ms"),
    )


def quorum_config(config: BrokerConfig, cluster_id: str) -> QuorumConfig:
    """The broker's `controller.quorum.*` settings."""
    listener = config.controller_listener
    return QuorumConfig(
        cluster_id=cluster_id,
        bootstrap=config.bootstrap_controllers,
        voters=tuple(
            Voter(voter.node_id, ZERO_UUID, ((listener.name, voter.host, voter.port),))
            for voter in config.configured_voters
        ),
        auto_join=config.is_controller and config.get_bool("controller.quorum.auto.join.enable"),
        listener_name=listener.name,
        security_protocol=listener.security_protocol,
        timeouts=Timeouts(
            election_s=config.get_int("controller.quorum.election.timeout.ms") / 1000,
            fetch_s=config.get_int("controller.quorum.fetch.timeout.ms") / 1000,
            backoff_max_s=config.get_int("controller.quorum.election.backoff.max.ms") / 1000,
        ),
        times=QuorumTimes(
            request_s=config.get_int("controller.quorum.request.timeout.ms") / 1000,
            retry_backoff_s=config.get_int("controller.quorum.retry.backoff.ms") / 1000,
        ),
    )


def _register_gauges(registry: MetricsRegistry, quorum: QuorumDriver) -> None:
    def gauge(name: str, text: str, read: Callable[[], float]) -> None:
        registry.gauge(f"{_RAFT}{name}", text, read=read)

    gauge("current_leader", "Leader of the metadata quorum; -1 if unknown.", lambda: quorum.leader[0])
    gauge("current_epoch", "Epoch of the metadata quorum.", lambda: quorum.raft.state.epoch)
    gauge("current_vote", "Node voted for in this epoch; -1 for none.", lambda: quorum.raft.state.election.voted_id)
    gauge("high_watermark", "High watermark of the metadata log.", lambda: quorum.raft.state.high_watermark)
    gauge("log_end_offset", "Log end offset of the metadata log on this node.", lambda: quorum.log_end.end_offset)
    gauge("log_end_epoch", "Epoch of the last record in this node's metadata log.", lambda: quorum.log_end.epoch)
    gauge("number_of_voters", "Voters of the metadata quorum.", lambda: len(quorum.raft.state.voters))
    gauge(
        "is_observer",
        "1 if this node is an observer of the metadata quorum.",
        lambda: int(not quorum.raft.state.is_voter),
    )
