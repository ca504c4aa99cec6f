"""Invariants of every state of `transaction_model`, checked on the logs and on the responses to producers.

- Atomic: a transaction is committed in all its partitions or in none, and only if its producer requested it and the
  coordinator agreed; responses about its end are true.
- No record of a transaction that has ended is appended after its end, or into a later transaction.
- No sequence is duplicated or skipped, and acknowledged records are in the log.
- Liveness (`hanging`): once no message is lost any more all transactions end, and the last stable offset reaches the
  end.
"""

from __future__ import annotations

from ottla.coordinator.transaction.state import PREPARED, TransactionState
from simulation.transaction_model import Deliver, Entry, Label, Rules, TimeOut, World

HEALING_STEPS = 200
"""More steps than any reachable state needs until all is delivered."""


def violation(world: World) -> str | None:
    """The violation in this state; None if all invariants hold.

    A batch is committed or aborted by the next marker of its producer id.
    """
    for label, committed in world.acknowledged_ends.items():
        # A transaction that the coordinator aborted by timeout is reported as aborted too.
        if world.decided.get(label, False) is not committed:
            return f"{label} was acknowledged as {_word(committed)}, but the coordinator decided otherwise"
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
                # A transaction without a commit request is never committed: so all partitions agree.
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
    """Deliver everything, time out open transactions: returns a last stable offset that does not advance, or another
    violation.

    Producers are dead, since a transaction has to end without them. Changes `world`.
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
