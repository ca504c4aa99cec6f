# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Walk over the records of an uncompressed batch body, compiled; `_batch_py.py` is its twin and reference.

Safety: every byte of the input is hostile. A position only ever grows by a length that was compared with the bytes
left before (`length > end - position`), so no addition can overflow and no read can leave [start, end), which is
checked against the buffer once at the entry. Each byte is read once, thus a buffer that changes underneath yields
nonsense and never a stray access. Allocations are paid for by the bytes present (7 a record, 2 a header).
"""

from cpython cimport array
from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport INT64_MAX, INT64_MIN, int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

import array

from ottla.common.errors import InvariantError
from ottla.record.errors import invalid_record, timestamp_out_of_range

cdef enum:  # the numbers of ottla.record.errors; the parity test compares them
    BAD_VARINT = 1
    BAD_LENGTH = 2
    BAD_OFFSET_DELTA = 3
    BAD_HEADER_COUNT = 4
    BAD_HEADER = 5
    SURPLUS_IN_RECORD = 6
    SURPLUS_IN_BATCH = 7
    BAD_RECORD_COUNT = 8
    NO_TIMESTAMP = -1  # of ottla.record.batch
    NO_PRODUCER_ID = -1
    MAGIC_V2 = 2
    HEADER_BYTES = 61
    LOG_OVERHEAD = 12
    MIN_LENGTH = 49
    UNUSUAL_ATTRIBUTES = 0x7F  # codec, timestamp type, transactional, control, delete horizon
    MIN_RECORD_BYTES = 7
    MAX_RECORDS = 128 * 1024 * 1024 // 7  # of ottla.record.validate

INDEX_WIDTH = 8

cdef struct Row:
    # Eight int64 in the order of the index, so that rows are written straight into it.
    int64_t offset_delta
    int64_t timestamp_delta
    int64_t key_start
    int64_t key_length
    int64_t value_start
    int64_t value_length
    int64_t headers_start
    int64_t headers_length

cdef array.array _TEMPLATE = array.array("q")


cdef inline int read_varint(const uint8_t* data, int64_t* position, int64_t end, int64_t* value) noexcept nogil:
    cdef uint64_t raw = 0
    cdef int shift = 0
    cdef uint8_t byte
    cdef int64_t at = position[0]
    while at < end and shift <= 28:
        byte = data[at]
        at += 1
        raw |= <uint64_t>(byte & 0x7F) << shift
        if byte < 0x80:
            if raw > 0xFFFFFFFFU:
                return BAD_VARINT
            position[0] = at
            value[0] = <int64_t>(raw >> 1) ^ -<int64_t>(raw & 1)
            return 0
        shift += 7
    return BAD_VARINT


cdef inline int read_varlong(const uint8_t* data, int64_t* position, int64_t end, int64_t* value) noexcept nogil:
    cdef uint64_t raw = 0
    cdef int shift = 0
    cdef uint8_t byte
    cdef int64_t at = position[0]
    while at < end and shift <= 63:
        byte = data[at]
        at += 1
        if shift == 63 and (byte & 0x7F) > 1:
            return BAD_VARINT
        raw |= <uint64_t>(byte & 0x7F) << shift
        if byte < 0x80:
            position[0] = at
            value[0] = <int64_t>(raw >> 1) ^ -<int64_t>(raw & 1)
            return 0
        shift += 7
    return BAD_VARINT


cdef int skip_headers(const uint8_t* data, int64_t* position, int64_t end, int64_t count) noexcept nogil:
    cdef int64_t index, length
    for index in range(count):
        if read_varint(data, position, end, &length):
            return BAD_VARINT
        if length < 0 or length > end - position[0]:
            return BAD_HEADER
        position[0] += length
        if read_varint(data, position, end, &length):
            return BAD_VARINT
        if length < -1 or length > end - position[0]:
            return BAD_HEADER
        if length > 0:
            position[0] += length
    return 0


cdef int read_record(const uint8_t* data, int64_t* position, int64_t end, Row* row) noexcept nogil:
    """Parse one record at `position`, which moves behind it; returns 0 or the defect."""
    cdef int64_t at = position[0]
    cdef int64_t length, header_count
    cdef int defect
    if read_varint(data, &at, end, &length):
        return BAD_VARINT
    if length < 1 or length > end - at:
        return BAD_LENGTH
    end = at + length
    at += 1  # the record's attributes, unused in format v2
    if read_varlong(data, &at, end, &row.timestamp_delta) or read_varint(data, &at, end, &row.offset_delta):
        return BAD_VARINT
    if read_varint(data, &at, end, &row.key_length):
        return BAD_VARINT
    if row.key_length < -1 or row.key_length > end - at:
        return BAD_LENGTH
    row.key_start = at
    if row.key_length > 0:
        at += row.key_length
    if read_varint(data, &at, end, &row.value_length):
        return BAD_VARINT
    if row.value_length < -1 or row.value_length > end - at:
        return BAD_LENGTH
    row.value_start = at
    if row.value_length > 0:
        at += row.value_length
    if read_varint(data, &at, end, &header_count):
        return BAD_VARINT
    if header_count < 0 or header_count > (end - at) // 2:
        return BAD_HEADER_COUNT
    row.headers_start = at
    row.headers_length = end - at
    if header_count:
        defect = skip_headers(data, &at, end, header_count)
        if defect:
            return defect
    if at != end:
        return SURPLUS_IN_RECORD
    position[0] = end
    return 0


cdef inline int next_row(
    const uint8_t* data, int64_t* position, int64_t end, int64_t last_offset_delta, Row* row
) noexcept nogil:
    cdef int defect = read_record(data, position, end, row)
    if defect == 0 and row.offset_delta <= last_offset_delta:
        return BAD_OFFSET_DELTA
    return defect


cdef int check_range(int64_t size, int64_t start, int64_t end) except -1:
    if not 0 <= start <= end <= size:
        raise InvariantError("the range exceeds the buffer")
    return 0


cdef int check_bounds(int64_t size, int64_t start, int64_t end, int64_t count) except -1:
    check_range(size, start, end)
    if count < 0 or count > (end - start) // 7:
        raise invalid_record(BAD_RECORD_COUNT, 0)
    return 0


cdef const uint8_t* check_entry(const uint8_t[::1] buffer, int64_t start, int64_t end, int64_t count) except? NULL:
    """Check range and count, and return the buffer's first byte; for an empty buffer a pointer that is never read."""
    check_bounds(buffer.shape[0], start, end, count)
    if buffer.shape[0] == 0:
        return b""
    return &buffer[0]


cdef inline int32_t get32(const uint8_t* data) noexcept nogil:
    return <int32_t>((<uint32_t>data[0] << 24) | (<uint32_t>data[1] << 16) | (<uint32_t>data[2] << 8) | data[3])


cdef inline int64_t get64(const uint8_t* data) noexcept nogil:
    return <int64_t>((<uint64_t><uint32_t>get32(data) << 32) | <uint32_t>get32(data + 4))


def usual_header(buffer not None, int64_t start, int64_t end):
    """Return the header of a usual batch of a client; see the twin."""
    cdef Py_buffer held
    PyObject_GetBuffer(buffer, &held, PyBUF_SIMPLE)
    try:
        check_range(held.len, start, end)
        return header_at(<const uint8_t*>held.buf + start, end - start)
    finally:
        PyBuffer_Release(&held)


cdef object header_at(const uint8_t* data, int64_t size):
    cdef int64_t length, base_timestamp, max_timestamp, producer_id
    cdef int32_t delta, sequence, count
    cdef int16_t attributes, epoch
    if size < HEADER_BYTES:
        return None
    length = get32(data + 8)
    attributes = <int16_t>((data[21] << 8) | data[22])
    delta = get32(data + 23)
    count = get32(data + 57)
    if data[16] != MAGIC_V2 or length > size - LOG_OVERHEAD or attributes & UNUSUAL_ATTRIBUTES:
        return None
    if count <= 0 or <int64_t>count != <int64_t>delta + 1 or <int64_t>count * MIN_RECORD_BYTES > length - MIN_LENGTH:
        return None
    if count > MAX_RECORDS:
        return None
    base_timestamp = get64(data + 27)
    max_timestamp = get64(data + 35)
    if max_timestamp < base_timestamp or max_timestamp < NO_TIMESTAMP:
        return None
    producer_id = get64(data + 43)
    epoch = <int16_t>((data[51] << 8) | data[52])
    sequence = get32(data + 53)
    if producer_id != NO_PRODUCER_ID and (producer_id < 0 or epoch < 0 or sequence < 0):
        return None
    return (
        get64(data), length, get32(data + 12), MAGIC_V2, <uint32_t>get32(data + 17), attributes, delta,
        base_timestamp, max_timestamp, producer_id, epoch, sequence, count,
    )


def walk_records(buffer not None, int64_t start, int64_t end, int64_t count):
    """Check every record of a producer's batch; raises InvalidRecord."""
    # Not by a typed memoryview, which costs more than the walk of a few records.
    cdef Py_buffer held
    PyObject_GetBuffer(buffer, &held, PyBUF_SIMPLE)
    try:
        walk_held(<const uint8_t*>held.buf, held.len, start, end, count)
    finally:
        PyBuffer_Release(&held)


cdef int walk_held(const uint8_t* data, int64_t size, int64_t start, int64_t end, int64_t count) except -1:
    check_bounds(size, start, end, count)
    cdef int64_t index = 0
    cdef int64_t position = start
    cdef int defect = 0
    cdef Row row
    with nogil:
        while index < count:
            defect = read_record(data, &position, end, &row)
            if defect == 0 and row.offset_delta != index:
                defect = BAD_OFFSET_DELTA
            if defect:
                break
            index += 1
        if defect == 0 and position != end:
            defect = SURPLUS_IN_BATCH
    if defect:
        raise invalid_record(defect, index)
    return 0


def index_records(const uint8_t[::1] buffer not None, int64_t start, int64_t end, int64_t count):
    """Index the records, as INDEX_WIDTH int64 values for each; the twin's docstring lists them."""
    cdef const uint8_t* data = check_entry(buffer, start, end, count)
    cdef array.array result = array.clone(_TEMPLATE, count * 8, zero=False)
    cdef Row* rows = <Row*>result.data.as_voidptr
    cdef int64_t index = 0
    cdef int64_t position = start
    cdef int64_t last_offset_delta = -1
    cdef int defect = 0
    with nogil:
        while index < count:
            defect = next_row(data, &position, end, last_offset_delta, &rows[index])
            if defect:
                break
            last_offset_delta = rows[index].offset_delta
            index += 1
        if defect == 0 and position != end:
            defect = SURPLUS_IN_BATCH
    if defect:
        raise invalid_record(defect, index)
    return result


cdef enum:
    RENDER_OFFSET = 0  # the numbers of ottla.record.template
    RENDER_TIMESTAMP = 1
    RENDER_KEY = 2
    RENDER_VALUE = 3
    RENDER_KEY_SIZE = 4
    RENDER_VALUE_SIZE = 5
    TEXT = 6
    INT64_DIGITS = 20

cdef struct Piece:
    int field
    const char* text
    int64_t length


cdef inline char* put(char* at, const char* text, int64_t length) noexcept nogil:
    if length > 0:
        memcpy(at, text, length)
        return at + length
    return at


cdef inline char* put_number(char* at, int64_t number) noexcept nogil:
    cdef char digits[INT64_DIGITS]
    cdef int length = 0
    cdef uint64_t left = <uint64_t>number
    if number < 0:
        at[0] = b"-"
        at += 1
        left = 0 - left
    while True:
        digits[length] = <char>(48 + left % 10)
        length += 1
        left //= 10
        if left == 0:
            break
    while length:
        length -= 1
        at[0] = digits[length]
        at += 1
    return at


cdef struct Rendering:
    const uint8_t* data
    Piece* pieces
    Py_ssize_t piece_count
    Piece null
    int64_t base_offset


cdef int64_t rendered_size(Rendering* rendering, Row* row) noexcept nogil:
    """The largest size of the text of a record."""
    cdef int64_t size = 0
    cdef Py_ssize_t index
    cdef int field
    for index in range(rendering.piece_count):
        field = rendering.pieces[index].field
        if field == TEXT:
            size += rendering.pieces[index].length
        elif field == RENDER_KEY:
            size += row.key_length if row.key_length >= 0 else rendering.null.length
        elif field == RENDER_VALUE:
            size += row.value_length if row.value_length >= 0 else rendering.null.length
        else:
            size += INT64_DIGITS + (rendering.null.length if field == RENDER_TIMESTAMP else 0)
    return size


cdef char* render(Rendering* rendering, Row* row, int64_t timestamp, char* at) noexcept nogil:
    cdef const char* data = <const char*>rendering.data
    cdef Py_ssize_t index
    cdef int field
    for index in range(rendering.piece_count):
        field = rendering.pieces[index].field
        if field == TEXT:
            at = put(at, rendering.pieces[index].text, rendering.pieces[index].length)
        elif field == RENDER_VALUE and row.value_length >= 0:
            at = put(at, data + row.value_start, row.value_length)
        elif field == RENDER_KEY and row.key_length >= 0:
            at = put(at, data + row.key_start, row.key_length)
        elif field == RENDER_OFFSET:
            at = put_number(at, rendering.base_offset + row.offset_delta)
        elif field == RENDER_TIMESTAMP and timestamp != NO_TIMESTAMP:
            at = put_number(at, timestamp)
        elif field == RENDER_KEY_SIZE:
            at = put_number(at, row.key_length if row.key_length > 0 else 0)
        elif field == RENDER_VALUE_SIZE:
            at = put_number(at, row.value_length if row.value_length > 0 else 0)
        else:
            at = put(at, rendering.null.text, rendering.null.length)
    return at


cdef inline bint overflows(int64_t base, int64_t delta) noexcept nogil:
    return base > INT64_MAX - delta if delta > 0 else base < INT64_MIN - delta


cdef inline bint is_within(int64_t start, int64_t length, int64_t size) noexcept nogil:
    return 0 <= start <= size and length <= size - start


cdef Piece piece_of(object part) except *:
    cdef Piece piece
    piece.text = NULL
    piece.length = 0
    if isinstance(part, bytes):
        piece.field = TEXT
        piece.text = PyBytes_AS_STRING(part)
        piece.length = PyBytes_GET_SIZE(part)
    else:
        piece.field = part
        if not 0 <= piece.field < TEXT:
            raise IndexError("tuple index out of range")
    return piece


def render_rows(
    const uint8_t[::1] buffer not None,
    array.array rows not None,
    tuple template not None,
    bytes null not None,
    int64_t base_offset,
    int64_t base_timestamp,
    append_time,
    span,
):
    """Return the text of records by `template`, and their number; see the twin."""
    cdef Row* all_rows = <Row*>rows.data.as_voidptr
    cdef Py_ssize_t count = len(rows) // INDEX_WIDTH
    cdef Py_ssize_t index
    cdef int64_t first = span[0], end = span[1], limit = span[2]
    cdef int64_t size = 0, number = 0, buffer_size = buffer.shape[0]
    cdef bint is_appended = append_time is not None
    cdef int64_t fixed = append_time if is_appended else 0
    cdef Rendering rendering
    cdef Row* row
    cdef char* at
    rendering.data = &buffer[0] if buffer_size else NULL
    rendering.null = piece_of(null)
    rendering.base_offset = base_offset
    rendering.piece_count = len(template)
    rendering.pieces = <Piece*>malloc(sizeof(Piece) * (rendering.piece_count or 1))
    if rendering.pieces == NULL:
        raise MemoryError
    try:
        for index in range(rendering.piece_count):
            rendering.pieces[index] = piece_of(template[index])
        for index in range(count):
            row = &all_rows[index]
            if not is_appended and overflows(base_timestamp, row.timestamp_delta):
                raise timestamp_out_of_range(row.offset_delta)
            if not is_within(row.key_start, row.key_length, buffer_size) or not is_within(
                row.value_start, row.value_length, buffer_size
            ):
                raise InvariantError("the rows are not those of the buffer")
            if number < limit and first <= row.offset_delta < end:
                number += 1
                size += rendered_size(&rendering, row)
        text = bytearray(size)
        at = text
        number = 0
        for index in range(count):
            row = &all_rows[index]
            if number < limit and first <= row.offset_delta < end:
                number += 1
                at = render(&rendering, row, fixed if is_appended else base_timestamp + row.timestamp_delta, at)
        del text[at - <char*>text :]
        return text, number
    finally:
        free(rendering.pieces)


cdef object slice_or_none(const uint8_t* data, int64_t start, int64_t length):
    if length < 0:
        return None
    return PyBytes_FromStringAndSize(<const char*>data + start, length)


def refused_records(
    const uint8_t[::1] buffer not None,
    int64_t start,
    int64_t end,
    int64_t count,
    bint needs_keys,
    int64_t base_timestamp,
    int64_t earliest,
    int64_t latest,
    int64_t limit,
):
    """Return the number of records that violate a topic's rule, and the first `limit` of them; see the twin."""
    cdef const uint8_t* data = check_entry(buffer, start, end, count)
    cdef int64_t index = 0
    cdef int64_t position = start
    cdef int64_t total = 0
    cdef int64_t timestamp
    cdef bint keyless
    cdef int defect = 0
    cdef Row row
    cdef list found = []
    with nogil:
        while index < count:
            defect = read_record(data, &position, end, &row)
            if defect == 0 and row.offset_delta != index:
                defect = BAD_OFFSET_DELTA
            if defect:
                break
            keyless = needs_keys and row.key_length < 0
            timestamp = <int64_t>(<uint64_t>base_timestamp + <uint64_t>row.timestamp_delta)
            if keyless or (timestamp != NO_TIMESTAMP and not earliest <= timestamp <= latest):
                total += 1
                if total <= limit:
                    with gil:
                        found.append((index, timestamp, bool(keyless)))
            index += 1
        if defect == 0 and position != end:
            defect = SURPLUS_IN_BATCH
    if defect:
        raise invalid_record(defect, index)
    return total, found


def oversized_record(
    const uint8_t[::1] buffer not None, int64_t start, int64_t end, int64_t count, int64_t max_bytes
):
    """Return the size of the first record larger than `max_bytes`, 0 without one; see the twin."""
    cdef const uint8_t* data = check_entry(buffer, start, end, count)
    cdef int64_t index = 0
    cdef int64_t position = start
    cdef int64_t at
    cdef int64_t size
    cdef int64_t found = 0
    cdef int defect = 0
    cdef Row row
    with nogil:
        while index < count:
            at = position
            if read_varint(data, &at, end, &size) == 0 and size > max_bytes:
                found = size
                break
            defect = read_record(data, &position, end, &row)
            if defect:
                break
            index += 1
    if defect:
        raise invalid_record(defect, index)
    return found


def max_timestamp(const uint8_t[::1] buffer not None, int64_t start, int64_t end, int64_t count):
    """(timestamp_delta, offset_delta) of the first record with the largest timestamp; (-1, -1) without records."""
    cdef const uint8_t* data = check_entry(buffer, start, end, count)
    cdef int64_t index = 0
    cdef int64_t position = start
    cdef int64_t last_offset_delta = -1
    cdef int64_t found_timestamp_delta = -1
    cdef int64_t found_offset_delta = -1
    cdef int defect = 0
    cdef Row row
    with nogil:
        while index < count:
            defect = next_row(data, &position, end, last_offset_delta, &row)
            if defect:
                break
            last_offset_delta = row.offset_delta
            if found_offset_delta < 0 or row.timestamp_delta > found_timestamp_delta:
                found_timestamp_delta = row.timestamp_delta
                found_offset_delta = row.offset_delta
            index += 1
        if defect == 0 and position != end:
            defect = SURPLUS_IN_BATCH
    if defect:
        raise invalid_record(defect, index)
    return found_timestamp_delta, found_offset_delta


def find_timestamp(
    const uint8_t[::1] buffer not None,
    int64_t start,
    int64_t end,
    int64_t count,
    int64_t timestamp_delta,
    int64_t first_offset_delta,
):
    """(timestamp_delta, offset_delta) of the first record at or after both deltas, None when there is none."""
    cdef const uint8_t* data = check_entry(buffer, start, end, count)
    cdef int64_t index = 0
    cdef int64_t position = start
    cdef int64_t last_offset_delta = -1
    cdef int64_t found_timestamp_delta = -1
    cdef int64_t found_offset_delta = -1
    cdef int defect = 0
    cdef Row row
    with nogil:
        while index < count:
            defect = next_row(data, &position, end, last_offset_delta, &row)
            if defect:
                break
            last_offset_delta = row.offset_delta
            if (
                found_offset_delta < 0
                and row.timestamp_delta >= timestamp_delta
                and row.offset_delta >= first_offset_delta
            ):
                found_timestamp_delta = row.timestamp_delta
                found_offset_delta = row.offset_delta
            index += 1
        if defect == 0 and position != end:
            defect = SURPLUS_IN_BATCH
    if defect:
        raise invalid_record(defect, index)
    if found_offset_delta < 0:
        return None
    return found_timestamp_delta, found_offset_delta


cdef tuple headers_in(const uint8_t* data, int64_t start, int64_t end):
    cdef list headers = []
    cdef int64_t position = start
    cdef int64_t length
    while position < end:
        if read_varint(data, &position, end, &length):
            raise invalid_record(BAD_VARINT, 0)
        if length < 0 or length > end - position:
            raise invalid_record(BAD_HEADER, 0)
        key = PyUnicode_DecodeUTF8(<const char*>data + position, length, "replace")
        position += length
        if read_varint(data, &position, end, &length):
            raise invalid_record(BAD_VARINT, 0)
        if length < -1 or length > end - position:
            raise invalid_record(BAD_HEADER, 0)
        headers.append((key, slice_or_none(data, position, length)))
        if length > 0:
            position += length
    return tuple(headers)


def parse_headers(const uint8_t[::1] buffer not None, int64_t start, int64_t length):
    """Return the headers in a range of `index_records`; raises InvalidRecord if they do not fill it exactly."""
    if not (0 <= start <= buffer.shape[0] and 0 <= length <= buffer.shape[0] - start):
        raise InvariantError("the range is outside the buffer")
    if length == 0:
        return ()
    return headers_in(&buffer[0], start, start + length)


def parse_records(const uint8_t[::1] buffer not None, int64_t start, int64_t end, int64_t count):
    """(offset_delta, timestamp_delta, key, value, headers) of each record."""
    cdef const uint8_t* data = check_entry(buffer, start, end, count)
    cdef int64_t index = 0
    cdef int64_t position = start
    cdef int64_t last_offset_delta = -1
    cdef int defect
    cdef Row row
    cdef list records = []
    while index < count:
        defect = next_row(data, &position, end, last_offset_delta, &row)
        if defect:
            raise invalid_record(defect, index)
        last_offset_delta = row.offset_delta
        records.append(
            (
                row.offset_delta,
                row.timestamp_delta,
                slice_or_none(data, row.key_start, row.key_length),
                slice_or_none(data, row.value_start, row.value_length),
                headers_in(data, row.headers_start, row.headers_start + row.headers_length)
                if row.headers_length
                else (),
            )
        )
        index += 1
    if position != end:
        raise invalid_record(SURPLUS_IN_BATCH, count)
    return records
