"""What a leader knows of the other replicas of a partition: how far they are, who is in sync, what is committed. Pure.

The leader hears of a follower by its fetches only: a fetch at offset n says that the follower holds everything below n.
From that follow two decisions. The high watermark is the smallest log end of the in-sync replicas. And the ISR changes:
who fell behind for `replica.lag.time.max.ms` leaves, who reached the high watermark and this epoch's start may join. A
change is proposed to the controller and counts only when it was committed; until then the leader waits for everyone in
the larger of both sets, the maximal ISR (KIP-497), since it can't know which of them the next leader is taken from.

Invariants:
- The high watermark covers only what every member of the maximal ISR holds, and stays while the committed ISR is
  smaller than min(`min.insync.replicas`, number of replicas) (KIP-966).
- What a follower said in an earlier epoch counts for nothing: another leader may have cut its log since.
- At most one proposal is under way; a commit of a newer partition epoch ends it, whatever becomes of it.

Times are seconds of a monotonic clock, given by the caller. Left out: the log, requests, and who may be in the ISR at
all (a fenced broker may not, KIP-841), which the caller's `eligible` says.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

UNKNOWN_OFFSET = -1
UNKNOWN_BROKER_EPOCH = -1
NEVER_S = float("-inf")
STALLED_FETCHES = 4
"""A power of two: so often a follower asks for the same before its leader looks whether what it gets is damaged."""

Eligible = Callable[[int, int], bool]
"""Whether the broker of that id may join an ISR in the incarnation of that broker epoch (KIP-903)."""


class IdleFollower(Protocol):
    """A follower's place in its fetch session, where each fetch says the same again without being read here."""

    @property
    def heard_s(self) -> float:
        """When it said so last; stands still from the moment at which the partition changed."""
        ...


class FollowerProgress:
    """One follower, as its fetches tell."""

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
        """`presumed_caught_up_s`: members of the ISR get their whole time to be heard of, others none."""
        self.replica_id = replica_id
        self.log_end_offset = UNKNOWN_OFFSET
        self.log_start_offset = UNKNOWN_OFFSET
        self.last_fetch_leader_end = UNKNOWN_OFFSET
        self.last_fetch_s = presumed_caught_up_s
        self._caught_up_s = presumed_caught_up_s
        self.broker_epoch = UNKNOWN_BROKER_EPOCH
        self.stalled_count = 0
        """Fetches in a row that asked for the same records, which are here, once more."""
        self.resting: IdleFollower | None = None
        """Set by the caller where the last fetch asked at the leader's end and the next ones are not told here."""

    @property
    def last_caught_up_s(self) -> float:
        """When it last held all that the leader had."""
        return self._caught_up_s if self.resting is None else max(self._caught_up_s, self.resting.heard_s)

    def fetched(
        self, fetch_offset: int, log_start_offset: int, leader_end_offset: int, now_s: float, broker_epoch: int
    ) -> None:
        """Take note of a fetch that arrived when the leader's log ended at `leader_end_offset`.

        Who reads up to where the log ended at the fetch before was caught up then, even if the log grows all the time.
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
        """It is in no ISR any more: what was known of it does not make others wait until it comes back."""
        self._caught_up_s = NEVER_S
        self.resting = None

    @property
    def stalls(self) -> bool:
        """Whether it is time to look what keeps it: after `STALLED_FETCHES`, and less and less often from then on."""
        count = self.stalled_count
        return count >= STALLED_FETCHES and count & (count - 1) == 0

    def caught_up(self, leader_end_offset: int, now_s: float, max_lag_s: float) -> bool:
        """Whether it holds everything, or did so within the last `max_lag_s`."""
        return self.log_end_offset == leader_end_offset or now_s - self.last_caught_up_s <= max_lag_s


class IsrChange(NamedTuple):
    """An ISR that the leader proposes, on top of `partition_epoch`.

    `isr` are (broker id, broker epoch) (KIP-903), the epoch -1 where it is not known here: for the leader itself, and
    for members that were not heard of in this leader epoch.
    """

    leader_epoch: int
    partition_epoch: int
    isr: tuple[tuple[int, int], ...]


class Leadership:
    """One leader epoch of one partition, from the leader's side. Made anew for each epoch."""

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
        """Take over what the controller decided; False when that is older than what is known."""
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
        """Everyone who is or may by now be in the committed ISR."""
        proposed = self.proposed
        return proposed if proposed is not None and len(proposed) > len(self.isr) else self.isr

    def min_isr(self, min_insync_replicas: int) -> int:
        """How many must be in sync; a partition with fewer replicas than `min.insync.replicas` needs them all."""
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
        """A follower asked for what follows `fetch_offset`; whether that changed how far it is."""
        follower = self.followers[replica_id]
        moved = fetch_offset != follower.log_end_offset
        follower.stalled_count = 0 if moved or fetch_offset >= leader_end_offset else follower.stalled_count + 1
        follower.fetched(fetch_offset, log_start_offset, leader_end_offset, now_s, broker_epoch)
        return moved

    def lowest_log_start(self, own: int, alive: Callable[[int], bool]) -> int:
        """Where the log of the live replica that keeps most begins; -1 while one was not heard of."""
        live = [follower for follower in self.followers.values() if alive(follower.replica_id)]
        return min([own, *(follower.log_start_offset for follower in live)])

    # --- high watermark --------------------------------------------------------------------------------------------

    def committed_end(self, own_end: int, leader_end_offset: int, min_insync_replicas: int, now_s: float) -> int:
        """Up to where all that count hold the log; -1 when that may not be said.

        `own_end` is what the leader holds as safely as it is asked to, at most `leader_end_offset`. Who is about to
        join is waited for too, else the high watermark could run away from it for ever.
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
        """The ISR with `replica_id`, when that one is in sync and allowed to join."""
        if self.proposed is not None or replica_id in self.isr:
            return None
        follower = self.followers[replica_id]
        if follower.log_end_offset < max(high_watermark, self.epoch_start_offset):
            return None
        if not self._eligible(replica_id, follower.broker_epoch):
            return None
        return self._propose((*self.isr, replica_id))

    def shrinking(self, leader_end_offset: int, now_s: float) -> IsrChange | None:
        """The ISR without those who fell behind for too long; None when nobody did."""
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
        """The controller surely did not do it: the committed ISR stands, and another may be proposed."""
        if change.partition_epoch == self.partition_epoch:
            self.proposed = None
