# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True
"""Search for bytes in a buffer, compiled; `_byte_search_py.py` is its twin and reference.

Safety: the range is compared with the buffer once at the entry, and every load ends within the range.

Places are compared 16 or 32 at a time, by the vectors of GCC and Clang, which every processor of 64 bits has: for the
first and the last byte of a piece, and for the three bytes of an exponent. Other compilers fail, and the twin serves.
"""

from cpython.bytes cimport PyBytes_AS_STRING
from libc.stdint cimport int64_t, uint8_t

from ottla.common.errors import InvariantError

cdef extern from *:
    """
    #include <stdint.h>
    #include <string.h>

    #define LANES 16
    typedef uint8_t lanes __attribute__((vector_size(LANES)));

    static inline lanes load(const uint8_t* at) {
        lanes found;
        memcpy(&found, at, LANES);
        return found;
    }

    static inline int any(lanes found) {
        uint64_t halves[2];
        memcpy(halves, &found, LANES);
        return (halves[0] | halves[1]) != 0;
    }

    static int64_t find_piece(
        const uint8_t* data, int64_t at, int64_t end, const uint8_t* piece, int64_t length
    ) {
        const int64_t gap = length - 1;
        const lanes zero = {0}, firsts = zero + piece[0], lasts = zero + piece[gap];
        for (; at + gap + 2 * LANES <= end; at += 2 * LANES) {
            const uint8_t *here = data + at, *there = data + at + gap;
            const lanes low = (lanes)(load(here) == firsts) & (lanes)(load(there) == lasts);
            const lanes high = (lanes)(load(here + LANES) == firsts) & (lanes)(load(there + LANES) == lasts);
            if (any(low | high))
                for (int each = 0; each < 2 * LANES; each++)
                    if (here[each] == piece[0] && there[each] == piece[gap] && !memcmp(here + each, piece, length))
                        return at + each;
        }
        for (; at + gap < end; at++)
            if (data[at] == piece[0] && data[at + gap] == piece[gap] && !memcmp(data + at, piece, length))
                return at;
        return -1;
    }

    static inline int is_exponent(const uint8_t* at) {
        return (uint8_t)(at[-1] - '0') <= 9 && (at[0] | 0x20) == 'e'
            && ((uint8_t)(at[1] - '0') <= 9 || at[1] == '+' || at[1] == '-');
    }

    static int64_t find_exponent_at(const uint8_t* data, int64_t start, int64_t end) {
        const lanes zero = {0}, zeros = zero + (uint8_t)'0', nines = zero + (uint8_t)9;
        int64_t at = start + 1;
        for (; at + 1 + LANES <= end; at += LANES) {
            const lanes before = load(data + at - 1), here = load(data + at), after = load(data + at + 1);
            const lanes ends = (lanes)(after - zeros <= nines)
                | (lanes)(after == zero + (uint8_t)'+') | (lanes)(after == zero + (uint8_t)'-');
            const lanes letters = (lanes)((here | (zero + (uint8_t)0x20)) == zero + (uint8_t)'e');
            if (any((lanes)(before - zeros <= nines) & letters & ends))
                for (int64_t each = at; each < at + LANES; each++)
                    if (is_exponent(data + each))
                        return each;
        }
        for (; at + 1 < end; at++)
            if (is_exponent(data + at))
                return at;
        return -1;
    }
    """
    int64_t find_piece(const uint8_t*, int64_t, int64_t, const uint8_t*, int64_t) nogil
    int64_t find_exponent_at(const uint8_t*, int64_t, int64_t) nogil

cdef enum:  # the parity test compares it
    PREFIX_BYTES = 5


cdef const uint8_t* check_range(const uint8_t[::1] buffer, int64_t start, int64_t end) except? NULL:
    if not 0 <= start <= end <= buffer.shape[0]:
        raise InvariantError(f"{start} to {end} is outside of {buffer.shape[0]} bytes")
    return &buffer[0] if buffer.shape[0] else NULL


def find_bytes(const uint8_t[::1] buffer not None, int64_t start, int64_t end, bytes piece not None):
    """Position of a piece that is not empty; the twin's docstring has the rest."""
    cdef const uint8_t* data = check_range(buffer, start, end)
    cdef const uint8_t* wanted = <const uint8_t*>PyBytes_AS_STRING(piece)
    cdef int64_t length = len(piece)
    cdef int64_t found
    if length == 0:
        raise InvariantError("an empty piece is everywhere")
    with nogil:
        found = find_piece(data, start, end, wanted, length)
    return found


def find_exponent(const uint8_t[::1] buffer not None, int64_t start, int64_t end):
    """Position of the letter of an exponent; the twin's docstring has the rest."""
    cdef const uint8_t* data = check_range(buffer, start, end)
    cdef int64_t found
    with nogil:
        found = find_exponent_at(data, start, end)
    return found


cdef inline bint is_of_number(uint8_t byte) noexcept nogil:
    return b"0" <= byte <= b"9" or byte == b"." or byte == b"-" or byte == b"+"


cdef inline bint precedes_number(uint8_t byte) noexcept nogil:
    return byte == b":" or byte == b"," or byte == b"[" or byte == b" " or b"\t" <= byte <= b"\r"


def has_exponent(const uint8_t[::1] buffer not None, int64_t start, int64_t end):
    """Whether a text of JSON may have a number with an exponent; the twin's docstring has the rest."""
    cdef const uint8_t* data = check_range(buffer, start, end)
    cdef int64_t at = start
    cdef int64_t first
    with nogil:
        while True:
            at = find_exponent_at(data, at, end)
            if at < 0:
                break
            first = at
            while first > start and is_of_number(data[first - 1]):
                first -= 1
            if first - start <= PREFIX_BYTES or precedes_number(data[first - 1]):
                break
    return at >= 0
