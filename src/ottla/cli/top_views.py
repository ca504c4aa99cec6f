"""The tables of `ottla top`: columns with their text and order, for the screen, for a pipe and as JSON.

Pure functions of values; neither a terminal nor a cluster is used here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from ottla.cli.command import counted
from ottla.client.views.activity import LIVE, BrokerActivity, ClusterActivity
from ottla.client.views.client_usage import ClientUsage
from ottla.common.durations import duration_text

UNKNOWN = "-"
LEFT = ("ID", "ADDRESS", "STATE", "TOPIC", "GROUP", "CLIENT", "USER")
"""Columns that are aligned left."""
REST = 0
"""Width of the column that gets the rest of a line; a table has one."""
_PREFIXES = ("", "k", "M", "G", "T", "P")


class TopReading(NamedTuple):
    """The result of one refresh."""

    activity: ClusterActivity
    clients: list[ClientUsage] | None
    """None without metrics."""
    problems: list[str]


class Column(NamedTuple):
    """A column; `value` is the order and the value in JSON, `text` the text on the screen."""

    title: str
    width: int
    value: Callable[[Any], Any]
    text: Callable[[Any], str]


class View(NamedTuple):
    """A table: its rows, and the column by which it is sorted at first."""

    name: str
    columns: tuple[Column, ...]
    first_sort: int
    rows: Callable[[TopReading], Sequence[Any] | None]
    is_urgent: Callable[[Any], bool]
    """Whether a row needs attention."""
    absent: str = ""
    """Sentence in place of a table without data source."""

    def sorted_rows(self, reading: TopReading, sort: int, *, reverse: bool) -> list[Any]:
        """The rows: numbers from the largest, texts from the first; unknown values last. `reverse` turns that."""
        rows = list(self.rows(reading) or ())
        value = self.columns[sort].value
        known = [row for row in rows if value(row) is not None]
        falls = bool(known) and not isinstance(value(known[0]), str)
        known.sort(key=self.columns[0].value)  # a stable order of equal values
        known.sort(key=value, reverse=falls != reverse)
        return known + [row for row in rows if value(row) is None]


def short_number(number: float | None) -> str:
    """At most five characters: `0`, `0.4`, `12`, `8.1k`, `990k`, `1.2M`; `-` if it is unknown."""
    if number is None:
        return UNKNOWN
    for prefix in _PREFIXES:
        if abs(number) < 999.5 or prefix == _PREFIXES[-1]:
            break
        number /= 1000
    digits = 1 if 0 < abs(number) < 9.95 and (prefix or number != int(number)) else 0
    return f"{number:.{digits}f}{prefix}"


def _time(seconds: float | None) -> str:
    return UNKNOWN if seconds is None else duration_text(int(min(seconds, 1e9) * 1000))


def _number(title: str, width: int, name: str) -> Column:
    return Column(title, width, lambda row: getattr(row, name), lambda row: short_number(getattr(row, name)))


def _text(title: str, width: int, name: str) -> Column:
    return Column(title, width, lambda row: getattr(row, name), lambda row: getattr(row, name) or UNKNOWN)


def _broker_id(row: BrokerActivity) -> str:
    return f"{row.node_id}{'*' if row.is_controller else ''}"


BROKERS = View(
    "brokers",
    (
        Column("ID", 6, lambda row: f"{row.node_id:010}", _broker_id),
        _text("ADDRESS", REST, "address"),
        _text("STATE", 11, "state"),
        _number("REC/S", 7, "records_per_s"),
        _number("LEADERS", 8, "leaders"),
        _number("REPLICAS", 9, "replicas"),
        _number("NOT IN ISR", 11, "out_of_sync"),
        _number("BYTES", 7, "size_bytes"),
    ),
    0,
    lambda reading: reading.activity.brokers,
    lambda row: row.state != LIVE or row.out_of_sync > 0,
)
TOPICS = View(
    "topics",
    (
        _text("TOPIC", REST, "name"),
        _number("REC/S", 8, "records_per_s"),
        _number("PARTITIONS", 11, "partitions"),
        _number("UNDER REPL", 11, "under_replicated"),
        _number("NO LEADER", 10, "without_leader"),
        _number("BYTES", 8, "size_bytes"),
    ),
    1,
    lambda reading: reading.activity.topics,
    lambda row: row.under_replicated > 0 or row.without_leader > 0,
)
GROUPS = View(
    "groups",
    (
        _text("GROUP", REST, "group_id"),
        _text("STATE", 12, "state"),
        _number("LAG", 8, "lag"),
        _number("READ/S", 8, "consumed_per_s"),
        _number("WRITE/S", 8, "produced_per_s"),
        Column("CATCH UP", 9, lambda row: row.catch_up_s, lambda row: _time(row.catch_up_s)),
    ),
    2,
    lambda reading: reading.activity.groups,
    lambda row: bool(row.lag) and row.catch_up_s is None and row.consumed_per_s is not None,
)
CLIENTS = View(
    "clients",
    (
        _text("CLIENT", REST, "client_id"),
        _text("USER", 14, "user"),
        _number("THROTTLE MS", 12, "throttle_ms"),
        _number("PRODUCE B/S", 12, "produced_bytes_per_s"),
        _number("FETCH B/S", 10, "fetched_bytes_per_s"),
        _number("REQUEST %", 10, "request_percent"),
    ),
    2,
    lambda reading: reading.clients,
    lambda row: row.throttle_ms > 0,
    absent="Clients come from the metrics of the brokers, for clients with quotas: start brokers with "
    "--metrics-port, and give their addresses with --metrics HOST:PORT,...",
)
VIEWS = (BROKERS, TOPICS, GROUPS, CLIENTS)


def summary(reading: TopReading) -> str:
    """The cluster in one line."""
    activity = reading.activity
    live = sum(each.state == LIVE for each in activity.brokers)
    return (
        f"{live}/{counted(len(activity.brokers), 'broker')}, {counted(len(activity.topics), 'topic')}, "
        f"{counted(len(activity.groups), 'group')}, {short_number(activity.records_per_s)} records/s"
    )


def as_json(reading: TopReading, views: Iterable[View]) -> dict[str, Any]:
    """Values for `--json`, without rounding."""
    return {
        "cluster_id": reading.activity.cluster_id,
        "records_per_s": reading.activity.records_per_s,
        "problems": reading.problems,
        **{
            view.name: None if view.rows(reading) is None else [row._asdict() for row in _first_order(view, reading)]
            for view in views
        },
    }


def _first_order(view: View, reading: TopReading) -> list[Any]:
    return view.sorted_rows(reading, view.first_sort, reverse=False)


def plain_rows(view: View, reading: TopReading) -> list[list[str]]:
    """The cells of a view in its first order."""
    return [[column.text(row) for column in view.columns] for row in _first_order(view, reading)]
