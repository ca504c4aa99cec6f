"""Members of the classic protocol that keep their partitions while they join (cooperative, KIP-429).

JoinGroup of these members contains their partitions and the generation. Partitions that SyncGroup no longer assigns are
given up, followed by another join, so that another member can get them in the next generation.

Duties of these clients, because the coordinator of a classic group knows nothing about partitions:
- a process that missed a generation, as a static member can, treats all its partitions as lost: another member may have
  had them meanwhile, also those that it gets again;
- a static process joins twice: when it replaced its predecessor, the assignment was based on the predecessor's
  partitions, and the others would wait for a revocation that never comes.

The lease of a claim is that of eager members. It continues during a rebalance and is not renewed by it: only the next
SyncGroup contains the remaining partitions. No other member can get a partition meanwhile: either this one joined in
time and the leader knows the claim, or the rebalance timeout has passed since the last Heartbeat without error.
"""

from __future__ import annotations

from collections.abc import Iterable

from ottla.protocol.messages.join_group import JoinGroupResponse
from simulation.embedded import NO_GENERATION, Deal, claims, cooperative_metadata, ranges, sticky, without_moves
from simulation.members_classic import ClassicMember


class CooperativeMember(ClassicMember):
    """A process of the classic protocol that keeps reading during a rebalance."""

    protocol_name = "cooperative-sticky"
    _going: frozenset[int] = frozenset()
    """Revoked partitions."""
    _taken_in = NO_GENERATION
    """The generation of the last assignment."""
    _has_joined = False

    async def before_join(self) -> None:
        """Continue to read; a commit at this point arrives while the others join."""
        if not self.unfetched:
            self.read_on()
        if self.rng.chance(0.5):
            self.commit_later()

    def metadata(self) -> bytes:
        """See `ClassicMember`."""
        return cooperative_metadata(self.world.topic, sorted(self.positions), self.generation)

    def claimed(self) -> Iterable[int]:
        """See `ClassicMember`."""
        return [partition for partition in self.positions if partition not in self._going]

    def take(self, partitions: list[int]) -> None:
        """See `ClassicMember`."""
        self._going = frozenset(self.positions) - frozenset(partitions)
        if self.generation not in (self._taken_in, self._taken_in + 1):
            self.give_up(list(self.positions))
            self.unfetched = []
        self._taken_in = self.generation
        new = [partition for partition in partitions if partition not in self.positions]
        self.positions.update(dict.fromkeys(new, 0))
        self.unfetched = [partition for partition in self.unfetched if partition in partitions] + new

    async def settled(self) -> bool:
        """Give up revoked partitions; then another generation is needed."""
        first, self._has_joined = not self._has_joined, True
        if self.unfetched:
            # Its own commit that arrives after this offset fetch would look like that of another member.
            await self.commit_over()
        if self._going:
            if self.rng.chance(0.7):
                await self.commit_now()
            self.give_up(self._going)
            self._going = frozenset()
            return False
        return not first or self.instance_id is None

    def deal(self, joined: JoinGroupResponse) -> Deal:
        """As the leader; sometimes all partitions are assigned from scratch, so that they move."""
        members = sorted(member.member_id for member in joined.members)
        owners = claims(joined.members, self.world.topic)
        if self.world.faults.is_set() and self.rng.chance(0.3):
            turn = self.rng.randrange(len(members))
            target = ranges(members[turn:] + members[:turn], self.world.partitions)
        else:
            target = sticky(members, self.world.partitions, owners)
        return without_moves(target, owners)
