# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Codecs of small requests, compiled; `_hot_py.py` is the twin and reference, and describes the functions.

Safety: every byte of the input is hostile. [start, end) is checked against the buffer once at the entry, and each
position against `end` before the byte there is read. A length is below 2^32 and a position below 2^63 - 2^32, so no
addition overflows. The interpreter lock is held, so the buffer does not change or move meanwhile.
"""

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_Check, PyByteArray_GET_SIZE
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_Check, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.tuple cimport PyTuple_Check
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy

from ottla.common.errors import InvariantError, ProtocolError
from ottla.protocol.tags import skip_tags

cdef enum:  # the numbers of the twin; a test compares the functions at their limits
    HEADER_FIELDS_BYTES = 10
    TOPIC_ID_FROM = 13
    REPLICA_STATE_FROM = 15
    TOPIC_ID_BYTES = 16
    PRODUCE_BY_NAME_BYTES = 9  # up to the length of the name, inclusive
    PRODUCE_BY_ID_BYTES = 29  # up to the partition, inclusive
    COUNT_INDEX_BYTES = 5
    PRODUCED_HEAD_BYTES = 10
    PRODUCED_BYTES = 40
    FETCH_HEAD_BYTES = 22  # up to the number of topics, inclusive
    FETCH_ONE_BYTES = 50  # the topic up to the tags of its partition, inclusive
    FETCHED_BYTES = 72
    NO_TAGS_BYTES = 3
    MAX_VARINT_BYTES = 5
    MAX_RECORDS_BYTES = 0x7FFFFF00  # the frame's size is an int32


cdef inline uint16_t get16(const uint8_t* data) noexcept nogil:
    return <uint16_t>((data[0] << 8) | data[1])


cdef inline uint32_t get32(const uint8_t* data) noexcept nogil:
    return (<uint32_t>data[0] << 24) | (<uint32_t>data[1] << 16) | (<uint32_t>data[2] << 8) | data[3]


cdef inline uint64_t get64(const uint8_t* data) noexcept nogil:
    return (<uint64_t>get32(data) << 32) | get32(data + 4)


cdef inline uint8_t* put8(uint8_t* out, uint8_t value) noexcept nogil:
    out[0] = value
    return out + 1


cdef inline uint8_t* put16(uint8_t* out, uint16_t value) noexcept nogil:
    out[0] = value >> 8
    out[1] = value & 0xFF
    return out + 2


cdef inline uint8_t* put32(uint8_t* out, uint32_t value) noexcept nogil:
    out[0] = value >> 24
    out[1] = (value >> 16) & 0xFF
    out[2] = (value >> 8) & 0xFF
    out[3] = value & 0xFF
    return out + 4


cdef inline uint8_t* put64(uint8_t* out, uint64_t value) noexcept nogil:
    return put32(put32(out, value >> 32), value & 0xFFFFFFFFU)


cdef inline uint8_t* put_varint(uint8_t* out, uint64_t value) noexcept nogil:
    while value > 0x7F:
        out = put8(out, (value & 0x7F) | 0x80)
        value >>= 7
    return put8(out, value)


cdef inline int64_t varint_bytes(uint64_t value) noexcept nogil:
    cdef int64_t count = 1
    while value > 0x7F:
        count += 1
        value >>= 7
    return count


cdef const uint8_t* check_range(object buffer, int64_t start, int64_t end) except NULL:
    """Check the range, and return the buffer's first byte."""
    cdef const uint8_t* data
    cdef int64_t size
    if PyByteArray_Check(buffer):
        data = <const uint8_t*>PyByteArray_AS_STRING(buffer)
        size = PyByteArray_GET_SIZE(buffer)
    elif PyBytes_Check(buffer):
        data = <const uint8_t*>PyBytes_AS_STRING(buffer)
        size = PyBytes_GET_SIZE(buffer)
    else:
        raise TypeError("the buffer is neither bytes nor a bytearray")
    if not 0 <= start <= end <= size:
        raise InvariantError("the range exceeds the buffer")
    return data


def read_client_id(object buffer, int64_t start, int64_t end, int64_t size, bint flexible):
    """Parse the rest of a request header; see the twin."""
    cdef const uint8_t* data = check_range(buffer, start, end)
    cdef int64_t position = start + HEADER_FIELDS_BYTES
    client_id = None
    if size >= 0:
        if size > end - position:
            raise ProtocolError("the client id exceeds the remaining bytes")
        client_id = PyUnicode_DecodeUTF8(<const char*>data + position, size, "replace")
        position += size
    if flexible:
        if position < end and data[position] == 0:
            position += 1
        else:
            return client_id, skip_tags(buffer, position, end)
    return client_id, position


def parse_one_produce(int version, bytearray buffer not None, int64_t start, int64_t end):
    """Parse a Produce request with one partition; see the twin."""
    cdef const uint8_t* data = check_range(buffer, start, end)
    cdef const uint8_t* at = data + start
    cdef int64_t position, size, count
    cdef uint64_t value = 0
    cdef int shift = 0
    cdef uint8_t byte
    cdef int32_t index
    if version >= TOPIC_ID_FROM:
        position = start + PRODUCE_BY_ID_BYTES
        if position >= end or at[0] or at[7] != 2 or at[24] != 2:
            return None
        topic = PyBytes_FromStringAndSize(<const char*>at + 8, TOPIC_ID_BYTES)
        index = <int32_t>get32(at + 25)
    else:
        position = start + PRODUCE_BY_NAME_BYTES
        if position >= end or at[0] or at[7] != 2:
            return None
        size = <int64_t>at[8] - 1
        if not 0 <= size < 0x7F or position + size + COUNT_INDEX_BYTES >= end or data[position + size] != 2:
            return None
        try:
            topic = PyUnicode_DecodeUTF8(<const char*>data + position, size, NULL)
        except UnicodeDecodeError:
            return None
        index = <int32_t>get32(data + position + size + 1)
        position += size + COUNT_INDEX_BYTES
    count = 0
    while True:
        if position >= end or count == MAX_VARINT_BYTES:
            return None
        byte = data[position]
        position += 1
        count += 1
        value |= <uint64_t>(byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
    if value == 0 or value > 0xFFFFFFFFU:
        return None
    size = <int64_t>value - 1
    if size != end - position - NO_TAGS_BYTES:
        return None
    at = data + position + size
    if at[0] or at[1] or at[2]:
        return None
    return (
        <int16_t>get16(data + start + 1), <int32_t>get32(data + start + 3), topic, index, position, position + size
    )


def pack_one_produced(
    int32_t correlation_id,
    topic not None,
    int32_t index,
    int64_t base_offset,
    int64_t log_append_time_ms,
    int64_t log_start_offset,
    int32_t throttle_ms=0,
):
    """Pack a Produce response for one partition; see the twin."""
    cdef bytes name = topic if isinstance(topic, bytes) else (<str?>topic).encode()
    cdef bint by_name = name is not topic
    cdef int64_t name_bytes = PyBytes_GET_SIZE(name)
    cdef int64_t size = PRODUCED_HEAD_BYTES + name_bytes + PRODUCED_BYTES
    if by_name:
        size += varint_bytes(name_bytes + 1)
    cdef bytes frame = PyBytes_FromStringAndSize(NULL, size)
    cdef uint8_t* out = <uint8_t*>PyBytes_AS_STRING(frame)
    out = put32(out, <uint32_t>(size - 4))
    out = put32(out, <uint32_t>correlation_id)
    out = put8(put8(out, 0), 2)
    if by_name:
        out = put_varint(out, name_bytes + 1)
    memcpy(out, PyBytes_AS_STRING(name), name_bytes)
    out = put32(put8(out + name_bytes, 2), <uint32_t>index)
    out = put64(put16(out, 0), <uint64_t>base_offset)
    out = put64(put64(out, <uint64_t>log_append_time_ms), <uint64_t>log_start_offset)
    out = put8(put8(put8(put8(out, 1), 0), 0), 0)
    put8(put32(out, <uint32_t>throttle_ms), 0)
    return frame


def parse_one_fetch(int version, bytearray buffer not None, int64_t start, int64_t end):
    """Parse a consumer's Fetch request with one partition; see the twin."""
    cdef const uint8_t* at = check_range(buffer, start, end) + start
    cdef int64_t left = end - start
    if version < REPLICA_STATE_FROM:
        if left < 4 or get32(at) != 0xFFFFFFFFU:
            return None
        at += 4
        left -= 4
    if left != FETCH_HEAD_BYTES + FETCH_ONE_BYTES + 4:
        return None
    cdef const uint8_t* one = at + FETCH_HEAD_BYTES
    cdef const uint8_t* rest = one + FETCH_ONE_BYTES
    if at[21] != 2 or one[16] != 2 or one[49] or rest[0] or rest[1] != 1 or rest[2] != 1 or rest[3]:
        return None
    return (
        <int32_t>get32(at), <int32_t>get32(at + 4), <int32_t>get32(at + 8), <signed char>at[12],
        <int32_t>get32(at + 13), <int32_t>get32(at + 17),
        PyBytes_FromStringAndSize(<const char*>one, TOPIC_ID_BYTES),
        (
            <int32_t>get32(one + 17), <int32_t>get32(one + 21), <int64_t>get64(one + 25), <int32_t>get32(one + 33),
            <int64_t>get64(one + 37), <int32_t>get32(one + 45),
        ),
    )


def pack_one_fetched(
    int32_t correlation_id,
    int32_t throttle_ms,
    int16_t error_code,
    int32_t session_id,
    bytes topic not None,
    object result,
    int64_t records_bytes,
):
    """Pack the Fetch response of one partition up to its records; see the twin."""
    if not PyTuple_Check(result):
        raise TypeError("the result is not a tuple")
    cdef tuple row = <tuple>result  # exact tuples and named ones
    if PyBytes_GET_SIZE(topic) != TOPIC_ID_BYTES or len(row) < 8 or not 0 <= records_bytes <= MAX_RECORDS_BYTES:
        raise InvariantError("a topic id, a result or a size of records is impossible")
    cdef int32_t index = row[0]
    cdef int16_t code = row[1]
    cdef int64_t high_watermark = row[2]
    cdef int64_t stable = row[3]
    cdef int64_t log_start = row[4]
    cdef bint none_aborted = row[6] is None
    cdef int32_t replica = row[7]
    cdef int64_t size = FETCHED_BYTES + varint_bytes(records_bytes + 1) + (0 if records_bytes else NO_TAGS_BYTES)
    cdef int64_t length = size + (records_bytes + NO_TAGS_BYTES if records_bytes else 0)
    cdef bytes frame = PyBytes_FromStringAndSize(NULL, size)
    cdef uint8_t* out = <uint8_t*>PyBytes_AS_STRING(frame)
    out = put32(out, <uint32_t>(length - 4))
    out = put32(out, <uint32_t>correlation_id)
    out = put32(put8(out, 0), <uint32_t>throttle_ms)
    out = put32(put16(out, <uint16_t>error_code), <uint32_t>session_id)
    out = put8(out, 2)
    memcpy(out, PyBytes_AS_STRING(topic), TOPIC_ID_BYTES)
    out = put32(put8(out + TOPIC_ID_BYTES, 2), <uint32_t>index)
    out = put64(put16(out, <uint16_t>code), <uint64_t>high_watermark)
    out = put64(put64(out, <uint64_t>stable), <uint64_t>log_start)
    out = put32(put8(out, 0 if none_aborted else 1), <uint32_t>replica)
    out = put_varint(out, records_bytes + 1)
    if not records_bytes:
        put8(put8(put8(out, 0), 0), 0)
    return frame
