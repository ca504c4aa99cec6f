"""A table of a database, and the records that Debezium writes for its changes, in the documented format."""

from __future__ import annotations

import base64
import json
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

Event = tuple[bytes, bytes | None]
"""Key and value of a record."""
EPOCH = datetime(1970, 1, 1)


@dataclass(frozen=True)
class Column:
    """A column of the source: its schema of Kafka Connect, a random value, and the value as JSON has it."""

    schema: dict[str, Any]
    draw: Callable[[random.Random], Any]
    stored: Callable[[Any], Any] = lambda value: value


def base64_decimal(number: Decimal) -> str:
    unscaled = int(number.scaleb(2))
    size = (unscaled if unscaled >= 0 else ~unscaled).bit_length() // 8 + 1
    return base64.b64encode(unscaled.to_bytes(size, "big", signed=True)).decode()


def draw_time(source: random.Random) -> datetime:
    return EPOCH + timedelta(milliseconds=source.randrange(-(10**12), 3 * 10**12))


COLUMNS = {
    "name": Column({"type": "string"}, lambda source: source.choice(["a", '{"schema":"}', "ü\n"])),
    "price": Column(
        {
            "type": "bytes",
            "name": "org.apache.kafka.connect.data.Decimal",
            "parameters": {"scale": "2", "connect.decimal.precision": "20"},
        },
        lambda source: Decimal(source.randrange(-(10**20) + 1, 10**20)).scaleb(-2),
        base64_decimal,
    ),
    "born": Column(
        {"type": "int32", "name": "io.debezium.time.Date"},
        lambda source: date(1970, 1, 1) + timedelta(days=source.randrange(-9999, 9999)),
        lambda value: (value - date(1970, 1, 1)).days,
    ),
    "seen": Column(
        {"type": "int64", "name": "io.debezium.time.MicroTimestamp"},
        lambda source: draw_time(source) + timedelta(microseconds=7),
        lambda value: (value - EPOCH) // timedelta(microseconds=1),
    ),
    "changed": Column(
        {"type": "int64", "name": "io.debezium.time.Timestamp"},
        draw_time,
        lambda value: (value - EPOCH) // timedelta(milliseconds=1),
    ),
    "paid": Column(
        {"type": "string", "name": "io.debezium.time.ZonedTimestamp"},
        lambda source: draw_time(source).replace(tzinfo=UTC),
        lambda value: value.isoformat().replace("+00:00", "Z"),
    ),
    "Is open": Column({"type": "boolean"}, lambda source: source.random() < 0.5),
    "photo": Column(
        {"type": "bytes"},
        lambda source: source.randbytes(source.randrange(5)),
        lambda value: base64.b64encode(value).decode(),
    ),
    "tags": Column({"type": "array", "items": {"type": "string"}}, lambda source: ["x"] * source.randrange(3)),
}


@dataclass
class SourceTable:
    """Rows by id. `with_schemas`: as with `schemas.enable` of the converter."""

    columns: list[str]
    with_schemas: bool = True
    rows: dict[int, dict[str, Any]] = field(default_factory=dict)

    def put(self, number: int, row: dict[str, Any], kind: str = "") -> Event:
        """Insert or update; `kind` "r" for a row that was there when the connector began."""
        before = self.rows.get(number)
        self.rows[number] = row
        return self._key(number), self._value(before, {"id": number, **row}, kind or ("u" if before else "c"))

    def delete(self, number: int) -> list[Event]:
        """The deletion, and the record without a value after it."""
        row = self.rows.pop(number)
        return [(self._key(number), self._value({"id": number, **row}, None, "d")), (self._key(number), None)]

    def draw(self, source: random.Random) -> dict[str, Any]:
        return {name: None if source.random() < 0.1 else COLUMNS[name].draw(source) for name in self.columns}

    def _key(self, number: int) -> bytes:
        schema = {"type": "struct", "fields": [{"type": "int32", "optional": False, "field": "id"}], "name": "Key"}
        return self._enveloped(schema, {"id": number})

    def _value(self, before: dict[str, Any] | None, after: dict[str, Any] | None, kind: str) -> bytes:
        fields = [{"type": "int32", "optional": False, "field": "id"}]
        fields += [{"optional": True, **COLUMNS[name].schema, "field": name} for name in self.columns]
        row = {"type": "struct", "fields": fields, "optional": True, "name": "shop.public.orders.Value"}
        source = {"type": "struct", "fields": [{"type": "string", "optional": False, "field": "name"}]}
        parts = [{**row, "field": "before"}, {**row, "field": "after"}, {**source, "field": "source"}]
        parts += [{"type": "string", "optional": False, "field": "op"}]
        schema = {"type": "struct", "fields": parts, "optional": False, "name": "shop.public.orders.Envelope"}
        payload = {
            "before": self._stored(before),
            "after": self._stored(after),
            "source": {"connector": "postgresql", "name": "shop", "table": "orders", "lsn": 24023128},
            "transaction": None,
            "op": kind,
            "ts_ms": 1559033904863,
        }
        return self._enveloped(schema, payload)

    def _stored(self, row: dict[str, Any] | None) -> dict[str, Any] | None:
        if row is None:
            return None
        return {
            name: value if value is None or name == "id" else COLUMNS[name].stored(value) for name, value in row.items()
        }

    def _enveloped(self, schema: dict[str, Any], payload: dict[str, Any]) -> bytes:
        found = {"schema": schema, "payload": payload} if self.with_schemas else payload
        return json.dumps(found, separators=(",", ":"), ensure_ascii=False).encode()
