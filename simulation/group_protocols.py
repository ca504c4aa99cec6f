"""What the processes of a simulated group may be, by the name of the workload's protocol."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from simulation.members import Member
from simulation.members_classic import ClassicMember
from simulation.members_consumer import ConsumerMember
from simulation.members_cooperative import CooperativeMember

KINDS: Mapping[str, Sequence[type[Member]]] = {
    "classic": (ClassicMember,),
    "consumer": (ConsumerMember,),
    "cooperative": (CooperativeMember,),
    "mixed": (ClassicMember, ConsumerMember),
    "mixed-cooperative": (CooperativeMember, ConsumerMember),
}
"""Where there are two, each process is of one, and the group goes from one protocol to the other and back."""

PROTOCOLS = tuple(KINDS)
