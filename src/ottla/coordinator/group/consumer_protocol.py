"""What members of a group with protocol type `consumer` tell one another, where the coordinator has to look into it.

Subscription and assignment each travel as a 16-bit version and a body. A version above those known is read as the
highest known, and what follows is ignored: newer versions only append fields (Apache Kafka's rule for this format).
The bytes come from clients: whatever they hold, the only error is ProtocolError.
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
    """The subscription in a member's metadata. Raises ProtocolError."""
    return _decode(ConsumerProtocolSubscription, metadata)


def decode_assignment(assignment: Buffer) -> ConsumerProtocolAssignment:
    """The assignment of a member. Raises ProtocolError."""
    return _decode(ConsumerProtocolAssignment, assignment)


def encode_assignment(assignment: ConsumerProtocolAssignment, version: int) -> bytes:
    """Bytes as a client of that version of the format expects them."""
    out = bytearray(_INT16.pack(version))
    write_message(assignment, version, out)
    return bytes(out)


def metadata_version(metadata: Buffer) -> int:
    """The version at the front of a subscription or assignment. Raises ProtocolError when there is none."""
    if len(metadata) < _INT16.size:
        raise ProtocolError(f"consumer protocol metadata of {len(metadata)} bytes")
    version: int = _INT16.unpack_from(metadata)[0]
    if version < 0:
        raise ProtocolError(f"consumer protocol metadata of version {version}")
    return version


def _decode(cls: type[T], data: Buffer) -> T:
    version = min(metadata_version(data), schema_of(cls).versions.high)
    message, _ = read_message(cls, version, data, _INT16.size, len(data))
    return message
