from array import array

from ottla.common.platform.disk import Buffer
from ottla.record._batch_py import Fields, Header, ParsedRecord
from ottla.record.template import Template

INDEX_WIDTH: int

def usual_header(buffer: Buffer, start: int, end: int) -> Fields | None: ...
def walk_records(buffer: Buffer, start: int, end: int, count: int) -> None: ...
def index_records(buffer: Buffer, start: int, end: int, count: int) -> array[int]: ...
def refused_records(
    buffer: Buffer,
    start: int,
    end: int,
    count: int,
    needs_keys: bool,
    base_timestamp: int,
    earliest: int,
    latest: int,
    limit: int,
) -> tuple[int, list[tuple[int, int, bool]]]: ...
def render_rows(
    buffer: Buffer,
    rows: array[int],
    template: Template,
    null: bytes,
    base_offset: int,
    base_timestamp: int,
    append_time: int | None,
    span: tuple[int, int, int],
) -> tuple[bytearray, int]: ...
def oversized_record(buffer: Buffer, start: int, end: int, count: int, max_bytes: int) -> int: ...
def max_timestamp(buffer: Buffer, start: int, end: int, count: int) -> tuple[int, int]: ...
def find_timestamp(
    buffer: Buffer, start: int, end: int, count: int, timestamp_delta: int, first_offset_delta: int
) -> tuple[int, int] | None: ...
def parse_headers(buffer: Buffer, start: int, length: int) -> tuple[Header, ...]: ...
def parse_records(buffer: Buffer, start: int, end: int, count: int) -> list[ParsedRecord]: ...
