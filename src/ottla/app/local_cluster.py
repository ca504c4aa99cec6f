"""Plan of a local cluster: its brokers, their ports and directories, and the file that stores them.

`ottla start --brokers N` creates it in the data directory: `cluster.json` with the cluster id and, for each broker,
node id, ports and directory id. Beside it are a directory and a `server.properties` file per broker, so that each can
also be started alone. The plan is created once. Later starts read it from the file, since voters are identified by
directory id and port. A start with more brokers adds the new ones to the plan.

Invariants: the file states that the directories are formatted only after all of them are. An interrupted first start
is therefore resumed, and a directory that is missing later is reported. Likewise the file names added brokers until
their directories are formatted. No other node may start in the directory of the plan or create a missing broker
directory.

Left out: formatting (`app.format`), process management (`app.supervisor`), several machines (each host has its own
configuration there).
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Callable, Mapping
from typing import NamedTuple

from ottla.app.ports import HOST, free_ports
from ottla.common.errors import DAMAGED_JSON, DataDirectoryError, OperatorError
from ottla.common.kafka.ids import uuid_from_string
from ottla.common.platform.clock import Rng
from ottla.common.platform.disk import Disk
from ottla.storage.files.directories import partition_directories, require_unused, shown
from ottla.storage.files.meta_properties import random_id
from ottla.storage.files.names import META_PROPERTIES

PLAN_FILE = "cluster.json"
PLAN_VERSION = 1
MAX_VOTERS = 3
DIRECTORY_PREFIX = "broker-"
CONTROLLER_PORT_DISTANCE = 1000
"""Distance of the controller port of a broker from its port, so that broker ports are consecutive."""

OWNED_SETTINGS = (
    "node.id",
    "broker.id",
    "process.roles",
    "listeners",
    "advertised.listeners",
    "controller.listener.names",
    "controller.quorum.voters",
    "controller.quorum.bootstrap.servers",
    "metadata.log.dir",
)
"""Settings that the plan sets per broker, so they cannot be set for all brokers."""


class LocalBroker(NamedTuple):
    """One broker of the plan."""

    node_id: int
    port: int
    controller_port: int
    directory_id: str

    @property
    def address(self) -> str:
        """Address for clients."""
        return f"{HOST}:{self.port}"


class LocalCluster(NamedTuple):
    """The plan of a local cluster."""

    data_dir: str
    cluster_id: str
    brokers: tuple[LocalBroker, ...]
    formatted: bool
    """True once all directories were formatted: then a directory that is not formatted has been lost."""
    added: tuple[int, ...] = ()
    """Node ids of added brokers whose directories may not be formatted yet."""

    @property
    def voters(self) -> tuple[LocalBroker, ...]:
        """Voters of the metadata quorum: the first three brokers, or the first one of a cluster with two."""
        return self.brokers[: MAX_VOTERS if len(self.brokers) >= MAX_VOTERS else 1]

    @property
    def ports(self) -> list[int]:
        """All ports that the brokers listen on."""
        return [*(broker.port for broker in self.brokers), *(voter.controller_port for voter in self.voters)]

    @property
    def bootstrap_servers(self) -> str:
        """The brokers' addresses, for clients."""
        return ",".join(broker.address for broker in self.brokers)

    def directory(self, broker: LocalBroker) -> str:
        """The data directory of one broker."""
        return os.path.join(self.data_dir, f"{DIRECTORY_PREFIX}{broker.node_id}")

    def properties_path(self, broker: LocalBroker) -> str:
        """Path of the settings file of a broker."""
        return os.path.join(self.data_dir, f"{DIRECTORY_PREFIX}{broker.node_id}.properties")

    def content(self) -> bytes:
        """The plan in the format of `cluster.json`; inverse of `parse_plan`."""
        import json  # imported here, as below: most starts are of a single node

        fields = {
            "version": PLAN_VERSION,
            "formatted": self.formatted,
            "added": self.added,
            "cluster_id": self.cluster_id,
            "brokers": [broker._asdict() for broker in self.brokers],
        }
        return json.dumps(fields, indent=2).encode() + b"\n"

    def initial_controllers(self) -> str:
        """The voters in the format of `ottla format --initial-controllers`."""
        return ",".join(
            f"{broker.node_id}@{HOST}:{broker.controller_port}:{broker.directory_id}" for broker in self.voters
        )

    def settings(self, broker: LocalBroker, base: Mapping[str, str]) -> dict[str, str]:
        """The settings of one broker: `base` with the settings of the plan.

        The rack is the machine, so that replicas are spread over hosts in a larger cluster. A voter whose directory
        was replaced joins the quorum by itself. `base` takes precedence over both. All listeners, including those of
        the controllers, use the protocol of `security.inter.broker.protocol`, unless `base` maps them itself.
        """
        voter = broker in self.voters
        protocol = base.get("security.inter.broker.protocol", "").strip().upper() or "PLAINTEXT"
        listeners = f"{protocol}://{broker.address}"
        if voter:
            listeners += f",CONTROLLER://{HOST}:{broker.controller_port}"
        protocols = {"listener.security.protocol.map": f"{protocol}:{protocol},CONTROLLER:{protocol}"}
        return {
            "broker.rack": socket.gethostname(),
            **({"controller.quorum.auto.join.enable": "true"} if voter else {}),
            **(protocols if protocol != "PLAINTEXT" else {}),
            **{name: value for name, value in base.items() if name != "log.dir"},
            "node.id": str(broker.node_id),
            "process.roles": "broker,controller" if voter else "broker",
            "listeners": listeners,
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.bootstrap.servers": ",".join(f"{HOST}:{each.controller_port}" for each in self.voters),
            "log.dirs": self.directory(broker),
        }


def check_base_settings(settings: Mapping[str, str]) -> None:
    """Raises OperatorError for a setting that each broker needs for itself."""
    for name in OWNED_SETTINGS:
        if name in settings:
            raise OperatorError(
                f"{name} is set, but --brokers sets it per broker: remove it, or start the brokers one by one "
                "with their own configuration"
            )


def plan_cluster(
    disk: Disk,
    rng: Rng,
    data_dir: str,
    count: int,
    port: int | None,
    *,
    check: Callable[[LocalCluster], None] | None = None,
) -> LocalCluster:
    """The plan in `data_dir`, created if it is missing; `port` is that of the first broker, 0 for free ports.

    A higher `count` adds brokers to a cluster that was formatted. `check` may reject the plan before anything is
    written. Raises OperatorError if the directory contains other data or a plan with more brokers.
    """
    path = os.path.join(data_dir, PLAN_FILE)
    try:
        data = disk.read_bytes(path)
    except FileNotFoundError:
        plan = _new_plan(disk, rng, data_dir, count, port)
        if check is not None:
            check(plan)
        disk.makedirs(data_dir)
        write_plan(disk, plan)
        return plan
    plan = parse_plan(data_dir, data)
    named = {os.path.basename(plan.directory(broker)) for broker in plan.brokers}
    unnamed = [name for name in _broker_directories(disk, data_dir) if name not in named]
    if unnamed:
        raise DataDirectoryError(
            f"{path} contains no broker for {shown(unnamed)}: restore that file from a copy, or move these "
            "directories elsewhere"
        )
    grows = plan.formatted and count > len(plan.brokers)
    if len(plan.brokers) != count and not grows:
        raise DataDirectoryError(
            f"the cluster in {data_dir} has {len(plan.brokers)} brokers: start it with --brokers {len(plan.brokers)}, "
            "or choose another directory with --data-dir"
        )
    if port not in (None, 0, plan.brokers[0].port):
        raise DataDirectoryError(
            f"the cluster in {data_dir} starts at port {plan.brokers[0].port}: omit --port, or choose another "
            "directory with --data-dir"
        )
    if grows:
        plan = _grown(disk, rng, plan, count, free=port == 0)
    if check is not None:
        check(plan)
    if grows:
        write_plan(disk, plan)
    return plan


def write_plan(disk: Disk, plan: LocalCluster) -> None:
    """Write `cluster.json`, durably. Raises OSError."""
    disk.write_atomic(os.path.join(plan.data_dir, PLAN_FILE), plan.content())


def refuse_directory_of_plan(disk: Disk, directory: str) -> None:
    """Raise OperatorError for a single node in the directory of a plan, or in a missing directory of one of its
    brokers.

    Raises OSError.
    """
    path = os.path.join(directory, PLAN_FILE)
    if disk.exists(path):
        plan = parse_plan(directory, disk.read_bytes(path))
        raise DataDirectoryError(
            f"{directory} contains a cluster ({PLAN_FILE}), not the data of one broker: start it with --brokers "
            f"{len(plan.brokers)}, or set log.dirs (--data-dir) to another directory"
        )
    holder, name = os.path.split(directory)
    planned = disk.exists(os.path.join(holder, PLAN_FILE)) and name.startswith(DIRECTORY_PREFIX)
    if planned and not disk.exists(os.path.join(directory, META_PROPERTIES)):
        raise DataDirectoryError(
            f"{directory} is not formatted and belongs to the cluster of {os.path.join(holder, PLAN_FILE)}: mount or "
            "restore it, or, if its disk is lost, start the cluster with --brokers and --replace-node "
            f"{name.removeprefix(DIRECTORY_PREFIX)}"
        )


def refuse_busy_ports(plan: LocalCluster) -> None:
    """Raise OperatorError if another process listens on a port of the plan."""
    from ottla.net.listener import bind_socket

    busy = []
    for port in plan.ports:
        try:
            bind_socket(HOST, port).close()
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                reason = error.strerror or error
                raise OperatorError(f"port {port} can't be opened ({reason}): choose another --port") from error
            busy.append(port)
    if busy:
        remedy = "stop it" if plan.formatted else "stop it, or choose another first port with --port (0 for free ports)"
        ports = f"port {busy[0]}" if len(busy) == 1 else f"ports {', '.join(map(str, busy))}"
        raise OperatorError(
            f"another process uses {ports} on {HOST}, which the cluster in {plan.data_dir} needs: {remedy}"
        )


def _new_plan(disk: Disk, rng: Rng, data_dir: str, count: int, port: int | None) -> LocalCluster:
    if disk.exists(os.path.join(data_dir, META_PROPERTIES)):
        raise DataDirectoryError(
            f"{data_dir} is the data directory of a single broker, which --brokers can't use: choose another one "
            "with --data-dir"
        )
    present = _broker_directories(disk, data_dir)
    found = [name for name in present if disk.listdir(os.path.join(data_dir, name))]
    if found:
        raise DataDirectoryError(
            f"{data_dir} contains broker directories ({shown(found)}) but no {PLAN_FILE}: restore that file from a "
            "copy, "
            "start each broker with its own .properties file, or choose another directory with --data-dir"
        )
    require_unused(disk, data_dir, besides=present)
    ports = free_ports(2 * count) if port == 0 else _ports_in_a_row(port or 9092, count)
    brokers = tuple(
        LocalBroker(number + 1, ports[number], ports[count + number], random_id(rng)) for number in range(count)
    )
    return LocalCluster(data_dir, random_id(rng), brokers, formatted=False)


def _grown(disk: Disk, rng: Rng, plan: LocalCluster, count: int, *, free: bool) -> LocalCluster:
    """The plan with more brokers, whose ports follow those of the last one, or are `free` ones."""
    number, last = count - len(plan.brokers), plan.brokers[-1]
    first_id = max(broker.node_id for broker in plan.brokers) + 1
    in_a_row = last.controller_port - last.port == CONTROLLER_PORT_DISTANCE
    if in_a_row and not free:
        ports = _ports_in_a_row(max(broker.port for broker in plan.brokers) + 1, number)
    else:
        ports = free_ports(2 * number)
    new = tuple(
        LocalBroker(first_id + index, ports[index], ports[number + index], random_id(rng)) for index in range(number)
    )
    for broker in new:
        require_unused(disk, plan.directory(broker))
    return plan._replace(brokers=plan.brokers + new, added=plan.added + tuple(broker.node_id for broker in new))


def _broker_directories(disk: Disk, data_dir: str) -> list[str]:
    """Names of directories in `data_dir` that match those of a plan."""
    if not disk.exists(data_dir):
        return []
    return [name for name in partition_directories(disk, data_dir) if name.startswith(DIRECTORY_PREFIX)]


def _ports_in_a_row(first: int, count: int) -> list[int]:
    ports = [*range(first, first + count)]
    ports += [port + CONTROLLER_PORT_DISTANCE for port in ports]
    if ports[-1] > 65535:
        raise OperatorError(
            f"--port {first} leaves no room for {count} brokers and their controller ports, "
            f"{CONTROLLER_PORT_DISTANCE} higher: choose a lower --port"
        )
    return ports


def parse_plan(data_dir: str, data: bytes) -> LocalCluster:
    """The plan in the content of `cluster.json` of `data_dir`. Raises OperatorError."""
    import json

    path = os.path.join(data_dir, PLAN_FILE)
    try:
        content = json.loads(data)
        brokers = tuple(
            LocalBroker(
                int(item["node_id"]), int(item["port"]), int(item["controller_port"]), str(item["directory_id"])
            )
            for item in content["brokers"]
        )
        version = content.get("version", PLAN_VERSION)
        if version != PLAN_VERSION:
            raise DataDirectoryError(
                f"{path} has version {version}, but this release reads version {PLAN_VERSION}: start the release that "
                "wrote it, or choose another directory with --data-dir"
            )
        for text in (str(content["cluster_id"]), *(broker.directory_id for broker in brokers)):
            uuid_from_string(text)
        if not brokers:
            raise ValueError("it contains no broker")
        if len({broker.node_id for broker in brokers}) < len(brokers):
            raise ValueError("two brokers have the same node_id")
        if len({broker.directory_id for broker in brokers}) < len(brokers):
            raise ValueError("two brokers have the same directory_id")
        # Files without this flag are from older releases; most of their clusters have run.
        return LocalCluster(
            data_dir,
            str(content["cluster_id"]),
            brokers,
            formatted=content.get("formatted") is not False,
            added=tuple(int(node_id) for node_id in content.get("added", ())),
        )
    except DAMAGED_JSON as error:
        raise DataDirectoryError(
            f"{path} is damaged ({error}): restore it from a copy, or choose another directory with --data-dir"
        ) from error
