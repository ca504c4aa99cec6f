"""Text of whole batches, without an object for each record."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.record.batch import LOG_APPEND_TIME, MAGIC_V2, BatchView, beyond_last_offset, unsupported_magic
from ottla.record.compression import DEFAULT_MAX_BYTES
from ottla.record.walk import INDEX_WIDTH, index_records, render_rows

if TYPE_CHECKING:
    from ottla.record.template import Template


def rendered(
    batch: BatchView,
    template: Template,
    null: bytes,
    span: tuple[int, int, int],
    max_bytes: int = DEFAULT_MAX_BYTES,
) -> tuple[bytearray, int]:
    """Return the text of a batch's records by a template (see `walk.render_rows`), and their number.

    `span`: first offset, end offset (exclusive), largest number of records. Raises as `BatchView.records`.
    """
    if batch.magic != MAGIC_V2:
        raise unsupported_magic(batch.magic, batch.position)
    body = batch.body(max_bytes)
    rows = index_records(body, 0, len(body), batch.records_count)
    if rows and rows[-INDEX_WIDTH] > batch.last_offset_delta:
        raise beyond_last_offset()
    base_offset = batch.base_offset
    append_time = batch.max_timestamp if batch.timestamp_type == LOG_APPEND_TIME else None
    deltas = (span[0] - base_offset, span[1] - base_offset, span[2])
    return render_rows(body, rows, template, null, base_offset, batch.base_timestamp, append_time, deltas)
