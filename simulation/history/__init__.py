"""Client history: promises to clients and the records that they read, checked during a run and at its end
(docs/guarantees.md).

Every value is sent once by intention, so it identifies its record. The rules have the names of Jepsen's Kafka workload
where it has one:

- lost-write: an acknowledged record is at its offset at the end, and one of a committed transaction is visible to
  read_committed; lost-read: the same for a served record;
- inconsistent-offsets: all acknowledgements and reads of an offset have the same value;
- duplicate: a value is never at two offsets;
- nonmonotonic-send: the values of one producer are in the order in which it sent them; int-nonmonotonic-send within one
  transaction;
- nonmonotonic-poll, poll-skip: a reader with assigned partitions reads each record after the previous one;
  int-nonmonotonic-poll and int-poll-skip within one poll, also for subscribed readers;
- phantom: no reader gets a value that was never sent;
- unseen: every reader that reads to the end has read all committed records;
- end-went-back: the latest offset of ListOffsets is never below a served record;
- G1a: no reader gets a value of an aborted transaction by read_committed;
- precommitted-read: nor of a transaction whose producer has not requested the commit;
- torn-transaction: a transaction is visible as a whole, in all its partitions, or not at all;
- lost-copy, duplicate-copy, reordered-copy: the output of consume-transform-produce equals the input;
- hanging-transaction: after the faults the last stable offset reaches the end within a bounded time.

The worst realtime lag is a measurement: the time from a record's acknowledgement until a reader first gets to it. A
compacted topic retains each record without a later one of its key (`compacted`). Allowed, as with Apache Kafka:
interleaved transactions (G0, int-send-skip), and, with partitions assigned by a group, polls that go backward or
forward (poll-skip, nonmonotonic-poll).

Everything here is pure: events come in by calls, and the only clock is that of the trace. It checks simulated and real
clusters (`simulation.replication`, `simulation.transactions`, `tests/chaos`). Not here: partition ownership in a group,
which `simulation.checkers` and `tests/clients/group_history.py` check.
"""

from simulation.history.compacted import CompactedHistory
from simulation.history.copies import judge_copies
from simulation.history.findings import Findings
from simulation.history.liveness import Progress, judge_stable_offsets
from simulation.history.log import Lag, LogHistory, Losses, Place
from simulation.history.transactions import Outcome, Transactions

__all__ = [
    "CompactedHistory",
    "Findings",
    "Lag",
    "LogHistory",
    "Losses",
    "Outcome",
    "Place",
    "Progress",
    "Transactions",
    "judge_copies",
    "judge_stable_offsets",
]
