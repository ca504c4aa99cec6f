"""Embedded messages of classic groups with protocol type `consumer`: subscription and assignment.

Each is encoded as a 16-bit version and the body. The coordinator treats them as opaque, except where it needs the
subscribed topics; versions above the declared ones are read as the highest, since newer ones only append. Subscription:
1 adds owned partitions (KIP-429), 2 their generation (KIP-792), 3 the rack (KIP-881).
"""

from __future__ import annotations

from ottla.protocol.schema import BYTES, INT32, STRING, array, f, message, struct


@struct
class SubscriptionTopicPartition:
    topic: str = f(STRING, "1+")
    partitions: list[int] = f(array(INT32), "1+")


@message("0-3")
class ConsumerProtocolSubscription:
    topics: list[str] = f(array(STRING), "0+")
    user_data: bytes | None = f(BYTES, "0+", nullable="0+", default=None)
    owned_partitions: list[SubscriptionTopicPartition] = f(array(SubscriptionTopicPartition), "1+", ignorable=True)
    generation_id: int = f(INT32, "2+", default=-1, ignorable=True)
    rack_id: str | None = f(STRING, "3+", nullable="3+", default=None, ignorable=True)


@struct
class AssignmentTopicPartition:
    topic: str = f(STRING, "0+")
    partitions: list[int] = f(array(INT32), "0+")


@message("0-3")
class ConsumerProtocolAssignment:
    assigned_partitions: list[AssignmentTopicPartition] = f(array(AssignmentTopicPartition), "0+")
    user_data: bytes | None = f(BYTES, "0+", nullable="0+", default=None)
