"""Embedded consumer protocol: the subscriptions and assignments in JoinGroup and SyncGroup of protocol type `consumer`.

Each is encoded as a 16-bit version and a body. A version above the known ones is decoded as the highest known version,
and trailing bytes are ignored: newer versions only append fields (Apache Kafka's rule for this format). The bytes come
from clients: ProtocolError is the only error, for any input.
"""

from __future__ import annotations

from struct import Struct
from typing import TypeVar

from ottla.common.errors import ProtocolError
from ottla.common.platform.disk import Buffer
from ottla.protocol.codec import read_message, write_message
from ottla.protocol.messages.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from ottla.protocol.schema import schema_of

T = TypeVar("T")

CONSUMER_PROTOCOL_TYPE = "consumer"

_INT16 = Struct(">h")


def decode_subscription(metadata: Buffer) -> ConsumerProtocolSubscription:
    """Return the subscription in a member's metadata. Raises ProtocolError."""
    return _decode(ConsumerProtocolSubscription, metadata)


def decode_assignment(assignment: Buffer) -> ConsumerProtocolAssignment:
    """Return a member's decoded assignment. Raises ProtocolError."""
    return _decode(ConsumerProtocolAssignment, assignment)


def encode_assignment(assignment: ConsumerProtocolAssignment, version: int) -> bytes:
    """Encode an assignment in a version of the format, with the version in front."""
    out = bytearray(_INT16.pack(version))
    write_message(assignment, version, out)
    return bytes(out)


def metadata_version(metadata: Buffer) -> int:
    """Return the version in front of a subscription or assignment. Raises ProtocolError if missing or negative."""
    if len(metadata) < _INT16.size:
        raise ProtocolError(f"consumer protocol metadata of {len(metadata)} bytes is too short for a version")
    version: int = _INT16.unpack_from(metadata)[0]
    if version < 0:
        raise ProtocolError(f"consumer protocol metadata has the invalid version {version}")
    return version


def _decode(cls: type[T], data: Buffer) -> T:
    version = min(metadata_version(data), schema_of(cls).versions.high)
    message, _ = read_message(cls, version, data, _INT16.size, len(data))
    return message
