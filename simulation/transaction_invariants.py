"""What must hold in every state of `transaction_model`, asked of the logs and of who was told what.

- Atomic: a transaction is committed in all its partitions or in none, and only where its producer asked for it and the
  coordinator agreed; who was told of an end was told the truth.
- No record of a transaction that has ended comes after its end, or into a later transaction.
- No sequence twice or left out, and what a producer was told to be in the log is there.
- Alive (`hanging`): once nothing is lost any more all transactions end, and the last stable offset reaches the end.
"""

from __future__ import annotations

from ottla.coordinator.transaction.state import PREPARED, TransactionState
from simulation.transaction_model import Deliver, Entry, Label, Rules, TimeOut, World

HEALING_STEPS = 200
"""More than any state within reach needs until all is delivered."""


def violation(world: World) -> str | None:
    """What is wrong with this state; None where everything holds.

    A batch is committed or aborted by the first marker of its producer id that follows it.
    """
    for label, committed in world.told.items():
        # What the coordinator aborted of itself is told to be aborted, too.
        if world.decided.get(label, False) is not committed:
            return f"{label} was told {_word(committed)} and the coordinator decided otherwise"
    for index, partition in enumerate(world.partitions):
        wrong = _wrong_in(world, index, partition.log)
        if wrong is not None:
            return wrong
    return None


def _word(committed: bool) -> str:
    return "commit" if committed else "abort"


def _wrong_in(world: World, index: int, log: list[Entry]) -> str | None:
    open_labels: dict[int, Label] = {}
    ended: set[Label] = set()
    next_sequence: dict[Label, int] = {}
    for entry in log:
        label = entry.label
        if label is None:
            ending = open_labels.pop(entry.producer_id, None)
            if ending is not None:
                ended.add(ending)
                # Whoever did not ask for a commit is aborted, and never the other way round: so all partitions agree.
                if world.decided.get(ending, False) is not entry.committed:
                    return f"partition {index} shows {_word(entry.committed)} of {ending}, which was not decided"
            continue
        if label in ended:
            return f"a record of {label} came to partition {index} after its end"
        if open_labels.setdefault(entry.producer_id, label) != label:
            return f"a record of {label} joined {open_labels[entry.producer_id]} in partition {index}"
        if entry.sequence != next_sequence.get(label, 0):
            return f"sequence {entry.sequence} of {label} in partition {index}: {next_sequence.get(label, 0)} is next"
        next_sequence[label] = entry.sequence + 1
    for label, partition, sequence in world.confirmed:
        if partition == index and sequence >= next_sequence.get(label, 0):
            return f"sequence {sequence} of {label} was confirmed and is not in partition {index}"
    return None


def hanging(world: World, rules: Rules) -> str | None:
    """Deliver everything, time out what is open: what then still holds back a last stable offset, or is wrong.

    Producers are gone, since a transaction has to end without them. Changes `world`.
    """
    world.producers = [producer._replace(phase="dead") for producer in world.producers]
    world.faults = 0
    for _ in range(HEALING_STEPS):
        if world.network:
            world.take(Deliver(0, world.network[0]), rules)
        elif world.metadata is not None and world.metadata.state is TransactionState.ONGOING:
            world.timeouts = 1
            world.take(TimeOut(), rules)
        else:
            break
        wrong = violation(world)
        if wrong is not None:
            return wrong
    for index, partition in enumerate(world.partitions):
        if partition.last_stable_offset != len(partition.log):
            return f"partition {index} is stable to {partition.last_stable_offset} of {len(partition.log)} for ever"
    if world.metadata is not None and world.metadata.state in PREPARED:
        return f"the transaction stays {world.metadata.state.name} for ever"
    return None
