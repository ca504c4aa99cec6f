"""Tables of the pipeline below a directory that the operator chose, for all sessions.

The library of `ottla pipeline status` reads them, without Spark. A browser never names a path: it names a table, which
has to be one of those that were found.

The permissions are those of the user: see `ottla.console.pages.pipelines`. Bounds: `MAX_TABLES`, and `MAX_READS` tables
that are read at once.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from ottla.client.admin.cluster import Cluster
from ottla.client.wire.model import TopicInfo
from ottla.common.errors import OperatorError, OttlaError
from ottla.common.platform.clock import Clock
from ottla.console.formats import encodable

if TYPE_CHECKING:
    from ottla.pipeline.model.plan import KnownTopics
    from ottla.pipeline.operations.status import TableStatus
    from ottla.pipeline.operations.summary import DeadLetter, TableSummary
    from ottla.pipeline.sinks.table import Table

LIST_S = 30.0
"""Age up to which the list of tables is reused."""
TOPICS_S = 300.0
"""Age up to which the topics of a table are reused."""
MAX_TABLES = 10_000
"""Tables of the list; the others are counted."""
MAX_READS = 4


class TablePlace(NamedTuple):
    """The location of a table, and the reason if its directory could not be searched."""

    location: str
    reason: str | None


class TableList(NamedTuple):
    """Tables by name, sorted; `error` is set if there are none."""

    places: Mapping[str, TablePlace]
    left_out: int = 0
    error: str | None = None


TopicOwners = Mapping[str, str]
"""Topic name -> id of its cluster, "" if the table does not store it."""


def owners_of(topics: KnownTopics) -> TopicOwners:
    """The topics that a table has rows of."""
    return {topic: topics.clusters.get(topic, "") for topic in topics.ids}


class TableIndex:
    """The tables, found again after `LIST_S`. Used by several threads."""

    def __init__(self, directory: str, clock: Clock) -> None:
        self.directory = directory
        self._clock = clock
        self._list = TableList({})
        self._listed_s: float | None = None
        self._owners: dict[str, tuple[float, TopicOwners]] = {}
        self._searching = threading.Lock()
        self._reading = threading.BoundedSemaphore(MAX_READS)

    def tables(self) -> TableList:
        """All tables."""
        with self._searching:
            if self._listed_s is None or self._clock.monotonic() - self._listed_s >= LIST_S:
                self._list = self._search()
                self._listed_s = self._clock.monotonic()
                self._owners = {name: known for name, known in self._owners.items() if name in self._list.places}
            return self._list

    def _search(self) -> TableList:
        from ottla.pipeline.operations.status import find_tables
        from ottla.pipeline.stores.open_store import open_store

        try:
            base = open_store(self.directory)
            found = find_tables(self.directory)
        except (OttlaError, OSError) as error:
            return TableList({}, error=str(error))
        names = {
            encodable(base.name if location == base.location else location.removeprefix(f"{base.location}/")): location
            for location in found
        }
        kept = sorted(names)[:MAX_TABLES]
        failures = {name: found[names[name]] for name in kept}
        places = {
            name: TablePlace(names[name], None if failure is None else str(failure))
            for name, failure in failures.items()
        }
        return TableList(places, len(names) - len(kept))

    def owners(self, name: str, *, may_read: bool) -> TopicOwners | None:
        """The topics of a table; empty if it has none or can't be read, None if it was not read yet and may not be."""
        known = self._owners.get(name)
        now_s = self._clock.monotonic()
        if known is not None and now_s - known[0] < TOPICS_S:
            return known[1]
        if not may_read:
            return None
        owners: TopicOwners = {}
        try:
            with self._reading:
                topics = self._open(name).known_topics()
            owners = owners_of(topics)
        except OttlaError:
            pass
        self._owners[name] = now_s, owners
        return owners

    def summary(self, name: str) -> TableSummary:
        """Size, loads and dead letters. Raises OttlaError if the table can't be read."""
        from ottla.pipeline.operations.summary import summarize

        with self._reading:
            return summarize(self._open(name), self._clock.time_ms())

    def status(
        self, name: str, cluster: Cluster, topics: Mapping[str, TopicInfo], cluster_id: str, *, with_ages: bool
    ) -> TableStatus:
        """The lag behind the topics, for readers of committed records. Raises OttlaError."""
        from ottla.pipeline.operations.status import ClusterView, table_status

        with self._reading:
            return table_status(
                self._open(name),
                cluster,
                "read_committed",
                lambda: ClusterView(topics, cluster_id),
                counts_rows=False,
                with_ages=with_ages,
            )

    def dead_letters(self, name: str, count: int) -> list[DeadLetter]:
        """The latest dead letters. Raises OttlaError."""
        from ottla.pipeline.operations.summary import latest_dead_letters

        with self._reading:
            return latest_dead_letters(self._open(name), count)

    def _open(self, name: str) -> Table:
        from ottla.pipeline.sinks.open_table import open_table

        place = self.tables().places.get(name)
        if place is None:
            raise OperatorError(f"the table {name} does not exist")
        if place.reason is not None:
            raise OperatorError(place.reason)
        return open_table(place.location)
