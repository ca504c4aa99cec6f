"""Types of Debezium in Avro schemas, as the Avro converter of Kafka Connect writes them.

The converter names a type in `connect.name`, and only some of them are logical types of Avro as well. The others get
Avro's logical type here, so that they are read as dates and times. A time with a zone is text in ISO 8601.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

import pyarrow as pa

from ottla.pipeline.transform.fit import field_at

ZONED_TIMESTAMP = "io.debezium.time.ZonedTimestamp"
ZONED_TYPE = pa.timestamp("us", tz="UTC")
_LOGICAL_TYPES = {
    ("int", "io.debezium.time.Date"): "date",
    ("long", "io.debezium.time.Timestamp"): "local-timestamp-millis",
    ("long", "io.debezium.time.MicroTimestamp"): "local-timestamp-micros",
}
"""(type, `connect.name`) -> logical type of Avro. Debezium's timestamps have no time zone."""


def with_avro_types(text: str) -> str:
    """An Avro schema with Avro's logical types; unchanged if it is not JSON."""
    try:
        return json.dumps(_with_logical_types(json.loads(text)))
    except (ValueError, RecursionError):
        return text


def _with_logical_types(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_with_logical_types(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: value if name == "default" else _with_logical_types(value) for name, value in schema.items()}
    logical = _LOGICAL_TYPES.get((str(schema.get("type")), str(schema.get("connect.name"))))
    return found | {"logicalType": logical} if logical else found


def is_zoned_timestamp(schema: Mapping[str, Any]) -> bool:
    """True for the Avro schema of a text that is a time with a zone."""
    return schema.get("type") == "string" and schema.get("connect.name") == ZONED_TIMESTAMP


def zoned_columns(schema: pa.Schema) -> dict[str, list[str]]:
    """Field of an event -> fields of its row that may be times with a zone."""
    rows = [column for column in schema if pa.types.is_struct(column.type)]
    return {row.name: [part.name for part in row.type if pa.types.is_timestamp(part.type)] for row in rows}


def parse_zoned(event: Mapping[str, Any], columns: Mapping[str, Iterable[str]]) -> None:
    """Replace texts in the rows of an event, in fields as `zoned_columns` returns them, by times. Raises ValueError."""
    for name, fields in columns.items():
        row = event.get(name)
        if not isinstance(row, dict):
            continue
        for field in fields:
            text = row.get(field)
            if isinstance(text, str):
                try:
                    row[field] = datetime.fromisoformat(text)
                except ValueError as error:
                    raise ValueError(
                        f"{field_at(f'{name}.{field}')} is {text!r}, which is not a time that a column can hold"
                    ) from error
