# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Latest record of each key, compiled; `_keys_py.py` is its twin and reference.

Safety: rows say where keys lie, and are compared with the bytes of the body before one is read. The table has its size
from the beginning; a search in it ends, since one entry at least stays free.

The hash is SipHash-2-4 with 128 bits (Aumasson and Bernstein): made for short input and a secret, 30 ns for a key of
12 bytes where BLAKE2b of the standard library takes half a microsecond.
"""

from cpython.bytearray cimport PyByteArray_AS_STRING, PyByteArray_FromStringAndSize
from cpython cimport array
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

import array

from ottla.common.errors import InvariantError

cdef enum:  # of the rows of an index (ottla.record.walk); the parity test compares them
    WIDTH = 8
    OFFSET_DELTA = 0
    TIMESTAMP_DELTA = 1
    KEY_START = 2
    KEY_LENGTH = 3
    VALUE_LENGTH = 5
    HEADERS_START = 6
    HEADERS_LENGTH = 7

ENTRY_BYTES = 24
SECRET_BYTES = 16
HASH_ID = 1

cdef struct Hash:
    uint64_t low
    uint64_t high

cdef struct Entry:
    Hash hash
    int64_t next_offset  # the offset plus one: no used entry has a zero there

cdef array.array _TEMPLATE = array.array("q")
cdef array.array _HASHES = array.array("Q")


cdef inline uint64_t rotate(uint64_t value, int bits) noexcept nogil:
    return (value << bits) | (value >> (64 - bits))


cdef inline void sip_rounds(uint64_t* v, int count) noexcept nogil:
    cdef uint64_t v0 = v[0], v1 = v[1], v2 = v[2], v3 = v[3]
    while count > 0:
        count -= 1
        v0 += v1
        v1 = rotate(v1, 13) ^ v0
        v0 = rotate(v0, 32)
        v2 += v3
        v3 = rotate(v3, 16) ^ v2
        v0 += v3
        v3 = rotate(v3, 21) ^ v0
        v2 += v1
        v1 = rotate(v1, 17) ^ v2
        v2 = rotate(v2, 32)
    v[0] = v0
    v[1] = v1
    v[2] = v2
    v[3] = v3


cdef inline uint64_t word_at(const uint8_t* data) noexcept nogil:
    # Written out so that a compiler sees one load.
    return (
        <uint64_t>data[0] | <uint64_t>data[1] << 8 | <uint64_t>data[2] << 16 | <uint64_t>data[3] << 24
        | <uint64_t>data[4] << 32 | <uint64_t>data[5] << 40 | <uint64_t>data[6] << 48 | <uint64_t>data[7] << 56
    )


cdef Hash sip_hash(const Hash* secret, const uint8_t* data, int64_t length) noexcept nogil:
    cdef uint64_t v[4]
    cdef uint64_t word
    cdef int64_t at = 0
    cdef int64_t rest
    cdef Hash result
    v[0] = secret.low ^ 0x736F6D6570736575U
    v[1] = secret.high ^ 0x646F72616E646F6DU ^ 0xEE
    v[2] = secret.low ^ 0x6C7967656E657261U
    v[3] = secret.high ^ 0x7465646279746573U
    while at + 8 <= length:
        word = word_at(data + at)
        v[3] ^= word
        sip_rounds(v, 2)
        v[0] ^= word
        at += 8
    word = <uint64_t>length << 56
    for rest in range(length - at):
        word |= <uint64_t>data[at + rest] << (8 * rest)
    v[3] ^= word
    sip_rounds(v, 2)
    v[0] ^= word
    v[2] ^= 0xEE
    sip_rounds(v, 4)
    result.low = v[0] ^ v[1] ^ v[2] ^ v[3]
    v[1] ^= 0xDD
    sip_rounds(v, 4)
    result.high = v[0] ^ v[1] ^ v[2] ^ v[3]
    return result


cdef Hash secret_of(bytes secret) except *:
    cdef const uint8_t* data = secret
    cdef Hash result
    if len(secret) != SECRET_BYTES:
        raise InvariantError(f"a secret has {SECRET_BYTES} bytes")
    result.low = word_at(data)
    result.high = word_at(data + 8)
    return result


def hash_key(bytes secret, bytes key):
    """Return the 16-byte hash of a key as one little-endian number; public for the published test vectors."""
    cdef Hash seed = secret_of(secret)
    cdef Hash result = sip_hash(&seed, key, len(key))
    return int(result.low) | int(result.high) << 64


cdef int64_t check_rows(const uint8_t[::1] body, const int64_t[::1] rows) except -1:
    """Return the number of rows, after a check that all keys and records are inside of the body."""
    cdef int64_t count = rows.shape[0] // WIDTH
    cdef int64_t size = body.shape[0]
    cdef int64_t end = 0
    cdef int64_t number
    cdef const int64_t* row
    for number in range(count):
        row = &rows[number * WIDTH]
        if (
            not 0 <= row[KEY_START] <= size
            or row[KEY_LENGTH] > size - row[KEY_START]
            or not end <= row[HEADERS_START] <= size
            or not 0 <= row[HEADERS_LENGTH] <= size - row[HEADERS_START]
        ):
            raise InvariantError("a row of the index is outside the body")
        end = row[HEADERS_START] + row[HEADERS_LENGTH]
    return count


cdef class KeyTable:
    """Hash and latest offset of each key, in a table of a fixed size; see the twin."""

    cdef Entry* _entries
    cdef Hash _secret
    cdef int64_t _slots
    cdef int64_t _capacity
    cdef readonly int64_t count

    def __cinit__(self, int64_t slots, int64_t capacity, bytes secret not None):
        if not 0 < capacity < slots:
            raise InvariantError("a table of keys has a free entry")
        self._secret = secret_of(secret)
        self._slots = slots
        self._capacity = capacity
        self._entries = <Entry*>calloc(slots, sizeof(Entry))  # pages are allocated on the first write
        if self._entries == NULL:
            raise MemoryError(
                f"can't allocate {slots * ENTRY_BYTES} bytes for the cleaner's key map; free memory, or lower "
                "log.cleaner.dedupe.buffer.size"
            )

    def __dealloc__(self):
        free(self._entries)

    def close(self):
        """Free the memory."""
        free(self._entries)
        self._entries = NULL

    cdef Entry* _find(self, const uint8_t* key, int64_t length, Hash* found) noexcept nogil:
        """Return the entry of a key, or the free one for it."""
        cdef Entry* entry
        cdef int64_t slot
        found[0] = sip_hash(&self._secret, key, length)
        slot = <int64_t>(found.low % <uint64_t>self._slots)
        while True:
            entry = &self._entries[slot]
            if entry.next_offset == 0 or (entry.hash.low == found.low and entry.hash.high == found.high):
                return entry
            slot += 1
            if slot == self._slots:
                slot = 0

    cdef int _check_open(self) except -1:
        if self._entries == NULL:
            raise InvariantError("a table of keys is used after it was closed")
        return 0

    def note(
        self, const uint8_t[::1] body not None, const int64_t[::1] rows not None, int64_t base_offset,
        int64_t first_offset,
    ):
        """Add records from the first on, and return how many fit."""
        cdef int64_t count = check_rows(body, rows)
        cdef int64_t number = 0
        cdef int64_t offset
        cdef const uint8_t* data = &body[0] if count else NULL
        cdef const int64_t* row
        cdef Entry* entry
        cdef Hash key
        self._check_open()
        with nogil:
            while number < count:
                row = &rows[number * WIDTH]
                offset = base_offset + row[OFFSET_DELTA]
                if offset >= first_offset and row[KEY_LENGTH] >= 0:
                    entry = self._find(data + row[KEY_START], row[KEY_LENGTH], &key)
                    if entry.next_offset == 0:
                        if self.count >= self._capacity:
                            break
                        self.count += 1
                        entry.hash = key
                    entry.next_offset = offset + 1
                number += 1
        return number

    def surviving(
        self, const uint8_t[::1] body not None, const int64_t[::1] rows not None, int64_t base_offset,
        int64_t known_offset, *, bint keeps_tombstones,
    ):
        """Return (numbers of retained records, dropped ones without a key, retained ones without a value)."""
        cdef int64_t count = check_rows(body, rows)
        cdef array.array kept = array.clone(_TEMPLATE, count, zero=False)
        cdef int64_t* numbers = <int64_t*>kept.data.as_voidptr
        cdef int64_t kept_count = 0, keyless_count = 0, tombstone_count = 0
        cdef int64_t number, offset
        cdef const uint8_t* data = &body[0] if count else NULL
        cdef const int64_t* row
        cdef Hash key
        self._check_open()
        with nogil:
            for number in range(count):
                row = &rows[number * WIDTH]
                offset = base_offset + row[OFFSET_DELTA]
                if offset <= known_offset:
                    if row[KEY_LENGTH] < 0:
                        keyless_count += 1
                        continue
                    if row[VALUE_LENGTH] < 0 and not keeps_tombstones:
                        continue
                    if offset + 1 < self._find(data + row[KEY_START], row[KEY_LENGTH], &key).next_offset:
                        continue
                numbers[kept_count] = number
                kept_count += 1
                if row[VALUE_LENGTH] < 0:
                    tombstone_count += 1
        array.resize(kept, kept_count)
        return kept, keyless_count, tombstone_count


def gather(
    const uint8_t[::1] body not None, const int64_t[::1] rows not None, const int64_t[::1] kept not None,
    int64_t base_timestamp,
):
    """Return (the records numbered in `kept`, unchanged; their latest timestamp); see the twin."""
    cdef int64_t count = check_rows(body, rows)
    cdef int64_t size = 0, newest = -1
    cdef int64_t at, number, start, timestamp
    cdef const int64_t* row
    cdef char* target
    cdef bytearray out
    for at in range(kept.shape[0]):
        number = kept[at]
        if not 0 <= number < count:
            raise InvariantError("the index has no such row")
        row = &rows[number * WIDTH]
        size += row[HEADERS_START] + row[HEADERS_LENGTH]
        if number:
            size -= rows[(number - 1) * WIDTH + HEADERS_START] + rows[(number - 1) * WIDTH + HEADERS_LENGTH]
        timestamp = <int64_t>(<uint64_t>base_timestamp + <uint64_t>row[TIMESTAMP_DELTA])
        if timestamp > newest:
            newest = timestamp
    out = PyByteArray_FromStringAndSize(NULL, size)
    target = PyByteArray_AS_STRING(out)
    for at in range(kept.shape[0]):
        number = kept[at]
        row = &rows[number * WIDTH]
        start = 0
        if number:
            start = rows[(number - 1) * WIDTH + HEADERS_START] + rows[(number - 1) * WIDTH + HEADERS_LENGTH]
        size = row[HEADERS_START] + row[HEADERS_LENGTH] - start
        if size:
            memcpy(target, &body[start], size)
            target += size
    return out, newest


def key_hashes(bytes secret not None, const uint8_t[::1] body not None, const int64_t[::1] rows not None):
    """Return the low 64 bits of the hash of each key, in order; see the twin."""
    cdef int64_t count = check_rows(body, rows)
    cdef array.array found = array.clone(_HASHES, count, zero=False)
    cdef uint64_t* hashes = <uint64_t*>found.data.as_voidptr
    cdef Hash seed = secret_of(secret)
    cdef int64_t number, used = 0
    cdef const uint8_t* data = &body[0] if count else NULL
    cdef const int64_t* row
    with nogil:
        for number in range(count):
            row = &rows[number * WIDTH]
            if row[KEY_LENGTH] >= 0:
                hashes[used] = sip_hash(&seed, data + row[KEY_START], row[KEY_LENGTH]).low
                used += 1
    array.resize(found, used)
    return found


cdef inline uint64_t probe_of(uint64_t hashed, int probe, uint64_t bit_count) noexcept nogil:
    return ((hashed & 0xFFFFFFFFU) + <uint64_t>probe * ((hashed >> 32) | 1)) % bit_count


def key_filter(const uint64_t[::1] hashes not None, int64_t bit_count, int probes):
    """Return a Bloom filter of these hashes; see the twin."""
    cdef int64_t size = (bit_count + 7) // 8
    cdef int64_t number
    cdef int probe
    cdef uint64_t bit
    cdef bytearray out
    if bit_count <= 0:
        raise InvariantError("a key filter has bits")
    out = bytearray(size)
    cdef uint8_t* data = <uint8_t*>PyByteArray_AS_STRING(out)
    with nogil:
        for number in range(hashes.shape[0]):
            for probe in range(probes):
                bit = probe_of(hashes[number], probe, <uint64_t>bit_count)
                data[bit >> 3] |= <uint8_t>(1 << (bit & 7))
    return out


def filters_with(
    const uint8_t[::1] data not None, const int64_t[::1] places not None, const uint64_t[::1] hashes not None,
    int probes,
):
    """Return a byte for each filter: 1 if it can have one of the hashes; see the twin."""
    cdef int64_t count = places.shape[0] // 2
    cdef int64_t size = data.shape[0]
    cdef int64_t number, key, start, bit_count
    cdef int probe
    cdef uint64_t bit
    cdef bytearray out = bytearray(count)
    cdef uint8_t* flags = <uint8_t*>PyByteArray_AS_STRING(out)
    for number in range(count):
        start, bit_count = places[2 * number], places[2 * number + 1]
        if not 0 <= start <= size or not 0 <= bit_count <= 8 * (size - start):
            raise InvariantError("a key filter is outside of its file")
    with nogil:
        for number in range(count):
            start, bit_count = places[2 * number], places[2 * number + 1]
            if not bit_count:
                continue
            for key in range(hashes.shape[0]):
                flags[number] = 1
                for probe in range(probes):
                    bit = probe_of(hashes[key], probe, <uint64_t>bit_count)
                    if not data[start + <int64_t>(bit >> 3)] >> (bit & 7) & 1:
                        flags[number] = 0
                        break
                if flags[number]:
                    break
    return out
