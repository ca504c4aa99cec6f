"""The id of a value's schema in a registry: in front of the value, or in a header of its record.

The wire format is that of Confluent's serializers. A zero byte and four more, big-endian, are an id of the registry; a
one and sixteen more are a GUID, which means the same schema in every registry. Either is in front of the value or, with
newer producers, in the header VALUE_HEADER, which leaves the value unchanged for other consumers. The header takes
precedence, and the last one of several counts. For Protobuf the indexes of the message type in its file follow.

A header's id is put in front of its value here, so that decoders know one form. Not supported: keys, which are not
decoded (their header is `__key_schema_id`).
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ottla.schemas.ids import GUID_BYTES, ID_LENGTHS, NO_ID, NUMBER_BYTES, VALUE_HEADER, IdLength, SchemaId, schema_id

_END = (1 << 31) - 1
"""End of any value. Without an end, pyarrow refuses to slice several values at once ("Negative buffer resize")."""
_NONE = b"\xff"
"""Put in front of values whose header is not an id."""


def schema_ids(values: pa.Array) -> list[SchemaId]:
    """The ids at the start of some values, each once, in an order that does not depend on the values' order."""
    starts = {
        start
        for magic, length in ID_LENGTHS.items()
        for start in pc.unique(pc.binary_slice(values.filter(_begin_with(values, magic)), 0, length)).to_pylist()
    }
    return [schema_id(start) for start in sorted(starts)]


def without_ids(values: pa.Array) -> pa.Array:
    """Values without nulls after removal of their ids. Raises ValueError unless each has one."""
    numbers, guids = (_begin_with(values, magic) for magic in ID_LENGTHS)
    if not pc.all(pc.or_(numbers, guids)).as_py():
        raise ValueError(NO_ID)
    behind = pc.binary_slice(values, NUMBER_BYTES, _END)
    return pc.if_else(guids, pc.binary_slice(values, GUID_BYTES, _END), behind) if guids.true_count else behind


def _begin_with(values: pa.Array, magic: int) -> pa.BooleanArray:
    """True for values with a whole id of that kind; null for a null."""
    is_long = pc.greater_equal(pc.binary_length(values), ID_LENGTHS[magic])
    return pc.and_(pc.starts_with(values, bytes([magic])), is_long)


def encoded_values(batch: pa.RecordBatch, length_of: IdLength | None) -> pa.Array:
    """The column `value` of records in the form for decoders: ids from headers are put in front, nulls stay null.

    `length_of`: that of the values' format, None where values have no ids.
    """
    values, headers = batch.column("value"), batch.column("headers")
    if length_of is None:
        return values
    pairs = headers.flatten()
    named = pc.and_(pc.equal(pairs.field("key"), VALUE_HEADER), pairs.field("value").is_valid())
    if not named.true_count:
        return values
    rows = pc.list_parent_indices(headers).filter(named).to_numpy(zero_copy_only=False)
    found = pairs.field("value").filter(named).dictionary_encode()
    fronts = pa.array([_front(header, length_of) for header in found.dictionary.to_pylist()], pa.binary())
    places = np.zeros(len(values), np.int64)
    absent = np.ones(len(values), np.bool_)
    places[rows] = found.indices.to_numpy(zero_copy_only=False)  # of several ids of a row the last one stays
    absent[rows] = False
    in_front = pc.fill_null(fronts.take(pa.array(places, mask=absent)), b"")
    return pc.binary_join_element_wise(in_front, values, b"")


def _front(header: bytes, length_of: IdLength) -> bytes:
    """The id to put in front of a value for its header."""
    try:
        return header[: length_of(header)]
    except ValueError:
        return _NONE
