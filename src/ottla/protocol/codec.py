"""Reads and writes declared messages: one compiled pair of functions per class and version, made on first use.

Everything that comes from the network enters here (Produce and Fetch requests excepted, which have hand-written
parsers). The only error a reader raises is ProtocolError, whatever the bytes.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from struct import error as StructError
from typing import TypeVar

from ottla.common.errors import ErrorCode, KafkaError, ProtocolError
from ottla.common.platform.disk import Buffer
from ottla.protocol.reader import compile_reader, compile_stepped_reader
from ottla.protocol.schema import Schema, schema_of
from ottla.protocol.writer import compile_stepped_writer, compile_writer

T = TypeVar("T")

MAX_REQUEST_ELEMENTS = 1 << 18
"""Array elements and tagged fields that one message from a client may hold: more than any cluster has partitions."""

MAX_RESPONSE_ELEMENTS = 1 << 23
"""The same for messages from a broker or from our own disk, whose size is trusted further."""


def _check_version(cls: type, version: int) -> Schema:
    schema = schema_of(cls)
    if version not in schema.versions:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"{cls.__name__} has no version {version}")
    return schema


def read_message(
    cls: type[T], version: int, buffer: Buffer, start: int, end: int, max_elements: int = MAX_REQUEST_ELEMENTS
) -> tuple[T, int]:
    """Read one message from `buffer[start:end]`; returns it and the position behind it.

    Raises ProtocolError for bytes that are no such message, KafkaError UNSUPPORTED_VERSION for a version that the
    class doesn't have. The result shares no memory with `buffer`: the range is copied once, since a memoryview kept
    alive by an exception would block the receive buffer from growing.
    """
    schema = _check_version(cls, version)
    read = schema.readers.get(version)
    if read is None:
        read = schema.readers[version] = compile_reader(cls, version)
    data = bytes(memoryview(buffer)[start:end])
    try:
        message, consumed = read(data, max_elements)
    except UnicodeDecodeError:
        raise _not_utf8(cls, version) from None
    except (IndexError, StructError):
        raise _too_short(cls, version) from None
    return message, start + consumed


def read_in_steps(cls: type[T], version: int, data: bytes, max_elements: int) -> Generator[None, None, T]:
    """As `read_message` in short steps, for a message that is large; what follows the message is ignored."""
    schema = _check_version(cls, version)
    read = schema.stepped_readers.get(version)
    if read is None:
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
    return ProtocolError(f"{cls.__name__} v{version} holds a string that is not UTF-8")


def _too_short(cls: type, version: int) -> ProtocolError:
    return ProtocolError(f"{cls.__name__} v{version} ends too early")


def write_message(message: object, version: int, out: bytearray) -> None:
    """Append `message` in the layout of `version`.

    Raises KafkaError UNSUPPORTED_VERSION when a field that isn't ignorable holds a value that the version can't carry.
    """
    schema = _check_version(type(message), version)
    write = schema.writers.get(version)
    if write is None:
        write = schema.writers[version] = compile_writer(type(message), version)
    write(message, out)


def write_in_steps(message: object, version: int, out: bytearray) -> Iterator[None]:
    """As `write_message`, in short steps: a message that is large would keep others waiting."""
    schema = _check_version(type(message), version)
    write = schema.stepped_writers.get(version)
    if write is None:
        write = schema.stepped_writers[version] = compile_stepped_writer(type(message), version)
    return write(message, out)
