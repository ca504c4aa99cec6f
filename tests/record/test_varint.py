"""Variable-length integers compared with an independent implementation, and at their limits."""

from __future__ import annotations

import pytest
from aiokafka.record import util as aiokafka_util
from hypothesis import given
from hypothesis import strategies as st

from ottla.common.errors import ProtocolError
from ottla.record import varint


@given(st.integers(-(1 << 63), (1 << 63) - 1))
def test_signed_as_aiokafka_writes_it(value):
    out = bytearray()
    varint.write_varint(out, value)
    foreign = bytearray()
    aiokafka_util.encode_varint_py(value, foreign.append)
    assert out == foreign


@given(st.integers(0, (1 << 32) - 1))
def test_unsigned_varint_both_ways(value):
    out = bytearray()
    varint.write_unsigned_varint(out, value)
    assert len(out) <= 5
    assert varint.read_unsigned_varint(out, 0, len(out)) == (value, len(out))


@pytest.mark.parametrize("data", [b"", b"\x80", b"\xff" * 4, b"\x80" * 10, b"\xff" * 300, b"\x80" * 9 + b"\x7f"])
def test_endless_and_cut_encodings_are_refused(data):
    with pytest.raises(ProtocolError):
        varint.read_unsigned_varint(data, 0, len(data))


@pytest.mark.parametrize("data", [b"\xff\xff\xff\xff\x10", b"\x80\x80\x80\x80\x80\x00", b"\x80\x80\x80\x80\x7f"])
def test_more_than_32_bits_are_refused(data):
    with pytest.raises(ProtocolError):
        varint.read_unsigned_varint(data, 0, len(data))


def test_the_end_is_honoured_within_a_longer_buffer():
    with pytest.raises(ProtocolError):
        varint.read_unsigned_varint(b"\x80\x01", 0, 1)
