"""The leader's state of one epoch: progress of each replica, high watermark, and whether a majority still follows.

Invariants:
- The high watermark is an offset that a majority of the voters has on disk, never decreases, and does not advance on
  records of older epochs alone (Raft, section 5.4.2).
- Only replicas with the voter's directory count: a voter that lost its disk counts as absent.
"""

from __future__ import annotations

from collections.abc import Sequence

from ottla.quorum.raft_types import ReplicaKey, Voter

UNKNOWN_OFFSET = -1
OBSERVER_EXPIRY_S = 300.0
MAX_OBSERVERS = 1000
"""Maximum number of tracked observers: beyond it the one that has been silent longest is dropped."""
CHECK_QUORUM_FACTOR = 1.5
"""Number of fetch timeouts without a Fetch of a majority after which a leader resigns."""


class Progress:
    """The leader's state of one replica. Times are the leader's: seconds of its loop, and milliseconds for display."""

    __slots__ = ("_fetch_end_offset", "caught_up_ms", "contact_s", "end_offset", "fetch_ms", "fetched")

    def __init__(self, contact_s: float) -> None:
        self.end_offset = UNKNOWN_OFFSET
        self.contact_s = contact_s
        self.fetched = False
        self.fetch_ms = -1
        self.caught_up_ms = -1
        self._fetch_end_offset = -1

    def note_fetch(self, offset: int, leader_end_offset: int, now_s: float, now_ms: int) -> None:
        """The replica has everything before `offset` on disk."""
        if offset >= leader_end_offset:
            self.caught_up_ms = now_ms
        elif offset >= self._fetch_end_offset >= 0:
            # It has all records that existed at its last fetch, so it was caught up at that time.
            self.caught_up_ms = max(self.caught_up_ms, self.fetch_ms)
        self._fetch_end_offset = leader_end_offset
        self.end_offset = offset
        self.fetch_ms = now_ms
        self.contact_s = now_s
        self.fetched = True


class LeaderState:
    """One epoch of a leader."""

    __slots__ = (
        "_asked_s",
        "_local",
        "_observers",
        "_voters",
        "directories",
        "epoch",
        "epoch_start_offset",
        "high_watermark",
    )

    def __init__(
        self,
        local: ReplicaKey,
        epoch: int,
        epoch_start_offset: int,
        voters: Sequence[Voter],
        high_watermark: int,
        now_s: float,
    ) -> None:
        self._local = local
        self.epoch = epoch
        self.epoch_start_offset = epoch_start_offset
        self.high_watermark = high_watermark
        self._voters = {voter.key: Progress(now_s) for voter in voters}
        self._observers: dict[ReplicaKey, Progress] = {}
        self.directories: dict[int, Voter] = {}
        """Configured voters only: those that announced in this epoch their directory and support for voters in the log.
        """
        self._asked_s = now_s

    def asks_again(self, now_s: float, interval_s: float) -> bool:
        """Whether it is time for another request to a replica that claims a newer epoch."""
        if now_s < self._asked_s + interval_s:
            return False
        self._asked_s = now_s
        return True

    def set_voters(self, voters: Sequence[Voter], now_s: float, local: ReplicaKey) -> bool:
        """Use the voters of the newest record; returns whether the high watermark advanced.

        `local` is this replica among them. If it had no directory id before, neither had the others: their progress is
        counted again by directory, and the high watermark does not advance meanwhile.
        """
        known = self._observers | self._voters if local == self._local else {}
        self._local = local
        self._voters = {voter.key: known.get(voter.key) or Progress(now_s) for voter in voters}
        self._observers = {key: progress for key, progress in known.items() if key not in self._voters}
        self._observers.pop(self._local, None)
        return self._update()

    def flushed(self, end_offset: int) -> bool:
        """The leader has everything before `end_offset` on disk; returns whether the high watermark advanced."""
        own = self._voters.get(self._local)
        if own is None:
            return False  # removed from the voters: it leads until that is committed, and does not count
        own.end_offset = max(own.end_offset, end_offset)
        return self._update()

    def fetched(self, key: ReplicaKey, offset: int, leader_end_offset: int, now_s: float, now_ms: int) -> bool:
        """A replica has everything before `offset` on disk; returns whether the high watermark advanced."""
        progress = self._voters.get(key)
        voter = progress is not None
        if progress is None:
            progress = self._observers.pop(key, None) or Progress(now_s)
            if len(self._observers) >= MAX_OBSERVERS:
                del self._observers[next(iter(self._observers))]
            self._observers[key] = progress  # the newest entry is dropped last
        progress.note_fetch(offset, leader_end_offset, now_s, now_ms)
        return voter and self._update()

    def heard_of(self, key: ReplicaKey, now_s: float) -> None:
        """A replica is alive, but its log has to be truncated or replaced first."""
        progress = self._voters.get(key)
        if progress is not None:
            progress.contact_s = now_s
            progress.fetched = True

    def _update(self) -> bool:
        ranked = sorted((progress.end_offset for progress in self._voters.values()), reverse=True)
        if not ranked:
            return False
        committed = ranked[len(ranked) // 2]
        if committed <= self.epoch_start_offset or committed <= self.high_watermark:
            return False
        self.high_watermark = committed
        return True

    @property
    def committed(self) -> bool:
        """Whether a record of this epoch is committed, so that the high watermark covers all earlier epochs."""
        return self.high_watermark > self.epoch_start_offset

    def quorum_deadline(self, fetch_timeout_s: float) -> float | None:
        """Time at which the leader resigns unless followers fetch; None if it needs no other voter."""
        contacts = sorted((p.contact_s for key, p in self._voters.items() if key != self._local), reverse=True)
        needed = len(self._voters) // 2 + 1 - (self._local in self._voters)
        if needed <= 0:
            return None
        return contacts[needed - 1] + fetch_timeout_s * CHECK_QUORUM_FACTOR

    def silent_voters(self, now_s: float, silence_s: float) -> list[ReplicaKey]:
        """Voters that never fetched in this epoch, or not recently: the leader is announced to them again."""
        return [
            key
            for key, progress in self._voters.items()
            if key != self._local and (not progress.fetched or progress.contact_s + silence_s <= now_s)
        ]

    def successors(self) -> tuple[ReplicaKey, ...]:
        """The other voters, most up-to-date log first."""
        others = [key for key in self._voters if key != self._local]
        return tuple(sorted(others, key=lambda key: (-self._voters[key].end_offset, key)))

    def progress_of(self, key: ReplicaKey) -> Progress | None:
        """Progress of a voter or an observer."""
        return self._voters.get(key) or self._observers.get(key)

    def voters(self) -> list[tuple[ReplicaKey, Progress]]:
        """Voters in the order of the newest record."""
        return list(self._voters.items())

    def observers(self, now_s: float) -> list[tuple[ReplicaKey, Progress]]:
        """Observers that fetched recently, without the lost directory of a node that continues with another one."""
        latest: dict[int, float] = {}
        for key, item in (*self._voters.items(), *self._observers.items()):
            latest[key.node_id] = max(item.contact_s, latest.get(key.node_id, item.contact_s))
        expired = [
            key
            for key, item in self._observers.items()
            if item.contact_s + OBSERVER_EXPIRY_S < now_s or item.contact_s < latest[key.node_id]
        ]
        for key in expired:
            del self._observers[key]
        return sorted(self._observers.items())
