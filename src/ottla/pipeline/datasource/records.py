"""The records of a range of offsets as Arrow batches, for queries over topics.

The only difference in values to Spark's Kafka connector: a record without a timestamp, or with one that a column of
microseconds can't hold, has null there, where the connector gives the last millisecond of 1969 or fails the query.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ottla.pipeline.datasource.bounds import Bounds
from ottla.pipeline.datasource.offsets import SourceCluster
from ottla.pipeline.model.arrays import numbers
from ottla.pipeline.model.decode import HEADERS_TYPE, SCHEMA, DecodeResult
from ottla.pipeline.model.plan import OffsetRange, OnDataLoss
from ottla.pipeline.sources.fetch import read_range

OpenCluster = Callable[..., AbstractContextManager[SourceCluster]]
"""Opens a client in the process that reads; takes `recently_reachable` as `Cluster` does. Must be picklable for Spark's
workers."""

FETCH_BYTES = 2 << 20
"""Bytes of a fetch. It becomes one Arrow batch, of which Python and the JVM have several copies each: with 8 MiB a
worker takes 55 MiB more, and no less CPU; with 1 MiB it takes more CPU."""

_ZERO = numbers(np.zeros(1, np.int32))[0]
_NO_HEADERS = pa.nulls(1, HEADERS_TYPE)[0]
_HEADERS = SCHEMA.get_field_index("headers")
_TIMESTAMP = SCHEMA.field("timestamp").type
_MAX_TIMESTAMP_MS = (1 << 63) // 1000 - 1


def read_records(
    cluster: SourceCluster, whole: OffsetRange, wanted: Bounds, isolation: str, on_data_loss: OnDataLoss
) -> Iterator[pa.RecordBatch]:
    """The records of a range in the order of their offsets, by SCHEMA with null for no headers; none is empty.

    Raises DataLossError, DecodeError, KafkaError.
    """
    for part in read_range(cluster, whole, isolation=isolation, on_data_loss=on_data_loss, fetch_bytes=FETCH_BYTES):
        for batch in _in_order(part.decoded):
            rows = wanted.filtered(batch)
            if rows.num_rows:
                yield _without_empty_headers(rows)


def _without_empty_headers(batch: pa.RecordBatch) -> pa.RecordBatch:
    given = batch.column(_HEADERS)
    none = pc.equal(pc.list_value_length(given), _ZERO)
    return batch.set_column(_HEADERS, SCHEMA.field(_HEADERS), pc.if_else(none, _NO_HEADERS, given))


def _in_order(decoded: DecodeResult) -> Sequence[pa.RecordBatch]:
    """The batches of a part, including records that a table would not take, in offset order."""
    if not decoded.dead_letters:
        return decoded.batches
    letters = [_with_timestamp(letters) for letters in decoded.dead_letters]
    merged: list[pa.RecordBatch] = pa.Table.from_batches([*decoded.batches, *letters]).sort_by("offset").to_batches()
    return merged


def _with_timestamp(letters: pa.RecordBatch) -> pa.RecordBatch:
    """Dead letters by SCHEMA: with their timestamp if its microseconds fit, else null."""
    stored = letters.column("timestamp_ms").to_numpy()
    fits = np.abs(stored) <= _MAX_TIMESTAMP_MS
    microseconds = pa.array(np.where(fits, stored, 0) * 1000, pa.int64(), mask=~fits).view(_TIMESTAMP)
    columns = [microseconds if name == "timestamp" else letters.column(name) for name in SCHEMA.names]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
