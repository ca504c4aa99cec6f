"""Lines of access logs in the common and the combined format of Apache and nginx, as typed columns.

A field written as `-` is null, and so are referer and agent of the common format. A request that is not of the
form `METHOD path PROTOCOL`, such as the first bytes of a TLS handshake, leaves these three null.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from ottla.pipeline.model.access_log import LINE_PATTERN
from ottla.pipeline.model.arrays import texts
from ottla.pipeline.transform.decoder import DecodedValues, decode_by_halves
from ottla.pipeline.transform.regex_decoder import extract_groups
from ottla.pipeline.transform.text_cast import null_if

SCHEMA = pa.schema(
    [
        ("client", pa.string()),
        ("identity", pa.string()),
        ("user", pa.string()),
        ("time", pa.timestamp("us", tz="UTC")),
        ("method", pa.string()),
        ("path", pa.string()),
        ("protocol", pa.string()),
        ("status", pa.int32()),
        ("bytes", pa.int64()),
        ("referer", pa.string()),
        ("agent", pa.string()),
    ]
)
_MONTHS = texts(["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"])
_MONTH_NUMBERS = texts([f"{number:02}" for number in range(1, 13)])


@dataclass(frozen=True, slots=True)
class AccessLogDecoder:
    """The schema is fixed."""

    @property
    def schema(self) -> pa.Schema:
        return SCHEMA

    def most_cells(self, values: pa.Array) -> int:
        return len(values) * len(SCHEMA)

    def decode(self, values: pa.Array) -> DecodedValues:
        return decode_by_halves(values, SCHEMA, _parse)


def _parse(values: pa.Array) -> pa.RecordBatch:
    try:
        groups = extract_groups(values, LINE_PATTERN)
    except pa.ArrowInvalid:
        raise
    except ValueError as error:
        raise ValueError("the value is not a line of an access log in the common or combined format") from error
    columns = {name: groups.field(name) for name in ("client", "identity", "user", "status", "bytes")}
    columns |= {name: null_if(groups.field(name), "") for name in ("method", "path", "protocol", "referer", "agent")}
    columns = {name: null_if(text, "-") for name, text in columns.items()} | {"time": _times(groups)}
    return pa.RecordBatch.from_arrays([columns[column.name].cast(column.type) for column in SCHEMA], schema=SCHEMA)


def _times(groups: pa.StructArray) -> pa.Array:
    """The timestamps. Raises ValueError for a day that does not exist."""
    month = _MONTH_NUMBERS.take(pc.index_in(groups.field("month"), _MONTHS))
    iso = pc.binary_join_element_wise(groups.field("year"), month, groups.field("day"), "-")
    iso = pc.binary_join_element_wise(iso, groups.field("clock"), "T")
    iso = pc.binary_join_element_wise(iso, groups.field("zone"), "")
    if iso.null_count:
        raise ValueError("the value has an invalid month")
    return iso.cast(pa.timestamp("us", tz="UTC"))
