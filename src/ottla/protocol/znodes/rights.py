"""Who may do what with a znode of a secured cluster (`zookeeper.set.acl`): the path alone decides, as in Kafka 3.9.

Rights belong to each znode by itself, and are given when it is made; those of before stay as they are.
"""

from __future__ import annotations

from enum import Enum

from ottla.protocol.znodes import paths

_SECRET = (paths.CONFIG_USERS, paths.CONFIG_BROKERS, paths.TOKENS)


class Rights(Enum):
    """Of a new znode."""

    OPEN = "everybody may do everything"
    READABLE = "who made it may do everything, and everybody may read it"
    SECRET = "who made it may do everything, and nobody else anything"


def rights_of(path: str) -> Rights:
    """Of a znode of a secured cluster; `path` without the root of the cluster.

    Consumers of before 0.10 write below `/consumers` by themselves, so that one stays open.
    """
    if path == paths.CONSUMERS:
        return Rights.OPEN
    return Rights.SECRET if path.startswith(_SECRET) else Rights.READABLE
