"""Access rights of znodes in a secured cluster (`zookeeper.set.acl`): they depend on the path alone, as in Kafka 3.9.

Each znode has its own rights, set at its creation; existing znodes are not changed.
"""

from __future__ import annotations

from enum import Enum

from ottla.protocol.znodes import paths

_SECRET = (paths.CONFIG_USERS, paths.CONFIG_BROKERS, paths.TOKENS)


class Rights(Enum):
    """Access rights of a new znode."""

    OPEN = "full access for all users"
    READABLE = "full access for the creator, read access for all users"
    SECRET = "full access for the creator only"


def rights_of(path: str) -> Rights:
    """Return the rights of a znode in a secured cluster; `path` is without the root of the cluster.

    Consumers before 0.10 write below `/consumers` themselves, so that znode stays open.
    """
    if path == paths.CONSUMERS:
        return Rights.OPEN
    return Rights.SECRET if path.startswith(_SECRET) else Rights.READABLE
