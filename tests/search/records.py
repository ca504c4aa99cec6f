"""Records for tests of filters: one record as a `Subject`, in a batch of its own."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.record.batch import BatchView
from ottla.record.builder import RecordData, build_batch
from ottla.record.walk import index_records
from ottla.schemas.settings import SchemaSettings
from ottla.search.decoder_factory import open_decoder
from ottla.search.decoders import Decoded
from ottla.search.subject import Batch, Decoders, Subject, Tally, open_decoders

OFFSET = 1_000
TIMESTAMP_MS = 1_767_225_600_000
PARTITION = 3


def subject(
    value: bytes | None = None,
    key: bytes | None = None,
    headers: Sequence[tuple[str, bytes | None]] = (),
    *,
    decoders: Decoders | None = None,
    producer_id: int = -1,
    settings: SchemaSettings | None = None,
) -> Subject:
    view = BatchView(build_batch([RecordData(TIMESTAMP_MS, key, value, headers)], base_offset=OFFSET))
    body = bytes(view.body())
    return Subject(
        Batch(
            body,
            index_records(body, 0, len(body), 1),
            PARTITION,
            OFFSET,
            view.base_timestamp,
            None,
            producer_id,
            open_decoders(decoders or Decoders(), settings),
            Tally(),
        ),
        0,
    )


def decode(
    name: str,
    data: bytes,
    key: bytes | None = None,
    headers: Sequence[tuple[str, bytes | None]] = (),
    settings: SchemaSettings | None = None,
) -> Decoded:
    """The value of `data`: of a record with `key`, or as a key without."""
    return open_decoder(name, settings, is_key=key is None).decode(data, subject(data, key, headers))
