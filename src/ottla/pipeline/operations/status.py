"""Lag of tables behind their topics: the table's offsets, compared with the present end of each partition.

The offsets come from the table, not from the consumer group for lag tools, which may be behind it. Not shown:
pipelines whose loads are no longer in the table's history (the newest commits name the pipelines).
"""

from __future__ import annotations

import functools
import itertools
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa

from ottla.client.admin.cluster import Cluster
from ottla.client.wire.connection import BrokerUnreachable
from ottla.client.wire.model import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, TopicInfo
from ottla.client.wire.security import PLAINTEXT, ClientSecurity
from ottla.common.errors import ErrorCode, KafkaError, OperatorError, OttlaError
from ottla.common.kafka.ids import uuid_to_string
from ottla.common.kafka.topic_partition import TopicPartition
from ottla.pipeline.model.failure import os_reason
from ottla.pipeline.model.plan import app_id
from ottla.pipeline.model.retriable import as_retriable
from ottla.pipeline.sinks.dataset import open_dataset
from ottla.pipeline.sinks.open_table import found_format, open_table
from ottla.pipeline.sinks.table import Table
from ottla.pipeline.stores.open_store import open_store
from ottla.pipeline.stores.store import Store
from ottla.record.legacy.stored import iter_any_batches

PROBED_PARTITIONS = 64
"""Number of partitions per request for a deleted topic."""
GONE, REPLACED, ELSEWHERE = "deleted", "created again", "of another cluster"
ROLLED_BACK = "rows of loads are missing"


@dataclass(frozen=True, slots=True)
class PartitionStatus:
    """Progress of one pipeline in one partition. `end`, `lag` and `lag_s` are None if the topic does not exist."""

    pipeline_id: str
    topic: str
    partition: int
    committed: int | None
    end: int | None
    lag: int | None
    """Offsets between the two, including markers of transactions and records that compaction removed."""
    lag_s: float | None
    """Age of the first record that is not loaded."""
    rows: int | None
    """Rows in the table; None in a table of results, whose rows belong to no partition."""
    dead_letters: int
    note: str = ""


@dataclass(frozen=True, slots=True)
class TableStatus:
    """One table; `last_load_ms` in milliseconds from the epoch."""

    table: str
    version: int | None
    last_load_ms: int | None
    partitions: list[PartitionStatus] = field(default_factory=list)
    error: str | None = None
    """Reason why the table can't be read (all else is unknown then), or that it was rolled back below its newest
    load."""
    retriable: bool = False
    """Whether a retry may succeed: the catalog or store of the table can't be reached."""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def find_tables(location: str | os.PathLike[str]) -> dict[str, OperatorError | None]:
    """The table in a directory or object store, or all tables below it that are not inside another, in order; an
    unreadable directory is returned with the error, as it may be a table. Raises OperatorError when there is none."""
    store = open_store(location)
    if not store.exists():
        if os.path.lexists(location):
            raise OperatorError(f"{location} is not a directory, but a table is one: name another")
        raise OperatorError(f"the directory {location} does not exist")
    found = dict(_tables_below(store))
    if not found:
        raise OperatorError(f"no table found in {location} or below it; `ottla pipeline load` creates one")
    return found


def _tables_below(store: Store) -> Iterable[tuple[str, OperatorError | None]]:
    try:
        is_table = found_format(store) is not None
        names = [] if is_table else store.directories()
    except OperatorError as error:
        yield store.location, error
        return
    except OSError as error:
        found = OperatorError(f"{store.location} can't be searched for tables: {os_reason(error)}")
        found.__cause__ = error
        yield store.location, found
        return
    if is_table:
        yield store.location, None
    for name in names:
        if not name.startswith(("_", ".")):
            yield from _tables_below(store.child(name))


class ClusterView(NamedTuple):
    """Topics of a cluster that a user may describe, and its id; the same for all tables of a command."""

    topics: Mapping[str, TopicInfo]
    cluster_id: str

    @classmethod
    def of(cls, cluster: Cluster) -> ClusterView:
        """Ask for both. Raises BrokerUnreachable, KafkaError."""
        return cls(cluster.topics.all(), cluster.describe().cluster_id or "")


def table_status(
    table: Table,
    cluster: Cluster,
    isolation: str,
    view: Callable[[], ClusterView] | None = None,
    *,
    counts_rows: bool = True,
    with_ages: bool = True,
) -> TableStatus:
    """Compare one table with its topics, up to the ends for a reader with `isolation`.

    A table without loads (another tool's) has no partitions. `counts_rows` reads two columns of all files; without it
    the rows are unknown, and no dead letters are counted. `with_ages` fetches the first record that is not loaded; the
    age is None if the user may not read the topic. `view` is called only for a table with loads. Raises OperatorError
    when the table can't be read or no broker answers.
    """
    loads, error = table.loads(), _rollback_text(table)
    if not loads:
        return TableStatus(table.location, table.version(), None, error=error)
    topics, cluster_id = ClusterView.of(cluster) if view is None else view()
    known = table.known_topics()
    elsewhere = {name for name, one in known.clusters.items() if cluster_id and one != cluster_id}
    rows = row_counts(table) if counts_rows else None
    letters = (row_counts(table.dead_letters()) if counts_rows else None) or {}
    partitions = []
    for pipeline_id in sorted({load.pipeline_id for load in loads}):
        for name, topic_id in sorted(known.ids.items()):
            topic = None if name in elsewhere else topics.get(name)
            held = _held(table, pipeline_id, topic_id, topic)
            places = _Places(pipeline_id, name, held, rows, letters, with_ages)
            absence = ELSEWHERE if name in elsewhere else _absence(topic, topic_id)
            partitions += places.compare(cluster, isolation, ROLLED_BACK if error else absence)
    return TableStatus(table.location, table.version(), loads[0].time_ms, partitions, error)


def _rollback_text(table: Table) -> str | None:
    """Reason why a table's offsets, or those of its dead letters, do not match its rows; None if they do."""
    for one in (table, table.dead_letters()):
        found = one.rollback()
        if found is not None:
            return str(found.refusal(one.location, with_option=True))
    return None


def _absence(topic: TopicInfo | None, topic_id: str) -> str:
    if topic is None:
        return GONE
    return "" if uuid_to_string(topic.topic_id) == topic_id else REPLACED


def _held(table: Table, pipeline_id: str, topic_id: str, topic: TopicInfo | None) -> dict[int, int | None]:
    """The committed offset of each existing partition, and of each that the table has an offset for."""
    found: dict[int, int | None] = {}
    present = [info.index for info in topic.partitions] if topic else []
    for start in itertools.count(0, PROBED_PARTITIONS):
        names = {app_id(pipeline_id, topic_id, index): index for index in range(start, start + PROBED_PARTITIONS)}
        offsets = table.committed_offsets(names)
        found |= {names[name]: offset for name, offset in offsets.items() if offset is not None}
        if start + PROBED_PARTITIONS > len(present) and all(offset is None for offset in offsets.values()):
            break
    return {index: found.get(index) for index in sorted({*found, *present})} if found else {}


@dataclass(frozen=True, slots=True)
class _Places:
    """Offsets of one pipeline in the partitions of one topic; empty if it never loaded the topic."""

    pipeline_id: str
    topic: str
    held: Mapping[int, int | None]
    rows: Mapping[TopicPartition, int] | None
    letters: Mapping[TopicPartition, int]
    with_ages: bool

    def compare(self, cluster: Cluster, isolation: str, absence: str) -> list[PartitionStatus]:
        """One status a partition; `absence` is the reason if the topic has no ends to compare with."""
        keys = [(self.topic, index) for index in self.held]
        ends: Mapping[TopicPartition, int] = {}
        if keys and not absence:
            found = cluster.records.list_offsets(dict.fromkeys(keys, LATEST_TIMESTAMP), isolation=isolation)
            ends = {key: info.offset for key, info in found.items()}
        starts = self._starts(cluster) if ends else {}
        return [
            self._compare_one(
                cluster, index, starts.get((self.topic, index), 0), ends.get((self.topic, index)), absence
            )
            for index in self.held
        ]

    def _starts(self, cluster: Cluster) -> dict[TopicPartition, int]:
        """Start of the next load in partitions that were never loaded, such as added ones."""
        new = [(self.topic, index) for index, committed in self.held.items() if committed is None]
        found = cluster.records.list_offsets(dict.fromkeys(new, EARLIEST_TIMESTAMP)) if new else {}
        return {key: info.offset for key, info in found.items()}

    def _compare_one(self, cluster: Cluster, index: int, start: int, end: int | None, absence: str) -> PartitionStatus:
        key, committed = (self.topic, index), self.held[index]
        lag, lag_s, note = None, None, absence
        if end is not None:
            begun = start if committed is None else committed
            lag = max(end - begun, 0)
            try:
                lag_s = (_age_s(cluster, key, begun) if self.with_ages else None) if lag else 0.0
            except KafkaError as error:
                if error.code != ErrorCode.OFFSET_OUT_OF_RANGE:
                    raise
                note = "records were deleted before they were loaded"
        return PartitionStatus(
            self.pipeline_id,
            self.topic,
            index,
            committed,
            end,
            lag,
            lag_s,
            None if self.rows is None else self.rows.get(key, 0),
            self.letters.get(key, 0),
            note,
        )


def _age_s(cluster: Cluster, key: TopicPartition, offset: int) -> float | None:
    """Age of the batch at `offset` in seconds; None if it has no timestamp, or the user may not read it."""
    try:
        result = cluster.records.fetch(
            *key, offset, max_bytes=1, max_wait_ms=0, isolation="read_uncommitted", topic_id=None
        )
    except KafkaError as error:
        if error.code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            return None
        raise
    batch = next(iter_any_batches(result.records), None)
    if batch is None or batch.base_timestamp < 0:
        return None
    return max(time.time() - batch.base_timestamp / 1000, 0.0)


def row_counts(table: Table) -> dict[TopicPartition, int] | None:
    """Rows of a table by topic and partition, None where it has no such columns; reads these two alone."""
    if not table.exists():
        return {}
    columns = ["topic", "partition"]
    if not set(columns) <= set(table.schema().names):
        return None
    files = table.files()
    counts: Counter[TopicPartition] = Counter()
    if files:
        try:
            for batch in open_dataset(table.layout(), table.schema(), files).to_batches(columns=columns):
                grouped = pa.table(batch).group_by(columns).aggregate([([], "count_all")]).to_pylist()
                for row in grouped:
                    counts[row["topic"], row["partition"]] += row["count_all"]
        except (OSError, pa.ArrowException) as error:
            reason = str(error).splitlines()[0]
            raise OperatorError(f"a file of the table {table.location} can't be read: {reason}") from error
    return counts


def statuses(
    found: Mapping[str, OperatorError | None],
    bootstrap_servers: str,
    *,
    catalog_url: str | None = None,
    client_id: str,
    isolation: str = "read_committed",
    security: ClientSecurity = PLAINTEXT,
) -> list[TableStatus]:
    """Compare all tables of `find_tables`, or names in a catalog, with one cluster; an unreadable table is reported
    with its error and the others are still shown. The cluster is asked once a table was read. Raises BrokerUnreachable.
    """

    def status(
        cluster: Cluster, view: Callable[[], ClusterView], location: str, failure: OttlaError | None
    ) -> TableStatus:
        try:
            if failure is None:
                return table_status(open_table(location, catalog_url=catalog_url), cluster, isolation, view)
        except BrokerUnreachable:
            raise
        except OttlaError as error:
            failure = error
        is_retriable = as_retriable(failure).exit_code != OperatorError.exit_code
        return TableStatus(location, None, None, error=str(failure), retriable=is_retriable)

    with Cluster(bootstrap_servers, client_id=client_id, security=security) as cluster:
        view = functools.cache(lambda: ClusterView.of(cluster))
        return [status(cluster, view, location, failure) for location, failure in found.items()]


def locate_tables(
    places: Sequence[str | os.PathLike[str]], catalog_url: str | None = None
) -> dict[str, OperatorError | None]:
    """The tables of `find_tables` at all places; with a catalog the places are table names. Raises OperatorError."""
    if catalog_url is not None:
        return dict.fromkeys(map(str, places))
    return {location: failure for place in places for location, failure in find_tables(place).items()}


def raise_unreadable(found: Sequence[TableStatus]) -> None:
    """Raise OttlaError when a table has an error, OperatorError when each of them has one that a retry can't fix."""
    errors = [one.error for one in found if one.error is not None]
    if not errors:
        return
    kind = OperatorError if len(errors) == len(found) and not any(one.retriable for one in found) else OttlaError
    if len(found) == 1:
        raise kind(errors[0])
    is_readable = any(one.error is not None and one.version is not None for one in found)
    raise kind(
        f"{len(errors)} of {len(found)} tables can't be {'trusted' if is_readable else 'read'}: {'; '.join(errors)}"
    )
