"""Share sessions: the partitions that a member of a share group fetches from this broker (KIP-932).

A session belongs to the connection that opened it, and expects one epoch at a time. Epoch 0 opens it, -1 closes it. The
partitions to fetch are those of the session; acknowledgements name partitions of their own and add none, except that
a request which names a partition without forgetting it fetches it.

The cache is bounded by `group.share.max.share.sessions`; a full one evicts no session. Records that a member holds are
released by the caller.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ottla.common.errors import ErrorCode, KafkaError
from ottla.common.kafka.ids import Uuid

INITIAL_EPOCH = 0
FINAL_EPOCH = -1
MAX_EPOCH = 0x7FFFFFFF
MAX_MEMBER_ID_LENGTH = 36

PartitionId = tuple[Uuid, int]
SessionKey = tuple[str, str]
"""(group id, member id)."""


class ShareSession:
    """Session of one member."""

    __slots__ = ("connection_id", "epoch", "key", "partitions")

    def __init__(self, key: SessionKey, connection_id: int) -> None:
        self.key = key
        self.connection_id = connection_id
        self.epoch = 1
        """Epoch of the next request."""
        self.partitions: dict[PartitionId, None] = {}

    def rotated(self) -> list[PartitionId]:
        """Return the partitions to fetch, each request with another one first, so that none starves."""
        partitions = list(self.partitions)
        if len(partitions) < 2:
            return partitions
        first = self.epoch % len(partitions)
        return partitions[first:] + partitions[:first]

    def next_epoch(self) -> None:
        """Expect the next epoch."""
        self.epoch = 1 if self.epoch == MAX_EPOCH else self.epoch + 1


class ShareSessionCache:
    """Sessions of a broker."""

    __slots__ = ("_by_connection", "_by_group", "_partition_count", "_sessions", "evictions")

    def __init__(self) -> None:
        self._sessions: dict[SessionKey, ShareSession] = {}
        self._by_connection: dict[int, dict[SessionKey, None]] = {}
        self._by_group: dict[str, int] = {}
        self._partition_count = 0
        self.evictions = 0
        """Sessions that ended with their connection."""

    def __len__(self) -> int:
        return len(self._sessions)

    def has_group(self, group_id: str) -> bool:
        """Return whether a member of the group has a session."""
        return group_id in self._by_group

    def partition_count(self) -> int:
        """Number of partitions over all sessions."""
        return self._partition_count

    def open(
        self, key: SessionKey, connection_id: int, partitions: Iterable[PartitionId], *, max_sessions: int
    ) -> ShareSession:
        """Open a session, in place of an older one of the member. Raises KafkaError SHARE_SESSION_LIMIT_REACHED."""
        if key not in self._sessions and len(self._sessions) >= max_sessions:
            raise KafkaError(ErrorCode.SHARE_SESSION_LIMIT_REACHED)
        self.remove(key)
        session = self._sessions[key] = ShareSession(key, connection_id)
        self._by_connection.setdefault(connection_id, {})[key] = None
        self._by_group[key[0]] = self._by_group.get(key[0], 0) + 1
        self._add(session, partitions)
        return session

    def resume(
        self,
        key: SessionKey,
        epoch: int,
        partitions: Iterable[PartitionId] = (),
        forgotten: Sequence[PartitionId] = (),
        *,
        max_partitions: int = MAX_EPOCH,
    ) -> ShareSession:
        """Return the session of a request in `epoch`, with its changes applied; the next request has the next epoch.

        A partition that is both named and forgotten is not fetched: the request only acknowledges records of it.
        Raises KafkaError SHARE_SESSION_NOT_FOUND and INVALID_SHARE_SESSION_EPOCH.
        """
        session = self.find(key)
        if session.epoch != epoch:
            raise KafkaError(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
        self._add(session, partitions)
        for partition in forgotten:
            if partition in session.partitions:
                del session.partitions[partition]
                self._partition_count -= 1
        if len(session.partitions) > max_partitions:
            # More partitions than the cluster has: the client begins a new session with those that exist.
            self.remove(key)
            raise KafkaError(ErrorCode.SHARE_SESSION_NOT_FOUND)
        session.next_epoch()
        return session

    def find(self, key: SessionKey) -> ShareSession:
        """Return the session of a member. Raises KafkaError SHARE_SESSION_NOT_FOUND."""
        session = self._sessions.get(key)
        if session is None:
            raise KafkaError(ErrorCode.SHARE_SESSION_NOT_FOUND)
        return session

    def is_current(self, session: ShareSession) -> bool:
        """Return whether a session is still open."""
        return self._sessions.get(session.key) is session

    def remove(self, key: SessionKey) -> None:
        """End a session, if there is one."""
        session = self._sessions.pop(key, None)
        if session is None:
            return
        self._partition_count -= len(session.partitions)
        self._by_group[key[0]] -= 1
        if not self._by_group[key[0]]:
            del self._by_group[key[0]]
        of_connection = self._by_connection.get(session.connection_id)
        if of_connection is not None:
            of_connection.pop(key, None)
            if not of_connection:
                del self._by_connection[session.connection_id]

    def connection_closed(self, connection_id: int) -> list[SessionKey]:
        """End the sessions of a closed connection and return their keys."""
        keys = list(self._by_connection.get(connection_id, ()))
        for key in keys:
            self.remove(key)
        self.evictions += len(keys)
        return keys

    def _add(self, session: ShareSession, partitions: Iterable[PartitionId]) -> None:
        before = len(session.partitions)
        session.partitions.update(dict.fromkeys(partitions))
        self._partition_count += len(session.partitions) - before
