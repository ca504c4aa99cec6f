"""Half of the inputs go straight to the readers: they return or raise ProtocolError, and nothing grows."""

from __future__ import annotations

import itertools
import time

import pytest
from tests.request_header import parse_request_header

from ottla.common.errors import ProtocolError
from ottla.protocol.codec import read_message
from ottla.protocol.fetch import parse_fetch
from ottla.protocol.framing import SIZE_BYTES, frame_length
from ottla.protocol.produce import parse_produce
from ottla.protocol.registry import API, ApiKey

from .generator import INPUTS, SEED, Generator
from .memory import high_water_bytes

SHARE = INPUTS // 2
MAX_GROWTH_BYTES = 120_000_000
MAX_SECONDS_FOR_ONE = 1.0


def read_like_the_broker(frame: bytes) -> None:
    """Framing, header and body, by the reader that the broker uses and by the declared one where both exist."""
    received = bytearray(len(frame).to_bytes(4, "big") + frame)
    if frame_length(received, 0) != len(frame):
        raise ValueError("the frame length differs from the sent one")
    start, end = SIZE_BYTES, len(received)
    parsed = parse_request_header(received, start, end)
    spec = API[parsed.api_key]
    if not spec.supports(parsed.api_version):
        raise ProtocolError("a version that is not served")
    parse = {ApiKey.PRODUCE: parse_produce, ApiKey.FETCH: parse_fetch}.get(spec.key)
    if parse is None:
        read_message(spec.request, parsed.api_version, received, parsed.body_start, end)
        return
    try:
        parse(parsed.api_version, received, parsed.body_start, end)
    except ProtocolError:
        read_or_refuse(spec.request, parsed.api_version, received, parsed.body_start, end)
        raise
    read_or_refuse(spec.request, parsed.api_version, received, parsed.body_start, end)


def read_or_refuse(cls: type, version: int, received: bytearray, start: int, end: int) -> None:
    try:
        read_message(cls, version, received, start, end)
    except ProtocolError:
        return


@pytest.mark.promise("S1")
def test_readers_return_or_refuse(fuzz_seed):
    stream = Generator(SEED, "readers").requests()
    before = high_water_bytes()
    accepted = 0
    for number, (kind, frame) in enumerate(itertools.islice(stream, SHARE)):
        begin = time.process_time()
        try:
            read_like_the_broker(frame)
            accepted += 1
        except ProtocolError:
            pass
        except Exception as error:
            raise AssertionError(f"{fuzz_seed}, input {number} ({kind}): {frame.hex()}") from error
        spent = time.process_time() - begin
        assert spent < MAX_SECONDS_FOR_ONE, f"{fuzz_seed}, input {number} ({kind}) took {spent:.1f} s: {frame.hex()}"
    assert high_water_bytes() - before < MAX_GROWTH_BYTES, fuzz_seed
    # Were nearly all refused at the door, nothing behind it would have been tried; were none refused, nothing hostile.
    assert 0.15 < accepted / SHARE < 0.9, fuzz_seed
