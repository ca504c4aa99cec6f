"""One change of one partition: computes the record that leads from the current to the requested state.

The only place that elects leaders, maintains the eligible leader replicas (KIP-966) and completes reassignments
(KIP-455); the rest of this package only states requests. Rules are those of Apache Kafka 4.x, with one exception: a
replica to remove stays while it is one of the last `min.insync.replicas` that have all committed records. Apache Kafka
drops it when one other replica is in the ISR; if that one is lost too, so are the records.

Invariants of every change:

- The leader is in the ISR, and a broker that `acceptable` rejects is never elected.
- An election outside ISR and eligible leader replicas is marked: the ISR becomes the new leader alone, which is
  RECOVERING.
- The leader epoch rises whenever the leader changes and whenever a replica leaves the assignment. Below 3.6-IV0 it also
  rises when one leaves the ISR, since older brokers do not fence by the partition epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from enum import Enum

from ottla.common.kafka.ids import OFFLINE_UUID, ZERO_UUID, Uuid
from ottla.metadata.image import NO_LEADER, RECOVERING, PartitionImage
from ottla.protocol.messages.metadata_records import PartitionChangeRecord

Acceptable = Callable[[int], bool]
DirectoriesOf = Callable[[int], tuple[Uuid, ...]]


def only_directory(directories: Sequence[Uuid]) -> Uuid:
    """Return the only directory; a broker with several reports later which one it chose (KIP-858)."""
    return directories[0] if len(directories) == 1 else ZERO_UUID


class Election(Enum):
    """Candidates that an election may choose from."""

    PREFERRED = "the first replica if it may lead, else as ONLINE"
    ONLINE = "the leader stays if it may, else the first replica of the ISR that may"
    UNCLEAN = "as ONLINE, else the first live replica, losing records that only other replicas have"


class PartitionChange:
    """Requested change of a partition. Set the differences, then call `record`."""

    __slots__ = (
        "_adding",
        "_assigned",
        "_bumps_on_shrink",
        "_directories_of",
        "_elr",
        "_elr_enabled",
        "_index",
        "_isr",
        "_min_isr",
        "_old",
        "_removing",
        "_replicas",
        "_topic_id",
        "acceptable",
        "election",
        "leader_recovery_state",
        "unclean_shutdown",
    )

    def __init__(
        self,
        old: PartitionImage,
        topic_id: Uuid,
        index: int,
        *,
        acceptable: Acceptable,
        min_isr: int,
        elr_enabled: bool,
        bumps_on_shrink: bool,
        directories_of: DirectoriesOf,
    ) -> None:
        """`acceptable` returns whether a broker may lead. `min_isr` is the effective one, never above the number of
        replicas.

        `bumps_on_shrink`: the leader epoch rises when a replica leaves the ISR. `directories_of` returns the current
        data directories of a broker.
        """
        self._old = old
        self._topic_id = topic_id
        self._index = index
        self.acceptable = acceptable
        self._min_isr = min_isr
        self._elr_enabled = elr_enabled
        self._bumps_on_shrink = bumps_on_shrink
        self._directories_of = directories_of
        self._assigned: dict[int, Uuid] = {}
        self._isr: tuple[int, ...] = old.isr
        self._elr: tuple[int, ...] = old.eligible_leader_replicas
        self._replicas = old.replicas
        self._adding = old.adding_replicas
        self._removing = old.removing_replicas
        self.election = Election.ONLINE
        self.leader_recovery_state = old.leader_recovery_state
        self.unclean_shutdown: Collection[int] = ()
        """Brokers that may have lost unflushed records: no longer eligible."""

    def set_isr(self, isr: Sequence[int]) -> None:
        self._isr = tuple(isr)

    def set_assignment(self, replicas: Sequence[int], adding: Sequence[int], removing: Sequence[int]) -> None:
        self._replicas, self._adding, self._removing = tuple(replicas), tuple(adding), tuple(removing)

    def set_directory(self, broker_id: int, directory: Uuid) -> None:
        """Set the directory of the replica on `broker_id`."""
        self._assigned[broker_id] = directory

    def record(self) -> PartitionChangeRecord | None:
        """Return the record, or None when nothing changes."""
        old = self._old
        self._update_elr()
        self._complete_reassignment()
        if not self._isr and not self._elr_enabled:
            # Without eligible leader replicas, the last ISR member stays in the ISR, so that it can lead again.
            self._isr = old.isr
        self._update_elr()
        leader = self._elect()
        if leader == NO_LEADER:
            self._keep_elr()
        elif len(self._isr) >= self._min_isr:
            self._elr = ()
        record = PartitionChangeRecord(partition_id=self._index, topic_id=self._topic_id)
        shrinks = self._bumps_on_shrink and not set(old.isr) <= set(self._isr)
        if leader != old.leader or shrinks or not set(old.replicas) <= set(self._replicas):
            record.leader = leader
        if self._isr != old.isr:
            record.isr = list(self._isr)
        if self._elr != old.eligible_leader_replicas:
            record.eligible_leader_replicas = list(self._elr)
        last_known = self._last_known_leader(leader)
        if last_known != old.last_known_elr:
            record.last_known_elr = list(last_known)
        if self.leader_recovery_state != old.leader_recovery_state:
            record.leader_recovery_state = self.leader_recovery_state
        self._add_assignment(record)
        return None if record == PartitionChangeRecord(partition_id=self._index, topic_id=self._topic_id) else record

    def _complete_reassignment(self) -> None:
        """Drop the replicas to remove once all added ones are in the ISR, and enough of the ISR remain."""
        if not self._adding and not self._removing:
            return
        isr = tuple(broker_id for broker_id in self._isr if broker_id not in self._removing)
        if isr and set(self._adding) <= set(isr) and self.may_drop(self._removing):
            self._isr = isr
            self._replicas = tuple(broker_id for broker_id in self._replicas if broker_id not in self._removing)
            self._adding = self._removing = ()

    def may_drop(self, dropped: Collection[int]) -> bool:
        """Return whether enough replicas, or no fewer than now, have all committed records without `dropped`."""
        holders = {*self._isr, *self._elr}
        wanted = min(self._min_isr, len(set(self._replicas) - set(dropped)), len(holders))
        return len(holders - set(dropped)) >= wanted

    def _update_elr(self) -> None:
        """Replicas that leave the ISR while it is below the minimum have all committed records, and remain eligible."""
        self._elr = ()
        if len(self._isr) < self._min_isr:
            self._keep_elr()

    def _keep_elr(self) -> None:
        """Retain replicas that left the ISR as eligible: nothing is committed without them from now on.

        That holds below the minimum, and without a leader: the stop of a whole cluster retains all members of the ISR.
        """
        if not self._elr_enabled:
            return
        candidates = dict.fromkeys((*self._old.eligible_leader_replicas, *self._old.isr))
        self._elr = tuple(
            broker_id
            for broker_id in candidates
            if broker_id not in self._isr and broker_id not in self.unclean_shutdown and broker_id in self._replicas
        )

    # -- election --------------------------------------------------------------------------------------------------

    def _elect(self) -> int:
        """Return the new leader; a leader from the eligible replicas moves to the ISR."""
        leader, unclean = self._choose()
        if leader != NO_LEADER and (unclean or leader not in self._isr):
            self._isr = (leader,)
            self._elr = () if unclean else tuple(broker_id for broker_id in self._elr if broker_id != leader)
        if unclean:
            self.leader_recovery_state = RECOVERING
        return leader

    def _choose(self) -> tuple[int, bool]:
        """Return (leader, whether it may lack committed records)."""
        preferred, current = self._replicas[0], self._old.leader
        candidates = (current, *self._replicas)
        if self.election is Election.PREFERRED:
            candidates = (preferred, *candidates)
        for broker_id in candidates:
            if self._may_lead(broker_id):
                return broker_id, False
        last_known = self._old.last_known_elr
        if self._elr_enabled and not self._elr and not self._isr and len(last_known) == 1:
            (broker_id,) = last_known
            if broker_id in self._replicas and self.acceptable(broker_id) and self._has_directory(broker_id):
                return broker_id, True
        if self.election is Election.UNCLEAN:
            for broker_id in sorted(self._replicas, key=self._has_directory, reverse=True):
                if self.acceptable(broker_id):
                    return broker_id, True
        return NO_LEADER, False

    def _has_directory(self, broker_id: int) -> bool:
        """Return whether the broker has the directory of this replica; in another one the replica is empty."""
        known, registered = self._known_directories().get(broker_id, ZERO_UUID), self._directories_of(broker_id)
        return known in registered or known == ZERO_UUID or (not registered and known != OFFLINE_UUID)

    def _may_lead(self, broker_id: int) -> bool:
        members = self._isr or self._elr
        if broker_id not in members or broker_id not in self._replicas or not self.acceptable(broker_id):
            return False
        return self._has_directory(broker_id) or broker_id in self._caught_up()

    def _last_known_leader(self, leader: int) -> tuple[int, ...]:
        """Return the last leader of a leaderless partition: the first choice if no replica is eligible any more."""
        old = self._old
        if leader != NO_LEADER or not self._elr_enabled:
            return ()
        return old.last_known_elr if old.leader == NO_LEADER else (old.leader,)

    # -- assignment ------------------------------------------------------------------------------------------------

    def _known_directories(self) -> dict[int, Uuid]:
        """Return the directory of each replica, if known."""
        return {**dict(zip(self._old.replicas, self._old.directories, strict=False)), **self._assigned}

    def _caught_up(self) -> set[int]:
        """Return the replicas that join the ISR now: they are complete, in any directory."""
        return set(self._isr) - set(self._old.isr)

    def _add_assignment(self, record: PartitionChangeRecord) -> None:
        old = self._old
        known = self._known_directories()
        moved = [broker_id for broker_id in self._caught_up() if not self._has_directory(broker_id)]
        if self._replicas != old.replicas:
            record.replicas = list(self._replicas)
        assigned = any(old.directory_of(broker_id) != directory for broker_id, directory in self._assigned.items())
        if self._replicas != old.replicas or moved or assigned:
            record.directories = [
                only_directory(self._directories_of(broker_id))
                if broker_id in moved or known.get(broker_id, ZERO_UUID) == ZERO_UUID
                else known[broker_id]
                for broker_id in self._replicas
            ]
        if self._removing != old.removing_replicas:
            record.removing_replicas = list(self._removing)
        if self._adding != old.adding_replicas:
            record.adding_replicas = list(self._adding)
