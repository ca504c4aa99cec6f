"""A snapshot of the change events of a database has the rows of the source table."""

from __future__ import annotations

import random
import zlib
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("deltalake", reason="needs the extra `pipeline`")

from ottla.pipeline.transform.decode_options import DecodeOptions
from ottla.pipeline.transform.open_format import open_format

from ..change_events import COLUMNS, Event, SourceTable

if TYPE_CHECKING:
    from collections.abc import Callable

    from .world import World

DEBEZIUM = open_format(DecodeOptions("json", envelope="debezium"), is_history=False)
MAXWELL = open_format(DecodeOptions("json", envelope="maxwell"), is_history=False)


def produce(world: World, events: list[Event]) -> None:
    """Each key in one partition, as producers choose it."""
    for partition in range(2):
        chosen = [event for event in events if zlib.crc32(event[0]) % 2 == partition]
        if chosen:
            world.produce(*chosen, partition=partition)


def changes(table: SourceTable, source: random.Random) -> list[Event]:
    """Some changes of a table."""
    events: list[Event] = []
    for _ in range(source.randrange(1, 9)):
        number = source.randrange(10)
        action = source.choice(["put", "put", "delete", "move"])
        if action == "put" or number not in table.rows:
            events.append(table.put(number, table.draw(source)))
        elif action == "delete":
            events += table.delete(number)
        else:  # a changed primary key is a deletion and an insertion
            row = table.rows[number]
            events += table.delete(number)
            if (other := number + 10) not in table.rows:
                events.append(table.put(other, row))
    return events


def alter(table: SourceTable, source: random.Random, dropped: set[str]) -> None:
    """Add a column, or drop one: its name is not used again, since the rows that don't change keep its values."""
    name = source.choice(sorted(COLUMNS.keys() - dropped))
    if name in table.columns:
        table.columns.remove(name)
        dropped.add(name)
    else:
        table.columns.append(name)
    table.rows = {number: {name: row.get(name) for name in table.columns} for number, row in table.rows.items()}


def found_rows(world: World, columns: list[str]) -> dict[int, dict[str, Any]]:
    rows = [row for row in world.rows() if row.get("current", True)]
    found = {row["id"]: {name: row[name.replace(" ", "_")] for name in columns} for row in rows}
    assert len(found) == len(rows), "a row is there twice"
    return found


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("kind", "history"), [("delta", False), ("iceberg", True), ("parquet", False)])
def test_snapshot_equals_source_table_after_random_changes(
    make_world: Callable[..., World], kind: str, history: bool, seed: int
) -> None:
    if kind == "iceberg":
        pytest.importorskip("pyiceberg", reason="needs the extra `iceberg`")
        pytest.importorskip("sqlalchemy", reason="needs the extra `iceberg`")
    world, source = make_world(kind, history=history), random.Random(seed)
    table, dropped = SourceTable(["name", "price", "born", "seen", "changed", "paid"]), set[str]()
    produce(world, [table.put(number, table.draw(source), "r") for number in range(5)])
    for _ in range(5):
        world.snapshot(value_format=DEBEZIUM)
        assert found_rows(world, table.columns) == table.rows
        produce(world, changes(table, source))
        alter(table, source, dropped)
        produce(world, changes(table, source))
    world.snapshot(value_format=DEBEZIUM)
    assert found_rows(world, table.columns) == table.rows
    assert world.letters() == {}


def test_dropped_column_is_null_in_later_rows(world: World) -> None:
    table = SourceTable(["name", "tags"])
    produce(world, [table.put(1, {"name": "a", "tags": ["x"]}), table.put(2, {"name": "b", "tags": ["y"]})])
    world.snapshot(value_format=DEBEZIUM)
    table.columns = ["name"]
    produce(world, [table.put(2, {"name": "c"})])
    world.snapshot(value_format=DEBEZIUM)
    assert found_rows(world, ["name", "tags"]) == {1: {"name": "a", "tags": ["x"]}, 2: {"name": "c", "tags": None}}


def test_bare_events_have_inferred_columns(world: World) -> None:
    table = SourceTable(["name", "born"], with_schemas=False)
    produce(
        world, [table.put(number, {"name": "a", "born": COLUMNS["born"].draw(random.Random(1))}) for number in (1, 2)]
    )
    produce(world, table.delete(2))
    summary = world.snapshot(value_format=DEBEZIUM)
    assert (summary.inserted, summary.dead_letters) == (1, 0)
    assert found_rows(world, ["name"]) == {1: {"name": "a"}}
    assert isinstance(world.rows()[0]["born"], int)


def test_values_without_changes_become_dead_letters(world: World) -> None:
    table = SourceTable(["price"])
    produce(world, [table.put(1, {"price": None})])
    world.snapshot(value_format=DEBEZIUM)
    truncation = b'{"source":{"table":"orders"},"op":"t","ts_ms":1}'
    world.produce((b"a", b'{"id":1}'), (None, truncation), (b"b", b'{"op":"c","after":null}'), (b"c", b'{"schema":1}'))
    world.produce((b"d", b'{"schema":{"type":"struct","fields":[]},"payload":{"op":"c"}}'), (b"e", b'{"op":"m"}'))
    assert world.snapshot(value_format=DEBEZIUM).dead_letters == 6
    reasons = [reason for _, reason in sorted(world.letters().items())]
    no_event = "the value is not a change event by --envelope debezium: "
    assert reasons[0] == f"{no_event}it has no field 'op'"
    assert "names no keys, so a snapshot can't apply it" in reasons[1]
    assert reasons[2] == f"{no_event}it has no row in its field 'after'"
    assert "its schema is not followed by a payload" in reasons[3]
    assert reasons[4] == f"{no_event}its schema has no field 'after'"
    assert "has the kind 'm'" in reasons[5]
    assert found_rows(world, ["price"]) == {1: {"price": None}}


def test_events_of_maxwell_change_the_table(world: World) -> None:
    event = b'{"database":"shop","table":"t","type":"%s","ts":1,"data":{"id":%d,"name":"%s"},"old":{"name":"z"}}'
    world.produce((b"1", event % (b"bootstrap-insert", 1, b"a")), (b"2", event % (b"insert", 2, b"b")))
    world.produce((b"1", event % (b"update", 1, b"c")), (b"2", event % (b"delete", 2, b"b")))
    world.produce((b"3", b'{"database":"shop","table":"t","type":"bootstrap-complete","data":{}}'))
    world.snapshot(value_format=MAXWELL)
    assert found_rows(world, ["name"]) == {1: {"name": "c"}}
    [reason] = world.letters().values()
    assert "'bootstrap-complete'" in reason
    assert "--envelope maxwell" in reason
