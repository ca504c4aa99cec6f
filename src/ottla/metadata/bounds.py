"""Bounds on what one request may put into the metadata, in bytes and in number: every node keeps all of it for good.

Purpose: one table for everything that a client names or sends and that becomes a metadata record, so that no user fills
the memory of all nodes or makes a record that a replica cannot fetch. Bounds that a large installation may need
to raise are settings (`metadata.max.*`). docs/operations/limits.md lists all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ottla.common.errors import ErrorCode, KafkaError

MAX_BATCH_BYTES = 8 * 1024 * 1024
"""Of one batch of the metadata log or a snapshot, as in Apache Kafka."""
MAX_RECORD_OVERHEAD = 32
"""Most bytes that a batch needs for one record beside its value: lengths, deltas and attributes."""
MAX_BATCH_OVERHEAD = 61
"""Of the header of a batch."""

MAX_NAME_BYTES = 1024
"""Of the name of a principal, user, client id, group or resource that a record names."""
MAX_SALT_BYTES = 1024
"""Of a SCRAM credential. Clients make up 16 to 64 random bytes."""
MAX_SALTED_PASSWORD_BYTES = 1024
"""Of a SCRAM request; the hash itself has 32 or 64."""


MAX_RENEWERS = 100
"""Of a delegation token."""
MAX_RENEWERS_BYTES = 8 * 1024
"""Of the names of all renewers of a delegation token: any user may create one."""
MAX_HOST_BYTES = 255
"""Of an ACL: an address, a network, or a star."""
MAX_SETTINGS = 1_000
"""Of one broker, topic or group, since a broker also keeps settings that it does not know."""
MAX_SETTINGS_BYTES = 256 * 1024
"""Of names and values of these settings."""


def record_bytes(value: bytes) -> int:
    """The most bytes that a record with this value takes in a batch."""
    return len(value) + MAX_RECORD_OVERHEAD


def check_batch_bytes(values: Sequence[bytes]) -> None:
    """Raise KafkaError RECORD_LIST_TOO_LARGE for values of records that one batch cannot contain."""
    size = sum(map(len, values)) + MAX_RECORD_OVERHEAD * len(values) + MAX_BATCH_OVERHEAD
    if size > MAX_BATCH_BYTES:
        raise KafkaError(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"The request needs {size} bytes of metadata records, which exceeds the maximum batch size of "
            f"{MAX_BATCH_BYTES}.",
        )


def is_too_long(name: str | None, max_bytes: int = MAX_NAME_BYTES) -> bool:
    """Whether a name has more bytes than a record may contain; cheap for one that is far shorter or longer."""
    if name is None or 4 * len(name) <= max_bytes:
        return False
    return len(name) > max_bytes or len(name.encode(errors="surrogatepass")) > max_bytes


def check_count(count: int, limit: int, things: str, setting: str) -> None:
    """Raise KafkaError POLICY_VIOLATION where there are `limit` of these already."""
    if count >= limit:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, f"A cluster has at most {limit} {things} ({setting}).")


def check_name(name: str | None, thing: str, code: ErrorCode = ErrorCode.INVALID_REQUEST) -> None:
    """Raise KafkaError for a name that no record may contain."""
    if is_too_long(name):
        raise KafkaError(code, f"The {thing} is longer than {MAX_NAME_BYTES} bytes.")


def check_settings(old: Mapping[str, str], new: Mapping[str, str]) -> None:
    """Raise KafkaError INVALID_CONFIG for settings of one resource that are too many or too long.

    What was there before may stay and become less.
    """
    for name in new.keys() - old.keys():
        check_name(name, "name of a setting", ErrorCode.INVALID_CONFIG)
    size, before = (sum(len(name) + len(text.encode()) for name, text in each.items()) for each in (new, old))
    if len(new) > max(MAX_SETTINGS, len(old)) or size > max(MAX_SETTINGS_BYTES, before):
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"The resource would have {len(new)} settings of {size} bytes; at most {MAX_SETTINGS} settings of "
            f"{MAX_SETTINGS_BYTES} bytes are possible.",
        )
