"""State of a partition's followers at the leader: log ends, in-sync replicas, high watermark. Pure.

The leader learns about a follower from its fetches only: a fetch at offset n confirms that the follower has everything
below n. Two decisions follow from that. The high watermark is the lowest log end of the maximal ISR and of replicas
about to join it. And the ISR changes: a replica that lags for `replica.lag.time.max.ms` leaves; one that reached the
high watermark and the start of this epoch may join. A change is proposed to the controller and applies only once it is
committed. Until then the leader waits for the larger of both sets, the maximal ISR (KIP-497): the next leader may come
from either set.

Invariants:
- The high watermark covers only records that every member of the maximal ISR has, and does not move while the committed
  ISR is smaller than min(`min.insync.replicas`, number of replicas) (KIP-966).
- Progress of a follower in an earlier epoch is ignored: another leader may have truncated its log since.
- At most one proposal is in flight; a commit of a newer partition epoch ends it, regardless of its outcome.

Times are seconds of a monotonic clock, given by the caller. The log and requests are elsewhere. Eligibility for the ISR
(a fenced broker may not join, KIP-841) is the caller's `eligible`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

UNKNOWN_OFFSET = -1
UNKNOWN_BROKER_EPOCH = -1
NEVER_S = float("-inf")
STALLED_FETCHES = 4
"""A power of two: number of repeated requests of a follower after which its leader checks its own log for damage."""

Eligible = Callable[[int, int], bool]
"""Returns whether a broker (id, broker epoch) may join an ISR (KIP-903)."""


class IdleFollower(Protocol):
    """Session entry of an idle follower: its repeated fetches skip the partition."""

    @property
    def heard_s(self) -> float:
        """Time of the last fetch that confirmed the position; fixed once the partition changes."""
        ...


class FollowerProgress:
    """Progress of one follower, from its fetches."""

    __slots__ = (
        "_caught_up_s",
        "broker_epoch",
        "last_fetch_leader_end",
        "last_fetch_s",
        "log_end_offset",
        "log_start_offset",
        "replica_id",
        "resting",
        "stalled_count",
    )

    def __init__(self, replica_id: int, presumed_caught_up_s: float) -> None:
        """`presumed_caught_up_s`: start of the lag timeout for members of the ISR; others start without one."""
        self.replica_id = replica_id
        self.log_end_offset = UNKNOWN_OFFSET
        self.log_start_offset = UNKNOWN_OFFSET
        self.last_fetch_leader_end = UNKNOWN_OFFSET
        self.last_fetch_s = presumed_caught_up_s
        self._caught_up_s = presumed_caught_up_s
        self.broker_epoch = UNKNOWN_BROKER_EPOCH
        self.stalled_count = 0
        """Number of consecutive fetches for the same existing records."""
        self.resting: IdleFollower | None = None
        """Set by the caller if the last fetch was at the leader's end and further ones are not reported here."""

    @property
    def last_caught_up_s(self) -> float:
        """Time at which it last had all of the leader's log."""
        return self._caught_up_s if self.resting is None else max(self._caught_up_s, self.resting.heard_s)

    def fetched(
        self, fetch_offset: int, log_start_offset: int, leader_end_offset: int, now_s: float, broker_epoch: int
    ) -> None:
        """Record a fetch that arrived when the leader's log ended at `leader_end_offset`.

        A follower that reaches the log end of its previous fetch was caught up at that time, even if the log always
        grows.
        """
        if self.resting is not None:
            self._caught_up_s = self.last_caught_up_s
            self.last_fetch_s = max(self.last_fetch_s, self.resting.heard_s)
            self.resting = None
        if fetch_offset >= leader_end_offset:
            self._caught_up_s = max(self._caught_up_s, now_s)
        elif fetch_offset >= self.last_fetch_leader_end >= 0:
            self._caught_up_s = max(self._caught_up_s, self.last_fetch_s)
        self.log_end_offset = fetch_offset
        self.log_start_offset = log_start_offset
        self.last_fetch_leader_end = leader_end_offset
        self.last_fetch_s = now_s
        self.broker_epoch = broker_epoch

    def has_left(self) -> None:
        """Reset the state of a replica that left all ISRs, so that other replicas do not wait for it."""
        self._caught_up_s = NEVER_S
        self.resting = None

    @property
    def stalls(self) -> bool:
        """Return whether to check the log: after `STALLED_FETCHES` fetches, and then less and less often."""
        count = self.stalled_count
        return count >= STALLED_FETCHES and count & (count - 1) == 0

    def caught_up(self, leader_end_offset: int, now_s: float, max_lag_s: float) -> bool:
        """Return whether the follower has everything, or had it within the last `max_lag_s`."""
        return self.log_end_offset == leader_end_offset or now_s - self.last_caught_up_s <= max_lag_s


class IsrChange(NamedTuple):
    """An ISR that the leader proposes, on top of `partition_epoch`.

    `isr` has pairs of broker id and broker epoch (KIP-903). The epoch is -1 if it is unknown: for the leader itself,
    and for members that have not fetched in this leader epoch.
    """

    leader_epoch: int
    partition_epoch: int
    isr: tuple[tuple[int, int], ...]


class Leadership:
    """One leader epoch of one partition, from the leader's side. Each epoch has its own instance."""

    __slots__ = (
        "_eligible",
        "_max_lag_s",
        "_node_id",
        "epoch_start_offset",
        "followers",
        "isr",
        "leader_epoch",
        "partition_epoch",
        "proposed",
        "replicas",
    )

    def __init__(
        self,
        node_id: int,
        leader_epoch: int,
        epoch_start_offset: int,
        *,
        max_lag_s: float,
        eligible: Eligible,
    ) -> None:
        self._node_id = node_id
        self._max_lag_s = max_lag_s
        self._eligible = eligible
        self.leader_epoch = leader_epoch
        self.epoch_start_offset = epoch_start_offset
        self.partition_epoch = -1
        self.replicas: tuple[int, ...] = ()
        self.isr: tuple[int, ...] = ()
        self.proposed: tuple[int, ...] | None = None
        self.followers: dict[int, FollowerProgress] = {}

    # --- the committed state ---------------------------------------------------------------------------------------

    def committed(self, partition_epoch: int, replicas: tuple[int, ...], isr: tuple[int, ...], now_s: float) -> bool:
        """Apply a decision of the controller; returns False if it is older than the known state."""
        if partition_epoch < self.partition_epoch:
            return False
        newer = partition_epoch > self.partition_epoch
        for replica_id in set(self.isr) - set(isr):
            if replica_id in self.followers:
                self.followers[replica_id].has_left()
        self.partition_epoch = partition_epoch
        self.isr = isr
        if newer:
            self.proposed = None
        if replicas != self.replicas:
            self.replicas = replicas
            known = self.followers
            self.followers = {
                replica_id: known.get(replica_id)
                or FollowerProgress(replica_id, now_s if replica_id in isr else NEVER_S)
                for replica_id in replicas
                if replica_id != self._node_id
            }
        return True

    @property
    def maximal_isr(self) -> tuple[int, ...]:
        """Replicas that are, or may by now be, in the committed ISR."""
        proposed = self.proposed
        return proposed if proposed is not None and len(proposed) > len(self.isr) else self.isr

    def min_isr(self, min_insync_replicas: int) -> int:
        """Required number of in-sync replicas: `min.insync.replicas`, at most the number of replicas."""
        return min(min_insync_replicas, len(self.replicas))

    # --- followers -------------------------------------------------------------------------------------------------

    def fetched(
        self,
        replica_id: int,
        fetch_offset: int,
        log_start_offset: int,
        leader_end_offset: int,
        now_s: float,
        broker_epoch: int,
    ) -> bool:
        """Record a follower's fetch at `fetch_offset`; returns whether its progress changed."""
        follower = self.followers[replica_id]
        moved = fetch_offset != follower.log_end_offset
        follower.stalled_count = 0 if moved or fetch_offset >= leader_end_offset else follower.stalled_count + 1
        follower.fetched(fetch_offset, log_start_offset, leader_end_offset, now_s, broker_epoch)
        return moved

    def lowest_log_start(self, own: int, alive: Callable[[int], bool]) -> int:
        """Smallest log start offset of the live replicas; -1 while one of them has not fetched."""
        live = [follower for follower in self.followers.values() if alive(follower.replica_id)]
        return min([own, *(follower.log_start_offset for follower in live)])

    # --- high watermark --------------------------------------------------------------------------------------------

    def next_high_watermark(self, own_end: int, leader_end_offset: int, min_insync_replicas: int, now_s: float) -> int:
        """Return the lowest log end of the maximal ISR and of replicas about to join it; -1 if it must not advance.

        `own_end` is the leader's own durable end, at most `leader_end_offset`. A replica that is about to join counts
        too: otherwise the high watermark could stay ahead of it for ever.
        """
        if len(self.isr) < self.min_isr(min_insync_replicas):
            return UNKNOWN_OFFSET
        end = own_end
        maximal_isr = self.maximal_isr
        for follower in self.followers.values():
            if follower.log_end_offset < end and (
                follower.replica_id in maximal_isr
                or (
                    follower.caught_up(leader_end_offset, now_s, self._max_lag_s)
                    and self._eligible(follower.replica_id, follower.broker_epoch)
                )
            ):
                end = follower.log_end_offset
        return end

    # --- changes of the ISR ----------------------------------------------------------------------------------------

    def expansion(self, replica_id: int, high_watermark: int) -> IsrChange | None:
        """Return the ISR with `replica_id`, if it is in sync and may join."""
        if self.proposed is not None or replica_id in self.isr:
            return None
        follower = self.followers[replica_id]
        if follower.log_end_offset < max(high_watermark, self.epoch_start_offset):
            return None
        if not self._eligible(replica_id, follower.broker_epoch):
            return None
        return self._propose((*self.isr, replica_id))

    def shrinking(self, leader_end_offset: int, now_s: float) -> IsrChange | None:
        """The ISR without replicas that lagged for too long; None if there are none."""
        if self.proposed is not None:
            return None
        gone = self._out_of_sync(leader_end_offset, now_s)
        return self._propose(tuple(member for member in self.isr if member not in gone)) if gone else None

    def _out_of_sync(self, leader_end_offset: int, now_s: float) -> frozenset[int]:
        return frozenset(
            follower.replica_id
            for follower in self.followers.values()
            if follower.replica_id in self.isr and not follower.caught_up(leader_end_offset, now_s, self._max_lag_s)
        )

    def _propose(self, isr: tuple[int, ...]) -> IsrChange:
        self.proposed = isr
        followers = self.followers
        return IsrChange(
            self.leader_epoch,
            self.partition_epoch,
            tuple(
                (member, followers[member].broker_epoch if member in followers else UNKNOWN_BROKER_EPOCH)
                for member in isr
            ),
        )

    def not_attempted(self, change: IsrChange) -> None:
        """Drop the proposal: it was certainly not applied, so another may be proposed on the committed ISR."""
        if change.partition_epoch == self.partition_epoch:
            self.proposed = None
