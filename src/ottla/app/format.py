"""`ottla format`: creates the data directories of a cluster node, like `kafka-storage format`.

Also formats the directories of a local cluster. Invariant: a lost directory never gets its old id again. A voter that
lost its votes and log could otherwise elect a leader without committed records, and the old directory may reappear. A
directory is replaced only when the operator declares it lost (`--replace-node`).
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from ottla.app.clock import SystemClock, SystemRng
from ottla.app.disk import RealDisk
from ottla.app.local_cluster import (
    PLAN_FILE,
    LocalBroker,
    LocalCluster,
    refuse_directory_of_plan,
    write_plan,
)
from ottla.app.scram_users import scram_record
from ottla.app.settings import read_settings
from ottla.common.config.broker_configs import BrokerConfig
from ottla.common.config.feature_choice import first_levels
from ottla.common.config.feature_levels import METADATA_LEVELS, METADATA_VERSION, SCRAM_CREDENTIALS
from ottla.common.errors import OperatorError
from ottla.common.kafka.ids import uuid_from_string
from ottla.common.platform.clock import Clock, Rng
from ottla.common.platform.disk import Disk
from ottla.common.platform.disk_refusal import disk_refusal
from ottla.controller.features import bootstrap_records
from ottla.metadata.records import ApiMessageAndVersion, versioned
from ottla.quorum.format import format_directory, parse_initial_controllers, refuse_formatted
from ottla.quorum.metadata_log import DIRECTORY, QUORUM_STATE
from ottla.quorum.raft_types import ReplicaKey, Voter
from ottla.storage.files.directories import make_durably, require_unused, shown
from ottla.storage.files.meta_properties import MetaProperties, load_or_create, random_id, read_meta_properties
from ottla.storage.files.names import META_PROPERTIES, STRAY_DIR_SUFFIX, parse_stray_dir

_ID_NAMES = {"cluster_id": "cluster.id", "node_id": "node.id", "directory_id": "directory.id"}


class FormatOptions(NamedTuple):
    """Command line of `ottla format`."""

    config: str | None
    settings: Mapping[str, str]
    data_dir: str | None
    cluster_id: str | None
    standalone: bool
    initial_controllers: str | None
    no_initial_controllers: bool
    release_version: str | None
    features: Mapping[str, str]
    add_scram: Sequence[str]


def run_format(options: FormatOptions) -> dict[str, MetaProperties]:
    """Format the configured directories; returns `meta.properties` by path. Raises OperatorError."""
    settings = read_settings(options.config, options.settings, options.data_dir)
    config, _ = BrokerConfig.parse(settings)
    if config.on_zookeeper:
        raise OperatorError(
            "zookeeper.connect is set, and brokers of a ZooKeeper cluster are not formatted: start this broker, or "
            "set process.roles"
        )
    disk, rng = RealDisk(), SystemRng()
    paths = list(dict.fromkeys((config.metadata_log_dir, *config.log_dirs)))
    for path in paths:
        refuse_directory_of_plan(disk, path)
    _check_first_voters(options, config)
    records = _first_records(options, config, rng)
    cluster_id = _cluster_id(options, rng)
    directory_id = random_id(rng)
    voters: tuple[Voter, ...] = ()
    if options.standalone:
        voters = (_standalone(config, directory_id),)
    elif options.initial_controllers is not None:
        voters = parse_initial_controllers(options.initial_controllers, config.controller_listener.name)
    refuse_formatted(disk, paths)
    # The directory of the metadata log first: a start creates the others if they are missing, but not this one.
    formatted = {
        config.metadata_log_dir: format_directory(
            disk,
            SystemClock(),
            rng,
            config.metadata_log_dir,
            node_id=config.node_id,
            cluster_id=cluster_id,
            directory_id=directory_id if options.standalone else None,
            voters=voters,
            records=records,
        )
    }
    for path in paths[1:]:
        formatted[path] = _format_other(disk, rng, path, config.node_id, cluster_id)
    return formatted


def _format_other(disk: Disk, rng: Rng, path: str, node_id: int, cluster_id: str) -> MetaProperties:
    """Format a directory that does not contain the metadata log."""
    try:
        make_durably(disk, path)
    except OSError as error:
        raise disk_refusal(error, path) from error
    return load_or_create(disk, rng, path, node_id=node_id, cluster_id=cluster_id)


def _check_first_voters(options: FormatOptions, config: BrokerConfig) -> None:
    """Require exactly one source of the initial voters: options, configuration, or an existing cluster."""
    chosen = sum((options.standalone, options.initial_controllers is not None, options.no_initial_controllers))
    if chosen and config.configured_voters:
        raise OperatorError(
            "controller.quorum.voters specifies the voters: omit --standalone, --initial-controllers and "
            "--no-initial-controllers , or remove that setting"
        )
    if chosen > 1 or (not chosen and config.is_controller and not config.configured_voters):
        raise OperatorError(
            "specify the initial voters with one of --standalone (this node only), --initial-controllers, and "
            "--no-initial-controllers (an existing cluster), or with controller.quorum.voters"
        )


def _first_records(options: FormatOptions, config: BrokerConfig, rng: Rng) -> list[ApiMessageAndVersion]:
    """Bootstrap records of features and users from the options; empty if the controller chooses the defaults."""
    if options.release_version is None and not options.features and not options.add_scram:
        return []
    if options.no_initial_controllers or not config.is_controller:
        raise OperatorError(
            "--release-version, --feature and --add-scram are for the controllers of a new cluster: omit them, "
            "this node uses those of its cluster"
        )
    levels = first_levels(options.release_version, options.features)
    users = [scram_record(argument, rng) for argument in options.add_scram]
    if users and levels[METADATA_VERSION] < SCRAM_CREDENTIALS:
        raise OperatorError(
            f"--add-scram needs metadata.version {METADATA_LEVELS[SCRAM_CREDENTIALS].name} or later: choose a newer "
            "--release-version"
        )
    return [*bootstrap_records(levels), *map(versioned, users)]


def _cluster_id(options: FormatOptions, rng: SystemRng) -> str:
    if options.cluster_id is None:
        if options.standalone:
            return random_id(rng)
        raise OperatorError("--cluster-id is missing: all nodes of a cluster need the same id")
    try:
        uuid_from_string(options.cluster_id)
    except ValueError as error:
        raise OperatorError(f"--cluster-id {options.cluster_id!r} is not an id of 22 URL-safe characters") from error
    return options.cluster_id


def _standalone(config: BrokerConfig, directory_id: str) -> Voter:
    """This node as the only voter, at its controller endpoint."""
    if not config.controller_listeners:
        raise OperatorError(
            "--standalone needs a controller listener: set controller.listener.names, and add it to listeners"
        )
    key = ReplicaKey(config.node_id, uuid_from_string(directory_id))
    return Voter.at(key, config.advertise(config.controller_listeners, "localhost"))


def format_cluster(
    disk: Disk, clock: Clock, rng: Rng, plan: LocalCluster, replaced: Collection[int] = ()
) -> LocalCluster:
    """Format the directories of a local cluster at its first start, and check them at later starts; returns the plan.

    The nodes in `replaced` get new directory ids; they and added brokers start as observers. Raises OperatorError if a
    formatted directory is missing or belongs to another node, and OSError.
    """
    missing = [broker for broker in plan.brokers if not _is_formatted(disk, plan, broker)]
    # A node that took part in an election has run: the voters of its cluster must not be created again.
    begun = any(disk.exists(f"{plan.directory(broker)}/{DIRECTORY}/{QUORUM_STATE}") for broker in plan.brokers)
    plan = plan._replace(formatted=plan.formatted or begun)
    if replaced:
        plan = _replace(disk, rng, plan, missing, replaced)
        missing = [broker for broker in plan.brokers if broker in missing or broker.node_id in replaced]
    expected = {*replaced, *plan.added}
    lost = [broker for broker in missing if plan.formatted and broker.node_id not in expected]
    if lost:
        raise _lost(disk, plan, lost)
    voters = () if plan.formatted else parse_initial_controllers(plan.initial_controllers(), "CONTROLLER")
    for broker in missing:
        format_directory(
            disk,
            clock,
            rng,
            plan.directory(broker),
            node_id=broker.node_id,
            cluster_id=plan.cluster_id,
            directory_id=broker.directory_id,
            voters=voters if broker in plan.voters else (),
        )
    return plan._replace(formatted=True, added=())


def _lost(disk: Disk, plan: LocalCluster, lost: Sequence[LocalBroker]) -> OperatorError:
    """The error for brokers with missing directories."""
    paths = [plan.directory(broker) for broker in lost]
    problem = f"the data of {_names(lost)} of the cluster in {plan.data_dir} is missing ({shown(paths)})"
    strays = {parse_stray_dir(name) for name in disk.listdir(plan.data_dir)}
    if strays & {os.path.basename(path) for path in paths}:
        return OperatorError(
            f"{problem}, but directories with the suffix {STRAY_DIR_SUFFIX} exist: restore them with "
            f"`ottla log restore {shlex.quote(plan.data_dir)} --execute`"
        )
    options = " ".join(f"--replace-node {broker.node_id}" for broker in lost)
    return OperatorError(
        f"{problem}: mount or restore it, or, if the disk is lost, add {options} to rebuild it from the other brokers"
    )


def _is_formatted(disk: Disk, plan: LocalCluster, broker: LocalBroker) -> bool:
    """True if the directory of the broker is formatted; raises OperatorError if it belongs to another node."""
    directory = plan.directory(broker)
    meta = read_meta_properties(disk, directory)
    if meta is None:
        return False
    planned = MetaProperties(plan.cluster_id, broker.node_id, broker.directory_id)
    if meta != planned:
        name = next(field for field in _ID_NAMES if getattr(meta, field) != getattr(planned, field))
        raise OperatorError(
            f"{directory}/{META_PROPERTIES} has {_ID_NAMES[name]} {getattr(meta, name)}, but {PLAN_FILE} has "
            f"{getattr(planned, name)}: restore the directory of this broker, or {PLAN_FILE} from a copy"
        )
    return True


def _replace(
    disk: Disk, rng: Rng, plan: LocalCluster, missing: Collection[LocalBroker], replaced: Collection[int]
) -> LocalCluster:
    """The plan with new directory ids for the nodes in `replaced`, written before any directory gets its id."""
    known = {broker.node_id for broker in plan.brokers}
    for node_id in replaced:
        if node_id not in known:
            raise OperatorError(
                f"--replace-node {node_id} is not a broker of the cluster in {plan.data_dir}, which has "
                f"{', '.join(map(str, sorted(known)))}"
            )
    there = [broker for broker in plan.brokers if broker.node_id in replaced and broker not in missing]
    if there:
        raise OperatorError(
            f"{_names(there)} of --replace-node still has data in "
            f"{shown([plan.directory(broker) for broker in there])}: "
            "omit the option, or move the directory elsewhere first"
        )
    if not plan.formatted:
        raise OperatorError(
            f"--replace-node requires a cluster that has run, and the one in {plan.data_dir} has not: omit the option"
        )
    left = [voter for voter in plan.voters if voter not in missing]
    if 2 * len(left) <= len(plan.voters):
        raise OperatorError(
            f"--replace-node needs a majority of the voters of the cluster in {plan.data_dir}, and only "
            f"{len(left)} of {len(plan.voters)} are available: mount or restore the directories of the others"
        )
    for broker in missing:
        require_unused(disk, plan.directory(broker))
    renewed = tuple(
        broker._replace(directory_id=random_id(rng)) if broker.node_id in replaced else broker
        for broker in plan.brokers
    )
    plan = plan._replace(brokers=renewed)
    write_plan(disk, plan)
    return plan


def _names(brokers: Sequence[LocalBroker]) -> str:
    """The brokers as text: `broker 1`, `brokers 1 and 2`."""
    ids = [str(broker.node_id) for broker in brokers]
    return f"broker {ids[0]}" if len(ids) == 1 else f"brokers {', '.join(ids[:-1])} and {ids[-1]}"
