"""Checks of the machine and the cluster before a load: each failure comes with its remedy.

Works without the extra, and without Java. The last check is decisive: a Spark session in which a Python
worker imports the modules of a load.

Not checked: performance.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ottla import __version__
from ottla.cli.command import CLIENT_ID, counted, size_text
from ottla.client.admin.cluster import Cluster
from ottla.client.wire.connection import Connection
from ottla.client.wire.failure import TopicNotFound
from ottla.client.wire.model import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from ottla.client.wire.security import PLAINTEXT, ClientSecurity
from ottla.common.errors import ErrorCode, KafkaError, OperatorError, OttlaError
from ottla.common.extras import require_packages
from ottla.common.kafka.acl import AclOperation
from ottla.common.platform.endpoint import format_address
from ottla.pipeline.model.failure import os_reason, spark_reason
from ottla.pipeline.spark.session import (
    DRIVER_MEMORY,
    DRIVER_MEMORY_SETTING,
    check_master,
    find_java,
    is_local,
    memory_bytes,
    open_session,
    parallelism,
    require_connect,
)
from ottla.protocol.registry import API, ApiKey

if TYPE_CHECKING:  # Arrow need not be installed
    from ottla.pipeline.model.plan import ClusterView
    from ottla.pipeline.stores.store import Store

BROKER_APIS = (ApiKey.METADATA, ApiKey.LIST_OFFSETS, ApiKey.OFFSET_FOR_LEADER_EPOCH, ApiKey.FETCH)
"""Requests that a load sends to a broker."""

BROKER_TIMEOUT_S = 10.0
WORKER_BYTES = 512 << 20
"""Memory of one Python worker in a load: a row group of 64 MiB in several forms, a fetch, the libraries."""

FREE_BYTES = 256 << 20
"""Free space that a table's disk should have: the default input of one task."""

STORE_MANUAL = "docs/guides/pipeline-object-stores.md"
PROBED_SUBJECT = "ottla-doctor"
"""An id that no registry has."""


@dataclass(frozen=True, slots=True)
class Finding:
    """Result of one check. `detail` is what was found or, for a failed check, the error and its remedy."""

    check: str
    ok: bool
    detail: str


@dataclass(frozen=True, slots=True)
class Subject:
    """Objects to check: those that the options of a load name."""

    bootstrap_servers: str
    master: str
    conf: Mapping[str, str]
    table: Path | str | None = None
    """A directory, the URL of an object store, or a name in the catalog."""
    catalog_url: str | None = None
    topics: Sequence[str] = ()
    registry_url: str | None = None
    registry_ca: Path | None = None
    security: ClientSecurity = PLAINTEXT
    groups: Sequence[str] = ()
    transactional_ids: Sequence[str] = ()


def examine(subject: Subject) -> Iterator[Finding]:
    """Yield each finding as soon as it is known. A check whose prerequisite failed reports that."""
    first: list[Callable[[], Iterator[Finding]]] = [
        packages,
        lambda: _one("java", java),
        lambda: _one("master", lambda: master(subject.master)),
        lambda: _one("memory", lambda: memory(subject.master, subject.conf)),
    ]
    needed = []
    for check in first:
        for finding in check():
            if not finding.ok and not (finding.check == "java" and subject.master.startswith("sc://")):
                needed.append(finding.check)
            yield finding
    yield from brokers(subject.bootstrap_servers, subject.security)
    yield from topics(subject.bootstrap_servers, subject.topics, subject.security)
    yield from rights(subject)
    location, catalog_url, registry_url = subject.table, subject.catalog_url, subject.registry_url
    if catalog_url is not None:
        yield from _one("catalog", lambda: catalog(catalog_url, location))
    elif isinstance(location, Path):
        yield from _one("table", lambda: table(location))
    elif location is not None:
        yield from _one("table", lambda: stored_table(location))
    if location is not None:
        yield from _rollback(location, catalog_url)
    if registry_url is not None:
        yield from _one("registry", lambda: registry(registry_url, subject.registry_ca))
    if needed:
        yield Finding("spark", False, f"was not started, as it needs: {', '.join(needed)}")
    else:
        yield from _one("spark", lambda: spark(subject.master, subject.conf))


def _one(name: str, check: Callable[[], str]) -> Iterator[Finding]:
    """Run a check that returns a detail and raises OttlaError with the error."""
    try:
        yield Finding(name, True, check())
    except OttlaError as error:
        yield Finding(name, False, str(error))


def packages() -> Iterator[Finding]:
    """Every package of the extra `pipeline`, which includes `lake`, in a version that it allows."""
    install = f"run `{sys.executable} -m pip install --upgrade 'ottla[pipeline]'`"
    try:
        from packaging.requirements import Requirement
    except ImportError:
        yield Finding("packages", False, f"packaging is not installed: {install}")
        return
    declared = [Requirement(text) for text in importlib.metadata.requires("ottla") or ()]
    for requirement in declared:
        marker = requirement.marker
        if marker is None or not any(marker.evaluate({"extra": extra}) for extra in ("lake", "pipeline")):
            continue
        if requirement.name == "ottla" or marker.evaluate({"extra": ""}):
            continue
        name = f"package {requirement.name}"
        try:
            version = importlib.metadata.version(requirement.name)
        except importlib.metadata.PackageNotFoundError:
            yield Finding(name, False, f"is not installed: {install}")
            continue
        if requirement.specifier.contains(version, prereleases=True):
            yield Finding(name, True, version)
        else:
            yield Finding(name, False, f"is {version}, and {requirement.specifier} is needed: {install}")


def java() -> str:
    runtime = find_java()
    return f"Java {runtime.version} at {runtime.executable} ({runtime.source})"


def master(url: str) -> str:
    """A reachable master, if it can be probed: a standalone one, or Spark Connect."""
    if url.startswith("sc://"):
        require_connect()
    check_master(url)
    return url


def memory(master: str, conf: Mapping[str, str]) -> str:
    """Available memory of this machine, compared with the limits of Spark's JVM and its Python workers."""
    if master.startswith("sc://"):
        return "is that of the Connect server"
    driver = memory_bytes(conf.get(DRIVER_MEMORY_SETTING, DRIVER_MEMORY))
    workers = parallelism(master) if is_local(master) else 0
    needed = driver + workers * WORKER_BYTES
    available = available_bytes()
    taken = f"Spark's JVM may take {size_text(driver)}"
    if workers:
        taken += f", {workers} Python worker{'s' if workers > 1 else ''} {size_text(WORKER_BYTES)} each"
    if available < needed:
        raise OperatorError(
            f"{size_text(available)} are available, and {taken}: lower it with --conf {DRIVER_MEMORY_SETTING}=512m and "
            "--master local[1], or free memory"
        )
    return f"{size_text(available)} are available; {taken}"


def available_bytes() -> int:
    """Memory available without swapping, or the rest of the control group's limit, if that is less."""
    with open("/proc/meminfo") as lines:
        (available,) = (int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable:"))
    with suppress(OSError, ValueError):  # no control group, or none with a limit ("max")
        group = Path("/sys/fs/cgroup")
        limit = int((group / "memory.max").read_text())
        statistics = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        used = int((group / "memory.current").read_text()) - int(statistics["file"])  # page cache is reclaimable
        available = min(available, limit - used)
    return available


def brokers(bootstrap_servers: str, security: ClientSecurity = PLAINTEXT) -> Iterator[Finding]:
    """Every broker at its advertised address, with the API versions that it shares with a load."""
    try:
        with _open(bootstrap_servers, security) as cluster:
            live = cluster.describe().brokers
    except OttlaError as error:
        yield Finding("brokers", False, f"{error}; --bootstrap-server names the cluster")
        return
    for broker in sorted(live, key=lambda each: each.node_id):
        name = f"broker {broker.node_id}"
        try:
            versions = _versions(broker.host, broker.port, security)
        except OttlaError as error:
            way = "check its advertised.listeners, the address for clients and workers"
            yield Finding(name, False, f"{error}; {way}")
        else:
            yield Finding(name, True, f"{format_address(broker.host, broker.port)}, {versions}")


def _open(bootstrap_servers: str, security: ClientSecurity) -> Cluster:
    return Cluster(bootstrap_servers, client_id=CLIENT_ID, timeout_s=BROKER_TIMEOUT_S, security=security)


def _versions(host: str, port: int, security: ClientSecurity) -> str:
    connection = Connection(
        host,
        port,
        client_id=CLIENT_ID,
        timeout_s=BROKER_TIMEOUT_S,
        software_version=__version__,
        tls=security.tls,
        login=security.login,
    )
    try:
        return ", ".join(f"{API[key].name} v{connection.version_for(key)}" for key in BROKER_APIS)
    finally:
        connection.close()


def topics(bootstrap_servers: str, names: Sequence[str], security: ClientSecurity = PLAINTEXT) -> Iterator[Finding]:
    """Each topic: it exists, and this user may read it."""
    yield from _asked(bootstrap_servers, security, {f"topic {name}": partial(topic, name=name) for name in names})


def _asked(
    bootstrap_servers: str, security: ClientSecurity, checks: Mapping[str, Callable[[Cluster], str]]
) -> Iterator[Finding]:
    """Findings of checks on a cluster, by their names; all of them fail if the cluster is unreachable."""
    if not checks:
        return
    try:
        cluster = _open(bootstrap_servers, security)
    except OttlaError as error:
        yield from (Finding(name, False, str(error)) for name in checks)
        return
    with cluster:
        for name, check in checks.items():
            yield from _one(name, partial(check, cluster))


def topic(cluster: ClusterView, name: str) -> str:
    """Send all requests of a load about a topic, including a fetch. Raises OperatorError, KafkaError."""
    try:
        found = cluster.topics.get(name)
        keys = [(name, each.index) for each in found.partitions]
        starts = cluster.records.list_offsets(dict.fromkeys(keys, EARLIEST_TIMESTAMP))
        ends = cluster.records.list_offsets(dict.fromkeys(keys, LATEST_TIMESTAMP))
        held = {key: ends[key].offset - starts[key].offset for key in keys}
        fullest = max(keys, key=held.__getitem__)
        begin = starts[fullest].offset
        cluster.records.fetch(
            name, fullest[1], begin, max_bytes=1, max_wait_ms=0, isolation="read_committed", topic_id=found.topic_id
        )
    except TopicNotFound as error:
        raise OperatorError(f"{error}; `ottla topic create {name}` creates it") from error
    except KafkaError as error:
        if error.code != ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            raise
        raise OperatorError(
            f"{error}; a load needs READ and DESCRIBE on its topics: grant them with `ottla acl add`"
        ) from error
    return f"{counted(len(keys), 'partition')}, {counted(sum(held.values()), 'offset')}, and they can be read"


def rights(subject: Subject) -> Iterator[Finding]:
    """Each group and transactional id: this user has the permissions of a load or a push on it."""
    checks: dict[str, Callable[[Cluster], str]] = {
        f"group {name}": partial(group, name=name) for name in subject.groups
    }
    checks |= {f"transactional id {name}": partial(transactional_id, name=name) for name in subject.transactional_ids}
    yield from _asked(subject.bootstrap_servers, subject.security, checks)


def group(cluster: Cluster, name: str) -> str:
    """Check that offsets can be committed to a group, which need not exist. Raises OperatorError, KafkaError."""
    needed = f"offsets in group {name!r} need READ on it: {_allow('Read', '--group', name)}"
    try:
        allowed = cluster.groups.operations(name)
    except KafkaError as error:
        if error.code != ErrorCode.GROUP_AUTHORIZATION_FAILED:
            raise
        raise OperatorError(f"{error}; {needed}") from error
    if AclOperation.READ not in allowed:
        raise OperatorError(needed)
    return "offsets can be committed to it"


def transactional_id(cluster: Cluster, name: str) -> str:
    """Check that a producer may use the id, without changing it. Raises OperatorError, KafkaError."""
    try:
        cluster.transactions.terminate(name, 0)  # the invalid timeout is only reported with permission to write
    except KafkaError as error:
        if error.code == ErrorCode.INVALID_TRANSACTION_TIMEOUT:
            return "transactions can be written under it"
        if error.code != ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
            raise
        way = _allow("Write", "--transactional-id", name)
        raise OperatorError(f"{error}; exactly-once writes need WRITE on the transactional id: {way}") from error
    raise OttlaError(f"transactional id {name!r}: the broker accepted a transaction timeout of 0 ms, which is invalid")


def _allow(operation: str, option: str, name: str) -> str:
    """The command for an administrator."""
    return f"`ottla acl add --allow-principal User:NAME --operation {operation} {option} {shlex.quote(name)}`"


def table(path: Path) -> str:
    """Check that files can be created, synced and removed in the directory of an existing or new table."""
    existing = path.absolute()
    try:
        while not existing.exists():
            existing = existing.parent
        if not existing.is_dir():
            raise OperatorError(f"{existing} is a file, but a table is a directory: name another with --table")
        descriptor, name = tempfile.mkstemp(prefix=".ottla-doctor-", dir=existing)
        try:
            os.write(descriptor, b"ottla")
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
            os.unlink(name)
        free = shutil.disk_usage(existing).free
    except OSError as error:
        raise OperatorError(
            f"{existing} can't be written: {os_reason(error)}; fix the cause or name another directory with --table"
        ) from error
    if free < FREE_BYTES:
        raise OperatorError(f"{size_text(free)} are free at {existing}, less than a task reads: free some space")
    there = "exists" if existing == path.absolute() else f"will be created in {existing}"
    return f"{path} {there}, files can be written, {size_text(free)} are free"


def stored_table(url: str) -> str:
    """Check that a load could hold a lease at a URL: files can be written and removed, and are created only once."""
    packages = {"pyarrow": "pyarrow", "obstore": "obstore", "deltalake": "deltalake"}
    require_packages("object stores need", packages, "ottla[object-stores]")
    from ottla.pipeline.sinks.open_table import found_format
    from ottla.pipeline.stores.open_store import open_store

    store = open_store(url)
    try:
        there = "exists" if found_format(store) else "will be created"
        _try_lease(store)
    except (OttlaError, OSError) as error:
        raise OperatorError(
            f"{error}; create the bucket if it is missing, and set the variables of {STORE_MANUAL} to the store and a "
            "key with permission to read, write and delete in it"
        ) from error
    return f"{store.location} {there}, files can be written and removed, and of two writers one creates a file"


def _rollback(location: Path | str, catalog_url: str | None) -> Iterator[Finding]:
    """Check that an existing table, and its dead letters, have the rows of their offsets."""
    if importlib.util.find_spec("pyarrow") is None:  # which another check reports
        return
    from ottla.pipeline.sinks.open_table import open_table
    from ottla.pipeline.sinks.table import require_no_rollback

    try:
        found = open_table(location, catalog_url=catalog_url)
        if not found.exists():
            return
        for one in (found, found.dead_letters()):
            require_no_rollback(one)
    except OttlaError as error:
        yield Finding("table rows", False, str(error))
    else:
        yield Finding("table rows", True, "rows and offsets of its loads match")


def _try_lease(store: Store) -> None:
    """Acquire a lease in a store, as a load does first. Raises OttlaError, OSError."""
    from ottla.pipeline.load.leases import held_lease
    from ottla.pipeline.sinks.writer import new_load_id

    with held_lease(store, new_load_id()) as lease:
        lease.renew()
    store.remove(lease.path)


def catalog(url: str, name: Path | str | None) -> str:
    """Check that a REST catalog of Iceberg answers, and that the location of the table is writable."""
    from ottla.pipeline.sinks.open_table import open_table

    found = open_table(name or "ottla.doctor", catalog_url=url)
    if not found.exists():
        return f"{url} answers" + (f"; {name} will be created at a location of the catalog" if name else "")
    store = found.layout().store
    try:
        _try_lease(store)
    except (OttlaError, OSError) as error:
        raise OperatorError(
            f"{url} answers, but the location of {name} is not writable: {error}; {STORE_MANUAL} lists the settings of "
            "a store for a catalog and the environment"
        ) from error
    return f"{url} answers, {name} exists, and files can be written and removed at {store.location}"


def registry(url: str, authorities: Path | None) -> str:
    """Check that a schema registry answers as one."""
    from ottla.schemas.settings import open_registry

    opened = open_registry(url, authorities)
    opened.latest(PROBED_SUBJECT)
    return f"{opened.shown} answers as a schema registry"


def spark(master: str, conf: Mapping[str, str]) -> str:
    """Start a session, and in it a Python worker that imports the modules of a load."""
    started = time.monotonic()
    with open_session(master, "ottla pipeline doctor", conf) as session:
        ready = time.monotonic()

        def probe(batches: Iterator[Any]) -> Iterator[Any]:
            import platform

            import pyarrow

            import ottla.pipeline.load.land  # noqa: F401

            found = f"Python {platform.python_version()}, pyarrow {pyarrow.__version__}"
            for batch in batches:
                yield pyarrow.RecordBatch.from_pydict({"found": [found] * batch.num_rows})

        try:
            (row,) = session.range(0, 1, 1, 1).mapInArrow(probe, "found string").collect()
        except Exception as error:  # Spark wraps the worker's exception
            raise OttlaError(f"a task failed: {spark_reason(error)}") from error
        done = time.monotonic()
        times = f"started in {ready - started:.1f} s and ran a task in {done - ready:.1f} s"
        return f"Spark {session.version} {times}, in a worker of {row.found}"
