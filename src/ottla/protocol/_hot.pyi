from collections.abc import Sequence

from ottla.protocol._hot_py import OneFetched, OneProduced
from ottla.protocol.primitives import Topic

def read_client_id(
    buffer: bytes | bytearray, start: int, end: int, size: int, flexible: bool
) -> tuple[str | None, int]: ...
def parse_one_produce(version: int, buffer: bytearray, start: int, end: int) -> OneProduced | None: ...
def pack_one_produced(
    correlation_id: int,
    topic: Topic,
    index: int,
    base_offset: int,
    log_append_time_ms: int,
    log_start_offset: int,
    throttle_ms: int = 0,
) -> bytes: ...
def parse_one_fetch(version: int, buffer: bytearray, start: int, end: int) -> OneFetched | None: ...
def pack_one_fetched(
    correlation_id: int,
    throttle_ms: int,
    error_code: int,
    session_id: int,
    topic: bytes,
    result: Sequence[object],
    records_bytes: int,
) -> bytes: ...
