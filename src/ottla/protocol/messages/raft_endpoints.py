"""Controller endpoints: structs that the messages of the quorum share (KIP-853)."""

from __future__ import annotations

from ottla.protocol.schema import INT32, STRING, UINT16, f, struct


@struct
class RaftEndpoint:
    """A listener of one controller."""

    name: str = f(STRING, "0+")
    host: str = f(STRING, "0+")
    port: int = f(UINT16, "0+")


@struct
class RaftNode:
    """Address of the leader in a response; Kafka's schemas call it NodeEndpoint."""

    node_id: int = f(INT32, "0+")
    host: str = f(STRING, "0+")
    port: int = f(UINT16, "0+")
