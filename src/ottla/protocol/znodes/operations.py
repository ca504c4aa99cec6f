"""What changes ZooKeeper's tree: the operations of a multi(), which happen all or not at all.

Which access rights a new znode gets is no part of an operation: that depends on its path alone, and whoever sends it
knows whether the cluster is secured.
"""

from __future__ import annotations

from typing import NamedTuple

ANY_VERSION = -1

_OVERHEAD_BYTES = 128
"""Of an operation beside path and data: headers, lengths, flags, and the access rights of a secured cluster."""


class Create(NamedTuple):
    """Make a znode. Ephemeral: it goes with its session. Sequential: the server appends ten digits to the path."""

    path: str
    data: bytes
    ephemeral: bool = False
    sequential: bool = False


class SetData(NamedTuple):
    """Replace what lies in a znode, if its version is `version`; the version rises by one."""

    path: str
    data: bytes
    version: int = ANY_VERSION


class Delete(NamedTuple):
    """Remove a znode that has nothing below it, if its version is `version`."""

    path: str
    version: int = ANY_VERSION


class Check(NamedTuple):
    """Nothing, if the version of a znode is `version`; else the whole multi() fails."""

    path: str
    version: int


Operation = Create | SetData | Delete | Check


def size_bytes(operation: Operation) -> int:
    """At most how many bytes the operation takes in a request."""
    data = operation.data if isinstance(operation, Create | SetData) else b""
    return len(operation.path.encode()) + len(data) + _OVERHEAD_BYTES


class Znode(NamedTuple):
    """A znode as it was read. `version` counts changes of its data from 0, `created` is the transaction that made it
    (czxid), `owner` the session of an ephemeral one, else 0, `modified` the transaction of its newest data (mzxid)."""

    data: bytes
    version: int
    created: int
    owner: int = 0
    modified: int = 0
