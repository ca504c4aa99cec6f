"""`meta.properties`: cluster, node and directory that the data belongs to.

Version 1 is that of a node with a quorum (KRaft), version 0 that of a broker on ZooKeeper. One is never accepted for
the other, since the metadata store defines the meaning of the files next to it.

Invariant: the file is written when the directory is formatted, and changed at most once: a broker that migrates from
ZooKeeper to a quorum has version 0 while the migration can be rolled back, and version 1 from then on. Data of another
node or cluster is never touched.

Version 0 as Apache Kafka writes it, without `directory.id`, is not supported and rejected.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ottla.common.errors import DataDirectoryError
from ottla.common.kafka.ids import RESERVED_UUIDS, new_uuid, uuid_from_string, uuid_to_string
from ottla.common.platform.clock import Rng
from ottla.common.platform.disk import Disk
from ottla.common.platform.disk_refusal import disk_refusal
from ottla.storage.files.directories import require_unused
from ottla.storage.files.names import META_PROPERTIES

QUORUM: Final = 1
ZOOKEEPER: Final = 0
"""Version of the file, by metadata store of the cluster."""

_NODE_ID = {QUORUM: "node.id", ZOOKEEPER: "broker.id"}


class MetaProperties(NamedTuple):
    """Content of the file: ids in their 22-character form."""

    cluster_id: str
    node_id: int
    directory_id: str


def load_or_create(
    disk: Disk, rng: Rng, directory: str, *, node_id: int, cluster_id: str | None = None, version: int = QUORUM
) -> MetaProperties:
    """Read and verify the file, or write it in an unused directory.

    `cluster_id` is the operator's choice; without it a new directory gets a random one. Raises OperatorError if the
    file is unreadable, damaged, lost, or of another node or cluster.
    """
    path = f"{directory}/{META_PROPERTIES}"
    meta = read_meta_properties(disk, directory, version)
    if meta is None:
        try:
            require_unused(disk, directory)
        except OSError as error:
            raise disk_refusal(error, directory) from error
        meta = MetaProperties(cluster_id or random_id(rng), node_id, random_id(rng))
        write_meta_properties(disk, directory, meta, version)
        return meta
    if meta.node_id != node_id:
        setting = _NODE_ID[version]
        raise DataDirectoryError(
            f"{path} belongs to {setting} {meta.node_id}, but the configuration says {setting} {node_id}: "
            f"use the node's own data directory or set {setting}"
        )
    if cluster_id is not None and meta.cluster_id != cluster_id:
        raise DataDirectoryError(
            f"{path} belongs to cluster {meta.cluster_id}, not to {cluster_id}: take {directory} out of log.dirs, or "
            "bring back the directory that belongs there"
        )
    return meta


def read_meta_properties(disk: Disk, directory: str, version: int = QUORUM) -> MetaProperties | None:
    """Read the file, None without it. Raises OperatorError if it is unreadable, damaged or of the other version."""
    path = f"{directory}/{META_PROPERTIES}"
    try:
        data = disk.read_bytes(path)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise disk_refusal(error, path) from error
    return _parse(path, data, version)


def random_id(rng: Rng) -> str:
    """Return a new random id that is safe on a command line: it doesn't begin with a dash, as in Kafka."""
    while True:
        uuid = new_uuid(rng.random_bytes(16))
        text = uuid_to_string(uuid)
        if not text.startswith("-") and uuid not in RESERVED_UUIDS:
            return text


def write_meta_properties(disk: Disk, directory: str, meta: MetaProperties, version: int = QUORUM) -> None:
    """Write the file of a new directory, durably, which completes its formatting. Raises OperatorError.

    Also used when a broker's migration to a quorum is finalized.
    """
    path = f"{directory}/{META_PROPERTIES}"
    lines = [
        "#",
        f"cluster.id={meta.cluster_id}",
        f"directory.id={meta.directory_id}",
        f"{_NODE_ID[version]}={meta.node_id}",
        f"version={version}",
    ]
    try:
        disk.write_atomic(path, ("\n".join(lines) + "\n").encode())
    except OSError as error:
        raise disk_refusal(error, path) from error


def is_of_zookeeper(disk: Disk, directory: str) -> bool:
    """Return whether the file is that of a broker on ZooKeeper, as Ottla writes it. Raises OperatorError."""
    path = f"{directory}/{META_PROPERTIES}"
    try:
        fields = _fields(disk.read_bytes(path))
    except FileNotFoundError:
        return False
    except OSError as error:
        raise disk_refusal(error, path) from error
    return fields.get("version") == str(ZOOKEEPER) and "directory.id" in fields


def _fields(data: bytes) -> dict[str, str]:
    fields: dict[str, str] = {}
    for line in data.decode("utf-8", "replace").splitlines():
        stripped = line.strip()
        if stripped and not stripped.startswith(("#", "!")):
            name, _, value = stripped.partition("=")
            # java.util.Properties escapes `:`, `=`, `#` and `!` in values that it stores.
            fields[name.strip()] = value.strip().replace("\\", "")
    return fields


def _parse(path: str, data: bytes, version: int) -> MetaProperties:
    fields = _fields(data)
    if fields.get("version") == str(QUORUM) and version == ZOOKEEPER:
        raise DataDirectoryError(
            f"{path} has version 1, of a node with a quorum, and zookeeper.connect is set: set process.roles, or set "
            "log.dirs (--data-dir) to another directory"
        )
    if fields.get("version") == str(ZOOKEEPER) and version == QUORUM:
        raise DataDirectoryError(
            f"{path} has version 0, of a node in ZooKeeper mode: migrate its cluster to KRaft with Apache Kafka 3.9, "
            "or set log.dirs (--data-dir) to another directory"
        )
    if "version" not in fields:
        raise DataDirectoryError(
            f"{path} is damaged, it names no version: restore it from a copy, or set log.dirs (--data-dir) to another "
            "directory"
        )
    if fields["version"] != str(version):
        raise DataDirectoryError(
            f"{path} has version {fields['version']}, and this release reads version {version}: start the "
            "release that wrote it, or set log.dirs (--data-dir) to another directory"
        )
    cluster_id = fields.get("cluster.id", "")
    if not cluster_id:
        raise DataDirectoryError(f"{path} names no cluster.id: restore the file from a copy")
    if "directory.id" not in fields:
        if version == ZOOKEEPER:
            raise DataDirectoryError(
                f"{path} has no directory.id, like that of an Apache Kafka broker on ZooKeeper, which is not "
                "supported: set log.dirs (--data-dir) to another directory"
            )
        raise DataDirectoryError(
            f"{path} has no directory.id: start this directory once with Apache Kafka 3.7 or later"
        )
    try:
        node_id = int(fields.get(_NODE_ID[version], ""))
        uuid_from_string(fields.get("directory.id", ""))
    except ValueError as error:
        raise DataDirectoryError(f"{path} is damaged ({_NODE_ID[version]} or directory.id): {error}") from error
    return MetaProperties(cluster_id, node_id, fields["directory.id"])
