"""Rendered batches: the twins agree, and the text is that of the records."""

from __future__ import annotations

import random
from array import array

import pytest

from ottla.common.errors import InvariantError, KafkaError
from ottla.record import _batch_py, walk
from ottla.record.batch import LOG_APPEND_TIME, BatchView
from ottla.record.builder import RecordData, build_batch, build_batch_with_gaps
from ottla.record.errors import InvalidRecord
from ottla.record.rendering import rendered
from ottla.record.template import KEY, KEY_SIZE, OFFSET, TIMESTAMP, VALUE, VALUE_SIZE

_batch = pytest.importorskip("ottla.record._batch", reason="the compiled module was not built")

TWINS = [pytest.param(_batch, id="compiled"), pytest.param(_batch_py, id="pure")]
ALL = (b"<", OFFSET, b" ", TIMESTAMP, b" ", KEY, b"=", VALUE, b" ", KEY_SIZE, b"/", VALUE_SIZE, b">\n")
EVERYTHING = (-(1 << 62), 1 << 62, 1 << 62)


def random_records(source: random.Random) -> list[RecordData]:
    pieces = (None, b"", b"k", b"\xff\x00\n", b"null", b"value" * 40)
    return [
        RecordData(
            timestamp_ms=source.choice((-1, 0, 1, 1_700_000_000_123, (1 << 63) - 1)),
            key=source.choice(pieces),
            value=source.choice(pieces),
            headers=source.choice(((), (("a", b"1"), ("a", None)), (("\xe9", b"\xff"),))),
        )
        for _ in range(source.randrange(1, 12))
    ]


def expected(batch: BatchView, null: bytes, span: tuple[int, int, int]) -> tuple[bytes, int]:
    """The text by the objects of the records."""
    chosen = [record for record in batch.records() if span[0] <= record.offset < span[1]][: span[2]]
    text = b"".join(
        b"<%d %b %b=%b %d/%d>\n"
        % (
            record.offset,
            null if record.timestamp == -1 else b"%d" % record.timestamp,
            null if record.key is None else record.key,
            null if record.value is None else record.value,
            len(record.key or b""),
            len(record.value or b""),
        )
        for record in chosen
    )
    return text, len(chosen)


@pytest.mark.parametrize("seed", range(60))
def test_rendered_batch_is_the_text_of_its_records(seed):
    source = random.Random(seed)
    records = random_records(source)
    base_offset = source.choice((0, 7, 1 << 40))
    if seed % 3:
        data = build_batch(
            records,
            base_offset=base_offset,
            compression=source.choice(("none", "lz4", "gzip")),
            timestamp_type=source.choice((0, LOG_APPEND_TIME)),
        )
    else:
        data = build_batch_with_gaps(((3 * number, record) for number, record in enumerate(records)), base_offset)
    batch = BatchView(data)
    for span in (EVERYTHING, (base_offset + 2, base_offset + 5, 100), (base_offset, base_offset + 9, 2)):
        try:
            text = expected(batch, b"null", span)
        except KafkaError as error:  # a timestamp whose distance from the first does not fit
            with pytest.raises(KafkaError, match=str(error)):
                rendered(batch, ALL, b"null", span)
        else:
            assert rendered(batch, ALL, b"null", span) == text


def outcome(twin, buffer, rows, *args):
    try:
        return twin.render_rows(buffer, rows, *args)
    except (InvalidRecord, InvariantError) as error:
        return str(error)


@pytest.mark.parametrize("seed", range(3))
def test_twins_render_the_same_rows(seed, corpus):
    source = random.Random(seed)
    seen = set()
    for _, body, count in corpus.mutations(source, 1500):
        try:
            rows = walk.index_records(body, 0, len(body), count)
        except InvalidRecord:
            continue
        base_timestamp = source.choice((0, 5, (1 << 63) - 1, -(1 << 63)))
        span = (source.randrange(3), source.randrange(6), source.randrange(4))
        args = (rows, ALL, b"-", source.choice((0, 1 << 50)), base_timestamp, source.choice((None, -1, 7)), span)
        compiled = outcome(_batch, body, *args)
        assert compiled == outcome(_batch_py, body, *args), (body.hex(), count, args)
        seen.add(type(compiled))
    assert tuple in seen


@pytest.mark.parametrize("twin", TWINS)
def test_rows_of_another_buffer_are_refused(twin):
    body = BatchView(build_batch([RecordData(key=b"key", value=b"value")])).body()
    rows = walk.index_records(body, 0, len(body), 1)
    for place, value in ((2, -1), (2, 1 << 40), (3, 1 << 40), (4, len(body)), (5, (1 << 63) - 1)):
        damaged = array("q", rows)
        damaged[place] = value
        with pytest.raises(InvariantError, match="not those of the buffer"):
            twin.render_rows(body, damaged, ALL, b"", 0, 0, None, EVERYTHING)
    with pytest.raises(IndexError):
        twin.render_rows(body, rows, (9,), b"", 0, 0, None, EVERYTHING)


@pytest.mark.parametrize("twin", TWINS)
def test_largest_numbers_are_rendered(twin):
    body = BatchView(build_batch([RecordData(value=b"v")])).body()
    rows = walk.index_records(body, 0, len(body), 1)
    for number in (-(1 << 63), -1, 0, 9, 10, (1 << 63) - 1):
        text, _ = twin.render_rows(body, rows, (OFFSET, b" ", TIMESTAMP), b"-", number, number, None, (0, 1, 1))
        assert text == b"%d %b" % (number, b"-" if number == -1 else b"%d" % number)
