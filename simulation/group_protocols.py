"""Member types of a simulated group, by the name of the workload's protocol."""

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
"""With two types each process has one of them, and the group switches between the protocols."""

PROTOCOLS = tuple(KINDS)
