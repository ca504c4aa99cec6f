"""Identifiers: 16-byte ids and the 22-character form that Kafka prints (URL-safe base64 without padding)."""

from __future__ import annotations

import binascii

_URL_SAFE = bytes.maketrans(b"+/", b"-_")
Uuid = bytes
"""16 bytes, big-endian, as on the wire."""

ZERO_UUID: Uuid = bytes(16)
METADATA_TOPIC_ID: Uuid = bytes(15) + b"\x01"
"""The reserved id of `__cluster_metadata` (KIP-595)."""

UNASSIGNED_UUID: Uuid = bytes(15) + b"\x01"
"""Directory of a replica before its broker has assigned one (KIP-858)."""
LOST_UUID: Uuid = bytes(15) + b"\x02"
"""Directory of a damaged replica, or of one with a directory that failed before the metadata recorded it."""
OFFLINE_UUID: Uuid = bytes(15) + b"\x03"
"""Failed directory of a replica, in a cluster without directory ids: the replica is unreadable."""

MIN_NODE_ID = 0
"""Minimum of `node.id`; the protocol uses lower numbers for "none" and for consumers."""
RESERVED_UUIDS = frozenset({ZERO_UUID, METADATA_TOPIC_ID, UNASSIGNED_UUID, LOST_UUID, OFFLINE_UUID})


def uuid_to_string(value: Uuid) -> str:
    """Return the 22-character form, as in `meta.properties` and `kafka-topics --describe`."""
    return binascii.b2a_base64(value, newline=False).translate(_URL_SAFE, b"=").decode("ascii")


def uuid_to_rfc9562(value: Uuid) -> str:
    """Return the form of RFC 9562 with hyphens, for member ids of classic groups; importing `uuid` takes 2 ms."""
    digits = value.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"


def uuid_from_string(text: str) -> Uuid:
    """Inverse of `uuid_to_string`; raises ValueError unless the text is 22 characters for 16 bytes."""
    if len(text) != 22:
        raise ValueError(f"{text!r} is not an id of 22 characters")
    import base64  # imported here: commands print ids, few read one

    try:
        return base64.b64decode(text + "==", altchars=b"-_", validate=True)
    except binascii.Error as error:
        raise ValueError(f"{text!r} is not URL-safe base64") from error


def new_uuid(random_bytes: bytes) -> Uuid:
    """Return a version-4 id from 16 random bytes (RFC 9562)."""
    if len(random_bytes) != 16:
        raise ValueError("16 random bytes are needed")
    raw = bytearray(random_bytes)
    raw[6] = raw[6] & 0x0F | 0x40
    raw[8] = raw[8] & 0x3F | 0x80
    return bytes(raw)
