"""Members of the classic protocol that keep what they have while they join (cooperative, KIP-429).

Such a member says in JoinGroup what it owns and since which generation. What SyncGroup no longer assigns it gives up,
and joins again at once, so that somebody else can get it in the next generation.

What such clients have to see to themselves, because the coordinator of a classic group knows nothing of partitions:
- a process that missed a generation, as a static member can, takes all that it had for lost: somebody else may have had
  it meanwhile, also what it gets again;
- a static process joins twice: when it took the place of the one before, the others were dealt with by what that one
  said, and would wait for it to give up what nobody has any more.

The lease of a claim is that of eager members. It goes on through a rebalance and is not prolonged by it: only the next
SyncGroup says what this member still has. No other member can be given a partition meanwhile: either this one joined in
time and the leader was told of the claim, or the rebalance time-out has passed since the last Heartbeat without error.
"""

from __future__ import annotations

from collections.abc import Iterable

from ottla.protocol.messages.join_group import JoinGroupResponse
from simulation.embedded import NO_GENERATION, Deal, claims, cooperative_metadata, ranges, sticky, without_moves
from simulation.members_classic import ClassicMember


class CooperativeMember(ClassicMember):
    """A process that speaks the classic protocol and stops nothing for a rebalance."""

    protocol_name = "cooperative-sticky"
    _going: frozenset[int] = frozenset()
    """What it was told to give up."""
    _taken_in = NO_GENERATION
    """The generation of the last assignment."""
    _has_joined = False

    async def before_join(self) -> None:
        """Read on; what is committed now arrives while the others join."""
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
        """Give up what has to go; then another generation is due."""
        first, self._has_joined = not self._has_joined, True
        if self.unfetched:
            # A commit of its own that arrives after it asked where to go on would look like somebody else's.
            await self.commit_over()
        if self._going:
            if self.rng.chance(0.7):
                await self.commit_now()
            self.give_up(self._going)
            self._going = frozenset()
            return False
        return not first or self.instance_id is None

    def deal(self, joined: JoinGroupResponse) -> Deal:
        """As the leader; now and then all is dealt anew, so that partitions move."""
        members = sorted(member.member_id for member in joined.members)
        owners = claims(joined.members, self.world.topic)
        if self.world.faults.is_set() and self.rng.chance(0.3):
            turn = self.rng.randrange(len(members))
            target = ranges(members[turn:] + members[:turn], self.world.partitions)
        else:
            target = sticky(members, self.world.partitions, owners)
        return without_moves(target, owners)
