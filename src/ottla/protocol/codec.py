"""Reads and writes declared messages: one compiled pair of functions per class and version, compiled on first use.

All network input passes through here (except Produce and Fetch requests, which have hand-written parsers). The only
error of a reader is ProtocolError, for any input.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from functools import cache
from struct import error as StructError
from typing import TypeVar

from ottla.common.errors import ErrorCode, KafkaError, ProtocolError
from ottla.common.platform.disk import Buffer
from ottla.protocol.reader import InPlaceReader, compile_in_place_reader, compile_reader, compile_stepped_reader
from ottla.protocol.schema import schema_of
from ottla.protocol.writer import compile_stepped_writer, compile_writer

T = TypeVar("T")

MAX_REQUEST_ELEMENTS = 1 << 18
"""Limit for array elements and tagged fields in a client's message: more than any cluster has partitions."""

MAX_RESPONSE_ELEMENTS = 1 << 23
"""Limit for messages from a broker or the local disk, which are more trusted."""


def _check_version(cls: type, version: int) -> None:
    """Needed once per version, before its functions are compiled."""
    if version not in schema_of(cls).versions:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"{cls.__name__} has no version {version}")


def read_message(
    cls: type[T], version: int, buffer: Buffer, start: int, end: int, max_elements: int = MAX_REQUEST_ELEMENTS
) -> tuple[T, int]:
    """Read one message from `buffer[start:end]`; returns it and the position after it.

    Raises ProtocolError for invalid bytes, KafkaError UNSUPPORTED_VERSION for a version that the class doesn't have.
    The result shares no memory with `buffer`: the range is copied once, since a memoryview kept alive by an exception
    would block the receive buffer from growing.
    """
    schema = schema_of(cls)
    read = schema.readers.get(version)
    if read is None:
        _check_version(cls, version)
        read = schema.readers[version] = compile_reader(cls, version)
    data = bytes(memoryview(buffer)[start:end])
    try:
        message, consumed = read(data, max_elements)
    except UnicodeDecodeError:
        raise _not_utf8(cls, version) from None
    except (IndexError, StructError):
        raise _too_short(cls, version) from None
    return message, start + consumed


@cache
def _in_place_reader(cls: type, version: int) -> InPlaceReader:
    """Few messages are read so, by few programs: their readers need no place in every schema."""
    _check_version(cls, version)
    return compile_in_place_reader(cls, version)


def read_in_place(cls: type[T], version: int, view: memoryview, max_elements: int) -> T:
    """`read_message` without a copy: records are views of the same memory; trailing bytes are ignored."""
    known: type = cls
    read = _in_place_reader(known, version)
    try:
        message, _ = read(view, max_elements)
    except UnicodeDecodeError:
        raise _not_utf8(cls, version) from None
    except (IndexError, StructError):
        raise _too_short(cls, version) from None
    found: T = message
    return found


def read_in_steps(cls: type[T], version: int, data: bytes, max_elements: int) -> Generator[None, None, T]:
    """`read_message` in short steps, for large messages; trailing bytes are ignored."""
    schema = schema_of(cls)
    read = schema.stepped_readers.get(version)
    if read is None:
        _check_version(cls, version)
        read = schema.stepped_readers[version] = compile_stepped_reader(cls, version)
    try:
        message, _ = yield from read(data, max_elements)
    except UnicodeDecodeError:
        raise _not_utf8(cls, version) from None
    except (IndexError, StructError):
        raise _too_short(cls, version) from None
    found: T = message
    return found


def _not_utf8(cls: type, version: int) -> ProtocolError:
    return ProtocolError(f"{cls.__name__} v{version} contains a string that is not UTF-8")


def _too_short(cls: type, version: int) -> ProtocolError:
    return ProtocolError(f"{cls.__name__} v{version} ends too early")


def write_message(message: object, version: int, out: bytearray) -> None:
    """Append `message` in the layout of `version`.

    Raises KafkaError UNSUPPORTED_VERSION if a field that isn't ignorable has a value that the version can't represent.
    """
    schema = schema_of(type(message))
    write = schema.writers.get(version)
    if write is None:
        _check_version(type(message), version)
        write = schema.writers[version] = compile_writer(type(message), version)
    write(message, out)


def write_in_steps(message: object, version: int, out: bytearray) -> Iterator[None]:
    """`write_message` in short steps, for large messages."""
    schema = schema_of(type(message))
    write = schema.stepped_writers.get(version)
    if write is None:
        _check_version(type(message), version)
        write = schema.stepped_writers[version] = compile_stepped_writer(type(message), version)
    return write(message, out)
