"""Operations on ZooKeeper's tree, as parts of a multi(), which is atomic.

The access rights of a new znode are not part of an operation: they depend on its path alone, and the sender knows
whether the cluster is secured.
"""

from __future__ import annotations

from typing import NamedTuple

ANY_VERSION = -1

_OVERHEAD_BYTES = 128
"""Overhead of an operation beside path and data: headers, lengths, flags, and the access rights of a secured
cluster."""


class Create(NamedTuple):
    """Create a znode. Ephemeral: it ends with its session. Sequential: the server appends ten digits to the path."""

    path: str
    data: bytes
    ephemeral: bool = False
    sequential: bool = False


class SetData(NamedTuple):
    """Replace the data of a znode if its version is `version`; the version rises by one."""

    path: str
    data: bytes
    version: int = ANY_VERSION


class Delete(NamedTuple):
    """Delete a znode without children if its version is `version`."""

    path: str
    version: int = ANY_VERSION


class Check(NamedTuple):
    """Check that the version of a znode is `version`; otherwise the whole multi() fails."""

    path: str
    version: int


Operation = Create | SetData | Delete | Check


def size_bytes(operation: Operation) -> int:
    """Return the maximum size of the operation in a request."""
    data = operation.data if isinstance(operation, Create | SetData) else b""
    return len(operation.path.encode()) + len(data) + _OVERHEAD_BYTES


class Znode(NamedTuple):
    """A znode as read. `version` counts changes of its data from 0. `created` is the transaction of its creation
    (czxid), `owner` the session of an ephemeral one, else 0, `modified` the transaction of its newest data (mzxid)."""

    data: bytes
    version: int
    created: int
    owner: int = 0
    modified: int = 0
