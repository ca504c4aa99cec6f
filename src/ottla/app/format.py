"""`ottla format`: make the data directory of a node of a cluster, as `kafka-storage format` does.

Also those of a cluster on one machine. Invariant: a directory that was lost never comes back under its old id, since
a voter that forgot its votes and its log could elect a leader without what is committed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ottla.app.clock import SystemClock, SystemRng
from ottla.app.disk import RealDisk
from ottla.app.local_cluster import LocalCluster
from ottla.app.start import StartOptions, read_settings
from ottla.common.broker_configs import BrokerConfig
from ottla.common.errors import OperatorError
from ottla.common.ids import uuid_from_string
from ottla.quorum.format import format_directory, parse_initial_controllers
from ottla.quorum.metadata_log import DIRECTORY, QUORUM_STATE
from ottla.quorum.raft_types import Voter
from ottla.storage.meta_properties import MetaProperties, random_id
from ottla.storage.names import META_PROPERTIES


class FormatOptions(NamedTuple):
    """The command line of `ottla format`."""

    config: str | None
    settings: Mapping[str, str]
    data_dir: str | None
    cluster_id: str | None
    standalone: bool
    initial_controllers: str | None
    no_initial_controllers: bool


def run_format(options: FormatOptions) -> MetaProperties:
    """Format the directory that the config names; what stands in its `meta.properties`. Raises OperatorError."""
    settings = read_settings(
        StartOptions(
            config=options.config,
            settings=options.settings,
            data_dir=options.data_dir,
            port=None,
            ready_file=None,
            metrics_port=None,
            log_level="info",
            log_format="text",
        )
    )
    config, _ = BrokerConfig.parse(settings)
    rng = SystemRng()
    _check_first_voters(options, config)
    cluster_id = _cluster_id(options, rng)
    directory_id = random_id(rng)
    voters: tuple[Voter, ...] = ()
    if options.standalone:
        voters = (_standalone(config, directory_id),)
    elif options.initial_controllers is not None:
        names = config.controller_listener_names or ("CONTROLLER",)
        voters = parse_initial_controllers(options.initial_controllers, names[0])
    return format_directory(
        RealDisk(),
        SystemClock(),
        rng,
        config.log_dir,
        node_id=config.node_id,
        cluster_id=cluster_id,
        directory_id=directory_id if options.standalone else None,
        voters=voters,
    )


def _check_first_voters(options: FormatOptions, config: BrokerConfig) -> None:
    """The options, the configuration, or another node: one of them says who votes at first."""
    chosen = sum((options.standalone, options.initial_controllers is not None, options.no_initial_controllers))
    if chosen and config.configured_voters:
        raise OperatorError(
            "controller.quorum.voters says who votes: leave --standalone, --initial-controllers and "
            "--no-initial-controllers away, or remove that setting"
        )
    if chosen > 1 or (not chosen and config.is_controller and not config.configured_voters):
        raise OperatorError(
            "say who votes at first with one of --standalone (this node alone), --initial-controllers, and "
            "--no-initial-controllers (the cluster is there already), or by controller.quorum.voters"
        )


def _cluster_id(options: FormatOptions, rng: SystemRng) -> str:
    if options.cluster_id is None:
        if options.standalone:
            return random_id(rng)
        raise OperatorError("name the cluster with --cluster-id: all its nodes need the same")
    try:
        uuid_from_string(options.cluster_id)
    except ValueError as error:
        raise OperatorError(f"--cluster-id {options.cluster_id!r} is no id of 22 URL-safe characters") from error
    return options.cluster_id


def _standalone(config: BrokerConfig, directory_id: str) -> Voter:
    """This node as the only voter, where its controller's listener is reached."""
    if not config.controller_listeners:
        raise OperatorError(
            "--standalone needs a listener of the controller: set controller.listener.names, and add it to listeners"
        )
    advertised = config.advertise(config.controller_listeners, "localhost")
    endpoints = tuple((item.listener_name, item.host, item.port) for item in advertised)
    return Voter(config.node_id, uuid_from_string(directory_id), endpoints)


def format_cluster(plan: LocalCluster) -> None:
    """Format the directories of a cluster on this machine that are not yet; a voter's that was lost as an observer's.

    Raises OperatorError and OSError.
    """
    disk, rng = RealDisk(), SystemRng()
    directories = {broker: plan.directory(broker) for broker in plan.brokers}
    missing = [broker for broker, path in directories.items() if not disk.exists(f"{path}/{META_PROPERTIES}")]
    # Once a node has taken part in an election, there is a cluster whose voters must not be made a second time.
    begun = any(disk.exists(f"{path}/{DIRECTORY}/{QUORUM_STATE}") for path in directories.values())
    first_voters = () if begun else parse_initial_controllers(plan.initial_controllers(), "CONTROLLER")
    for broker in missing:
        format_directory(
            disk,
            SystemClock(),
            rng,
            directories[broker],
            node_id=broker.node_id,
            cluster_id=plan.cluster_id,
            directory_id=None if begun else broker.directory_id,
            voters=first_voters if broker in plan.voters else (),
        )
