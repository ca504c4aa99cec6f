"""Limits on the size and number of metadata items in one request: every node stores them permanently.

One table for everything that a client names or sends and that becomes a metadata record. So no user can fill the memory
of all nodes, or create a record that a replica cannot fetch. `docs/operations/limits.md` lists the limits. Limits that
a large installation may need to raise are settings (`metadata.max.*`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ottla.common.errors import ErrorCode, KafkaError

MAX_BATCH_BYTES = 8 * 1024 * 1024
"""Maximum size of one batch of the metadata log or a snapshot, as in Apache Kafka."""
MAX_RECORD_OVERHEAD = 32
"""Maximum overhead of one record in a batch beside its value: lengths, deltas and attributes."""
MAX_BATCH_OVERHEAD = 61
"""Size of the batch header."""

MAX_NAME_BYTES = 1024
"""Maximum length of the name of a principal, user, client id, group or resource in a record."""
MAX_SALT_BYTES = 1024
"""Maximum salt of a SCRAM credential. Clients generate 16 to 64 random bytes."""
MAX_SALTED_PASSWORD_BYTES = 1024
"""Maximum salted password of a SCRAM request; the hash itself has 32 or 64 bytes."""


MAX_RENEWERS = 100
"""Maximum number of renewers of a delegation token."""
MAX_RENEWERS_BYTES = 8 * 1024
"""Maximum total length of the renewers' names of a delegation token: any user may create one."""
MAX_HOST_BYTES = 255
"""Maximum host of an ACL: an address, a network, or a star."""
MAX_SETTINGS = 1_000
"""Maximum number of settings of one broker, topic or group, since a broker also stores unknown settings."""
MAX_SETTINGS_BYTES = 256 * 1024
"""Maximum total length of names and values of these settings."""


def record_bytes(value: bytes) -> int:
    """Return the maximum size of a record with this value in a batch."""
    return len(value) + MAX_RECORD_OVERHEAD


def check_batch_bytes(values: Sequence[bytes]) -> None:
    """Raise KafkaError RECORD_LIST_TOO_LARGE if the record values exceed one batch."""
    size = sum(map(len, values)) + MAX_RECORD_OVERHEAD * len(values) + MAX_BATCH_OVERHEAD
    if size > MAX_BATCH_BYTES:
        raise KafkaError(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"The request needs {size} bytes of metadata records, which exceeds the maximum batch size of "
            f"{MAX_BATCH_BYTES}.",
        )


def is_too_long(name: str | None, max_bytes: int = MAX_NAME_BYTES) -> bool:
    """Return whether a name exceeds the limit; cheap for names that are far shorter or longer."""
    if name is None or 4 * len(name) <= max_bytes:
        return False
    return len(name) > max_bytes or len(name.encode(errors="surrogatepass")) > max_bytes


def check_count(count: int, limit: int, things: str, setting: str) -> None:
    """Raise KafkaError POLICY_VIOLATION if `count` has reached `limit`."""
    if count >= limit:
        raise KafkaError(ErrorCode.POLICY_VIOLATION, f"A cluster has at most {limit} {things} ({setting}).")


def check_name(name: str | None, thing: str, code: ErrorCode = ErrorCode.INVALID_REQUEST) -> None:
    """Raise KafkaError for a name that is too long."""
    if is_too_long(name):
        raise KafkaError(code, f"The {thing} is longer than {MAX_NAME_BYTES} bytes.")


def check_settings(old: Mapping[str, str], new: Mapping[str, str]) -> None:
    """Raise KafkaError INVALID_CONFIG for too many or too long settings of one resource.

    Existing settings beyond the limit may remain or shrink.
    """
    for name in new.keys() - old.keys():
        check_name(name, "name of a setting", ErrorCode.INVALID_CONFIG)
    size, before = (sum(len(name) + len(text.encode()) for name, text in each.items()) for each in (new, old))
    if len(new) > max(MAX_SETTINGS, len(old)) or size > max(MAX_SETTINGS_BYTES, before):
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"The resource would have {len(new)} settings of {size} bytes; at most {MAX_SETTINGS} settings of "
            f"{MAX_SETTINGS_BYTES} bytes are allowed.",
        )
